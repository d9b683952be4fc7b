"""A plan run once more on the owner's data with canaries in it: what :class:`privmix.jobs.job.Job` does for that."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from privmix.accounting.events import Event
from privmix.attacks.canaries import CanaryAudit, CanaryConfig, audit_release, check_auditable
from privmix.attacks.training_canaries import audit_training_canaries, check_auditable_training, check_room
from privmix.certificate.certificate import MODEL
from privmix.data.store import FeatureStore
from privmix.engine.rows import PrivateRecords
from privmix.errors import WITHHELD, InvalidInput, Unquoted
from privmix.features.base import Extractor
from privmix.features.spec import from_spec
from privmix.fields import stored
from privmix.jobs.audit import AuditResult
from privmix.jobs.budget import JobCost
from privmix.jobs.dataset import Dataset, open_dataset
from privmix.jobs.features import features_in_memory, features_on_disk
from privmix.jobs.job import Job
from privmix.jobs.kinds import kind_of
from privmix.jobs.options import CanaryOptions
from privmix.jobs.persons import check_persons, records_of_each
from privmix.jobs.recording import Measurement
from privmix.jobs.work import PlannedJob, RunKey, Work
from privmix.mechanisms.plan import unit_of
from privmix.named import options_in
from privmix.plans.named import plan_from_dict
from privmix.plans.rows import ReleasePlan
from privmix.progress import Progress
from privmix.releases.certificate import read_certificate
from privmix.releases.verify import verify_release
from privmix.training.config import TrainingConfig
from privmix.training.facts import ModelFacts
from privmix.training.gradients.parameters import FlatParameters
from privmix.training.plan import TrainingPlan
from privmix.training.records import TrainingRecords
from privmix.training.trained import initial_network, load_trained
from privmix.training.verify import plan_of, verify_trained
from privmix.training.views.config import ViewConfig

_PROOF: Final = (
    "The audit ran the plan again, on the data with canaries. The result is about the mechanism and its "
    "implementation. A low lower bound does not prove a small privacy loss."
)
_OF_PERSONS: Final = "A canary is one person: either all or none of the person's records are in the data."
_PRIVATE: Final = "These figures come from private records, without any guarantee: only the owner may see them."
_UNCHARGED: Final = "No ledger was charged for this run: only these figures were kept."


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PlannedAudit(PlannedJob["CanaryJob"]):
    """An audit with canaries that is planned: no private record was read."""

    @property
    def count_is_private(self) -> bool:
        """Whether the real number of records is not to be shown."""
        return self.job.audited.declared or self.plan.per_person is not None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class CanaryJob(CanaryOptions, Job[PlannedAudit, AuditResult[CanaryAudit]]):
    """An audit of a release or model with canaries among the owner's records: :meth:`plan` it, then :meth:`carry_out`.

    Formal guarantees: those of :class:`privmix.jobs.job.Job`. Only the figures of the run are kept, and they are marked
    private.
    """

    target: str | Path
    confidence: float = 0.95
    seed: int | None = None

    made: ClassVar[str] = "audit"

    @cached_property
    def audited(self) -> _Target:
        """Audited release or model, with a valid certificate."""
        folder = Path(self.target)
        if kind_of(folder) == MODEL:
            return _model_target(folder, self.config, self.module)
        if self.module is not None:
            raise InvalidInput("module", Unquoted("a module"), "no module for a release")
        return _release_target(folder, self.config)

    @cached_property
    def config(self) -> CanaryConfig:
        count, _, words = str(self.canaries).partition(":")
        if not count.isdecimal():
            raise InvalidInput("canaries", self.canaries, "a number, or NUMBER:KEY=VALUE,...")
        settings = options_in("canaries", words, CanaryConfig, of="canaries")
        for name in ("canary_kind", "evidence", "canary_records", "guesses"):
            if (value := getattr(self, name)) is not None:
                key = "kind" if name == "canary_kind" else name
                if key in settings:
                    raise InvalidInput(name, value, "only where `canaries` does not set it, too")
                settings[key] = value
        return CanaryConfig(int(count), self.confidence, **settings)

    @cached_property
    def extractor(self) -> Extractor:
        """The target's."""
        return from_spec(self.audited.extractor, self.features_model)

    @cached_property
    def opened(self) -> Dataset:
        shape, classes = self.audited.shape, list(self.audited.classes)
        return open_dataset(
            self.data, self.extractor, split=self.split, classes=classes, columns=self.declared, input_shape=shape
        )

    def plan(self) -> PlannedAudit:
        """Check everything that can be checked without a private record and without a charge."""
        self.check()
        target, schema = self.audited, self.opened.schema
        shape, classes = target.shape, tuple(target.classes)
        if tuple(schema.input_shape) != shape:
            raise InvalidInput("data", schema.input_shape, f"inputs of shape {shape}, as the target's")
        if tuple(schema.classes) != classes:
            raise InvalidInput("data", list(schema.classes), f"the target's classes: {', '.join(classes)}")
        self._check_persons()
        counted = not target.declared and target.plan.per_person is None
        if counted and schema.records != target.plan.records:
            raise InvalidInput(
                "data", WITHHELD, f"the {target.plan.records} records of the target: give its data and split"
            )
        return PlannedAudit(job=self, plan=target.plan, key=RunKey(self.seed))

    def _check_persons(self) -> None:
        declared = self.persons.declared(self.declared.person)
        if declared is not (self.audited.plan.per_person is not None):
            allowed = "the column of persons (`person`): the target protects persons"
            if declared:
                allowed = "no persons: the target protects records"
            raise InvalidInput("person", "given" if declared else "nothing", allowed)
        self.persons.check(self.opened)

    def whose(self) -> NDArray[np.int64] | None:
        return self.persons.read(self.opened) if self.persons.declared(self.declared.person) else None

    def cost(self, planned: PlannedAudit) -> JobCost:
        target = self.audited
        unit = unit_of(target.plan).one
        return JobCost(target.event, target.plan.adjacency, "canary audit", target.epsilon, target.delta, unit)

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

    def compute(self, planned: PlannedAudit, work: Work, records: Any, progress: Progress) -> AuditResult[CanaryAudit]:
        assert work.streams is not None
        generator = np.random.default_rng(self.seed)
        audit = self.audited.audit(records, streams=work.streams, generator=generator, progress=progress)
        # The audit is compared with the certificate's figure, which may be higher than the price.
        audit = replace(audit, proof=replace(audit.proof, claimed_epsilon=self.audited.epsilon))
        measured = self._measurement(audit)
        private = tuple(text for text in measured.statements if text in (_PRIVATE, _UNCHARGED))
        return AuditResult(measured, audit, warnings=private)

    def noted(self, result: AuditResult[CanaryAudit]) -> str:
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
                "kind": self.config.kind,
                "evidence": self.config.evidence,
                "split": self.split,
                "seed": self.seed,
                **({"canary_records": self.config.canary_records} if of_persons else {}),
            },
            title=f"One-run audit with {self.config.canaries:,} {audit.canaries}",
            statements=statements,
        )


@dataclass(frozen=True)
class _Target:
    """A release or model whose certificate holds; ``audit`` runs its plan on features with canaries."""

    plan: ReleasePlan | TrainingPlan
    epsilon: float
    delta: float
    subject: Mapping[str, Any]
    described: Mapping[str, Any]
    declared: bool
    classes: Sequence[str]
    shape: tuple[int, ...]
    extractor: Mapping[str, Any]
    event: Event
    audit: Callable[..., CanaryAudit]


def _release_target(folder: Path, config: CanaryConfig) -> _Target:
    checked, certificate = verify_release(folder), read_certificate(folder)
    plan = check_auditable(plan_from_dict(certificate["plan"]), config)

    def audit(found: PrivateRecords | FeatureStore, **given: Any) -> CanaryAudit:
        return audit_release(plan, found, config, delta=checked.delta, **given)

    return _Target(
        plan,
        checked.epsilon,
        checked.delta,
        subject={"kind": "release", "id": checked.id},
        described=dict(certificate["plan"]),
        declared=plan.records_declared or plan.records_noise_multiplier is not None,
        classes=plan.classes,
        shape=tuple(certificate["input_shape"]),
        extractor=certificate["extractor"],
        event=plan.event_after_count,
        audit=audit,
    )


def _model_target(folder: Path, config: CanaryConfig, module: Any) -> _Target:
    checked, model = verify_trained(folder), load_trained(folder, module)
    plan, training = plan_of(model.certificate), trained_on_records(model.certificate)
    check_auditable_training(training, config)
    network, facts = initial_network(model, module), model.facts_
    weights = FlatParameters(model.network).size
    check_room(config, weights=weights, records=plan.records, units=unit_of(plan).many)
    shape = tuple(facts.input_shape)

    def audit(found: PrivateRecords | FeatureStore, **given: Any) -> CanaryAudit:
        persons = found.persons if isinstance(found, PrivateRecords) else None
        plain = ModelFacts(facts.classes, facts.extractor, shape, facts.dim)
        records = TrainingRecords.of(found.features, found.labels, classes=len(facts.classes), persons=persons)
        return audit_training_canaries(training, plain, records, config, plan=plan, network=network, **given)

    return _Target(
        plan,
        checked.epsilon,
        checked.delta,
        subject={"kind": "model", "id": checked.id},
        described=plan.to_dict(),
        declared=plan.records_declared,
        classes=facts.classes,
        shape=shape,
        extractor=facts.extractor,
        event=plan.event,
        audit=audit,
    )


def trained_on_records(certificate: Mapping[str, Any]) -> TrainingConfig:
    """Return the config of a model trained on plain records; a certificate holds no views, banks or public data."""
    settings = certificate["settings"]
    if settings.get("views") != stored(ViewConfig.plain()) or settings.get("bank_views"):
        raise InvalidInput("target", "a model trained on views", "a model trained on the records themselves")
    if settings.get("scenario") != "cold" or certificate["public_data"]:
        raise InvalidInput("target", "a model trained with public data", "a model trained on private records only")
    return TrainingConfig.from_settings(settings)
