"""Banded matrix factorisation as a training mechanism (Choquette-Choo et al. 2023)."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import ClassVar, Final

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.signal import lfilter
from torch import Tensor

from privmix.accounting.events import Adjacency
from privmix.errors import InvalidInput, check_integer, check_number
from privmix.mechanisms.membership import RECORD_TILE
from privmix.mechanisms.noise import square_root
from privmix.mechanisms.plan import unit_of
from privmix.mechanisms.sampling import log_mixture
from privmix.mechanisms.streams import SecretStreams
from privmix.rounding import exact, rounded_down
from privmix.training.batches import PoissonBatches
from privmix.training.mechanisms.banded.options import BandedOptions
from privmix.training.mechanisms.banded.plan import BandedPlan
from privmix.training.mechanisms.base import MECHANISMS, Settings, StepNoise, TrainingMechanism, Words
from privmix.training.noise import grid_of, noise_scale
from privmix.training.plan import TrainingPlan

Array = NDArray[np.float64]
# Logarithm of an error that overflowed: the inverse grows from step to step.
_UNSTABLE: Final = 1e3


@lru_cache(maxsize=64)
def best_factor(steps: int, bands: int, momentum: float = 0.0) -> tuple[float, ...]:
    """Coefficients (b,) of the banded Toeplitz C, of norm 1, with the least mean squared error."""
    # With momentum, the workload is that of SGD's steps.
    check_integer("bands", bands, low=1, high=check_integer("steps", steps, low=1))
    check_number("momentum", momentum, low=0, high=1, high_open=True)
    if bands == 1:
        return (1.0,)
    workload = _workload(steps, momentum)

    def loss(tail: Array) -> tuple[float, Array]:
        c = np.concatenate([[1.0], tail])
        with np.errstate(over="ignore", invalid="ignore"):
            error = lfilter([1.0], c, workload)
            weight = np.arange(steps, 0, -1) / steps * error
            through = lfilter([1.0], c, error)
            total, square = float(weight @ error), float(c @ c)
        if not (math.isfinite(total) and np.isfinite(through).all()):
            return _UNSTABLE, np.zeros_like(tail)
        slope = np.array([-2 * (weight[k:] @ through[: steps - k]) for k in range(1, bands)])
        return math.log(total) + math.log(square), slope / total + 2 * tail / square

    # The workload's square root is best where there are as many bands as steps; with few bands, coefficients fall
    # slowly.
    slow = [(1 - share / steps) ** np.arange(1, bands) for share in (1.0, 4.0, 16.0) if share < steps]
    starts = [square_root(bands)[1:], *slow]
    found = [minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 500}) for start in starts]
    best = min(found, key=lambda one: float(one.fun)).x
    return tuple(normalised([1.0, *best.tolist()]))


def normalised(coefficients: Sequence[float]) -> list[float]:
    """Return the same of L2 norm 1, which is the largest column norm of C."""
    norm = math.sqrt(math.fsum(value * value for value in coefficients))
    return [value / norm for value in coefficients]


def errors(coefficients: Sequence[float], steps: int, momentum: float = 0.0) -> Array:
    """Return (steps,) squared error of each prefix sum for noise of variance 1 on C x."""
    return np.cumsum(lfilter([1.0], np.asarray(coefficients), _workload(steps, momentum)) ** 2)


def mean_error(coefficients: Sequence[float], steps: int, momentum: float = 0.0) -> float:
    return float(errors(coefficients, steps, momentum).mean())


def _workload(steps: int, momentum: float) -> Array:
    """First column of what training makes of its steps' sums: ones, or with momentum what has built up."""
    return np.cumsum(momentum ** np.arange(steps))


class CyclicBatches(PoissonBatches):
    """Batches of a banded plan: in each step, one group of the records has its turn.

    Formal guarantees:
        * Own group: each record's group is an independent uniform draw of its own, from a stream of sampling, and the
          same in every step. Only chance decides a group: no label, no feature and no other record.
        * Own turn: in step t a record joins with probability ``plan.group_rate`` if its group is t mod b, and never if
          not.
    """

    def members(self, step: int) -> NDArray[np.int64]:
        assert isinstance(self.plan, BandedPlan)
        members = super().members(step)
        turn = self._groups(self.plan.bands)[members - self._first_tile * RECORD_TILE] == step % self.plan.bands
        return np.asarray(members[turn])

    def _groups(self, bands: int) -> NDArray[np.int32]:
        """Return groups of the records of the shard's tiles. Secret."""
        found: NDArray[np.int32] | None = getattr(self, "_drawn", None)
        if found is None:
            parts = []
            for tile in range(self._first_tile, self._last_tile + 1):
                size = min(RECORD_TILE, self.records - tile * RECORD_TILE)
                with self.streams.lent("groups", tile) as generator:
                    parts.append(generator.integers(bands, size=size, dtype=np.int32))
            found = self._drawn = np.concatenate(parts)
        return found


@dataclass(eq=False, repr=False)
class BandedNoise:
    """Add a step's correlated noise to its sum and divide by the public number of units.

    With c the coefficients, z_t are independent normal draws in grid steps. All sums are whole numbers x_t of grid
    steps. The noise of step t is n_t = round((z_t - c_1 n_{t-1} - ... - c_{b-1} n_{t-b+1}) / c_0).

    Formal guarantees:
        * Post-processing of what is priced: y = C x + z is a Gaussian query with noise of ``noise_scale`` on every
          coordinate of every row. From y alone follows r_t = round((y_t - c_1 r_{t-1} - ...) / c_0), and since x_t is a
          whole number, r_t = x_t + n_t. This is what is released, exactly, in arithmetic of real numbers. Float64
          rounds what goes into ``round`` by some 2^-52 of its size, which is within the statement of
          :mod:`privmix.mechanisms.noise` on the draws themselves.
        * Once: n_t is a function of the key and the step. Asked for a step out of turn, as a resumed run does first, it
          makes the steps before again from the key: no noise is ever kept in a file.
        * Little: in addition to the sum, b - 1 earlier rows of noise are held.
    """

    plan: BandedPlan
    streams: SecretStreams
    _next: int = field(default=0, init=False)
    _rows: deque[NDArray[np.float64]] = field(init=False)

    def __post_init__(self) -> None:
        self._rows = deque(maxlen=self.plan.bands - 1)

    def __call__(self, total: Tensor, step: int) -> Tensor:
        """(P,) float32 on the device of ``total``."""
        size = total.numel()
        grid = grid_of(size, self.plan.clip_norm)
        if step != self._next or any(len(row) != size for row in self._rows):
            self._rows.clear()
            for earlier in range(step):
                self.advance(earlier, size, grid)
        noise = self.advance(step, size, grid) + np.rint(total.detach().cpu().numpy() / grid)
        noise *= grid / self.plan.units
        return torch.from_numpy(noise).to(total.device, torch.float32)

    def advance(self, step: int, size: int, grid: float) -> NDArray[np.float64]:
        """Row ``step`` of the noise, from the rows before."""
        with self.streams.lent("gradient noise", step) as generator:
            row = generator.standard_normal(size)
        row *= noise_scale(self.plan) / grid
        first, *others = self.plan.coefficients
        for coefficient, earlier in zip(others, self._rows, strict=False):
            row -= coefficient * earlier
        if first != 1:
            row /= first
        np.rint(row, out=row)
        self._rows.appendleft(row)
        self._next = step + 1
        return row


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
