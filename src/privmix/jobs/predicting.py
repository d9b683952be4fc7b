"""Classes of records that have no labels, by a fitted or a trained model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privmix.bars import Asked, callback, shows_bars
from privmix.jobs.columns import Columns
from privmix.jobs.dataset import open_unlabelled
from privmix.jobs.models import Model, model_in
from privmix.jobs.private_tables import check_out, write_table
from privmix.shown import Bar, Bars, Shown

# Classes that a summary names.
_MOST_CLASSES: Final = 10


@dataclass(frozen=True, eq=False, repr=False)
class Predictions(Shown):
    """What a model says of records. It is about these records; no guarantee covers them.

    Attributes:
        classes: K names.
        places: (n,) index in ``classes`` of each record's predicted class, in the order of the data.
        probabilities: (n, K) of the classes; None where they were not asked for.
        names: the images' file names, where each record is a file.
        out: the file that was written, if any.
    """

    classes: tuple[str, ...]
    places: NDArray[np.int64]
    probabilities: NDArray[np.float32] | None
    names: tuple[str, ...] | None = None
    out: Path | None = None

    def __len__(self) -> int:
        return len(self.places)

    def shown(self) -> tuple[str, Mapping[str, object]]:
        """How many of each class; private as the records are."""
        most = sorted(self.counts.items(), key=lambda item: -item[1])[:_MOST_CLASSES]
        facts: dict[str, object] = {name: f"{count:,}" for name, count in most}
        return f"Predictions for {len(self):,} records", facts if self.out is None else {**facts, "file": self.out}

    def picture(self) -> Bars:
        """The same counts."""
        most = sorted(self.counts.items(), key=lambda item: -item[1])[:_MOST_CLASSES]
        return Bars("Predicted classes", [Bar(name, count, f"{count:,}") for name, count in most])

    @property
    def predicted(self) -> NDArray[np.str_]:
        """(n,) names of the predicted classes."""
        return np.array(self.classes)[self.places]

    @property
    def counts(self) -> dict[str, int]:
        """Class -> how many records it was predicted for."""
        found = np.bincount(self.places, minlength=len(self.classes))
        return {name: int(count) for name, count in zip(self.classes, found, strict=True)}

    def table(self, start: int = 0, stop: int | None = None) -> Any:
        """Records ``start`` to before ``stop`` as an Arrow table, as the files hold it.

        Columns: ``record``, counted from 0, or the image's file name; ``prediction``, the class's name; and, where
        there are probabilities, ``p_NAME`` for each class.
        """
        part = slice(start, stop)
        places = self.places[part]
        names = range(start, start + len(places)) if self.names is None else self.names[part]
        kind = pa.int64() if self.names is None else pa.string()
        columns: dict[str, Any] = {
            "record": pa.array(names, kind),
            "prediction": pa.array(self.predicted[part].tolist(), pa.string()),
        }
        if self.probabilities is not None:
            for place, name in enumerate(self.classes):
                columns[f"p_{name}"] = pa.array(self.probabilities[part, place])
        return pa.table(columns)


@shows_bars
def predict(
    model: Model | str | Path,
    data: Any,
    *,
    out: str | Path | None = None,
    split: str | None = None,
    columns: Columns | str | Sequence[str] | None = None,
    label: str | None = None,
    features_model: str | Path | None = None,
    trust_features_model: bool = False,
    module: Any = None,
    probabilities: bool = True,
    overwrite: bool = False,
    progress: Asked = None,
) -> Predictions:
    """Predict the classes of records, which need no labels.

    Predictions are about the records that you pass and are not covered by any guarantee: a file of them is as private
    as the records, and readable by its owner only.

    Args:
        model: a model, or the folder of one, trained or fitted on a release.
        data: raw inputs as :func:`privmix.release` takes them, without labels: a table without the labels' column, an
            array or a list in place of ``(x, y)``, a file of arrays without ``y``, a folder of images.
        out: a file to write: .csv, .parquet or .jsonl. Its columns are those of :meth:`Predictions.table`.
        split: which part of the data; None: ``test`` where there is one, else all that names no part.
        columns: names of the columns of numbers, or :class:`privmix.Columns`: what is declared of columns and images.
        label: a column that is no input, where the data have labels after all; they are not read.
        features_model: your own copy of the extractor's model, where it is a file or folder.
        trust_features_model: that file may be a program, and may run.
        module: the network of your own that was trained, for a folder; see :func:`privmix.load`.
        probabilities: of each class, beside the predicted one.
        overwrite: replace the file that is there.
        progress: called with (stage, done, total); True: bars; None: bars where somebody looks on.

    Raises:
        InvalidInput: the data have other inputs than the model, or the file can't be one, is there already or lies in
            a release or model.
        StorageError: something can't be read or written.

    Example:
        >>> predict("no-such-folder", [[0.0]])
        Traceback (most recent call last):
        ...
        privmix.errors.StorageError: model.json: can't read no-such-folder/model.json: No such file or directory
    """
    place = None if out is None else Path(out)
    if place is not None:
        check_out(place, overwrite)
    chosen = model_in(model, features_model, trust_features_model, module)
    opened = open_unlabelled(
        data,
        chosen.extractor,
        chosen.facts.input_shape,
        chosen.classes,
        split=split,
        columns=Columns.declared(columns, label),
    )
    report = callback(progress)
    total, classes = opened.schema.records, len(chosen.classes)
    places = np.empty(total, np.int64)
    found = np.empty((total, classes), np.float32) if probabilities else None
    done = 0
    for raw in opened.source.inputs(chosen.extractor.step):
        features, part = chosen.extractor.transform(raw), slice(done, done + len(raw))
        places[part] = chosen.classifier.predict(features)
        if found is not None:
            found[part] = chosen.probabilities(features)
        done += len(raw)
        report("predictions", done, total)
    result = Predictions(chosen.classes, places, found, opened.source.names, place)
    if place is not None:
        write_table(result, place)
    return result
