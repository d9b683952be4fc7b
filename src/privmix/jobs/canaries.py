"""A plan run once more on the owner's data with canaries in it: check, charge, read, run, and say what was proven."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.accounting import Event
from privmix.attacks.canaries import CanaryAudit, CanaryConfig, audit_release, check_auditable
from privmix.attacks.training_canaries import audit_training_canaries, check_auditable_training, check_room
from privmix.certificate.certificate import MODEL
from privmix.data import FeatureStore
from privmix.engine import PrivateRecords
from privmix.errors import WITHHELD, InvalidInput, StorageError
from privmix.features import Extractor, from_spec
from privmix.fields import stored
from privmix.jobs.audited import Audited
from privmix.jobs.budget import charge
from privmix.jobs.checks import check_budget
from privmix.jobs.dataset import Dataset, open_dataset
from privmix.jobs.features import features_in_memory, features_on_disk
from privmix.jobs.kinds import kind_of
from privmix.jobs.options import CanaryOptions
from privmix.jobs.places import check_writable
from privmix.jobs.progress import Progress, silent
from privmix.jobs.recording import Measurement
from privmix.jobs.spending import Spending, telling
from privmix.mechanisms.streams import SecretStreams
from privmix.plans import ReleasePlan, plan_from_dict
from privmix.private_files import no_core_dumps
from privmix.releases import verify_release
from privmix.releases.certificate import read_certificate
from privmix.releases.folder import read_extractor
from privmix.training import (
    ModelFacts,
    TrainingConfig,
    TrainingPlan,
    TrainingRecords,
    ViewConfig,
    load_trained,
)
from privmix.training.gradients.parameters import FlatParameters
from privmix.training.verify import plan_of, verify_trained

_PROOF: Final = (
    "The plan was run once more, on the data with canaries; a proof is about the mechanism and its implementation. "
    "A low one does not show that less is revealed."
)
_PRIVATE: Final = "These figures were computed from private records and nothing protects them: they are for the owner."
_UNCHARGED: Final = "The run's cost was charged to no ledger: nothing of it but these figures was kept."


@dataclass(frozen=True, kw_only=True)
class CanaryJob(CanaryOptions):
    """An audit of a release or trained model with canaries among the owner's records: :meth:`open` it, then run it.

    Formal guarantees:
        * Paid first: with a ledger, no private row is read before the run's cost is charged; what is refused costs
          nothing.
        * Nothing is kept: of the run, the figures alone are returned, and marked private.

    Attributes:
        target: folder of the release or trained model.
        confidence: of what is said to be proven.
        seed: for tests.

    The rest: :class:`privmix.jobs.options.CanaryOptions`.
    """

    target: str | Path
    data: Any = field(repr=False)
    canaries: int = field()
    confidence: float = 0.95
    seed: int | None = None

    def open(self) -> OpenedCanaries:
        """Check everything that can be checked without a private record and without a charge.

        Raises:
            InvalidInput: options don't go together, the certificate does not hold, canaries can't audit such a plan, or
                the data are others.
            StorageError: something can't be read, or ``store`` not written.
        """
        check_budget(self.ledger, self.dataset, self.seed, "an audit")
        if self.store is not None:
            check_writable("store", Path(self.store))
        config = CanaryConfig(self.canaries, self.confidence, self.guesses, self.canary_kind, self.evidence)
        folder = Path(self.target)
        found = (_TargetModel if kind_of(folder) == MODEL else _TargetRelease).of(folder, config)
        extractor = from_spec(
            found.extractor, self.features_model, trust_model=self.trust_features_model, arrays=found.extractor_arrays
        )
        shape, classes = tuple(found.shape), tuple(found.classes)
        data = open_dataset(
            self.data, extractor, split=self.split, classes=list(classes), columns=self.columns, input_shape=shape
        )
        if tuple(data.schema.input_shape) != shape:
            raise InvalidInput("data", data.schema.input_shape, f"inputs of shape {shape}, as the target's")
        if tuple(data.schema.classes) != classes:
            raise InvalidInput("data", list(data.schema.classes), f"the target's classes: {', '.join(classes)}")
        if not found.declared and data.schema.records != found.plan.records:
            raise InvalidInput("data", WITHHELD, f"the target's {found.plan.records} records: its own data and split")
        return OpenedCanaries(self, config, found, data, extractor)


@dataclass(frozen=True)
class OpenedCanaries:
    """An audit that was checked, and nothing of it done."""

    job: CanaryJob
    _config: CanaryConfig = field(repr=False)
    _target: _TargetRelease | _TargetModel = field(repr=False)
    _data: Dataset = field(repr=False)
    _extractor: Extractor = field(repr=False)

    @property
    def count_is_private(self) -> bool:
        """Whether the real number of records is not to be shown."""
        return self._target.declared

    def run(self, progress: Progress | None = None) -> Audited[CanaryAudit]:
        """Charge, read, run the plan once with canaries, and say what was proven.

        Raises:
            BudgetExceeded: the ledger does not hold so much; nothing was read.
            InvalidInput, StorageError: the data or the ledger can't be used.
        """
        no_core_dumps()
        job, target = self.job, self._target
        # Before the first private row is read: a crash from here on leaves the budget spent.
        with telling(Spending(target.epsilon, target.delta)) as told:
            charged = charge(job.ledger, job.dataset, target.event, target.plan.adjacency, "canary audit", self._data)
            told.charged = charged
            streams = SecretStreams.from_entropy() if job.seed is None else SecretStreams.from_seed(job.seed)
            generator = np.random.default_rng(job.seed)
            features = self._features(progress or silent)
            told.drawn = True
            audit = target.audit(features, self._config, streams, generator, progress)
        # The certificate's figure, which may be higher than the price, is what the audit stands beside.
        audit = replace(audit, proof=replace(audit.proof, claimed_epsilon=target.epsilon))
        not_noted = None
        try:
            charged.done("canary audit")
        except StorageError as error:
            # The budget is spent whatever happens here, so that trouble with the ledger must not cost the figures.
            not_noted = error
        return Audited(self._measurement(audit), audit, not_noted)

    def _features(self, progress: Progress) -> PrivateRecords | FeatureStore:
        if self.job.store is None:
            return features_in_memory(self._data.source, self._extractor, progress)
        return features_on_disk(self._data, self._extractor, Path(self.job.store), progress)

    def _measurement(self, audit: CanaryAudit) -> Measurement:
        job = self.job
        statements = [_PROOF]
        if not job.public_data:
            statements += [_PRIVATE] if job.ledger is not None else [_PRIVATE, _UNCHARGED]
        return Measurement(
            "canary-audit",
            self._target.subject,
            audit.to_dict(),
            private=not job.public_data,
            settings={
                "plan": self._target.described,
                "kind": job.canary_kind,
                "evidence": job.evidence,
                "split": job.split,
                "seed": job.seed,
            },
            title=f"One-run audit with {job.canaries:,} canaries",
            statements=statements,
        )


@dataclass(frozen=True)
class _TargetRelease:
    """A release whose certificate holds, and whose plan canaries can audit."""

    plan: ReleasePlan
    epsilon: float
    delta: float
    subject: dict[str, Any]
    certificate: Mapping[str, Any]
    extractor_arrays: Mapping[str, NDArray[np.float32]]

    @classmethod
    def of(cls, folder: Path, config: CanaryConfig) -> _TargetRelease:
        checked, certificate = verify_release(folder), read_certificate(folder)
        plan = check_auditable(plan_from_dict(certificate["plan"]), config)
        subject, arrays = {"kind": "release", "id": checked.id}, read_extractor(folder, certificate)
        return cls(plan, checked.epsilon, checked.delta, subject, certificate, arrays)

    @property
    def described(self) -> dict[str, Any]:
        return dict(self.certificate["plan"])

    @property
    def declared(self) -> bool:
        return self.plan.records_declared or self.plan.records_noise_multiplier is not None

    @property
    def classes(self) -> Sequence[str]:
        return self.plan.classes

    @property
    def shape(self) -> Sequence[int]:
        return tuple(self.certificate["input_shape"])

    @property
    def extractor(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.certificate["extractor"]
        return found

    @property
    def event(self) -> Event:
        return self.plan.event_after_count

    def audit(
        self,
        found: PrivateRecords | FeatureStore,
        config: CanaryConfig,
        streams: SecretStreams,
        generator: np.random.Generator,
        progress: Progress | None,
    ) -> CanaryAudit:
        return audit_release(
            self.plan, found, config, delta=self.delta, streams=streams, generator=generator, progress=progress
        )


@dataclass(frozen=True)
class _TargetModel:
    """A trained model whose certificate holds, and whose run canaries can audit."""

    plan: TrainingPlan
    epsilon: float
    delta: float
    subject: dict[str, Any]
    config: TrainingConfig
    facts: ModelFacts

    @classmethod
    def of(cls, folder: Path, config: CanaryConfig) -> _TargetModel:
        checked, model = verify_trained(folder), load_trained(folder)
        plan, training = plan_of(model.certificate), trained_on_records(model.certificate)
        check_auditable_training(training, config)
        check_room(config, weights=FlatParameters(model.network).size, records=plan.records)
        subject = {"kind": "model", "id": checked.id}
        return cls(plan, checked.epsilon, checked.delta, subject, training, model.facts_)

    @property
    def described(self) -> dict[str, Any]:
        return self.plan.to_dict()

    @property
    def declared(self) -> bool:
        return self.plan.records_declared

    @property
    def classes(self) -> Sequence[str]:
        return self.facts.classes

    @property
    def shape(self) -> Sequence[int]:
        return tuple(self.facts.input_shape)

    @property
    def extractor(self) -> Mapping[str, Any]:
        return self.facts.extractor

    @property
    def extractor_arrays(self) -> Mapping[str, NDArray[np.float32]]:
        return self.facts.extractor_arrays

    @property
    def event(self) -> Event:
        return self.plan.event

    def audit(
        self,
        found: PrivateRecords | FeatureStore,
        config: CanaryConfig,
        streams: SecretStreams,
        generator: np.random.Generator,
        progress: Progress | None,
    ) -> CanaryAudit:
        facts = self.facts
        return audit_training_canaries(
            self.config,
            ModelFacts(facts.classes, facts.extractor, tuple(facts.input_shape), facts.dim),
            TrainingRecords.of(found.features, found.labels, classes=len(facts.classes)),
            config,
            plan=self.plan,
            streams=streams,
            generator=generator,
            progress=progress,
        )


def trained_on_records(certificate: Mapping[str, Any]) -> TrainingConfig:
    """The config of a model that was trained on private records as they are.

    Raises:
        InvalidInput: views, a bank or public data took part, which a certificate does not hold.
    """
    settings = certificate["settings"]
    if settings.get("views") != stored(ViewConfig.plain()) or settings.get("bank_views"):
        raise InvalidInput("target", "a model trained on views", "one trained on the records themselves")
    if settings.get("scenario") != "cold" or certificate["public_data"]:
        raise InvalidInput("target", "a model trained with public data", "one trained on private records alone")
    return TrainingConfig.from_settings(settings)
