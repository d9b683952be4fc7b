"""A training that is planned, for people and machines."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from privmix.rounding import exact
from privmix.training import Trainer, TrainingPlan
from privmix.training.mechanisms.base import mechanism_of
from privmix.world import World

if TYPE_CHECKING:
    from privmix.jobs.training import TrainingJob


@dataclass(frozen=True)
class PlannedTraining:
    """A training that is planned: no private record was read.

    Attributes:
        job: that it is of.
        trainer: network, views and public data, ready.
        world: the processes that do it.
    """

    job: TrainingJob
    trainer: Trainer = field(repr=False)
    world: World = field(repr=False)

    @property
    def plan(self) -> TrainingPlan:
        """Public."""
        return self.trainer.plan

    @property
    def warnings(self) -> tuple[str, ...]:
        """What its owner should know before it is carried out, a sentence each."""
        plan, found = self.plan, []
        if plan.steps and plan.delta >= 1 / plan.records:
            found.append(f"delta {exact(plan.delta)} is not below 1/records = {1 / plan.records:.3g}")
        if self.job.seed is not None:
            found.append("`seed` makes the noise reproducible: this model is NOT private")
        return tuple(found)

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        plan = self.plan
        return {"plan": plan.to_dict(), "epsilon": plan.cost().epsilon, "settings": self.trainer.settings()}

    def facts(self) -> dict[str, str]:
        """For people, by what each is called."""
        plan, trainer, config = self.plan, self.trainer, self.trainer.config
        asked = f"epsilon {exact(config.epsilon)}, delta {exact(plan.delta)}, adjacency {plan.adjacency.value}"
        without = {"batches": "none: no private record is read", "public data": config.scenario}
        known = {
            "model": f"{config.model}, {trainer.weights} trained",
            "records, features, classes": f"{plan.records:,}, {trainer.facts.dim}, {len(trainer.facts.classes)}",
            "target": asked,
        }
        if plan.steps == 0:
            return known | without
        return known | {
            "batches": mechanism_of(plan).said(plan, "").short,
            "views of a record": str(trainer.views.views),
            "clipping": f"{config.clipping}, C = {plan.clip_norm:g}, sensitivity {plan.sensitivity:g}",
            "noise multiplier": f"{plan.noise_multiplier:.5g}",
            "public data": config.scenario,
        }
