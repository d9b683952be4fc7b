"""Fitting a classifier to a release at no cost of privacy, and classes of records that have no labels."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import KW_ONLY, MISSING, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.commands.base import Command, function
from privmix.jobs.columns import ModelColumns
from privmix.jobs.options import MODULE_HELP, PART_HELP, UNLABELLED_HELP, FitOptions, ModelFiles, NewFile
from privmix.options import option
from privmix.progress import Progress
from privmix.shown import Bar, Bars, Shown

if TYPE_CHECKING:
    from privmix.jobs.models import Model
    from privmix.publication.dataset import HasDataset, ReleasedDataset


@dataclass(frozen=True, eq=False, repr=False)
class Fit(FitOptions, Command["Model"]):
    """Train a classifier on a release.

    Reads no private data and spends no privacy, however often you run it. For a release of pixels, `features`
    passes the images through a public extractor.

    Raises:
        InvalidInput: a setting is out of range, `out` exists, descriptions do not fit the classes, or the folder is no
            release as it was certified.
        StorageError: a file of it is missing or can't be read, or `out` can't be written.
    """

    example = "privmix fit REL --learner noise-aware-ridge --out MODEL"

    release: HasDataset | ReleasedDataset | str | Path = option(
        MISSING, "Folder of a release, or of a series.", in_python="Also a release.", argument=True
    )

    def run(self, progress: Progress) -> Model:
        from privmix.jobs.fitting import fitted

        return fitted(self.release, self, progress)

    def then(self, found: Any) -> str:
        return f"privmix evaluate {shlex.quote(str(self.out))} --data DIR --split test"


fit: Final = function(Fit)


# Classes that a summary names.
_MOST_CLASSES: Final = 10


@dataclass(frozen=True, eq=False, repr=False)
class Predictions(Shown):
    """A model's predictions. They are about these records; no guarantee covers them.

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
        facts: dict[str, object] = {name: f"{count:,} ({100 * count / len(self):.1f}%)" for name, count in most}
        others = len(self.classes) - len(most)
        facts |= {"others": f"{others:,} classes"} if others else {}
        return f"Predictions for {len(self):,} records", facts if self.out is None else {**facts, "file": self.out}

    def to_dict(self) -> dict[str, Any]:
        return {"records": len(self), "counts": self.counts, "out": None if self.out is None else str(self.out)}

    def picture(self) -> Bars:
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
        """Return records ``start`` to before ``stop`` as an Arrow table, as the files hold it.

        Columns: ``record``, counted from 0, or the image's file name; ``prediction``, the class's name; and, where
        there are probabilities, ``p_NAME`` for each class.
        """
        import pyarrow as pa

        from privmix.jobs.private_tables import column

        part = slice(start, stop)
        places = self.places[part]
        names = np.arange(start, start + len(places)) if self.names is None else self.names[part]
        columns = {"record": column(names), "prediction": column(self.classes).take(column(places))}
        if self.probabilities is not None:
            for place, name in enumerate(self.classes):
                columns[f"p_{name}"] = column(self.probabilities[part, place])
        return pa.table(columns)


@dataclass(frozen=True, eq=False, repr=False)
class Predict(ModelColumns, ModelFiles, NewFile, Command[Predictions]):
    """Predict the classes of records without labels.

    Writes one row per record, in order: record, prediction, and p_NAME for each class. The file is as private as
    the records; no guarantee covers it.

    Raises:
        InvalidInput: the data have other inputs than the model, or the file can't be one, is there already or lies in
            a release or model.
        StorageError: something can't be read or written.

    Example:
        >>> predict("no-such-folder", [[0.0]])
        Traceback (most recent call last):
        ...
        privmix.errors.StorageError: model.json: cannot read no-such-folder/model.json: No such file or directory
    """

    example = "privmix predict MODEL --data mnist --split test --out predictions.csv"

    model: Model | str | Path = option(
        MISSING, "Folder of a model from privmix fit or privmix train.", in_python="Also a model.", argument=True
    )
    data: Any = option(MISSING, UNLABELLED_HELP, in_python="Also arrays, frames and tensors.")
    _: KW_ONLY
    out: str | Path | None = option(None, "File to write: .csv, .parquet or .jsonl.", needed=True)
    split: str | None = option(None, PART_HELP)
    probabilities: bool = option(True, "Include the probability of each class.", off="no")
    module: Any = option(None, MODULE_HELP)

    def run(self, progress: Progress) -> Predictions:
        from privmix.jobs.dataset import open_unlabelled
        from privmix.jobs.models import model_in
        from privmix.jobs.private_tables import check_out, write_table

        # A place that cannot be written fails here, before any record is read.
        place = check_out(self.out, self.overwrite)
        chosen = model_in(self.model, self.features_model, self.module)
        shape, columns = chosen.facts.input_shape, self.as_columns()
        opened = open_unlabelled(self.data, chosen.extractor, shape, chosen.classes, split=self.split, columns=columns)
        total, classes = opened.schema.records, len(chosen.classes)
        places = np.empty(total, np.int64)
        found = np.empty((total, classes), np.float32) if self.probabilities else None
        done = 0
        for raw in opened.source.inputs(chosen.extractor.step):
            features, part = chosen.extractor.transform(raw), slice(done, done + len(raw))
            places[part] = chosen.classifier.predict(features)
            if found is not None:
                found[part] = chosen.probabilities(features)
            done += len(raw)
            progress("predictions", done, total)
        result = Predictions(chosen.classes, places, found, opened.source.names, place)
        write_table(result, place)
        return result


predict: Final = function(Predict)
