"""Accuracy of a model on its user's own labelled data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, MISSING, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.commands.base import Command, function
from privmix.errors import InvalidInput
from privmix.jobs.columns import ModelColumns
from privmix.jobs.options import MODULE_HELP, ModelFiles, Recorded
from privmix.jobs.recording import Measured, Measurement, place
from privmix.options import option
from privmix.progress import Progress
from privmix.shown import Bars

if TYPE_CHECKING:
    from privmix.engine.rows import PrivateRecords
    from privmix.jobs.dataset import Dataset
    from privmix.jobs.models import Model
    from privmix.jobs.quality import Quality
    from privmix.learning.records import Reference

_GROUP_STEP: Final = 65_536
_MOST_GROUPS: Final = 1000


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation(Measured):
    """How well a model does on the records that it was evaluated on. It is about these; no guarantee covers them.

    Attributes:
        quality: accuracy, and what it is worth: see :class:`privmix.jobs.quality.Quality`.
        figure: the picture of the confusion matrix, where one was asked for.
        reference: the same of a classifier fitted without privacy, where one was asked for.
        reference_words: what that classifier is, for people.
        groups: by the value of the column that the records were grouped by: the same of each group.
    """

    quality: Quality
    figure: Path | None = None
    reference: Quality | None = None
    reference_words: str = ""
    groups: Mapping[str, Quality] = field(default_factory=dict)

    def shown(self) -> tuple[str, Mapping[str, object]]:
        """Return the figures, with those of no model and of no privacy."""
        title, facts = self.quality.shown()
        without = self.reference
        words = f"{self.reference_words}; only for the owner of these data"
        beside = "" if without is None else f"{100 * without.accuracy:.2f}%, by {words}"
        return title, {
            **{name: value for name, value in facts.items() if name != "warnings"},
            **({"accuracy without privacy": beside} if beside else {}),
            **{f"group {name}": _group(one) for name, one in self.groups.items()},
            **({} if self.figure is None else {"picture": self.figure}),
            **({"warnings": facts["warnings"]} if "warnings" in facts else {}),
        }

    def picture(self) -> Bars:
        """Accuracy, with those of no model and of no privacy."""
        return self.quality.picture(self.reference)

    @property
    def accuracy(self) -> float:
        """Share of the records whose class was found."""
        return self.quality.accuracy

    def to_dict(self) -> dict[str, Any]:
        figure = None if self.figure is None else str(self.figure)
        own = {"classes", "confusion", "split"}
        found = {name: value for name, value in self.measurement.content.items() if name not in own}
        return {**found, "figure": figure}


def _group(one: Quality) -> str:
    auc = "" if one.auc is None else f", AUC {one.auc:.3f}"
    shares = f"accuracy {100 * one.accuracy:.1f}%, balanced {100 * one.balanced_accuracy:.1f}%"
    return f"{one.n:,} records: {shares}, always one class {100 * one.majority_accuracy:.1f}%{auc}"


@dataclass(frozen=True, eq=False, repr=False)
class Evaluate(Recorded, ModelColumns, ModelFiles, Command[Evaluation]):
    """Measure a model on your own labelled data.

    Reports accuracy next to always predicting the most frequent class, balanced accuracy, AUC, log loss and
    calibration error. No guarantee covers these figures: keep them private unless the data are public.

    Raises:
        InvalidInput: the data have other inputs or classes than the model, or the picture can't be drawn there.
        StorageError: something can't be read or written.
    """

    example = "privmix evaluate MODEL --data mnist --split test --reference mnist"

    model: Model | str | Path = option(
        MISSING, "Folder of a model from privmix fit or privmix train.", in_python="Also a model.", argument=True
    )
    data: Any = option(
        MISSING, "Labelled dataset: file, folder, pattern or address.", in_python="Also arrays, frames and tensors."
    )
    _: KW_ONLY
    split: str | None = option(None, "Split to evaluate. Default: test, or all data in memory.")
    reference: Any = option(None, "Dataset for a comparison WITHOUT privacy; keep its figures private.")
    reference_split: str | None = option(None, "Split of `reference`. Default: train.")
    group_by: str | Sequence[Any] | NDArray[Any] | None = option(
        None, "Column of groups, each with the same figures.", in_python="Also a value for each record."
    )
    figure: str | Path | None = option(None, "Figure to write: confusion matrix and calibration (.png, .svg, .pdf).")
    public_data: bool = option(False, "Declare the data public, so that figures may be shown.")
    module: Any = option(None, MODULE_HELP)

    def run(self, progress: Progress) -> Evaluation:
        from privmix.jobs.features import features_in_memory
        from privmix.jobs.models import has_splits, is_trained, model_in, open_for_model, split_of, subject_of
        from privmix.jobs.places import check_figure
        from privmix.jobs.quality import Quality, evaluation_content

        self.check_record()
        picture = None if self.figure is None else Path(self.figure)
        split = self.split or ("test" if has_splits(self.data) else "in memory")
        if self.record is not None and picture is None:
            # It shows private records, so it never goes to the model's folder, which may be shared.
            picture = Path(self.record) / f"confusion-{split}.png"
        check_figure(picture)
        chosen = model_in(self.model, self.features_model, self.module)
        declared = self.as_columns()

        def opened_as(what: Any, part: str) -> Dataset:
            return open_for_model(chosen.facts, chosen.extractor, what, part, declared)

        opened = opened_as(self.data, split_of(self.data, self.split))
        known = None if self.reference is None else opened_as(self.reference, self.reference_split or "train")
        told_apart = None if self.group_by is None else _group_values(opened, self.group_by, list(chosen.facts.classes))
        records = features_in_memory(opened.source, chosen.extractor, progress)
        # Errors of either show before the work.
        compared = None if known is None else features_in_memory(known.source, chosen.extractor, progress)
        scores = chosen.scores(records.features)
        trained = is_trained(chosen.classifier)
        # Scores of a trained network are its probabilities.
        told = scores if trained else chosen.classifier.predict_proba(records.features)
        quality = Quality.of(scores, records.labels, chosen.classes, told)
        without, words = None, ""
        statements = ["Measured on the evaluator's labelled data; no guarantee covers those data."]
        if known is not None and compared is not None:
            fitted = _fitted_without_privacy(chosen, compared)
            other, x = fitted.classifier, records.features
            without = Quality.of(other.decision_function(x), records.labels, chosen.classes, other.predict_proba(x))
            words = f"{fitted.words}, of {known.schema.records:,} records"
            statements.append(
                f"Without privacy: {words}. This figure is not private: only the owner of the records may see it."
            )
        groups = {} if told_apart is None else _by_group(scores, told, records.labels, chosen.classes, told_apart)
        if picture is not None:
            _draw(quality, picture, public=self.public_data)
        measurement = Measurement(
            "evaluation",
            subject_of(chosen.classifier),
            evaluation_content(quality, split, without, groups, words),
            # A classifier without privacy reveals its own records, also where the evaluated ones are public.
            private=not self.public_data or without is not None,
            settings={
                "data": "in memory" if opened.place is None else place(opened.place, private=not self.public_data),
                "split": split,
                "reference_split": None if known is None else known.split,
                "group_by": self.group_by if isinstance(self.group_by, str) else None,
                "public_data": self.public_data,
                "extractor": dict(chosen.facts.extractor),
            },
            title=f"Accuracy on split {split}",
            statements=statements,
        )
        return Evaluation(measurement, quality, picture, without, words, groups)


evaluate: Final = function(Evaluate)


def _draw(quality: Quality, picture: Path, *, public: bool) -> None:
    from privmix.folders import file_mode
    from privmix.reports.pictures import draw_confusion

    # The figure shows counts of private records, so other users may read it only where the data are public.
    with file_mode(private=not public):
        picture.parent.mkdir(parents=True, exist_ok=True)
        held = quality.calibration
        bins = None if held is None else (held.counts, held.confidence, held.accuracy)
        draw_confusion(quality.confusion, list(quality.classes), quality.accuracy, picture, bins)


def _fitted_without_privacy(model: Model, records: PrivateRecords) -> Reference:
    """Return the reference for a model; a trained network is compared with a linear discriminant of its features."""
    from privmix.learning.base import ReleaseLearner
    from privmix.learning.records import without_privacy

    learner = model.classifier
    if isinstance(learner, ReleaseLearner):
        facts = learner.facts_
        return without_privacy(
            records.features, records.labels, model.classes, facts.transform, learner, facts.input_shape
        )
    found = without_privacy(records.features, records.labels, model.classes)
    return replace(found, words=f"{found.words} of the same features, not by the trained network")


def _group_values(opened: Dataset, group_by: Any, classes: Any) -> NDArray[np.object_]:
    """Return (n,) the group of each record."""
    if isinstance(group_by, str):
        if opened.place is None:
            raise InvalidInput("group_by", group_by, "one value for each record, for data in memory")
        from privmix.data.dataset import open_dataset as open_table

        found = open_table(
            opened.place,
            split=opened.split,
            classes=classes,
            label_column=opened.columns.label or "",
            columns=[group_by],
        )
        values = np.concatenate([batch.x[:, 0] for batch in found.batches(_GROUP_STEP)])
    else:
        values = np.asarray(group_by, dtype=object).reshape(-1)
    if len(values) != opened.schema.records:
        raise InvalidInput("group_by", len(values), f"{opened.schema.records} values, one for each record")
    told = ["" if value is None else str(value) for value in values]
    if (groups := len(set(told))) > _MOST_GROUPS:
        raise InvalidInput("group_by", f"{groups} different values", f"a column of at most {_MOST_GROUPS}")
    return np.asarray(told, dtype=object)


def _by_group(
    scores: NDArray[Any],
    told: NDArray[Any],
    labels: NDArray[np.int64],
    classes: tuple[str, ...],
    values: NDArray[np.object_],
) -> dict[str, Quality]:
    from privmix.jobs.quality import Quality

    names, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    # Stable: groups of one size keep the order of their names.
    order = np.argsort(-counts, kind="stable")
    return {
        str(names[one]): Quality.of(scores[mine], labels[mine], classes, told[mine])
        for one in order
        for mine in [which == one]
    }
