"""Accuracy of a model on its user's own labelled data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.bars import Asked, callback, shows_bars
from privmix.data import Source
from privmix.data import open_dataset as open_table
from privmix.engine import PrivateRecords
from privmix.errors import InvalidInput
from privmix.features import Extractor
from privmix.jobs.columns import Columns
from privmix.jobs.dataset import Dataset, open_dataset
from privmix.jobs.features import features_in_memory
from privmix.jobs.models import Model, model_in
from privmix.jobs.places import check_figure
from privmix.jobs.quality import Quality
from privmix.jobs.recording import Measured, Measurement, place
from privmix.learning.base import ReleaseFacts, ReleaseLearner
from privmix.learning.reference import Reference, without_privacy
from privmix.private_files import file_mode
from privmix.reports.pictures import draw_confusion
from privmix.shown import Bars
from privmix.training import ModelFacts, TrainedModel

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
        """What ``privmix evaluate`` prints first."""
        title, facts = self.quality.shown()
        without = self.reference
        beside = "" if without is None else f"{100 * without.accuracy:.2f}%, by {self.reference_words}"
        return title, {
            **{name: value for name, value in facts.items() if name != "warnings"},
            **({"accuracy without privacy": beside} if beside else {}),
            **({"groups": len(self.groups)} if self.groups else {}),
            **({"warnings": facts["warnings"]} if "warnings" in facts else {}),
        }

    def picture(self) -> Bars:
        """Accuracy, beside what takes no model or no privacy."""
        return self.quality.picture(self.reference)

    @property
    def accuracy(self) -> float:
        """Share of the records whose class was found."""
        return self.quality.accuracy

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        figure = None if self.figure is None else str(self.figure)
        return {**_content(self.quality, self.reference, self.groups, self.reference_words), "figure": figure}


@shows_bars
def evaluate(
    model: Model | str | Path,
    data: Any,
    *,
    split: str | None = None,
    classes: Any = None,
    columns: Columns | str | Sequence[str] | None = None,
    label: str | None = None,
    features_model: str | Path | None = None,
    trust_features_model: bool = False,
    module: Any = None,
    reference: Any = None,
    reference_split: str | None = None,
    group_by: str | Sequence[Any] | NDArray[Any] | None = None,
    figure: str | Path | None = None,
    public_data: bool = False,
    progress: Asked = None,
) -> Evaluation:
    """Measure a model on labelled data: raw inputs in, accuracy out, beside what takes no model and no privacy.

    The figures are about the data you pass and are not covered by any guarantee: a record of them
    (:meth:`Evaluation.keep`) and the picture are private, unless you say that the data are public. A record that holds
    figures of a reference is private whatever you say: its classifier has seen the reference's records.

    Args:
        model: a model, or the folder of one, trained or fitted on a release.
        data: raw inputs and labels, as :func:`privmix.release` takes them.
        split: which part of the dataset; None: ``test``, or all of what is in memory.
        classes: number or names of the classes, where the model's are not meant.
        columns: names of the columns of numbers, or :class:`privmix.Columns`: what is declared of columns and images.
        label: the labels' column.
        features_model: your own copy of the extractor's model, where it is a file or folder.
        trust_features_model: that file may be a program, and may run.
        module: the network of your own that was trained, for a folder; see :func:`privmix.load`.
        reference: data, as ``data``, to fit the same learner to WITHOUT privacy, and compare; see
            :func:`privmix.learning.reference.without_privacy`. Its classifier is thrown away.
        reference_split: which part of them; None: ``train``.
        group_by: a column of the data, or (n,) values, by which the records are told apart.
        figure: where to draw the confusion matrix and whether probabilities hold (.png, .svg, .pdf); not in a release
            or model.
        public_data: ``data`` are public: picture and record may be shown.
        progress: called with (stage, done, total); True: bars; None: bars where somebody looks on.

    Raises:
        InvalidInput: the data have other inputs or classes than the model, or the picture can't be drawn there.
        StorageError: something can't be read or written.
    """
    picture = None if figure is None else Path(figure)
    check_figure(picture)
    chosen = model_in(model, features_model, trust_features_model, module)
    declared, report = Columns.declared(columns, label), callback(progress)

    def opened_as(what: Any, part: str) -> Dataset:
        return open_for_model(chosen.facts, chosen.extractor, what, part, classes, declared)

    opened = opened_as(data, split_of(data, split))
    split = split or ("test" if has_splits(data) else "in memory")
    known = None if reference is None else opened_as(reference, reference_split or "train")
    told_apart = None if group_by is None else _group_values(opened, group_by, classes or list(chosen.facts.classes))
    records = features_in_memory(opened.source, chosen.extractor, report)
    # What is wrong with either shows before the work.
    compared = None if known is None else features_in_memory(known.source, chosen.extractor, report)
    scores = chosen.scores(records.features)
    trained = isinstance(chosen.classifier, TrainedModel)
    told = scores if trained else chosen.classifier.predict_proba(records.features)
    quality = Quality.of(scores, records.labels, chosen.classes, told)
    without, words = None, ""
    statements = ["Measured on labelled data of whoever evaluated; no guarantee covers those data."]
    if known is not None and compared is not None:
        fitted = _fitted_without_privacy(chosen, compared)
        without = _quality_of(fitted.classifier, records, chosen.classes)
        words = f"{fitted.words}, of {known.schema.records:,} records"
        statements.append(f"Without privacy: {words}. It is not private: for the owner of these records alone.")
    groups = {} if told_apart is None else _by_group(scores, told, records.labels, chosen.classes, told_apart)
    if picture is not None:
        with file_mode(private=not public_data):
            picture.parent.mkdir(parents=True, exist_ok=True)
            held = quality.calibration
            bins = None if held is None else (held.counts, held.confidence, held.accuracy)
            draw_confusion(quality.confusion, list(chosen.classes), quality.accuracy, picture, bins)
    measurement = Measurement(
        "evaluation",
        subject_of(chosen.classifier),
        evaluation_content(quality, split, without, groups, words),
        private=not public_data or without is not None,
        settings={
            "data": "in memory" if opened.place is None else place(opened.place, private=not public_data),
            "split": split,
            "reference_split": None if known is None else known.split,
            "group_by": group_by if isinstance(group_by, str) else None,
            "public_data": public_data,
            "extractor": dict(chosen.facts.extractor),
        },
        title=f"Accuracy on split {split}",
        statements=statements,
    )
    return Evaluation(measurement, quality, picture, without, words, groups)


def _quality_of(classifier: ReleaseLearner, records: PrivateRecords, classes: tuple[str, ...]) -> Quality:
    features = records.features
    return Quality.of(
        classifier.decision_function(features), records.labels, classes, classifier.predict_proba(features)
    )


def _fitted_without_privacy(model: Model, records: PrivateRecords) -> Reference:
    """The reference for a model; a trained network is compared with a linear discriminant of its features."""
    learner = model.classifier
    if isinstance(learner, ReleaseLearner):
        facts = learner.facts_
        return without_privacy(
            records.features, records.labels, model.classes, facts.transform, learner, facts.input_shape
        )
    found = without_privacy(records.features, records.labels, model.classes)
    return replace(found, words=f"{found.words} of the same features, not by the trained network")


def _group_values(opened: Dataset, group_by: Any, classes: Any) -> NDArray[np.object_]:
    """(n,) what each record is told apart by.

    Raises:
        InvalidInput: there is no such column, there are more or fewer values than records, or so many different ones
            that they are no grouping.
    """
    if isinstance(group_by, str):
        if opened.place is None:
            raise InvalidInput("group_by", group_by, "values, one a record, for data in memory")
        found = open_table(
            opened.place,
            split=opened.split,
            classes=classes,
            label_column=opened.columns.label_column,
            columns=[group_by],
        )
        values = np.concatenate([batch.x[:, 0] for batch in found.batches(_GROUP_STEP)])
    else:
        values = np.asarray(group_by, dtype=object).reshape(-1)
    if len(values) != opened.schema.records:
        raise InvalidInput("group_by", len(values), f"{opened.schema.records} values, one a record")
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
    """Quality of each group, the largest first."""
    names, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return {
        str(names[one]): Quality.of(scores[mine], labels[mine], classes, told[mine])
        for one in order
        for mine in [which == one]
    }


def open_for_model(
    facts: ReleaseFacts | ModelFacts,
    extractor: Extractor,
    data: Any,
    split: str,
    classes: Any,
    columns: Columns | None,
) -> Dataset:
    """Open data for a model.

    Raises:
        InvalidInput: its inputs have another shape than the model's, or its classes are others or in another order.
        StorageError: it can't be read.
    """
    shape, named = tuple(facts.input_shape), classes
    # An open source has its own, which are compared below.
    if classes is None and not isinstance(data, Source):
        named = list(facts.classes)
    found = open_dataset(data, extractor, split=split, classes=named, columns=columns, input_shape=shape)
    if tuple(found.schema.input_shape) != shape:
        raise InvalidInput("data", found.schema.input_shape, f"inputs of shape {shape}")
    if tuple(found.schema.classes) != tuple(facts.classes):
        # In another order every label would mean another class, and the score would be of nothing.
        raise InvalidInput("classes", list(found.schema.classes), f"the model's: {', '.join(facts.classes)}")
    return found


def has_splits(data: Any) -> bool:
    """Whether data have parts of different names: those in memory do where they are a mapping of them."""
    return isinstance(data, str | Path | Mapping)


def split_of(data: Any, split: str | None) -> str:
    """The part that is meant by ``split``: None is the test records, where there are several parts."""
    return split or ("test" if has_splits(data) else "train")


def subject_of(classifier: Any) -> dict[str, Any]:
    """What a classifier's figures are about: the trained model itself, or the release that it was fitted on."""
    if isinstance(classifier, TrainedModel):
        return {"kind": "model", "id": classifier.certificate.id}
    return {"kind": "release", "id": classifier.facts_.release_id}


def evaluation_content(
    quality: Quality,
    split: str,
    reference: Quality | None = None,
    groups: Mapping[str, Quality] | None = None,
    words: str = "",
) -> dict[str, Any]:
    """The content of an evaluation's record."""
    return {
        **_content(quality, reference, groups or {}, words),
        "classes": list(quality.classes),
        "confusion": quality.confusion.tolist(),
        "split": split,
    }


def _content(quality: Quality, reference: Quality | None, groups: Mapping[str, Quality], words: str) -> dict[str, Any]:
    found = {**quality.to_dict(), "reference_accuracy": None if reference is None else reference.accuracy}
    if reference is not None:
        found["reference"] = reference.to_dict()
        found |= {"reference_words": words} if words else {}
    if groups:
        found["groups"] = [{"group": name, **one.to_dict()} for name, one in groups.items()]
    return found
