"""What audits are asked about, and what they found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from privmix.accounting import UnsupportedEvent, calibrate
from privmix.attacks.canaries import CanaryAudit
from privmix.attacks.noise_scale import NoiseAudit
from privmix.audits.verdict import Audit
from privmix.errors import InvalidInput
from privmix.jobs.kinds import certified
from privmix.jobs.options import DesignClaim
from privmix.jobs.recording import Measured
from privmix.planning import ReleaseConfig
from privmix.plans import Plan
from privmix.shown import Bars
from privmix.training import TrainingPlan

A = TypeVar("A", Audit, NoiseAudit, CanaryAudit)


@dataclass(frozen=True, repr=False)
class Audited(Measured, Generic[A]):
    """What an audit found.

    Attributes:
        audit: the figures.
    """

    audit: A

    def shown(self) -> tuple[str, Mapping[str, object]]:
        """The verdict, and what it rests on."""
        return self.audit.shown()

    def picture(self) -> Bars:
        """See :meth:`shown`."""
        return self.audit.picture()

    @property
    def violated(self) -> bool:
        """Whether the claim is refuted."""
        return bool(self.audit.proof.violated if isinstance(self.audit, CanaryAudit) else self.audit.violated)

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return self.audit.to_dict()


@dataclass(frozen=True)
class Claim:
    """A plan, and what is claimed for it.

    Attributes:
        plan: of a release or a training run.
        epsilon, delta: claimed.
        subject: what a record of it is about.
        as_published: the plan's noise follows the papers' formula, which is no bound.
    """

    plan: Plan | TrainingPlan
    epsilon: float
    delta: float
    subject: dict[str, Any]
    as_published: bool = False

    @classmethod
    def of_folder(cls, folder: str | Path) -> Claim:
        """That of a release or trained model whose certificate holds.

        Raises:
            InvalidInput: something does not hold.
            StorageError: a file is missing or can't be read.
        """
        kind = certified(folder)
        held, plan = kind.verify(folder), kind.plan(kind.read(folder))
        assert isinstance(plan, Plan | TrainingPlan)
        return cls(plan, held.epsilon, held.delta, {"kind": held.kind, "id": held.id})

    @classmethod
    def of_plan(cls, plan: Plan | TrainingPlan) -> Claim:
        """What a plan itself was asked for.

        Raises:
            InvalidInput: it was asked for nothing; ``plan.priced(delta)`` asks for what it costs.
        """
        if plan.epsilon is None or plan.delta is None:
            raise InvalidInput("target", "a plan without a target", "one with its target: plan.priced(delta)")
        return cls(plan, plan.epsilon, plan.delta, {"kind": "design", "id": None})

    @classmethod
    def of_design(cls, config: ReleaseConfig, epsilon: float, delta: float, *, as_published: bool = False) -> Claim:
        """A design under a claim, with the noise that the claim needs or, as published, that the papers give it.

        Raises:
            InvalidInput: the claim is out of range or can't be met, or the papers have no formula for the design.
        """
        if not as_published:
            return cls.of_plan(config.calibrate(epsilon, delta))
        plan = published_plan(config, epsilon, delta)
        return cls(plan, epsilon, delta, {"kind": "design", "id": None}, as_published=True)

    @classmethod
    def of_either(
        cls, folder: str | Path | None, design: str | None, options: Mapping[str, Any], said: DesignClaim
    ) -> Claim:
        """That of a folder or of a design, whichever is given.

        Args:
            folder: of a release or trained model, as :meth:`of_folder` takes it.
            design: a design's name.
            options: of the design, by name.
            said: what is claimed of it.

        Raises:
            InvalidInput: both or neither are given, or too much or too little is said; or as the others.
            StorageError: a file is missing or can't be read.
        """
        if (folder is None) == (design is None):
            raise InvalidInput("target, design", "both or neither", "one of the two: a folder or a design")
        if folder is not None:
            if said.records is not None or said.epsilon is not None or said.as_published:
                raise InvalidInput("records, epsilon, as_published", "given", "options of `design` only")
            return cls.of_folder(folder)
        if said.records is None or said.epsilon is None:
            raise InvalidInput("records, epsilon", "not given", "the design's record count and its claim")
        config = ReleaseConfig(
            records=said.records,
            dim=1,
            classes=tuple(str(number) for number in range(said.classes)),
            design=design or "",
            rows=said.rows,
            centre=said.centre,
            **options,
        )
        return cls.of_design(config, said.epsilon, said.delta, as_published=said.as_published)


def published_plan(config: ReleaseConfig, epsilon: float, delta: float) -> Plan:
    """The plan with the noise of the papers' formula, which may be less than private.

    Raises:
        InvalidInput: the papers have no formula for this design.
    """
    config = config.resolved(epsilon, delta)
    adjacency = config.draft().adjacency
    try:
        found = calibrate(
            lambda noise: config.with_noise(noise).event, epsilon, delta, accountant="as_published", adjacency=adjacency
        )
    except UnsupportedEvent:
        raise InvalidInput("as_published", config.design.name, "a design that the papers have a formula for") from None
    return config.with_noise(found.noise_multiplier)
