"""Audits of a model by training once more with canaries among the owner's records."""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np

from privmix.attacks.canaries import CanaryAudit, CanaryConfig
from privmix.attacks.training_canaries import audit_training_canaries, check_auditable_training, check_room
from privmix.certificate.certificate import MODEL, RELEASE
from privmix.certificate.verification import Verification
from privmix.engine.rows import PrivateRecords
from privmix.errors import WITHHELD, InvalidInput, Unquoted
from privmix.features.base import Extractor
from privmix.features.spec import from_spec
from privmix.fields import stored
from privmix.jobs.audit import AuditResult
from privmix.jobs.budget import JobCost
from privmix.jobs.dataset import Dataset
from privmix.jobs.features import features_in_memory, features_on_disk
from privmix.jobs.job import Job, PlannedJob, RunKey, Work
from privmix.jobs.kinds import kind_of
from privmix.jobs.models import open_for_model
from privmix.jobs.options import CanaryOptions
from privmix.jobs.recording import Measurement
from privmix.mechanisms.plan import unit_of
from privmix.named import options_in
from privmix.progress import Progress
from privmix.training.config import TrainingConfig
from privmix.training.dp_sgd import TrainingRecords
from privmix.training.examples import ModelFacts
from privmix.training.gradients.parameters import FlatParameters
from privmix.training.models.own import OwnNetwork
from privmix.training.plan import TrainingPlan
from privmix.training.trained import initial_network, load_trained
from privmix.training.verify import plan_of, verify_trained
from privmix.training.views.config import ViewConfig

_PROOF: Final = (
    "The audit ran the training again, on the data with canaries. The result is about the mechanism and its "
    "implementation. A low lower bound does not prove a small privacy loss."
)
_OF_PERSONS: Final = "A canary is one person: either all or none of the person's records are in the data."
_PRIVATE: Final = "These figures come from private records, without any guarantee: only the owner may see them."
_UNCHARGED: Final = "No ledger was charged for this run: only these figures were kept."


_Planned: TypeAlias = PlannedJob["CanaryJob"]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class CanaryJob(CanaryOptions, Job[_Planned, AuditResult[CanaryAudit]]):
    """An audit of a trained model with canaries among the owner's records: :meth:`plan` it, then :meth:`carry_out`.

    Formal guarantees: those of :class:`privmix.jobs.job.Job`. Only the figures of the run are kept, and they are marked
    private.
    """

    target: str | Path
    confidence: float = 0.95
    seed: int | None = None

    made: ClassVar[str] = "audit"

    @cached_property
    def audited(self) -> "_Target":
        return _Target.of(Path(self.target), self.config, self.module)

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
        return from_spec(self.audited.facts.extractor, self.features_model)

    @cached_property
    def opened(self) -> Dataset:
        return open_for_model(self.audited.facts, self.extractor, self.data, self.split, self.declared)

    def plan(self) -> _Planned:
        """Check everything that can be checked without a private record and without a charge."""
        self.check()
        plan, opened = self.audited.plan, self.opened
        if self.of_persons is not (plan.per_person is not None):
            allowed = "no persons: the target protects records"
            if not self.of_persons:
                allowed = "the column of persons (`person`): the target protects persons"
            raise InvalidInput("person", "given" if self.of_persons else "nothing", allowed)
        self.persons.check(opened)
        # A declared count, or a count of persons, is not the number of records.
        counted = not plan.records_declared and plan.per_person is None
        if counted and opened.schema.records != plan.records:
            raise InvalidInput("data", WITHHELD, f"the {plan.records} records of the target: give its data and split")
        return PlannedJob(job=self, plan=plan, key=RunKey(self.seed))

    def cost(self, planned: _Planned) -> JobCost:
        plan, checked = self.audited.plan, self.audited.checked
        # Charged in full: the figures come of a second training on the same records.
        return JobCost(plan.event, plan.adjacency, "canary audit", checked.epsilon, checked.delta, unit_of(plan).one)

    def read(self, planned: _Planned, work: Work, progress: Progress) -> PrivateRecords:
        whose = self.whose()
        if self.store is None:
            return replace(features_in_memory(self.opened.source, self.extractor, progress), persons=whose)
        # Not sorted by person as a release's store is: a training finds the records of a person at any place.
        store = features_on_disk(self.opened, self.extractor, Path(self.store), progress)
        return PrivateRecords(store.features, store.labels, whose)

    def compute(self, planned: _Planned, work: Work, records: Any, progress: Progress) -> AuditResult[CanaryAudit]:
        assert work.streams is not None
        target, classes = self.audited, len(self.audited.facts.classes)
        audit = audit_training_canaries(
            target.training,
            target.facts,
            TrainingRecords.of(records.features, records.labels, classes=classes, persons=records.persons),
            self.config,
            plan=target.plan,
            network=target.network,
            streams=work.streams,
            generator=np.random.default_rng(self.seed),
            progress=progress,
        )
        # The audit is compared with the certificate's figure, which may be higher than the price.
        audit = replace(audit, proof=replace(audit.proof, claimed_epsilon=target.checked.epsilon))
        of_persons = target.plan.per_person is not None
        warnings = () if self.public_data else (_PRIVATE,) if self.ledger is not None else (_PRIVATE, _UNCHARGED)
        measurement = Measurement(
            "canary-audit",
            {"kind": MODEL, "id": target.checked.id},
            audit.to_dict(),
            private=not self.public_data,
            settings={
                "plan": target.plan.to_dict(),
                "kind": self.config.kind,
                "evidence": self.config.evidence,
                "split": self.split,
                "seed": self.seed,
                **({"canary_records": self.config.canary_records} if of_persons else {}),
            },
            title=f"One-run audit with {self.config.canaries:,} {audit.canaries}",
            statements=[_PROOF, *([_OF_PERSONS] if of_persons else []), *warnings],
        )
        return AuditResult(measurement, audit, warnings=warnings)

    def noted(self, result: AuditResult[CanaryAudit]) -> str:
        return "canary audit"


@dataclass(frozen=True)
class _Target:
    """A trained model: its verified certificate, and what the same training needs; ``network``: a user's own."""

    checked: Verification
    plan: TrainingPlan
    training: TrainingConfig
    facts: ModelFacts
    network: OwnNetwork | None

    @classmethod
    def of(cls, folder: Path, config: CanaryConfig, module: Any) -> "_Target":
        if kind_of(folder) == RELEASE:
            allowed = "the folder of a trained model; audit a release without `data` and `canaries`"
            raise InvalidInput("target", Unquoted("a release"), allowed)
        checked, model = verify_trained(folder), load_trained(folder, module)
        plan, settings = plan_of(model.certificate), model.certificate["settings"]
        # The training is repeated by its certificate, which holds no views, banks or public data.
        if settings.get("views") != stored(ViewConfig.plain()) or settings.get("bank_views"):
            raise InvalidInput("target", "a model trained on views", "a model trained on the records themselves")
        if settings.get("scenario") != "cold" or model.certificate["public_data"]:
            raise InvalidInput("target", "a model trained with public data", "a model trained on private records only")
        training = TrainingConfig.from_settings(settings)
        # Before the charge: a training that canaries cannot audit would be paid for nothing.
        check_auditable_training(training, config)
        network, weights = initial_network(model, module), FlatParameters(model.network).size
        check_room(config, weights=weights, records=plan.records, units=unit_of(plan).many)
        return cls(checked, plan, training, model.facts_, network)
