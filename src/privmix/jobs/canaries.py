"""A plan run once more on the owner's data with canaries in it: what :class:`privmix.jobs.job.Job` does for that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from privmix.accounting import Event
from privmix.attacks.canaries import CanaryAudit, CanaryConfig, audit_release, check_auditable
from privmix.attacks.training_canaries import audit_training_canaries, check_auditable_training, check_room
from privmix.certificate.certificate import MODEL
from privmix.data import FeatureStore
from privmix.engine import PrivateRecords
from privmix.errors import WITHHELD, InvalidInput
from privmix.features import Extractor, from_spec
from privmix.fields import stored
from privmix.jobs.audited import Audited
from privmix.jobs.budget import Cost
from privmix.jobs.dataset import Dataset, open_dataset
from privmix.jobs.features import features_in_memory, features_on_disk
from privmix.jobs.job import Job
from privmix.jobs.kinds import kind_of
from privmix.jobs.options import CanaryOptions
from privmix.jobs.persons import check_persons, records_of_each
from privmix.jobs.recording import Measurement
from privmix.jobs.work import Key, PlannedJob, Work
from privmix.mechanisms.plan import unit_of
from privmix.mechanisms.streams import SecretStreams
from privmix.plans import ReleasePlan, plan_from_dict
from privmix.progress import Progress
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
from privmix.training.models import Classifier
from privmix.training.trained import initial_network
from privmix.training.verify import plan_of, verify_trained

_PROOF: Final = (
    "The plan was run once more, on the data with canaries; a proof is about the mechanism and its implementation. "
    "A low one does not show that less is revealed."
)
_OF_PERSONS: Final = "A canary is one person: all of their records are in the data or none."
_PRIVATE: Final = "These figures were computed from private records and nothing protects them: they are for the owner."
_UNCHARGED: Final = "The run's cost was charged to no ledger: nothing of it but these figures was kept."


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PlannedAudit(PlannedJob["CanaryJob"]):
    """An audit with canaries that is planned: no private record was read."""

    @property
    def count_is_private(self) -> bool:
        """Whether the real number of records is not to be shown."""
        return self.job.audited.declared or self.plan.per_person is not None


@dataclass(frozen=True, eq=False, kw_only=True)
class CanaryJob(CanaryOptions, Job[PlannedAudit, Audited[CanaryAudit]]):
    """An audit of a release or model with canaries among the owner's records: :meth:`plan` it, then :meth:`carry_out`.

    Formal guarantees: those of :class:`privmix.jobs.job.Job`. Of the run nothing is kept but the figures, which are
    marked private.

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

    made: ClassVar[str] = "audit"

    @cached_property
    def audited(self) -> _TargetRelease | _TargetModel:
        """What is audited; its certificate holds."""
        folder = Path(self.target)
        if kind_of(folder) == MODEL:
            return _TargetModel.of(folder, self.config, self.module)
        if self.module is not None:
            raise InvalidInput("module", WITHHELD, "nothing for a release")
        return _TargetRelease.of(folder, self.config)

    @cached_property
    def config(self) -> CanaryConfig:
        """Of the canaries."""
        kind, each = self.canary_kind, self.canary_records
        return CanaryConfig(self.canaries, self.confidence, self.guesses, kind, self.evidence, each)

    @cached_property
    def extractor(self) -> Extractor:
        """The target's."""
        model, trusted, found = self.features_model, self.trust_features_model, self.audited
        return from_spec(found.extractor, model, trust_model=trusted, arrays=found.extractor_arrays)

    @cached_property
    def opened(self) -> Dataset:
        """The dataset; opening it reads no record."""
        shape, classes = tuple(self.audited.shape), list(self.audited.classes)
        return open_dataset(
            self.data, self.extractor, split=self.split, classes=classes, columns=self.columns, input_shape=shape
        )

    def plan(self) -> PlannedAudit:
        """Check everything that can be checked without a private record and without a charge.

        Raises:
            InvalidInput: options don't go together, the certificate does not hold, canaries can't audit such a plan, or
                the data are others.
            StorageError: something can't be read, or ``store`` not written.
        """
        self.check()
        target, schema = self.audited, self.opened.schema
        shape, classes = tuple(target.shape), tuple(target.classes)
        if tuple(schema.input_shape) != shape:
            raise InvalidInput("data", schema.input_shape, f"inputs of shape {shape}, as the target's")
        if tuple(schema.classes) != classes:
            raise InvalidInput("data", list(schema.classes), f"the target's classes: {', '.join(classes)}")
        self._check_persons()
        counted = not target.declared and target.plan.per_person is None
        if counted and schema.records != target.plan.records:
            raise InvalidInput("data", WITHHELD, f"the target's {target.plan.records} records: its own data and split")
        return PlannedAudit(job=self, plan=target.plan, key=Key(self.seed))

    def check_options(self) -> None:
        """See :meth:`Job.check_options`."""
        if self.persons.per_person is not None:
            raise InvalidInput("per_person", self.persons.per_person, "none: it is the target's")

    def _check_persons(self) -> None:
        declared = self.persons.declared(self.columns.person)
        if declared is not (self.audited.plan.per_person is not None):
            allowed = "whose the records are (`person`, `person_pattern` or `person_file`): the target is of persons"
            if declared:
                allowed = "nothing: the target's unit is a record"
            raise InvalidInput("person", "given" if declared else "nothing", allowed)
        self.persons.check(self.opened)

    def whose(self) -> NDArray[np.int64] | None:
        """See :meth:`Job.whose`."""
        return self.persons.read(self.opened) if self.persons.declared(self.columns.person) else None

    def cost(self, planned: PlannedAudit) -> Cost:
        """See :meth:`Job.cost`."""
        target = self.audited
        unit = unit_of(target.plan).one
        return Cost(target.event, target.plan.adjacency, "canary audit", target.epsilon, target.delta, unit)

    def read(self, planned: PlannedAudit, work: Work, progress: Progress) -> PrivateRecords | FeatureStore:
        """Features, on disk where asked for; and whose they are."""
        # The cheaper part first: what does not fit ends the job before features are made.
        whose = self.whose()
        if whose is not None and isinstance(planned.plan, ReleasePlan):
            check_persons(len(records_of_each(whose)), planned.plan)
        if self.store is None:
            return replace(features_in_memory(self.opened.source, self.extractor, progress), persons=whose)
        store = features_on_disk(self.opened, self.extractor, Path(self.store), progress)
        return store if whose is None else PrivateRecords(store.features, store.labels, whose)

    def compute(self, planned: PlannedAudit, work: Work, records: Any, progress: Progress) -> Audited[CanaryAudit]:
        """See :meth:`Job.compute`."""
        assert work.streams is not None
        generator = np.random.default_rng(self.seed)
        audit = self.audited.audit(records, self.config, work.streams, generator, progress)
        # The certificate's figure, which may be higher than the price, is what the audit stands beside.
        audit = replace(audit, proof=replace(audit.proof, claimed_epsilon=self.audited.epsilon))
        return Audited(self._measurement(audit), audit)

    def noted(self, result: Audited[CanaryAudit]) -> str:
        """See :meth:`Job.noted`."""
        return "canary audit"

    def _measurement(self, audit: CanaryAudit) -> Measurement:
        of_persons = self.audited.plan.per_person is not None
        statements = [_PROOF, _OF_PERSONS] if of_persons else [_PROOF]
        if not self.public_data:
            statements += [_PRIVATE] if self.ledger is not None else [_PRIVATE, _UNCHARGED]
        return Measurement(
            "canary-audit",
            self.audited.subject,
            audit.to_dict(),
            private=not self.public_data,
            settings={
                "plan": self.audited.described,
                "kind": self.canary_kind,
                "evidence": self.evidence,
                "split": self.split,
                "seed": self.seed,
                **({"canary_records": self.canary_records} if of_persons else {}),
            },
            title=f"One-run audit with {self.canaries:,} {audit.canaries}",
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
    network: Classifier | None

    @classmethod
    def of(cls, folder: Path, config: CanaryConfig, module: Any) -> _TargetModel:
        checked, model = verify_trained(folder), load_trained(folder, module)
        plan, training = plan_of(model.certificate), trained_on_records(model.certificate)
        check_auditable_training(training, config)
        network = initial_network(model, module)
        weights = FlatParameters(model.network).size
        check_room(config, weights=weights, records=plan.records, units=unit_of(plan).many)
        subject = {"kind": "model", "id": checked.id}
        return cls(plan, checked.epsilon, checked.delta, subject, training, model.facts_, network)

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
        facts, persons = self.facts, found.persons if isinstance(found, PrivateRecords) else None
        return audit_training_canaries(
            self.config,
            ModelFacts(facts.classes, facts.extractor, tuple(facts.input_shape), facts.dim),
            TrainingRecords.of(found.features, found.labels, classes=len(facts.classes), persons=persons),
            config,
            plan=self.plan,
            network=self.network,
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
