"""The accountant protocol, its result, and how events are split."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Protocol, assert_never

from privmix.accounting.events import (
    Adjacency,
    Allocated,
    Bounded,
    ClusterSampled,
    Composed,
    Event,
    FixedSizeSampled,
    Gaussian,
    Laplace,
    NormalWeighted,
    PoissonSampled,
    Repeated,
)
from privmix.errors import InvalidInput


def shift_of(adjacency: Adjacency) -> float:
    """Return by how many record bounds a query moves at most."""
    match adjacency:
        case Adjacency.ADD_REMOVE:
            return 1.0
        case Adjacency.REPLACE_ONE:
            # One record leaves and another comes.
            return 2.0


@dataclass(frozen=True)
class PrivacyCost:
    """An (epsilon, delta) figure with everything needed to read it.

    Attributes:
        epsilon: the privacy loss; infinity where the accountant cannot bound it.
        delta: of (epsilon, delta)-DP: every set of outcomes is at most exp(epsilon) times as likely, plus delta.
        is_upper_bound: True for a proven bound only; a comparison figure has False.
        note: why a figure that is not a bound is shown; empty for bounds.
    """

    epsilon: float
    delta: float
    adjacency: Adjacency
    accountant: str
    is_upper_bound: bool
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form; an infinite epsilon becomes None."""
        fields: dict[str, Any] = dict(vars(self))
        fields["adjacency"] = self.adjacency.value
        fields["epsilon"] = self.epsilon if self.epsilon < float("inf") else None
        if not self.note:
            del fields["note"]
        return fields


class UnsupportedEvent(InvalidInput):
    """This accountant has no valid price for this event under this adjacency."""

    def __init__(self, accountant: str, event: Event, adjacency: Adjacency, reason: str) -> None:
        super().__init__(f"accountant {accountant}", event, f"{reason} (adjacency {adjacency.value})")


class Accountant(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def is_upper_bound(self) -> bool:
        """Whether its figures are proven bounds."""
        ...

    @property
    def note(self) -> str: ...

    def epsilon(self, event: Event, delta: float, adjacency: Adjacency) -> float:
        """Smallest epsilon this accountant can state at ``delta``; infinity if none."""
        ...

    def delta(self, event: Event, epsilon: float, adjacency: Adjacency) -> float:
        """Smallest delta this accountant can state at ``epsilon``."""
        ...

    def rough(self) -> Accountant:
        """Return a cheaper accountant with nearly the same figures, for searches; this one checks their end."""
        ...


Leaf = Gaussian | Laplace | Bounded | PoissonSampled | FixedSizeSampled | ClusterSampled | Allocated | NormalWeighted


def flatten(event: Event) -> dict[Leaf, int]:
    """Return how often each elementary query ran, with trivial samplings removed and Gaussian queries merged."""
    # Gaussian queries compose exactly: multipliers s_i make one query with 1/s^2 = sum of 1/s_i^2.
    counts: Counter[Leaf] = Counter()
    _collect(event, 1, counts)
    precision = sum(count / leaf.noise_multiplier**2 for leaf, count in counts.items() if isinstance(leaf, Gaussian))
    leaves: dict[Leaf, int] = {leaf: count for leaf, count in counts.items() if not isinstance(leaf, Gaussian)}
    if precision > 0:
        leaves[Gaussian(precision**-0.5)] = 1
    return leaves


def _collect(event: Event, count: int, counts: Counter[Leaf]) -> None:
    match event:
        case Repeated(inner, times):
            _collect(inner, count * times, counts)
        case Composed(events):
            for item in events:
                _collect(item, count, counts)
        # A sampling that takes every record amplifies no privacy, and the plain query has an exact price.
        case PoissonSampled(1, inner) | Allocated(1, inner):
            _collect(inner, count, counts)
        case FixedSizeSampled(population, size, inner) if population == size:
            _collect(inner, count, counts)
        # With every cluster in, records are included independently: this is Poisson sampling.
        case ClusterSampled(1, rate, inner):
            _collect(PoissonSampled(rate, inner), count, counts)
        case (
            ClusterSampled()
            | FixedSizeSampled()
            | PoissonSampled()
            | Allocated()
            | NormalWeighted()
            | Gaussian()
            | Laplace()
            | Bounded()
        ):
            counts[event] += count
        # An event that is counted nowhere would cost nothing.
        case _:
            assert_never(event)
