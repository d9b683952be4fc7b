"""The price of a design, or the noise that meets a target, by one accountant or by all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from privmix import accounting
from privmix.accounting import Adjacency, Event, event_from_dict
from privmix.accounting.base import PrivacyCost
from privmix.accounting.groups import group_epsilon
from privmix.errors import InvalidInput, check_choice, check_integer, check_number
from privmix.jobs.options import PriceOptions
from privmix.mechanisms.plan import RECORD, Unit
from privmix.planning.config import ReleaseConfig

_DELTA: Final = 1e-5


@dataclass(frozen=True)
class Prices:
    """What accountants say.

    Attributes:
        design: whose price it is.
        adjacency: that the prices are for.
        found: of each accountant its cost and the noise multiplier, or why it has none ("unsupported"); if asked for,
            ``person_epsilon``: of somebody with ``records_per_person`` records, None where no bound is known.
        delta: that they are at.
        unit: that they are for: a record, or a person with all records.
    """

    design: str
    adjacency: Adjacency
    found: list[dict[str, Any]]
    delta: float
    unit: Unit = RECORD


def price(asked: PriceOptions, design: str | None = None, options: Mapping[str, Any] | None = None) -> Prices:
    """Price a design, or find the noise that meets a target.

    Args:
        asked: either ``noise_multiplier`` (answers with epsilon) or ``epsilon`` (answers with the least noise).
        design: its name; Poisson where None.
        options: of the design.

    Raises:
        InvalidInput: an option is out of range or of another design, or the design has no proven price under that
            relation; or none is known for somebody with several records.
        UnsupportedEvent: the accountant has no price for such draws, unless all are asked.

    Example:
        >>> asked = PriceOptions(records=60_000, epsilon=1.0)
        >>> found = price(asked, "poisson", {"mixup_degree": 64}).found[0]
        >>> found["is_upper_bound"], found["epsilon"] <= 1
        (True, True)
    """
    if asked.records_per_person is not None:
        check_integer("records_per_person", asked.records_per_person, low=1)
    if asked.release is not None:
        return _of_folder(asked, design, options)
    delta = _DELTA if asked.delta is None else asked.delta
    if asked.records is None:
        raise InvalidInput("records", asked.records, "the public record count")
    if (asked.noise_multiplier is None) == (asked.epsilon is None):
        raise InvalidInput("noise_multiplier, epsilon", "both or neither", "exactly one of the two")
    config = ReleaseConfig(
        records=asked.records,
        dim=1,
        classes=tuple(str(number) for number in range(asked.classes)),
        design=design or "poisson",
        rows=asked.rows,
        centre="none",
        **(options or {}),
    )
    named = "as_published" if asked.as_published else asked.accountant
    names = list(accounting.ACCOUNTANTS) if asked.every else [accounting.get_accountant(named).name]
    if asked.epsilon is not None:
        config = config.resolved(asked.epsilon, delta)
    adjacency = _relation(config, asked)
    found = [_one(config, asked, name, adjacency, delta) for name in names]
    return Prices(config.design.name, adjacency, found, delta)


def _of_folder(asked: PriceOptions, design: str | None, options: Mapping[str, Any] | None) -> Prices:
    """All that a certified plan ran, mean query and count too, as its certificate states it."""
    # What reads certificates waits for libraries that a price needs not.
    from privmix.jobs.kinds import certified

    assert asked.release is not None
    others = (asked.records, asked.rows, asked.noise_multiplier, asked.epsilon, asked.adjacency)
    if any(value is not None for value in others) or options:
        raise InvalidInput("release", str(asked.release), "no other plan beside it: leave the design's options out")
    certificate = certified(asked.release).read(asked.release)
    stated = certificate["guarantee"]
    delta, adjacency = stated["delta"] if asked.delta is None else asked.delta, Adjacency(stated["adjacency"])
    named = "as_published" if asked.as_published else asked.accountant
    names = list(accounting.ACCOUNTANTS) if asked.every else [accounting.get_accountant(named).name]
    event, found, plan = event_from_dict(certificate["event"]), [], certificate["plan"]
    unit = certificate.unit
    if asked.records_per_person is not None and unit == RECORD and plan.get("records_noise_multiplier") is not None:
        # What was done to the records followed from the count; of another count it could cost them more.
        allowed = "none with a private count: the price for one record alone holds for every count that it could give"
        raise InvalidInput("records_per_person", asked.records_per_person, allowed)
    for name in names:
        try:
            cost = accounting.epsilon(event, delta, accountant=name, adjacency=adjacency)
        except accounting.UnsupportedEvent as error:
            if not asked.every:
                raise
            found.append({"accountant": name, "unsupported": error.allowed})
        else:
            together = _together(asked, event, cost, name, adjacency, unit)
            found.append({**cost.to_dict(), "noise_multiplier": plan["noise_multiplier"], **together})
    return Prices(f"{certificate.kind} {certificate.id[:8]}", adjacency, found, delta, unit)


def _together(
    asked: PriceOptions, event: Event, one: PrivacyCost, accountant: str, adjacency: Adjacency, unit: Unit
) -> dict[str, Any]:
    """What the price means for somebody with several records; nothing where that was not asked."""
    records = asked.records_per_person
    if records is None:
        return {}
    cost = one
    if unit == RECORD and one.is_upper_bound:
        cost = group_epsilon(event, one.delta, records, accountant=accountant, adjacency=adjacency)
    elif unit == RECORD:
        if not asked.every:
            raise InvalidInput("accountant", accountant, "one that gives an upper bound, for `records_per_person`")
        return {"records_per_person": records, "person_epsilon": None}
    return {"records_per_person": records, "person_epsilon": cost.to_dict()["epsilon"]}


def _relation(config: ReleaseConfig, asked: PriceOptions) -> Adjacency:
    """The relation to price for: the design's own, or another one that its price is proven for."""
    own = config.draft().adjacency
    if asked.adjacency is None:
        return own
    proven = [one.value for one in (own, config.design.other_adjacency) if one is not None]
    return Adjacency(check_choice("adjacency", asked.adjacency, proven))


def _one(
    config: ReleaseConfig, asked: PriceOptions, accountant: str, adjacency: Adjacency, delta: float
) -> dict[str, Any]:
    def event(multiplier: float) -> Event:
        return config.with_noise(multiplier).event

    by: dict[str, Any] = {"accountant": accountant, "adjacency": adjacency}
    multiplier = asked.noise_multiplier
    try:
        if asked.epsilon is not None:
            multiplier = accounting.calibrate(event, asked.epsilon, delta, **by).noise_multiplier
        assert multiplier is not None
        check_number("noise_multiplier", multiplier, low=0, low_open=True)
        cost = accounting.epsilon(event(multiplier), delta, **by)
        together = _together(asked, event(multiplier), cost, accountant, adjacency, RECORD)
    except accounting.UnsupportedEvent as error:
        if not asked.every:
            raise
        return {"accountant": accountant, "unsupported": error.allowed}
    return {**cost.to_dict(), "noise_multiplier": multiplier, **together}
