"""Privacy filters: budgets that hold when later releases are chosen after earlier ones were seen.

A price of everything together (:mod:`privmix.accounting.pld`) is a bound if all settings were fixed beforehand. A
reader of one release may pick the next one's noise, sampling or size by the noise that was drawn; the composed price
does not cover that. A filter gives each release a cost of its own, and the costs add up to a guarantee however the
releases were chosen (Rogers, Roth, Ullman, Vadhan 2016). Each filter adds up:

* ``gdp``: squared Gaussian-DP parameters, and a probability of revealing everything (:class:`GaussianFilter`);
* ``rdp``: Renyi divergences at one order, fixed when the budget is made (:class:`RenyiFilter`);
* ``pure``: pure epsilons (:class:`PureFilter`); adding them is valid for adaptive choices as it is.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from privmix.accounting.base import UnsupportedEvent, flatten, shift_of
from privmix.accounting.events import Adjacency, Bounded, Composed, Event, Gaussian, Repeated
from privmix.accounting.pure import PureAccountant
from privmix.errors import InvalidInput, check_choice, check_number
from privmix.fields import Checked, Number, Positive, Rate, Whole, read

Array = NDArray[np.float64]

# Most that additions, bisections and normal tails lose to rounding; every figure is moved by it to the safe side.
_MARGIN: Final = 1e-9
# Share of delta that a Gaussian filter keeps for what no Gaussian covers: far tails, and the deltas of Bounded events.
_SLACK_SHARE: Final = 0.25
_HIGHEST_ORDER: Final = 4096


@dataclass(frozen=True)
class Cost:
    """Cost of a release, or capacity of a filter: an amount, and a probability that everything is revealed."""

    # amount: in the filter's own unit (mu squared, Renyi divergence, or epsilon). slack: -log(1 - probability).

    amount: float
    slack: float = 0.0

    def plus(self, other: "Cost") -> "Cost":
        """Both together; what sums lose to rounding is less than what every capacity is short of its guarantee."""
        return Cost(self.amount + other.amount, self.slack + other.slack)

    def share(self, whole: "Cost") -> float:
        """Return the share of ``whole`` that this is, the larger of amount and slack; infinite without slack."""
        slack = 0.0 if self.slack == 0 else self.slack / whole.slack if whole.slack else math.inf
        return max(self.amount / whole.amount, slack)


class Filter(Protocol):
    """A budget for releases that are chosen adaptively: everything is accepted whose costs add up to its capacity."""

    @property
    def name(self) -> str: ...

    @property
    def capacity(self) -> Cost:
        """All that it can give."""
        ...

    def cost(self, event: Event, adjacency: Adjacency) -> Cost:
        """Return the cost of ``event``, rounded up; infinite where no amount of the filter is enough."""
        ...

    def epsilon(self, spent: Cost, delta: float) -> float:
        """Epsilon at ``delta`` of a filter of exactly this capacity, rounded up."""
        # A way to show what was spent, and no guarantee of it: that is the guarantee of the whole capacity.
        ...


@dataclass(frozen=True)
class GaussianFilter(Checked):
    """Squared Gaussian-DP parameters add up to ``mu`` squared at most, reveal probabilities to ``1 - exp(-slack)``.

    Formal guarantees:
        * valid for fully adaptive choices: events, their number and the moment to stop may depend on all earlier
          results. Take a Brownian motion with drift 0 or 1 on [0, mu^2] and a clock that rings, and then reveals
          the drift, at an exponential time. By Blackwell's theorem each event is a randomised function of the motion's
          next stretch of length m and the clock's next l; stretches are independent of what came before, however their
          lengths are chosen, so everything together is a function of that one experiment, which is (mu, slack)-DP.
          Without slack this is the theorem of Smith and Thakurta 2022 and Koskela, Tobaben, Honkela 2023;
        * tight for Gaussian queries: they cost exactly 1 / noise^2, as if all had been fixed beforehand;
        * safe side: profiles are upper bounds by the PLD accountant, are compared by chords (profiles are convex in
          e^epsilon), and every cost is rounded up.
    """

    # An experiment reveals the record with probability 1 - e^-l and is a Gaussian query of mu = sqrt(m) otherwise. An
    # event costs (m, l) if its profile lies below the experiment's at every epsilon, in both directions.

    mu: Annotated[float, Number(0, 1e6, low_open=True)]
    slack: Rate
    name: str = "gdp"

    @staticmethod
    def of(epsilon: float, delta: float) -> "GaussianFilter":
        """Return the largest filter that is (``epsilon``, ``delta``)-DP with a quarter of delta for the tails."""
        from privmix.accounting.gdp import profile

        slack = -math.log1p(-_SLACK_SHARE * delta)
        low, high = 0.0, 1.0
        while profile(high, slack, epsilon) <= delta:
            low, high = high, 2 * high
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (middle, high) if profile(middle, slack, epsilon) <= delta else (low, middle)
        return GaussianFilter(low * (1 - _MARGIN), slack)

    @property
    def capacity(self) -> Cost:
        return Cost(self.mu**2, self.slack)

    def cost(self, event: Event, adjacency: Adjacency) -> Cost:
        """Gaussian queries and bounded mechanisms by formula, everything else by its privacy profile."""
        from scipy.special import ndtri

        from privmix.accounting.gdp import covering_share

        shift = shift_of(adjacency)
        amount, slack, rest = 0.0, 0.0, []
        for leaf, count in flatten(event).items():
            match leaf:
                case Gaussian(multiplier):
                    amount += count * (shift / multiplier) ** 2
                case Bounded(epsilon, delta):
                    _check_bound(self.name, leaf, adjacency)
                    # Randomised response keeps each answer with probability p: mu-GDP with p = Phi(mu / 2), since its
                    # trade-off curve is two chords of the Gaussian one.
                    amount += _up(count * (2 * float(ndtri(1 / (1 + math.exp(epsilon))))) ** 2)
                    slack += _up(-count * math.log1p(-delta))
                case _:
                    rest.append(Repeated(leaf, count))
        share = covering_share(Composed(tuple(rest)), adjacency, self.mu, self.slack) if rest else 0.0
        return Cost(amount + share * self.mu**2, slack + share * self.slack)

    def epsilon(self, spent: Cost, delta: float) -> float:
        from privmix.accounting.gdp import profile

        if spent.amount == spent.slack == 0:
            return 0.0
        if not -math.expm1(-spent.slack) < delta or math.isinf(spent.amount):
            return math.inf
        mu, low, high = math.sqrt(spent.amount), 0.0, 1.0
        while profile(mu, spent.slack, high) > delta:
            low, high = high, 2 * high
        for _ in range(100):
            middle = (low + high) / 2
            low, high = (middle, high) if profile(mu, spent.slack, middle) > delta else (low, middle)
        return high


@dataclass(frozen=True)
class RenyiFilter(Checked):
    """Renyi divergences at one ``order`` add up to ``divergence`` at most (Feldman, Zrnic 2021).

    Formal guarantees:
        * valid for fully adaptive choices: at an order fixed beforehand, conditional divergences that never add up to
          more than a bound make a composition whose divergence is at most that bound (their Theorem 3.1). Choosing the
          order afterwards, as a price of fixed plans does, would not be valid;
        * safe side: divergences are bounds of integer order (Mironov, Talwar, Zhang 2019) rounded up, the guarantee
          follows by Canonne, Kamath, Steinke 2020, Proposition 12.
    """

    order: Annotated[int, Whole(2, _HIGHEST_ORDER)]
    divergence: Positive
    name: str = "rdp"

    @staticmethod
    def of(epsilon: float, delta: float) -> "RenyiFilter":
        """Return the order at which most Gaussian queries fit (``epsilon``, ``delta``), and the divergence there."""
        orders = np.arange(2, _HIGHEST_ORDER + 1)
        room = epsilon - _conversion(orders, delta)
        best = int(np.argmax(room / orders))
        if not room[best] > 0:
            raise InvalidInput("epsilon", epsilon, "a larger epsilon or delta: no Renyi order covers this pair")
        return RenyiFilter(int(orders[best]), float(room[best]) - 3 * _MARGIN * epsilon)

    @property
    def capacity(self) -> Cost:
        return Cost(self.divergence)

    def cost(self, event: Event, adjacency: Adjacency) -> Cost:
        from privmix.accounting.renyi import RdpAccountant

        amount, rest = 0.0, []
        for leaf, count in flatten(event).items():
            match leaf:
                case Bounded(epsilon, 0):
                    _check_bound(self.name, leaf, adjacency)
                    amount += _up(count * _response_divergence(epsilon, self.order))
                case Bounded():
                    reason = "it fails with a probability, which a Renyi filter cannot bound; use a gdp filter"
                    raise UnsupportedEvent(f"filter {self.name}", leaf, adjacency, reason)
                case _:
                    rest.append(Repeated(leaf, count))
        found = Cost(amount)
        if not rest:
            return found
        accountant = RdpAccountant(orders=(float(self.order),))
        return found.plus(Cost(_up(accountant.divergence(Composed(tuple(rest)), adjacency))))

    def epsilon(self, spent: Cost, delta: float) -> float:
        if spent.amount == 0:
            return 0.0
        return max(0.0, _up(spent.amount + float(_conversion(np.array([self.order]), delta)[0])))


@dataclass(frozen=True)
class PureFilter(Checked):
    """Pure epsilons add up to ``total`` at most: basic composition, valid for adaptive choices (Rogers et al. 2016)."""

    total: Positive
    name: str = "pure"

    @property
    def capacity(self) -> Cost:
        return Cost(self.total)

    def cost(self, event: Event, adjacency: Adjacency) -> Cost:
        amount, rest = 0.0, []
        for leaf, count in flatten(event).items():
            match leaf:
                case Bounded(epsilon, 0):
                    _check_bound(self.name, leaf, adjacency)
                    amount += count * epsilon
                case _:
                    rest.append(Repeated(leaf, count))
        return Cost(amount + (PureAccountant().epsilon(Composed(tuple(rest)), 0.0, adjacency) if rest else 0.0))

    def epsilon(self, spent: Cost, delta: float) -> float:
        return spent.amount


FILTERS: Final = ("gdp", "rdp")


def make_filter(name: str, epsilon: float, delta: float) -> Filter:
    """Return the filter ``name`` (gdp or rdp) for a total of (``epsilon``, ``delta``); a pure one where delta is 0."""
    check_choice("filter", name, FILTERS)
    check_number("epsilon", epsilon, low=0, low_open=True)
    check_number("delta", delta, low=0, high=1, high_open=True)
    if delta == 0:
        return PureFilter(epsilon)
    return GaussianFilter.of(epsilon, delta) if name == "gdp" else RenyiFilter.of(epsilon, delta)


def filter_from_dict(description: Mapping[str, Any]) -> Filter:
    """Rebuild a filter that ``privmix.fields.stored`` wrote; anything else is an :class:`InvalidInput`."""
    name = description.get("name") if isinstance(description, Mapping) else None
    kinds: dict[str, type[Any]] = {"gdp": GaussianFilter, "rdp": RenyiFilter, "pure": PureFilter}
    found: Filter = read(kinds[check_choice("filter", name, kinds)], description, "filter")
    return found


def _up(value: float) -> float:
    return value * (1 + _MARGIN)


def _check_bound(name: str, leaf: Bounded, adjacency: Adjacency) -> None:
    if leaf.adjacency != adjacency.value:
        raise UnsupportedEvent(f"filter {name}", leaf, adjacency, f"its bound is stated for {leaf.adjacency}")


def _response_divergence(epsilon: float, order: int) -> float:
    """Renyi divergence of randomised response: log(p^a q^(1-a) + q^a p^(1-a)) / (a - 1) with p / q = e^epsilon."""
    log_p, log_q = -math.log1p(math.exp(-epsilon)), -epsilon - math.log1p(math.exp(-epsilon))
    terms = np.logaddexp(order * log_p + (1 - order) * log_q, order * log_q + (1 - order) * log_p)
    # Close to 0 the sum loses digits; epsilon itself always bounds it, and so does order epsilon^2 / 2.
    return min(max(0.0, float(terms)) / (order - 1) + 1e-15, epsilon, order * epsilon**2 / 2)


def _conversion(orders: NDArray[Any], delta: float) -> Array:
    """Amount by which epsilon exceeds the divergence: log((a - 1) / a) - (log delta + log a) / (a - 1)."""
    return np.asarray(np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1))


LEDGER_MODES: Final = ("none", "planned", "adaptive")
_CHARGED: Final = (
    "The cost was charged to a budget ledger, which counts all {uses} of the data that its owner charges to it."
)
_HOLDS: Final = {
    "planned": " Its total holds for plans that were fixed in advance, or chosen without seeing earlier results.",
    "adaptive": " Its total holds for plans chosen after seeing earlier results too: the budget is a privacy filter.",
}


def ledger_statement(mode: str, uses: str, without: str) -> str:
    """Return a certificate's sentence about its ledger, by ``mode``, or ``without`` where there is none."""
    check_choice("certificate in_ledger", mode, LEDGER_MODES)
    return without if mode == "none" else _CHARGED.format(uses=uses) + _HOLDS[mode]
