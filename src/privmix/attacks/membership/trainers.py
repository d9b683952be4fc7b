"""Making a model as the attacked one was made, from other records: by a release, by DP-SGD, or without privacy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import sklearn
from numpy.typing import NDArray

from privmix.engine.rows import PrivateRecords
from privmix.errors import InvalidInput
from privmix.learning.base import ReleaseLearner
from privmix.mechanisms.plan import check_of_records
from privmix.mechanisms.streams import SecretStreams
from privmix.plans.named import plan_from_dict
from privmix.plans.plan import Plan
from privmix.releases.api import release_to_memory

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
        """Return a trainer of models like ``model``, fitted on the release of ``certificate``."""
        if certificate["id"] != model.facts_.release_id:
            allowed = f"the release that the model was fitted on, {model.facts_.release_id}"
            raise InvalidInput("release", certificate["id"], allowed)
        plan = plan_from_dict(certificate["plan"])
        check_of_records(plan.per_person)
        if not model.reads_rows:
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
        """Plan and learner."""
        learner = {name: repr(value) for name, value in self.learner.get_params().items()}
        return {"plan": self.plan.to_dict(), "learner": {"name": self.learner.name, **learner}}


@dataclass(frozen=True, eq=False)
class DpSgdTrainer:
    """Trains by DP-SGD as ``job`` does; each model has fresh noise and fresh batches."""

    job: Trainer

    @classmethod
    def of(cls, model: TrainedModel, device: str | None = None, module: Any = None) -> DpSgdTrainer:
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
            device=device,
        )
        again = job.settings()
        differing = sorted(name for name, value in settings.items() if name != "device" and again.get(name) != value)
        if differing or again["plan"] != certificate["plan"]:
            raise InvalidInput("model settings", ", ".join(differing) or "plan", "such as this version makes again")
        return cls(job)

    def __call__(self, features: NDArray[Any], labels: NDArray[np.int64], streams: SecretStreams) -> TrainedModel:
        """Return a trained model; no checkpoint is kept."""
        from privmix.training.records import TrainingRecords

        records = TrainingRecords.of(features, labels, classes=len(self.job.facts.classes))
        return self.job.run(records, streams=streams)

    def settings(self) -> dict[str, Any]:
        """Return settings of the job."""
        return self.job.settings()


@dataclass(frozen=True, eq=False)
class EstimatorTrainer:
    """Fits a copy of a scikit-learn classifier on the records themselves: no privacy at all, to compare with."""

    estimator: Any

    def __call__(self, features: NDArray[Any], labels: NDArray[np.int64], streams: SecretStreams) -> Any:
        """Return a fitted copy."""
        copy = sklearn.clone(self.estimator)
        if "random_state" in copy.get_params():
            copy.set_params(random_state=int(streams.generator("estimator").integers(2**31)))
        return copy.fit(features, labels)

    def settings(self) -> dict[str, Any]:
        """Name and parameters."""
        parameters = {name: repr(value) for name, value in self.estimator.get_params().items()}
        return {"estimator": type(self.estimator).__name__, **parameters}
