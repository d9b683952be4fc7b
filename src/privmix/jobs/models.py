"""Models that take raw inputs."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.certificate.certificate import MODEL, RELEASE, Certificate
from privmix.data.dataset import Source
from privmix.data.frames import frame_inputs, library_of, settled
from privmix.data.images import is_picture
from privmix.data.memory import as_array, is_sparse
from privmix.data.source import as_inputs, as_table, encode_labels
from privmix.errors import WITHHELD, InvalidInput, Unquoted, check_choice
from privmix.features.base import Extractor
from privmix.features.identity import Identity
from privmix.features.spec import from_spec, title_of
from privmix.features.tabular import Tabular
from privmix.features.text import TextEncoder
from privmix.folders import storage_errors, write_durably
from privmix.jobs.columns import Columns
from privmix.jobs.dataset import Dataset, open_dataset
from privmix.jobs.kinds import kind_of
from privmix.shown import Bars, Shown

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from privmix.learning.base import ReleaseFacts, ReleaseLearner
    from privmix.training.examples import ModelFacts
    from privmix.training.trained import TrainedModel


_BATCH: Final = 4096
_ID: Final = re.compile(r"[0-9a-f]{32}\Z")


def is_trained(classifier: ReleaseLearner | TrainedModel) -> TypeIs[TrainedModel]:
    """Whether it was trained on records, without importing what trains: that takes torch."""
    trained = sys.modules.get("privmix.training.trained")
    return trained is not None and isinstance(classifier, trained.TrainedModel)


@dataclass(eq=False, repr=False)
class Model(Shown):
    """A classifier together with its feature extractor: raw inputs in, classes out.

    :class:`privmix.ReleaseClassifier` and :class:`privmix.DPClassifier` are for scikit-learn's searches and scorers:
    their classes are in the order that these expect.

    Attributes:
        classifier: of the extractor's output.
        features_model: the user's own copy of the extractor's model, where no package brings it; with ``:trust`` behind
            its path a program there may run.
        notes: lines that a terminal has below the facts.
    """

    classifier: ReleaseLearner | TrainedModel
    features_model: str | Path | None = None
    notes: tuple[str, ...] = ()

    @property
    def facts(self) -> ReleaseFacts | ModelFacts:
        """Classes, extractor and shape of an input; public."""
        return self.classifier.facts_

    @property
    def classes(self) -> tuple[str, ...]:
        """K class names; a prediction k means ``classes[k]``."""
        return tuple(self.facts.classes)

    @property
    def details(self) -> tuple[str, ...]:
        return self.notes

    def shown(self) -> tuple[str, Mapping[str, object]]:
        facts, learner = self.facts, self.classifier
        if is_trained(learner):
            made: dict[str, object] = {**learner.certificate.lead(), "network": learner.network.name}
        else:
            made = {
                "guarantee": "that of its release: a model made from a release alone costs no further privacy",
                "learner": f"{learner.name} ({learner.summary})",
                "fitted on release": learner.facts_.release_id,
            }
            if curve := getattr(learner, "accuracy_curve_", None):
                epoch, best = learner.best_epoch  # type: ignore[attr-defined]
                last = f"{100 * curve[-1]:.2f}% at the last epoch, which is the model's"
                made["validation"] = f"{last}; {100 * best:.2f}% at best, epoch {epoch} of {len(curve)}"
                made["of validation"] = (
                    "for the owner of these data only: the guarantee does not cover choices that are based on "
                    "private data"
                )
        shape = " x ".join(map(str, facts.input_shape))
        size = {"inputs": shape, "features": facts.dim, "classes": len(facts.classes)}
        return "Model", {**made, "extractor": title_of(facts.extractor), **size}

    def to_dict(self) -> dict[str, Any]:
        if is_trained(self.classifier):
            return self.classifier.certificate.to_dict()
        return {name: str(value) for name, value in self.shown()[1].items()}

    def picture(self) -> Bars | None:
        return self.classifier.certificate.picture() if is_trained(self.classifier) else None

    @property
    def certificate(self) -> Certificate:
        """The certificate of a trained model.

        Raises:
            InvalidInput: the model was fitted on a release, whose guarantee is the model's too.
        """
        if not is_trained(self.classifier):
            raise InvalidInput(
                "model", "fitted on a release", "a trained model; for a fitted one see the release's certificate"
            )
        return self.classifier.certificate

    @cached_property
    def extractor(self) -> Extractor:
        """The public extractor that its features come from; nothing that the model's folder names is opened or run.

        Raises:
            InvalidInput: its model must be named in ``features_model``, or is another one.
        """
        return from_spec(self.facts.extractor, self.features_model)

    def features(self, x: Any) -> NDArray[np.float32]:
        """(n, d) features of n raw inputs: arrays (n, *input_shape), texts, rows of a table, or a frame.

        Sparse matrices, Arrow tables, lazy frames and images of Pillow's work, too.

        Raises:
            InvalidInput: inputs of another shape, or values that the extractor does not take.
        """
        if isinstance(x, str | Path):
            raise InvalidInput(
                "inputs", WITHHELD, "a list or array of inputs; for a file call privmix.predict(model, data=PATH)"
            )
        extractor = self.extractor
        reads = extractor.reads
        taken = settled(x)
        # Neither an array nor a frame nor lists.
        images = isinstance(x, list | tuple) and len(x) > 0 and is_picture(x[0])
        apart = taken is not x or images or is_sparse(x) or library_of(x) in ("pyarrow", "datasets")
        if library_of(taken) in ("pandas", "polars"):
            # Columns of a frame are found by their names, in any order.
            apart, x = False, taken
            texts = ("text",) if isinstance(reads, TextEncoder) else None
            numbers = reads.feature_names if isinstance(reads, Identity) else None
            x = frame_inputs(x, tuple(reads.columns) if isinstance(reads, Tabular) else texts, numbers)
        if apart:
            shape, names = tuple(self.facts.input_shape), list(self.classes)
            found = open_dataset(x, extractor, classes=names, input_shape=shape, labelled=False).source
            raw = np.concatenate(list(found.inputs(_BATCH)))
        elif isinstance(reads, Tabular):
            raw = as_table(np.asarray(x, dtype=object), tuple(reads.columns))
        elif isinstance(reads, TextEncoder):
            raw = as_table(np.asarray(list(x), dtype=object).reshape(-1, 1), ("text",))
        else:
            raw = as_inputs(as_array(x), tuple(self.facts.input_shape))
        if len(raw) == 0:
            raise InvalidInput("inputs", 0, "at least one input")
        step = extractor.step
        return np.concatenate([extractor.transform(raw[start : start + step]) for start in range(0, len(raw), step)])

    def scores(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        """(n, K) scores of (n, d) extractor outputs; the largest of a row names its class."""
        if is_trained(self.classifier):
            return self.classifier.predict_proba(features)
        return self.classifier.decision_function(features)

    def predict(self, x: Any) -> NDArray[Any]:
        """(n,) classes of n raw inputs: names, or indices where the classes were declared by their number alone.

        Raises:
            InvalidInput: as :meth:`features`.
        """
        return self.named(self.classifier.predict(self.features(x)))

    def predict_proba(self, x: Any) -> NDArray[np.float32]:
        """(n, K) probabilities of the classes, in the order of :attr:`classes`; errors as :meth:`features`."""
        return self.probabilities(self.features(x))

    def probabilities(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        """(n, K) probabilities of (n, d) extractor outputs, calibrated as far as the release or public facts allow."""
        if is_trained(self.classifier):
            return self.classifier.calibrated_proba(features)
        return self.classifier.predict_proba(features)

    def named(self, places: NDArray[np.int64]) -> NDArray[Any]:
        """Names of the classes at these places of the list; the places where the names are "0", "1", ... anyway."""
        return places if self.classes == tuple(map(str, range(len(self.classes)))) else np.array(self.classes)[places]

    def score(self, x: Any, y: Any) -> float:
        """Accuracy on n raw inputs and their labels: class indices or names. It is about these records alone.

        Raises:
            InvalidInput: as :meth:`features`, or a label is none of ``classes``, or there are more or fewer.
        """
        labels = encode_labels(as_array(y).reshape(-1), self.classes)
        predicted = self.classifier.predict(self.features(x))
        if len(labels) != len(predicted):
            raise InvalidInput("labels", len(labels), f"{len(predicted)}, one for each input")
        return float((predicted == labels).mean())

    def save(self, folder: str | Path, *, overwrite: bool = False) -> Path:
        """Write the model to a new folder, whole or not at all; :func:`load` reads it.

        Raises:
            InvalidInput: the folder exists.
            StorageError: writing failed; nothing is left behind.
        """
        if not is_trained(self.classifier):
            from privmix.learning.model_io import save_model

            return save_model(self.classifier, folder, overwrite=overwrite)
        place = Path(folder)
        from privmix.training.run import MODEL_FOLDER

        with MODEL_FOLDER.new(place, overwrite=overwrite) as draft:
            self.classifier.write(draft)
        return place

    def export(self, out: str | Path, *, overwrite: bool = False) -> Path:
        """Write the network for programs that have torch and not privmix; see :mod:`privmix.training.trained`.

        Args:
            out: a file, by its ending: ``.pt2`` (``torch.export.load(FILE).module()``) or ``.safetensors`` (weights
                alone, ``net.load_state_dict(load_file(FILE))``).
            overwrite: replace the file that is there.

        Raises:
            InvalidInput: another ending, a file that is there, a place in a model's folder; the model was fitted on a
                release; or its network can't be written so.
            StorageError: it can't be written.
        """
        place = Path(out)
        if not is_trained(self.classifier):
            raise InvalidInput("model", "fitted on a release", "a trained model, which has a network")
        from privmix.jobs.private_tables import check_out
        from privmix.training.trained import FORMS

        ending = check_choice("ending of out", place.suffix.lower(), FORMS)
        check_out(place, overwrite, [ending])
        with storage_errors("out", "write", place):
            place.parent.mkdir(parents=True, exist_ok=True)
            write_durably(place, FORMS[ending](self.classifier))
        return place


def model_in(model: Model | str | Path, features_model: str | Path | None = None, module: Any = None) -> Model:
    """Return a model as it is, or the one in a folder; `module`: see :func:`privmix.training.trained.load_trained`."""
    if isinstance(model, Model):
        if module is not None:
            allowed = "no module with a loaded model: give it to `pm.load(FOLDER, module=...)`"
            raise InvalidInput("module", Unquoted("a module"), allowed)
        return model
    path = Path(model)
    kind = kind_of(path)
    if kind == RELEASE:
        raise InvalidInput("model", str(path), "the folder of a model: this is a release. Fit a model with privmix fit")
    if kind == MODEL:
        from privmix.training.trained import load_trained

        return Model(load_trained(path, module), features_model)
    if module is not None:
        raise InvalidInput("module", Unquoted("a module"), "no module for a model that was fitted on a release")
    from privmix.learning.model_io import load_model

    return Model(load_model(path), features_model)


def open_for_model(
    facts: ReleaseFacts | ModelFacts, extractor: Extractor, data: Any, split: str, columns: Columns | None
) -> Dataset:
    """Open data for a model; raises for inputs of another shape, or classes that are others or in another order."""
    # An open source has its own, which are compared below.
    shape, named = tuple(facts.input_shape), None if isinstance(data, Source) else list(facts.classes)
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
    """Return the part that ``split`` names; by default the test records, where there are several parts."""
    return split or ("test" if has_splits(data) else "train")


def subject_of(classifier: Any) -> dict[str, Any]:
    """Subject of a classifier's figures: the trained model itself, or the release that it was fitted on."""
    if is_trained(classifier):
        return {"kind": "model", "id": classifier.certificate.id}
    made_of = classifier.facts_.release_id
    # The id stands in a model's own file: a text of another form is not shown.
    return {"kind": "release", "id": made_of if _ID.match(made_of) else None}
