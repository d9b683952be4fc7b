"""The price of a design, and the noise that meets a target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from privmix import accounting
from privmix.commands.base import Command
from privmix.errors import InvalidInput, Unquoted, check_choice, check_integer, check_number
from privmix.jobs.options import DESIGN_HELP, DESIGN_KINDS, DESIGN_NAMES
from privmix.options import EXPERT, option
from privmix.progress import Progress
from privmix.rounding import exact, rounded_up
from privmix.shown import Shown

if TYPE_CHECKING:
    from privmix.accounting.base import PrivacyCost
    from privmix.accounting.events import Adjacency, Event
    from privmix.mechanisms.plan import Unit
    from privmix.planning.config import ReleaseConfig
    from privmix.plans.design import Design

_DELTA: Final = 1e-5


@dataclass(frozen=True, repr=False)
class Prices(Shown):
    """Costs by accountant."""

    # found: cost and noise multiplier of each accountant, or why it has none ("unsupported").
    design: str
    adjacency: Adjacency
    found: list[dict[str, Any]]
    delta: float
    asked: Account
    unit: Unit

    def shown(self) -> tuple[str, Mapping[str, object]]:
        from privmix.mechanisms.plan import relation_of

        title = f"{self.design}, delta {exact(self.delta)}, adjacency {relation_of(self.adjacency.value, self.unit)}"
        return title, {one["accountant"]: self._line(one) for one in self.found}

    def _line(self, one: Mapping[str, Any]) -> str:
        if "unsupported" in one:
            return f"not supported: {one['unsupported']}"
        bound, records = one["is_upper_bound"], self.asked.records_per_person
        together = f" ({_figure(one['person_epsilon'])} of {records} records)" if bound and records else ""
        noise = f"noise multiplier {one['noise_multiplier']:.4g}"
        kind = "an upper bound" if bound else "NOT an upper bound"
        note = f"; {one['note']}" if one.get("note") else ""
        return f"epsilon {_figure(one['epsilon'])}{together}, {noise}, {kind}{note}"

    @property
    def details(self) -> tuple[str, ...]:
        """Meaning of the price of several records."""
        records = self.asked.records_per_person
        if records is None:
            return ()
        if self.unit.per_person is not None:
            return ("The figure covers a person with all records, however many.",)
        return (
            f"Figures for {records} records convert the cost of one record into a bound for a person with up to "
            f"{records} records (group privacy). For a guarantee per person use `person` of privmix release or train.",
        )

    def to_dict(self) -> Any:
        return self.found if self.asked.every else self.found[0]


@dataclass(frozen=True, eq=False, repr=False)
class Account(Command[Prices]):
    """Compute a design's epsilon, or the noise that meets a target.

    Give `noise_multiplier` for the epsilon, or `epsilon` for the least noise multiplier. The result covers the
    design's own query; `release` covers a whole release, with its private mean.
    """

    example = "privmix account --design poisson:mixup_degree=64 --records 60000 --epsilon 1 --delta 1e-5"

    design: str | Design[Any] | None = option(
        None, f"{DESIGN_HELP} Default: poisson.", kinds=DESIGN_KINDS, names=DESIGN_NAMES
    )
    records: int | None = option(None, "Public record count, n.")
    rows: int | None = option(None, "Number of released rows, T. Default: n.")
    delta: float | None = option(None, "Delta of the guarantee. Default: 1e-05, or the release's.")
    release: Path | None = option(None, "Release or model whose whole plan is priced, instead of `design`.")
    noise_multiplier: float | None = option(None, "Joint noise multiplier of a row's features and labels, s.")
    epsilon: float | None = option(None, "Target epsilon, met with the least noise.")
    classes: int = option(10, "Number of classes (designs hierarchical and classwise).")
    accountant: str = option(
        "pld", "Accountant: pld, rdp, moments, pure (bounds); gdp_clt, as_published (comparisons); or all."
    )
    adjacency: str | None = option(
        None, "Neighbouring datasets: add_remove or replace_one. Default: the design's own.", EXPERT
    )
    records_per_person: int | None = option(
        None, "Records of a person, K, for an additional group-privacy bound.", EXPERT
    )

    @property
    def every(self) -> bool:
        return self.accountant == "all"

    def run(self, progress: Progress) -> Prices:
        return prices_of(self)


def _figure(value: float | None) -> str:
    return "infinite" if value is None else rounded_up(value, 4)


def priced_config(records: int, classes: int, rows: int | None, design: str | Design[Any]) -> ReleaseConfig:
    """Return a release whose own query is priced, without a mean."""
    from privmix.planning.config import ReleaseConfig

    names = tuple(str(number) for number in range(classes))
    # One feature: a joint noise multiplier has the same price in any dimension.
    return ReleaseConfig(records=records, dim=1, classes=names, design=design, rows=rows, centre="none")


def prices_of(asked: Account) -> Prices:
    """Price a design, or find the noise that meets a target.

    Example:
        >>> found = prices_of(Account("poisson:mixup_degree=64", records=60_000, epsilon=1.0)).found[0]
        >>> found["is_upper_bound"], found["epsilon"] <= 1
        (True, True)
    """
    if asked.records_per_person is not None:
        check_integer("records_per_person", asked.records_per_person, low=1)
    if asked.release is not None:
        return _of_folder(asked)
    from privmix.mechanisms.plan import RECORD

    delta = _DELTA if asked.delta is None else asked.delta
    if asked.records is None:
        raise InvalidInput("records", asked.records, "the public record count n")
    if (asked.noise_multiplier is None) == (asked.epsilon is None):
        raise InvalidInput("noise_multiplier, epsilon", Unquoted("both or neither"), "exactly one of the two")
    config = priced_config(asked.records, asked.classes, asked.rows, asked.design or "poisson")
    if asked.epsilon is not None:
        config = config.resolved(asked.epsilon, delta)
    adjacency = _relation(config, asked)
    found = [_one(config, asked, name, adjacency, delta) for name in _accountants(asked)]
    return Prices(f"design {config.design.name}", adjacency, found, delta, asked, RECORD)


def _accountants(asked: Account) -> list[str]:
    return list(accounting.ACCOUNTANTS) if asked.every else [accounting.get_accountant(asked.accountant).name]


def _of_folder(asked: Account) -> Prices:
    """All that a certified plan ran, mean query and count too, as its certificate states it."""
    # Reading certificates imports libraries that a price does not need.
    from privmix.jobs.kinds import read_certified
    from privmix.mechanisms.plan import RECORD

    assert asked.release is not None
    others = (asked.records, asked.rows, asked.noise_multiplier, asked.epsilon, asked.adjacency)
    if any(value is not None for value in (*others, asked.design)):
        raise InvalidInput("release", str(asked.release), "no design with `release`, which has a plan")
    certificate = read_certified(asked.release)
    stated = certificate["guarantee"]
    delta = stated["delta"] if asked.delta is None else asked.delta
    adjacency = accounting.Adjacency(stated["adjacency"])
    event, found, plan = accounting.event_from_dict(certificate["event"]), [], certificate["plan"]
    unit = certificate.unit
    if asked.records_per_person is not None and unit == RECORD and plan.get("records_noise_multiplier") is not None:
        # The mechanism followed from the count; with another count it could cost more.
        allowed = "no value with a private count: only the cost of one record holds for every possible count"
        raise InvalidInput("records_per_person", asked.records_per_person, allowed)
    for name in _accountants(asked):
        try:
            cost = accounting.epsilon(event, delta, accountant=name, adjacency=adjacency)
        except accounting.UnsupportedEvent as error:
            # With `all`, an accountant without a price is a line of the answer and no error.
            if not asked.every:
                raise
            found.append({"accountant": name, "unsupported": error.allowed})
        else:
            together = _together(asked, event, cost, name, adjacency, unit)
            found.append({**cost.to_dict(), "noise_multiplier": plan["noise_multiplier"], **together})
    return Prices(f"{certificate.kind} {certificate.id[:8]}", adjacency, found, delta, asked, unit)


def _together(
    asked: Account, event: Event, one: PrivacyCost, accountant: str, adjacency: Adjacency, unit: Unit
) -> dict[str, Any]:
    """Return the price for a person with several records, in words; nothing where that was not asked."""
    records = asked.records_per_person
    if records is None:
        return {}
    from privmix.accounting.pricing import group_epsilon
    from privmix.mechanisms.plan import RECORD

    cost = one
    if unit == RECORD and one.is_upper_bound:
        cost = group_epsilon(event, one.delta, records, accountant=accountant, adjacency=adjacency)
    # Group privacy makes bounds from bounds: nothing follows from a comparison.
    elif unit == RECORD:
        if not asked.every:
            raise InvalidInput("accountant", accountant, "an accountant with an upper bound, for `records_per_person`")
        return {"records_per_person": records, "person_epsilon": None}
    return {"records_per_person": records, "person_epsilon": cost.to_dict()["epsilon"]}


def _relation(config: ReleaseConfig, asked: Account) -> Adjacency:
    """Return the relation to price for: the design's own, or another one that its price is proven for."""
    own = config.draft().adjacency
    if asked.adjacency is None:
        return own
    proven = [one.value for one in (own, config.design.other_adjacency) if one is not None]
    return accounting.Adjacency(check_choice("adjacency", asked.adjacency, proven))


def _one(config: ReleaseConfig, asked: Account, accountant: str, adjacency: Adjacency, delta: float) -> dict[str, Any]:
    from privmix.mechanisms.plan import RECORD

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
