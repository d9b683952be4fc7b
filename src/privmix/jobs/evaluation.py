"""Accuracy of a model on its user's own labelled data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privmix.errors import InvalidInput
from privmix.features import Extractor
from privmix.jobs.columns import Columns
from privmix.jobs.dataset import Dataset, open_dataset
from privmix.jobs.features import features_in_memory
from privmix.jobs.models import Model, model_in
from privmix.jobs.places import check_figure
from privmix.jobs.progress import Progress, silent
from privmix.jobs.recording import Measured, Measurement, place
from privmix.learning.base import ReleaseFacts
from privmix.private_files import file_mode
from privmix.reports.confusion import draw_confusion
from privmix.training import ModelFacts, TrainedModel


@dataclass(frozen=True, eq=False)
class Evaluation(Measured):
    """How well a model does on the records that it was evaluated on. It is about these; no guarantee covers them.

    Attributes:
        accuracy: share of the records whose class was found.
        per_class: by the name of the class; None where it has no record.
        n: number of records.
        confusion: (K, K) counts, true class by predicted class.
        figure: the picture of it, where one was asked for.
    """

    accuracy: float
    per_class: Mapping[str, float | None]
    n: int
    confusion: NDArray[np.int64] = field(repr=False)
    figure: Path | None = None

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        figure = None if self.figure is None else str(self.figure)
        return {"accuracy": self.accuracy, "per_class": dict(self.per_class), "n": self.n, "figure": figure}


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
    figure: str | Path | None = None,
    public_data: bool = False,
    progress: Progress | None = None,
) -> Evaluation:
    """Measure a model on labelled data: raw inputs in, accuracy out.

    The figures are about the data you pass and are not covered by any guarantee: a record of them
    (:meth:`Evaluation.keep`) and the picture are private, unless you say that the data are public.

    Args:
        model: a model, or the folder of one, trained or fitted on a release.
        data: raw inputs and labels, as :func:`privmix.release` takes them.
        split: which part of the dataset; None: ``test``, or all of what is in memory.
        classes: number or names of the classes, where the model's are not meant.
        columns: names of the columns of numbers, or :class:`privmix.Columns`: what is declared of columns and images.
        label: the labels' column.
        features_model: your own copy of the extractor's model, where it is a file or folder.
        trust_features_model: that file may be a program, and may run.
        figure: where to draw the confusion matrix (.png, .svg, .pdf); not in a release or model.
        public_data: the data are public: record and picture may be shown.
        progress: called with (stage, done, total).

    Raises:
        InvalidInput: the data have other inputs or classes than the model, or the picture can't be drawn there.
        StorageError: something can't be read or written.
    """
    picture = None if figure is None else Path(figure)
    check_figure(picture)
    chosen = model_in(model, features_model, trust_features_model)
    extractor = chosen.extractor
    opened = open_for_model(
        chosen.facts, extractor, data, split_of(data, split), classes, Columns.declared(columns, label)
    )
    split = split or ("test" if has_splits(data) else "in memory")
    records = features_in_memory(opened.source, extractor, progress or silent)
    result, matrix = score(chosen.classifier.predict(records.features), records.labels, chosen.classes)
    if picture is not None:
        with file_mode(private=not public_data):
            picture.parent.mkdir(parents=True, exist_ok=True)
            draw_confusion(matrix, list(chosen.classes), result["accuracy"], picture)
    measurement = Measurement(
        "evaluation",
        subject_of(chosen.classifier),
        evaluation_content(result, matrix, chosen.classes, split),
        private=not public_data,
        settings={
            "data": "in memory" if opened.place is None else place(opened.place, private=not public_data),
            "split": split,
            "public_data": public_data,
            "extractor": dict(chosen.facts.extractor),
        },
        title=f"Accuracy on split {split}",
        statements=["Measured on labelled data of whoever evaluated; no guarantee covers those data."],
    )
    return Evaluation(measurement, **result, confusion=matrix, figure=picture)


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
    shape, named = tuple(facts.input_shape), list(facts.classes) if classes is None else classes
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


def score(
    predicted: NDArray[np.int64], labels: NDArray[np.int64], classes: tuple[str, ...]
) -> tuple[dict[str, Any], NDArray[np.int64]]:
    """Accuracy, accuracy of each class (None where it has no record), count, and the confusion matrix (K, K)."""
    size = len(classes)
    matrix = np.bincount(labels * size + predicted, minlength=size * size).reshape(size, size)
    totals = matrix.sum(axis=1)
    per_class = {
        name: float(matrix[index, index] / totals[index]) if totals[index] else None
        for index, name in enumerate(classes)
    }
    return {"accuracy": float((predicted == labels).mean()), "per_class": per_class, "n": len(labels)}, matrix


def subject_of(classifier: Any) -> dict[str, Any]:
    """What a classifier's figures are about: the trained model itself, or the release that it was fitted on."""
    if isinstance(classifier, TrainedModel):
        return {"kind": "model", "id": classifier.certificate.id}
    return {"kind": "release", "id": classifier.facts_.release_id}


def evaluation_content(
    result: Mapping[str, Any],
    matrix: NDArray[np.int64],
    classes: tuple[str, ...],
    split: str,
    reference_accuracy: float | None = None,
) -> dict[str, Any]:
    """The content of an evaluation's record, from what :func:`score` returned."""
    return {
        **result,
        "classes": list(classes),
        "confusion": matrix.tolist(),
        "split": split,
        "reference_accuracy": reference_accuracy,
    }
