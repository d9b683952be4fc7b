"""DP-SGD as a training mechanism."""

from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from privmix.accounting.events import Adjacency
from privmix.mechanisms.plan import unit_of
from privmix.mechanisms.sampling import log_mixture
from privmix.mechanisms.streams import SecretStreams
from privmix.rounding import exact, rounded_down
from privmix.training.mechanisms.base import MECHANISMS, StepNoise, TrainingMechanism, Words
from privmix.training.noise import noisy_mean
from privmix.training.plan import TrainingPlan

# Readings are float32 differences: so close is equal.
_SAME: Final = 1e-3


@MECHANISMS.register
class DpSgdMechanism(TrainingMechanism):
    """Each record joins each batch independently; each step has noise of its own."""

    name = "dp-sgd"
    called = "DP-SGD"
    words = "independent noise in each step"
    plan: ClassVar[type[TrainingPlan]] = TrainingPlan

    @classmethod
    def planned(cls, draft: TrainingPlan, settings: Any) -> TrainingPlan:
        return draft

    @classmethod
    def noise(cls, plan: TrainingPlan, streams: SecretStreams) -> StepNoise:
        return lambda total, step: noisy_mean(total, plan, streams, step)

    @classmethod
    def said(cls, plan: TrainingPlan, unit: str) -> Words:
        return Words(
            batches=f"Poisson batches of expected size {plan.batch_size}, {plan.steps} steps",
            noise=f"noise multiplier {plan.noise_multiplier:.6g}",
            mechanism=f"{plan.steps} steps of DP-SGD. Each {unit_of(plan).one} joins each batch independently with "
            f"probability B/n, B = {plan.batch_size}, n = {plan.records}; {unit} is clipped to "
            f"{exact(plan.clip_norm)}; each sum has Gaussian noise, {rounded_down(plan.noise_multiplier, 4)} times "
            f"what adding one {unit_of(plan).one} can change, drawn once.",
            short=f"Poisson, {plan.batch_size} expected, {plan.steps} steps, {plan.epochs:.4g} epochs",
        )

    @classmethod
    def scores(cls, plan: TrainingPlan, seen: NDArray[np.float64]) -> NDArray[np.float64]:
        """Score canaries by the likelihood ratio, a product over steps."""
        rate, noise = plan.sampling_rate, plan.noise_multiplier
        gains = log_mixture(rate, (2 * seen - 1) / (2 * noise**2))
        if plan.adjacency is Adjacency.REPLACE_ONE:
            gains -= log_mixture(rate, (-2 * seen - 1) / (2 * noise**2))
        # Without noise between two steps, all that is left of their difference is a canary that joined one of them.
        apart = np.abs(np.abs(np.diff(seen, axis=0)) - 1) < _SAME
        return np.stack([gains.sum(axis=0), seen.sum(axis=0), apart.sum(axis=0)])
