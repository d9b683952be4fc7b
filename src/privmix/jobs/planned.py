"""A release that is planned, for people and machines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from privmix.accounting import PrivacyCost
from privmix.jobs.budget import Charge
from privmix.jobs.planning import Chosen
from privmix.jobs.release_options import DEFAULT_CLIP_NORM
from privmix.jobs.shown import Shown
from privmix.mechanisms.run_place import RunState
from privmix.planning import Choice
from privmix.planning.config import WHY
from privmix.plans import Plan, ReleasePlan, made_by
from privmix.releases import SecretStreams
from privmix.rounding import exact

if TYPE_CHECKING:
    from privmix.jobs.release import ReleaseJob


@dataclass(frozen=True, eq=False, repr=False)
class Planned(Shown):
    """A release that is planned: no private record was read, but for a private count, which is paid for.

    Attributes:
        job: whose plan it is.
        plan: public.
        chosen: how the planner came to it; None where the user chose.
        engine: where it runs.
        by_theory: whether the mixup degree was left to theory.
    """

    job: ReleaseJob = field(repr=False)
    plan: Plan
    chosen: Chosen | None
    engine: str
    _state: RunState | None = field(default=None, repr=False)
    _streams: SecretStreams | None = field(default=None, repr=False)
    _counted: Charge = field(default_factory=Charge, repr=False)
    _identity: dict[str, Any] | None = field(default=None, repr=False)
    by_theory: bool = field(default=False, kw_only=True)

    @property
    def choice(self) -> Choice | None:
        """Every design's prediction, and the best, where the planner was asked."""
        return None if self.chosen is None else self.chosen.choice

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the plan is what it is, where the user left that open, a sentence each."""
        found = () if self.choice is None else tuple(self.choice.reasons)
        if self.by_theory and isinstance(self.plan, ReleasePlan):
            found += (f"mixup degree {self.plan.mixup_degree}, by theory: {WHY}",)
        return found

    @property
    def cost(self) -> PrivacyCost:
        """Epsilon at the delta asked for, an upper bound."""
        return self.plan.cost()

    @property
    def warnings(self) -> tuple[str, ...]:
        """What its owner should know before it is carried out, a sentence each."""
        found = []
        if self.job.delta >= 1 / self.plan.records:
            found.append(f"delta {exact(self.job.delta)} is not below 1/records = {1 / self.plan.records:.3g}")
        if self.job.plain_numbers and self.job.clip_norm == DEFAULT_CLIP_NORM and not self.job.resume:
            found.append(
                f"features are plain numbers and the clipping bound is {DEFAULT_CLIP_NORM:g}, its default: of a longer "
                "record only the proportions are left, so a column of large numbers hides the others. Give a bound by "
                "what is public of their ranges (`clip_norm`), or ranges and categories (`features` tabular:SPEC.json)"
            )
        if self.job.seed is not None:
            found.append("`seed` makes the noise reproducible: this release is NOT private")
        return tuple(found)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {
            "plan": self.plan.to_dict(),
            "epsilon": self.job.epsilon,
            "delta": self.job.delta,
            "adjacency": self.plan.adjacency.value,
            "choice": None if self.choice is None else self.choice.to_dict(),
        }

    def facts(self) -> dict[str, str]:
        """For people, by what each is called."""
        plan, job = self.plan, self.job
        return {
            "design": plan.design,
            "records, features, classes": f"{plan.records:,}, {plan.dim:,}, {plan.num_classes:,}",
            "target": f"epsilon {exact(job.epsilon)}, delta {exact(job.delta)}, adjacency {plan.adjacency.value}",
            **design_facts(plan),
        }

    def shown(self) -> tuple[str, Mapping[str, object]]:
        """As it prints; what is planned is public, its data are not."""
        return "Planned release", {
            **self.facts(),
            **({"why": " ".join(self.reasons)} if self.reasons else {}),
            **({"warnings": "; ".join(self.warnings)} if self.warnings else {}),
        }

    def __str__(self) -> str:
        told = [f"warning: {text}" for text in self.warnings]
        return "\n".join([*(f"{name}: {value}" for name, value in self.facts().items()), *self.reasons, *told])


def design_facts(plan: Plan) -> dict[str, str]:
    """What people want to see of a plan's design and noise."""
    return {
        **made_by(plan).shown(plan),
        "joint noise multiplier": f"{plan.noise_multiplier:.5g}",
        "mean query's multiplier": "none" if not plan.centred else f"{plan.centre_noise_multiplier:.5g}",
        "noise in " + ", ".join(plan.noise_std): ", ".join(f"{value:.5g}" for value in plan.noise_std.values()),
    }
