"""Events: what ran, in the terms that decide its privacy cost. Accountants price events, or raise where they cannot.

Noise multipliers are the noise's scale divided by the most that ONE record can add to the query. The most is its L2
norm for :class:`Gaussian`, its L1 norm for :class:`Laplace`. Accountants double that under replace-one adjacency.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from privmix.errors import InvalidInput, check_choice, check_integer
from privmix.fields import Checked, Choice, Coded, Count, Fraction, Number, Positive, Rate, check_fields, read, stored


class Adjacency(enum.Enum):
    """Which pairs of datasets count as neighbours. An unknown relation is an error, never a default."""

    ADD_REMOVE = "add_remove"
    """One record is present in one dataset and absent from the other."""

    REPLACE_ONE = "replace_one"
    """Both datasets have the same size and differ in the content of one record."""


@dataclass(frozen=True)
class Gaussian(Checked):
    """A sum query with Gaussian noise of standard deviation ``noise_multiplier`` x (bound on a record's L2 norm)."""

    noise_multiplier: Positive


@dataclass(frozen=True)
class Laplace(Checked):
    """A sum query with Laplace noise of scale ``noise_multiplier`` x (bound on a record's L1 norm) per coordinate."""

    noise_multiplier: Positive


@dataclass(frozen=True)
class Bounded(Checked):
    """Any mechanism that is (``epsilon``, ``delta``)-DP under ``adjacency``, also one chosen by earlier answers.

    The event is priced as the worst such mechanism, randomised response (Kairouz, Oh, Viswanath 2015). Randomised
    response is fixed beforehand, so it composes with what came before, however the real mechanism was chosen.
    """

    epsilon: Annotated[float, Number(0, 600)]
    delta: Fraction
    adjacency: Annotated[str, Choice(*(item.value for item in Adjacency))] = Adjacency.ADD_REMOVE.value


@dataclass(frozen=True)
class PoissonSampled(Checked):
    """``event`` on a sample that each record joins independently with probability ``sampling_rate``."""

    sampling_rate: Rate
    event: _Part


@dataclass(frozen=True)
class FixedSizeSampled:
    """``event`` on ``sample_size`` records drawn uniformly without replacement from ``population``."""

    population: Count
    sample_size: Count
    event: _Part

    def __post_init__(self) -> None:
        check_fields(self)
        check_integer("sample_size", self.sample_size, low=1, high=self.population)


@dataclass(frozen=True)
class ClusterSampled(Checked):
    """Each cluster is selected with probability ``cluster_rate``, then each of its records with ``sampling_rate``.

    Records of one cluster are NOT included independently of each other, so this is not Poisson sampling at the
    product of the rates (Bun, Drechsler, Gaboardi, McMillan, Sarathy 2022).
    """

    cluster_rate: Rate
    sampling_rate: Rate
    event: _Part


@dataclass(frozen=True)
class Allocated(Checked):
    """``event`` on each of ``rows`` samples; each record is in exactly one sample, drawn uniformly (random allocation).

    A record's sample is independent of other records. Samples are dependent: this is no composition of ``rows`` events.
    """

    rows: Count
    event: _Part


@dataclass(frozen=True)
class NormalWeighted:
    """``event``, a Gaussian query, on a sum that each record joins times its own secret weight, drawn from N(0, 1).

    A record changes the spread of the sum, not its mean (Lev et al. 2025: Gaussian sketches).
    """

    event: _Part


@dataclass(frozen=True)
class Repeated(Checked):
    """``event``, run ``count`` times with fresh randomness (adaptive composition)."""

    event: _Part
    count: Count


@dataclass(frozen=True)
class Composed:
    """All of ``events``, in any order, each with fresh randomness (adaptive composition)."""

    events: tuple[_Part, ...]

    def __post_init__(self) -> None:
        if not self.events:
            raise InvalidInput("events", self.events, "at least one event")


# Its parts are events: stored with their kinds.
_Part = Annotated["Event", Coded(lambda event: event_to_dict(event), lambda found: event_from_dict(found))]

Event = (
    Gaussian
    | Laplace
    | Bounded
    | PoissonSampled
    | FixedSizeSampled
    | ClusterSampled
    | Allocated
    | NormalWeighted
    | Repeated
    | Composed
)
"""A mechanism's use of the private records, as accountants price it: one of these dataclasses."""

_KINDS: dict[str, type[Any]] = {
    "gaussian": Gaussian,
    "laplace": Laplace,
    "bounded": Bounded,
    "poisson_sampled": PoissonSampled,
    "fixed_size_sampled": FixedSizeSampled,
    "cluster_sampled": ClusterSampled,
    "allocated": Allocated,
    "normal_weighted": NormalWeighted,
    "repeated": Repeated,
    "composed": Composed,
}


def event_to_dict(event: Event) -> dict[str, Any]:
    """Return a JSON-ready description of ``event``; :func:`event_from_dict` is its inverse."""
    kind = next(name for name, cls in _KINDS.items() if type(event) is cls)
    return {"kind": kind, **stored(event)}


def event_from_dict(description: Mapping[str, Any]) -> Event:
    """Rebuild an event from :func:`event_to_dict`'s output; anything else is an :class:`InvalidInput`."""
    if not isinstance(description, Mapping):
        raise InvalidInput("event", description, "an object with a 'kind'")
    fields = dict(description)
    kind = check_choice("event kind", fields.pop("kind", None), _KINDS)
    event: Event = read(_KINDS[kind], fields, f"{kind} event")
    return event
