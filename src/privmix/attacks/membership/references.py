"""Reference models: many models made like the target, each from known records, by the trainer of the target."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import sklearn
from numpy.typing import NDArray

from privmix.attacks.membership.scores import ReferenceModels
from privmix.engine.rows import PrivateRecords
from privmix.errors import InvalidInput, StorageError, check_integer
from privmix.folders import no_core_dumps, private_folder, storage_errors
from privmix.learning.base import ReleaseLearner
from privmix.mechanisms.plan import check_of_records
from privmix.mechanisms.streams import SecretStreams
from privmix.plans.plan import Plan
from privmix.plans.registry import plan_from_dict
from privmix.progress import Progress
from privmix.releases.run import release_to_memory

if TYPE_CHECKING:
    from privmix.training.trained import TrainedModel
    from privmix.training.trainer import Trainer


class ReferenceTrainer(Protocol):
    """Makes one model from records."""

    def __call__(self, features: NDArray[Any], labels: NDArray[np.int64], streams: SecretStreams) -> Any:
        """Return a classifier made from (n, d) features and (n,) labels; ``streams`` are fresh, and used up."""

    def settings(self) -> dict[str, Any]:
        """JSON values of all that decides what is made, but for records and streams."""


@dataclass(frozen=True)
class ReleaseTrainer:
    """Release the records by the real engine under ``plan`` and fit a copy of ``learner`` on the release."""

    plan: Plan
    learner: ReleaseLearner
    extractor: Mapping[str, Any] = field(repr=False)
    input_shape: Sequence[int]

    @classmethod
    def of(cls, model: ReleaseLearner, certificate: Mapping[str, Any]) -> ReleaseTrainer:
        if certificate["id"] != model.facts_.release_id:
            allowed = f"the release that the model was fitted on, {model.facts_.release_id}"
            raise InvalidInput("release", certificate["id"], allowed)
        plan = plan_from_dict(certificate["plan"])
        check_of_records(plan.per_person)
        if not model.reads_rows:
            # This learner reads released arrays: rows sampled from them would only take time.
            plan = replace(plan, rows=1)
        return cls(plan, sklearn.clone(model), certificate["extractor"], tuple(certificate["input_shape"]))

    def __call__(self, features: NDArray[Any], labels: NDArray[np.int64], streams: SecretStreams) -> ReleaseLearner:
        """Return a fitted copy of the learner; the release is not kept."""
        released = release_to_memory(
            self.plan, PrivateRecords(features, labels), streams, extractor=self.extractor, input_shape=self.input_shape
        )
        learner: ReleaseLearner = sklearn.clone(self.learner)
        return learner.fit(released)

    def settings(self) -> dict[str, Any]:
        learner = {name: repr(value) for name, value in self.learner.get_params().items()}
        return {"plan": self.plan.to_dict(), "learner": {"name": self.learner.name, **learner}}


@dataclass(frozen=True, eq=False)
class DpSgdTrainer:
    """Trains by DP-SGD as ``job`` does; each model has fresh noise and fresh batches."""

    job: Trainer

    @classmethod
    def of(cls, model: TrainedModel, module: Any = None) -> DpSgdTrainer:
        """Return a trainer by the settings in the model's certificate; ``module``: the user's untrained network."""
        certificate = model.certificate
        settings = certificate["settings"]
        check_of_records(certificate["plan"].get("per_person"))
        if certificate["public_data"] or settings["bank_views"]:
            raise InvalidInput(
                "model", "trained with public data or a bank of views", "one trained on its records alone"
            )
        from privmix.training.config import TrainingConfig
        from privmix.training.trained import initial_network
        from privmix.training.trainer import Trainer

        job = Trainer(
            TrainingConfig.from_settings(settings),
            model.facts_,
            settings["records"],
            records_declared=settings["records_declared"],
            network=initial_network(model, module),
        )
        again = job.settings()
        # Another version may have other defaults: its models would be no references for this one.
        decisive = {name: value for name, value in settings.items() if name not in ("device", "execution")}
        differing = sorted(name for name, value in decisive.items() if again.get(name) != value)
        if differing or again["plan"] != certificate["plan"]:
            raise InvalidInput("model settings", ", ".join(differing) or "plan", "such as this version makes again")
        return cls(job)

    def __call__(self, features: NDArray[Any], labels: NDArray[np.int64], streams: SecretStreams) -> TrainedModel:
        """Return a trained model; no checkpoint is kept."""
        from privmix.training.dp_sgd import TrainingRecords

        records = TrainingRecords.of(features, labels, classes=len(self.job.facts.classes))
        return self.job.run(records, streams=streams)

    def settings(self) -> dict[str, Any]:
        return self.job.settings()


@dataclass(frozen=True, eq=False)
class EstimatorTrainer:
    """Fits a copy of a scikit-learn classifier on the records themselves: no privacy at all, to compare with."""

    estimator: Any

    def __call__(self, features: NDArray[Any], labels: NDArray[np.int64], streams: SecretStreams) -> Any:
        copy = sklearn.clone(self.estimator)
        if "random_state" in copy.get_params():
            copy.set_params(random_state=int(streams.generator("estimator").integers(2**31)))
        return copy.fit(features, labels)

    def settings(self) -> dict[str, Any]:
        parameters = {name: repr(value) for name, value in self.estimator.get_params().items()}
        return {"estimator": type(self.estimator).__name__, **parameters}


_SETTINGS: Final = "settings.json"
_DEAL: Final = "records.npz"
_MOST_SETTINGS: Final = 2**20


def deal_records(records: int, size: int, references: int, random: np.random.Generator) -> NDArray[np.bool_]:
    """Return (R, n) marks of each model's ``size`` records; every record is in as many models, plus or minus one."""
    # Records are dealt from shuffled decks; with ``size`` half of ``records``, each pair of models shares one deck.
    check_integer("reference size", size, low=1, high=records - 1)
    marks = np.zeros((references, records), bool)
    deck = random.permutation(records)
    for mark in marks:
        hand, deck = deck[:size], deck[size:]
        if len(hand) < size:
            fresh = random.permutation(records)
            # Records that the hand took from the end of the old deck stay in the new one.
            held = np.isin(fresh, hand)
            taken = fresh[~held][: size - len(hand)]
            deck = fresh[~np.isin(fresh, taken)]
            hand = np.concatenate([hand, taken])
        mark[hand] = True
    return marks


def train_references(
    trainer: ReferenceTrainer,
    features: NDArray[Any],
    labels: NDArray[np.int64],
    *,
    size: int,
    references: int,
    streams: SecretStreams,
    logits_of: Callable[[Any], NDArray[np.float64]],
    work: Path | None = None,
    progress: Progress | None = None,
) -> ReferenceModels:
    """Train R reference models on ``size`` records each and keep only their log-odds of all n records."""
    # work: owner-only folder of finished models' log-odds, from which the same call resumes.
    no_core_dumps()
    marks = deal_records(len(features), size, references, streams.generator("reference records"))
    kept = None
    if work is not None:
        # Settings and records must be the same for finished models to count. Without the shape and the type, the same
        # bytes in another shape would have the same hash.
        digest = hashlib.blake2b(repr((features.shape, str(features.dtype))).encode(), digest_size=32)
        digest.update(np.ascontiguousarray(features).data)
        digest.update(np.ascontiguousarray(labels).data)
        identity = {"trainer": trainer.settings(), "records": digest.hexdigest(), "size": size}
        kept = _Kept(work, {**identity, "references": references})
        # Which records each model has: as noted, or noted now.
        noted = kept.read(_DEAL, marks.shape)
        if noted is None:
            kept.write(_DEAL, marks)
        else:
            marks = noted.astype(bool)
    logits = np.empty((references, len(features)))
    # One copy of the chosen records at a time, always in the same memory.
    chosen = np.empty((size, features.shape[1]), features.dtype)
    for number, mark in enumerate(marks):
        name = f"reference-{number:05d}.npz"
        found = None if kept is None else kept.read(name, (len(features),))
        if found is None:
            own = streams.derive(f"reference {number}")
            # With `clip`, NumPy writes to `out` without a buffer; the places are all valid.
            np.take(features, np.flatnonzero(mark), axis=0, out=chosen, mode="clip")
            found = logits_of(trainer(chosen, labels[mark], own))
            own.destroy()
            if kept is not None:
                kept.write(name, found)
        logits[number] = found
        if progress is not None:
            progress("reference models", number + 1, references)
    return ReferenceModels(logits, marks)


class _Kept:
    """Finished reference models' log-odds in a private folder, for one attack only."""

    def __init__(self, folder: Path, identity: dict[str, Any]) -> None:
        with storage_errors("work", "use", folder):
            self._folder = private_folder(folder, "work")
            text = json.dumps(identity, indent=1, sort_keys=True).encode()
            if self._folder.has(_SETTINGS):
                same = self._folder.read(_SETTINGS, _MOST_SETTINGS) == text
            else:
                # A folder that holds other files is left alone.
                same = not self._folder.names()
                if same:
                    self._folder.write(_SETTINGS, text)
        if not same:
            raise InvalidInput("work", str(folder), "the folder of the same attack, or an empty one")

    def read(self, name: str, shape: tuple[int, ...]) -> NDArray[Any] | None:
        if not self._folder.has(name):
            return None
        try:
            with self._folder.open(name) as stream, np.load(stream, allow_pickle=False) as content:
                found = np.asarray(content["values"])
        except (OSError, ValueError, KeyError, zipfile.BadZipFile):
            raise StorageError(f"work: {self._folder.path / name}: not readable") from None
        if found.shape != shape:
            raise StorageError(f"work: {self._folder.path / name}: not what this attack wrote")
        return found

    def write(self, name: str, values: NDArray[Any]) -> None:
        content = io.BytesIO()
        np.savez(content, values=values)
        with storage_errors("work", "write", self._folder.path):
            self._folder.write(name, content.getvalue())
