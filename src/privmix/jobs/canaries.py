"""Audits of a model by training once more with canaries among the owner's records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Final

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
from privmix.training.facts import ModelFacts
from privmix.training.gradients.parameters import FlatParameters
from privmix.training.models.own import OwnNetwork
from privmix.training.plan import TrainingPlan
from privmix.training.records import TrainingRecords
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


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PlannedAudit(PlannedJob["CanaryJob"]):
    """An audit with canaries that is planned: no private record was read."""

    @property
    def count_is_private(self) -> bool:
        """Whether the real number of records is not to be shown."""
        return self.job.audited.plan.records_declared or self.plan.per_person is not None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class CanaryJob(CanaryOptions, Job[PlannedAudit, AuditResult[CanaryAudit]]):
    """An audit of a trained model with canaries among the owner's records: :meth:`plan` it, then :meth:`carry_out`.

    Formal guarantees: those of :class:`privmix.jobs.job.Job`. Only the figures of the run are kept, and they are marked
    private.
    """

    target: str | Path
    confidence: float = 0.95
    seed: int | None = None

    made: ClassVar[str] = "audit"

    @cached_property
    def audited(self) -> _Target:
        """Audited model, with a valid certificate."""
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
        """The target's."""
        return from_spec(self.audited.facts.extractor, self.features_model)

    @cached_property
    def opened(self) -> Dataset:
        return open_for_model(self.audited.facts, self.extractor, self.data, self.split, self.declared)

    def plan(self) -> PlannedAudit:
        """Check everything that can be checked without a private record and without a charge."""
        self.check()
        target, schema = self.audited, self.opened.schema
        self._check_persons()
        # A declared count, or a count of persons, is not the number of records.
        counted = not target.plan.records_declared and target.plan.per_person is None
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

    def cost(self, planned: PlannedAudit) -> JobCost:
        target = self.audited
        unit = unit_of(target.plan).one
        spent = target.checked.epsilon, target.checked.delta
        return JobCost(target.plan.event, target.plan.adjacency, "canary audit", *spent, unit)

    def read(self, planned: PlannedAudit, work: Work, progress: Progress) -> PrivateRecords:
        """Features, on disk where asked for; and whose they are."""
        whose = self.whose()
        if self.store is None:
            found = features_in_memory(self.opened.source, self.extractor, progress)
        else:
            store = features_on_disk(self.opened, self.extractor, Path(self.store), progress)
            found = PrivateRecords(store.features, store.labels)
        return replace(found, persons=whose)

    def compute(self, planned: PlannedAudit, work: Work, records: Any, progress: Progress) -> AuditResult[CanaryAudit]:
        assert work.streams is not None
        target, facts = self.audited, self.audited.facts
        plain = ModelFacts(facts.classes, facts.extractor, tuple(facts.input_shape), facts.dim)
        audit = audit_training_canaries(
            target.training,
            plain,
            TrainingRecords.of(records.features, records.labels, classes=len(facts.classes), persons=records.persons),
            self.config,
            plan=target.plan,
            network=target.network,
            streams=work.streams,
            generator=np.random.default_rng(self.seed),
            progress=progress,
        )
        # The audit is compared with the certificate's figure, which may be higher than the price.
        audit = replace(audit, proof=replace(audit.proof, claimed_epsilon=target.checked.epsilon))
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
            {"kind": MODEL, "id": self.audited.checked.id},
            audit.to_dict(),
            private=not self.public_data,
            settings={
                "plan": self.audited.plan.to_dict(),
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
    """A trained model: its verified certificate, and what the same training needs; ``network``: a user's own."""

    checked: Verification
    plan: TrainingPlan
    training: TrainingConfig
    facts: ModelFacts
    network: OwnNetwork | None

    @classmethod
    def of(cls, folder: Path, config: CanaryConfig, module: Any) -> _Target:
        if kind_of(folder) == RELEASE:
            allowed = "the folder of a trained model; audit a release without `data` and `canaries`"
            raise InvalidInput("target", Unquoted("a release"), allowed)
        checked, model = verify_trained(folder), load_trained(folder, module)
        plan, training = plan_of(model.certificate), trained_on_records(model.certificate)
        # Before the charge: a training that canaries cannot audit would be paid for nothing.
        check_auditable_training(training, config)
        network, weights = initial_network(model, module), FlatParameters(model.network).size
        check_room(config, weights=weights, records=plan.records, units=unit_of(plan).many)
        return cls(checked, plan, training, model.facts_, network)


def trained_on_records(certificate: Mapping[str, Any]) -> TrainingConfig:
    """Return the config of a model trained on plain records; a certificate holds no views, banks or public data."""
    settings = certificate["settings"]
    if settings.get("views") != stored(ViewConfig.plain()) or settings.get("bank_views"):
        raise InvalidInput("target", "a model trained on views", "a model trained on the records themselves")
    if settings.get("scenario") != "cold" or certificate["public_data"]:
        raise InvalidInput("target", "a model trained with public data", "a model trained on private records only")
    return TrainingConfig.from_settings(settings)
