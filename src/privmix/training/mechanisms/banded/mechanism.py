"""Banded matrix factorisation as a training mechanism (Choquette-Choo et al. 2023)."""

from __future__ import annotations

from dataclasses import fields
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

from privmix.accounting.events import Adjacency
from privmix.errors import InvalidInput
from privmix.mechanisms.plan import unit_of
from privmix.mechanisms.sampling import log_mixture
from privmix.mechanisms.streams import SecretStreams
from privmix.rounding import exact, rounded_down
from privmix.training.batches import PoissonBatches
from privmix.training.mechanisms.banded.draws import BandedNoise, CyclicBatches, best_factor
from privmix.training.mechanisms.banded.options import BandedOptions
from privmix.training.mechanisms.banded.plan import BandedPlan
from privmix.training.mechanisms.base import MECHANISMS, Settings, StepNoise, TrainingMechanism, Words
from privmix.training.plan import TrainingPlan

# Readings are float32 differences: so close is equal.
_SAME: Final = 1e-3


@MECHANISMS.register
class Banded(TrainingMechanism):
    """Noise that later steps partly take back, and a turn for each record every b steps."""

    name = "banded"
    called = "banded matrix factorisation"
    words = "noise correlated over several steps, each record's turn every so many"
    plan: ClassVar[type[TrainingPlan]] = BandedPlan
    options = "privmix.training.mechanisms.banded.options:BandedOptions"

    @classmethod
    def planned(cls, draft: TrainingPlan, settings: Settings) -> BandedPlan:
        if settings.epsilon == 0:
            raise InvalidInput("mechanism", "banded", "dp-sgd with epsilon 0, which takes no private step")
        most, bands = min(draft.steps, draft.records // draft.batch_size), settings.mechanism_options.bands
        if bands is None or bands > most:
            allowed = (
                f"from 1 to {most} with `mechanism` banded: at most the steps, and at most records over batch size"
            )
            raise InvalidInput("bands", bands, allowed)
        if draft.microbatch_size > 1:
            raise InvalidInput(
                "microbatch_size", draft.microbatch_size, "1 with `mechanism` banded, or `mechanism` dp-sgd"
            )
        momentum = settings.optimiser.momentum if settings.optimiser.name == "sgd" else 0.0
        own = {item.name: getattr(draft, item.name) for item in fields(TrainingPlan)}
        return BandedPlan(**own, coefficients=best_factor(draft.steps, bands, momentum))

    @classmethod
    def options_of(cls, plan: TrainingPlan) -> BandedOptions:
        assert isinstance(plan, BandedPlan)
        return BandedOptions(plan.bands)

    @classmethod
    def batches(
        cls, plan: TrainingPlan, streams: SecretStreams, records: int, first: int = 0, last: int | None = None
    ) -> PoissonBatches:
        return CyclicBatches(plan, streams, records, first, last)

    @classmethod
    def noise(cls, plan: TrainingPlan, streams: SecretStreams) -> StepNoise:
        assert isinstance(plan, BandedPlan)
        return BandedNoise(plan, streams)

    @classmethod
    def check_processes(cls, plan: TrainingPlan, size: int) -> None:
        # The end of a shard moves with the number of records, and with it the rounding of steps that are not a record's
        # own. The noise covers that in its own turns alone.
        if size > 1:
            raise InvalidInput("mechanism", "banded", "dp-sgd with several processes, or one process")

    @classmethod
    def said(cls, plan: TrainingPlan, unit: str) -> Words:
        assert isinstance(plan, BandedPlan)
        turns, b, one = -(-plan.steps // plan.bands), plan.bands, unit_of(plan).one
        return Words(
            batches=f"Banded matrix factorisation: each {one} is in one of {b} secret groups, drawn for it alone, and "
            f"each step samples one group in turn; Poisson batches of expected size {plan.batch_size}, {plan.steps} "
            f"steps, at most {turns} turns of a {one}",
            noise=f"noise multiplier {plan.noise_multiplier:.6g} before noise is correlated over {b} steps",
            mechanism=f"{plan.steps} steps with banded matrix factorisation of {b} bands. Each {one} is in one of {b} "
            f"groups, drawn secretly for it alone; group t mod {b} has step t, where each of its "
            f"{unit_of(plan).many} joins independently with probability {b} B/n, B = {plan.batch_size}, "
            f"n = {plan.records}; {unit} is clipped to "
            f"{exact(plan.clip_norm)}; sums x are released as C^-1 (C x + z), C of column norm 1 as in the plan, z "
            f"Gaussian noise, {rounded_down(plan.noise_multiplier, 4)} times what adding one {one} can change, drawn "
            "once.",
            short=f"Poisson from {b} groups in turn, {plan.batch_size} expected, {plan.steps} steps, "
            f"{plan.epochs:.4g} epochs, {turns} turns of a {one}",
        )

    @classmethod
    def whitened(cls, plan: TrainingPlan, noise: NDArray[np.float64]) -> NDArray[np.float64]:
        """C times the noise."""
        assert isinstance(plan, BandedPlan)
        return np.asarray(lfilter(plan.coefficients, [1.0], noise, axis=0))

    @classmethod
    def period(cls, plan: TrainingPlan) -> int:
        assert isinstance(plan, BandedPlan)
        return plan.bands

    @classmethod
    def step_by_step(cls, plan: TrainingPlan) -> bool:
        return False

    @classmethod
    def scores(cls, plan: TrainingPlan, seen: NDArray[np.float64]) -> NDArray[np.float64]:
        """Score canaries by a matched filter over the rows of C x + z, averaged over unknown groups."""
        assert isinstance(plan, BandedPlan)
        rows, steps = cls.whitened(plan, seen), len(seen)
        # (steps, directions) what a participation in each step shows, and the square of its length.
        matched, squares = np.zeros_like(rows), np.zeros(steps)
        for k, coefficient in enumerate(plan.coefficients[:steps]):
            matched[: steps - k] += coefficient * rows[k:]
            squares[: steps - k] += coefficient**2
        noise, half = plan.noise_multiplier, squares[:, None] / 2
        gains = [log_mixture(plan.group_rate, (matched - half) / noise**2)]
        if plan.adjacency is Adjacency.REPLACE_ONE:
            gains.append(log_mixture(plan.group_rate, (-matched - half) / noise**2))
        # For each group and side, all turns together.
        with np.errstate(divide="ignore"):
            sides = [
                np.logaddexp.reduce([side[group :: plan.bands].sum(axis=0) for group in range(plan.bands)])
                for side in gains
            ]
        found = sides[0] - (sides[1] if len(sides) == 2 else np.log(plan.bands))
        apart = np.abs(np.abs(np.diff(seen, axis=0)) - 1) < _SAME
        return np.stack([found, matched.sum(axis=0), apart.sum(axis=0)])
