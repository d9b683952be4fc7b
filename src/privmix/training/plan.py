"""The plan of a training run: one object for who is sampled, how much noise is added and what that costs."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, Final, Self

from privmix.accounting.api import calibrate, price_picture
from privmix.accounting.base import PrivacyCost
from privmix.accounting.events import Adjacency, Bounded, Composed, Event, Gaussian
from privmix.accounting.pricing import budget_after_count, price, price_after_count
from privmix.errors import InvalidInput, check_integer, check_number
from privmix.fields import Amount, Count, Number, Positive, Share, Size, Switch, Whole, check_fields, read, stored, used
from privmix.mechanisms.plan import MOST_OF_ONE, check_count, check_target, relation_of, unit_of
from privmix.mechanisms.private_count import most_units
from privmix.mechanisms.sampling import PoissonSampling
from privmix.rounding import exact, rounded_up
from privmix.shown import Bars, Shown

# The limit to which a run may be stretched when the target epsilon can't be met, in the error's advice.
_NOISIEST: Final = 1e6
# The noise at which calibration asks whether any noise will do.
_SEARCH_FROM: Final = 1e9
# More than any run takes; beyond, prices are mostly rounding and take long to find.
_MOST_STEPS: Final = 10**8


@dataclass(frozen=True)
class TrainingPlan(Shown):
    """``steps`` noisy sums of clipped gradients over Poisson batches. A :class:`privmix.mechanisms.plan.Plan`.

    Each step, every record joins the batch independently with probability ``batch_size / records``; the batch may be
    empty. Each record's gradient, averaged over its views, is clipped to ``clip_norm``. Gaussian noise of standard
    deviation ``noise_std`` is added to the sum. The result is divided by the public ``units``.

    With ``microbatch_size`` b > 1, records of the batch are dealt independently to ``batch_size / b`` groups, and a
    group's gradient is clipped as one. A record changes its group's gradient from one vector of norm at most
    ``clip_norm`` to another. So the sum moves by up to twice that (Bao et al. 2023, section 3).

    Formal guarantees:
        * One plan: :attr:`sampler` draws the batches and prices them; nothing else holds a rate.
        * Public: made of public numbers alone, before a private record is read.
        * True sensitivity: ``noise_std`` is ``noise_multiplier`` times the most that one record can move the sum.
        * Never miscounted: what ran is priced by the number of steps, for any share of an epoch.
        * Nothing for nothing: epsilon is 0 for a plan without steps, which reads no private record, and for no other.
    """

    # steps: 0 where the model is made of public data; noise multiplier and epsilon are then 0. records_declared: the
    # real count is not used and stays private. epsilon: target; None where the noise was given. per_person: with None
    # neighbours differ by one record; with K, by one person with all records, of whom K are drawn for a step. Then
    # `records` is the number of persons. records_noise_multiplier: of the query that estimated `records`, or None; its
    # price is a part of epsilon and delta, added to that of the steps.

    mechanism: ClassVar[str] = "dp-sgd"
    """Name of the training mechanism whose plan it is."""

    records: Count
    batch_size: Count
    steps: Size
    noise_multiplier: Amount
    clip_norm: Positive
    delta: Share
    adjacency: Adjacency = Adjacency.ADD_REMOVE
    microbatch_size: Count = 1
    records_declared: Switch = False
    epsilon: Amount | None = None
    per_person: Annotated[int, Whole(1, MOST_OF_ONE)] | None = used(None)
    records_noise_multiplier: Annotated[float, Number(1e-6, 1e12)] | None = used(None)

    def __post_init__(self) -> None:
        check_fields(self)
        # The sampling rate B / n is a probability.
        check_integer("batch_size", self.batch_size, low=1, high=self.records)
        if self.steps > 0:
            check_number("noise_multiplier", self.noise_multiplier, low=0, low_open=True)
            check_target(self.epsilon, self.delta)
        elif (self.noise_multiplier, self.epsilon) != (0, 0):
            found = (self.noise_multiplier, self.epsilon)
            raise InvalidInput("noise_multiplier, epsilon", found, "0 and 0 without steps: nothing private is read")
        check_integer("microbatch_size", self.microbatch_size, low=1, high=self.batch_size)
        # The sensitivity of microbatches holds for a record, which is in one group; a person's records may be in
        # several.
        if self.per_person is not None and self.microbatch_size > 1:
            raise InvalidInput("microbatch_size", self.microbatch_size, "1 where a person is the unit")
        # The count's query is priced for add or remove, and the real count must stay unused next to it.
        estimable = self.records_declared and self.steps and self.adjacency is Adjacency.ADD_REMOVE
        if self.records_noise_multiplier is not None and not estimable:
            allowed = "none but for steps with add or remove, whose real count is not used (`records_declared`)"
            raise InvalidInput("records_noise_multiplier", self.records_noise_multiplier, allowed)

    @property
    def most_units(self) -> int:
        """How many records or persons there are at most, but for a small chance where that was estimated."""
        if self.records_noise_multiplier is None:
            return self.records
        return most_units(self.records, self.records_noise_multiplier)

    @property
    def sampling_rate(self) -> float:
        return self.batch_size / self.records

    @property
    def epochs(self) -> float:
        return self.steps * self.sampling_rate

    @property
    def units(self) -> int:
        """The divisor of the noisy sum: the expected batch, or the number of its microbatches. Public."""
        # The real size of a batch depends on the records, so the sum is divided by its public expectation.
        return max(1, round(self.batch_size / self.microbatch_size))

    @property
    def sensitivity(self) -> float:
        """The most that adding or removing one record moves the sum, in L2 norm."""
        # A record can turn its group's clipped gradient into the opposite one.
        return self.clip_norm if self.microbatch_size == 1 else 2 * self.clip_norm

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise on each coordinate of the sum."""
        return self.noise_multiplier * self.sensitivity

    @cached_property
    def sampler(self) -> PoissonSampling:
        """Draws the batches, row t for step t, and prices them; raise for a plan without steps."""
        if self.steps == 0:
            raise InvalidInput("plan steps", 0, "at least 1: a plan without steps reads no private record")
        return PoissonSampling(self.records, self.steps, self.sampling_rate)

    def sampler_for(self, records: int) -> PoissonSampling:
        """Return the same sampler over the real records; an error for a wrong count does not show it."""
        check_count(self, records)
        # The rate stays the plan's, for which the price was computed; only the number of draws follows the real count.
        return replace(self.sampler, records=records)

    @property
    def event(self) -> Event:
        """The whole run, for accountants; the query of the record count included."""
        if self.records_noise_multiplier is None:
            return self.event_after_count
        return Composed((Gaussian(self.records_noise_multiplier), self.event_after_count))

    @property
    def event_after_count(self) -> Event:
        # Any mechanism without output is randomised response at epsilon 0.
        return self.event_of(self.steps) if self.steps else Bounded(0.0, 0.0, self.adjacency.value)

    @property
    def charge(self) -> Event:
        """The ledger charge: the event, or after a private count, a bound for all that keep to its target."""
        if self.records_noise_multiplier is None:
            return self.event
        if self.epsilon is None:
            raise InvalidInput("plan epsilon", None, "the epsilon that it was calibrated for")
        return Bounded(
            *budget_after_count(self.records_noise_multiplier, self.epsilon, self.delta), self.adjacency.value
        )

    def event_of(self, steps: int) -> Event:
        done = replace(self.sampler, rows=check_integer("steps", steps, low=1, high=self.steps))
        return done.event(Gaussian(self.noise_multiplier))

    def cost(self, steps: int | None = None) -> PrivacyCost:
        """Price of the first ``steps`` steps (or all) at ``delta``, an upper bound by PLD, with a private count."""
        nothing = Bounded(0.0, 0.0, self.adjacency.value)
        done = (
            nothing
            if steps == 0 or self.steps == 0
            else self.event_after_count
            if steps is None
            else self.event_of(steps)
        )
        if self.records_noise_multiplier is not None:
            return price_after_count(self.records_noise_multiplier, done, self.delta, self.adjacency)
        if done == nothing:
            return PrivacyCost(0.0, self.delta, self.adjacency, "pld", True)
        return price(done, self.delta, self.adjacency)

    def shown(self) -> tuple[str, Mapping[str, object]]:
        unit = unit_of(self)
        return "Plan of a training", {
            unit.many: f"{self.records:,}",
            "steps": f"{self.steps:,}, with batches of about {self.batch_size:,}",
            "epsilon, delta": "nothing asked"
            if self.epsilon is None
            else f"{exact(self.epsilon)}, {exact(self.delta)}",
            "adjacency": relation_of(self.adjacency.value, unit),
            "noise multiplier": f"{self.noise_multiplier:.5g}",
        }

    def picture(self) -> Bars | None:
        if self.steps == 0:
            return None
        return price_picture(self.event if self.records_noise_multiplier is None else None, self.cost())

    def priced(self) -> Self:
        """Return this plan asking for just what its noise costs: for a noise that was given and not calibrated."""
        return replace(self, epsilon=self.cost().epsilon)

    def to_dict(self) -> dict[str, Any]:
        # The first mechanism's plans name none.
        named = {} if self.mechanism == TrainingPlan.mechanism else {"mechanism": self.mechanism}
        return {**stored(self), **named}

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Self:
        """Return a plan of this mechanism from :meth:`to_dict`; raise for other fields."""
        own, named = dict(fields), cls.mechanism != TrainingPlan.mechanism
        if named and own.pop("mechanism", None) != cls.mechanism:
            raise InvalidInput("plan mechanism", fields.get("mechanism"), cls.mechanism)
        return read(cls, own, "plan")


def steps_of(records: int, batch_size: int, epochs: float) -> int:
    """Return steps that make ``epochs`` expected passes, rounded up."""
    check_number("epochs", epochs, low=0, low_open=True)
    steps = epochs * records / batch_size
    if steps > _MOST_STEPS:
        most = f"at most {_MOST_STEPS * batch_size / records:.3g}, which are {_MOST_STEPS:.0e} steps"
        raise InvalidInput("epochs", epochs, most)
    # The slack absorbs rounding, so that a product just above a whole number adds no step.
    return max(1, math.ceil(steps - 1e-9))


def plan_training(
    records: int,
    *,
    epsilon: float,
    delta: float,
    batch_size: int,
    epochs: float,
    clip_norm: float = 1.0,
    of: Callable[[TrainingPlan], TrainingPlan] | None = None,
    **more: Any,
) -> TrainingPlan:
    """Find the least noise with which ``epochs`` passes cost at most ``epsilon`` at ``delta``; for 0, no steps.

    ``of`` makes another mechanism's plan of the draft; ``more``: other fields of the plan. If no noise reaches the
    target, the error gives values that do.
    """
    check_number("epsilon", epsilon, low=0)
    check_integer("batch_size", batch_size, low=1, high=check_integer("records", records, low=1))
    draft = TrainingPlan(
        records,
        batch_size,
        steps_of(records, batch_size, epochs),
        noise_multiplier=_NOISIEST,
        clip_norm=clip_norm,
        delta=delta,
        **more,
    )
    if of is not None:
        draft = of(draft)
    if epsilon == 0:
        return replace(draft, steps=0, noise_multiplier=0.0, epsilon=0.0)

    rest = (epsilon, delta)
    if draft.records_noise_multiplier is not None:
        rest = budget_after_count(draft.records_noise_multiplier, epsilon, delta)

    def event(noise: float) -> Event:
        return replace(draft, noise_multiplier=noise).event_after_count

    try:
        found = calibrate(event, *rest, adjacency=draft.adjacency)
    except InvalidInput as error:
        raise _unreachable(error, draft, epsilon) from None
    if found.noise_multiplier > _NOISIEST:
        raise _unreachable(None, draft, epsilon)
    return replace(draft, noise_multiplier=found.noise_multiplier, epsilon=float(epsilon))


def _unreachable(error: InvalidInput | None, draft: TrainingPlan, target: float) -> InvalidInput:
    if error is not None and error.field != "epsilon":
        return error
    least = _least(draft)
    if least == math.inf:
        delta = next(delta for delta in _larger(draft.delta) if _least(replace(draft, delta=delta)) < math.inf)
        allowed = (
            f"about {rounded_up(delta, 1)} or more: below that the accountant can state no epsilon for "
            f"{draft.steps:.3g} steps with any noise"
        )
        return InvalidInput("delta", draft.delta, allowed)
    if least <= target:
        return InvalidInput(
            "delta", draft.delta, f"a larger one: prices of {draft.steps:.3g} steps are mostly rounding"
        )
    allowed = (
        f"at least {least:.3g} for {draft.epochs:.3g} epochs of batches of {draft.batch_size} from {draft.records} "
        f"records: at delta {exact(draft.delta)} the accountant can state no less with any noise; "
        "fewer epochs, a smaller batch or a larger delta reach less"
    )
    return InvalidInput("epsilon", target, allowed)


def _least(draft: TrainingPlan) -> float:
    """Return a reachable epsilon to begin at: prices at very large noise are mostly rounding."""
    return max(replace(draft, noise_multiplier=noise).cost().epsilon for noise in (_NOISIEST, _SEARCH_FROM))


def _larger(delta: float) -> Iterator[float]:
    """Powers of ten above ``delta``, and last a delta at which every mechanism has a finite epsilon."""
    yield from (10.0**power for power in range(math.floor(math.log10(delta)) + 1, 0))
    yield 1 - 2.0**-53
