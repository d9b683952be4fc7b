"""What a release would cost and be worth, from what is declared alone: no file is opened for it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from threading import Condition, Thread
from typing import Final

import numpy as np

from privmix.accounting import Adjacency, Gaussian
from privmix.certificate.guarantee import Guarantee
from privmix.data.source import resolve_classes
from privmix.errors import InvalidInput, PrivmixError
from privmix.features import parse_features
from privmix.jobs.columns import class_list
from privmix.jobs.options import SpecOptions
from privmix.jobs.planning import declared_model, projects
from privmix.jobs.release_options import Assumptions
from privmix.jobs.table_words import declared_table
from privmix.ledger import Budget, BudgetExceeded, Ledger
from privmix.mechanisms.plan import Unit, unit_of
from privmix.planning import Choice, ReleaseConfig, choose_design
from privmix.planning.choice import labels
from privmix.planning.planner import predict_accuracy
from privmix.plans import Plan
from privmix.studio.asked import (
    AUTO,
    IMAGES,
    PERSON,
    TABLE,
    Asked,
    Problem,
    Unready,
    number,
    problems_of,
    whole,
    words_of,
)
from privmix.studio.order import Order

EPSILONS: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0)
"""At these the curve of predicted accuracy is drawn."""
_QUOTED: Final = 0.05


@dataclass(frozen=True)
class Facts:
    """What is public of the data, as it was declared; equal facts have equal forecasts.

    Attributes:
        records: how many records or persons.
        dim: features of a record.
        classes: names.
        persons: whether persons are the unit.
        features: the extractor by name.
        auto: whether the planner is to choose among all designs.
        delta: of the guarantee.
        attainable: accuracy that is expected without privacy.
        epsilon: for which the planner chooses; None where a design was chosen.
    """

    records: int
    dim: int
    classes: tuple[str, ...]
    persons: bool
    features: str
    delta: float
    attainable: float
    epsilon: float | None = None

    @property
    def config(self) -> ReleaseConfig:
        """As the planner takes it, with the studio's own design."""
        return ReleaseConfig(
            records=self.records,
            dim=self.dim,
            classes=self.classes,
            design="moments",
            per_person=1 if self.persons else None,
            records_declared=True,
        )


@dataclass(frozen=True)
class Price:
    """What a plan promises, in figures that people understand.

    Attributes:
        plan: of the studio's own design; None where the planner will choose.
        epsilon, delta: the promise.
        right: how often, at most, a guess whether somebody is in the data is right, where chance is a half.
        caught: how many of those present are found, at most, by who wrongly accuses one in twenty of those absent.
        unit: what neighbours differ by.
    """

    plan: Plan | None
    epsilon: float
    delta: float
    right: float
    caught: float
    unit: Unit


@dataclass(frozen=True)
class Standing:
    """How the ledger stands.

    Attributes:
        budget: of the dataset; None where there is no ledger or it has no such dataset.
        fits: whether the release is within it; None where that can't be said yet.
        words: what is to be said of it.
    """

    budget: Budget | None
    fits: bool | None
    words: str


def facts_of(asked: Asked) -> Facts:
    """The public facts that were declared.

    Raises:
        Unready: something is missing or makes no sense.
    """
    if found := problems_of(asked):
        raise Unready(found)
    try:
        names, order = resolve_classes(class_list(asked.classes)), Order.of(asked)
        features = "identity" if asked.what == TABLE else str(order.release["features"])
        return Facts(
            records=whole(asked, "records", 2),
            dim=_dim(asked, order),
            classes=tuple(names),
            persons=asked.unit == PERSON,
            features=features,
            delta=number(asked, "delta"),
            attainable=number(asked, "attainable") / 100,
            epsilon=number(asked, "epsilon") if asked.design == AUTO else None,
        )
    except InvalidInput as error:
        raise Unready([words_of(error)]) from None
    except PrivmixError as error:
        raise Unready([Problem("", str(error))]) from None


def _dim(asked: Asked, order: Order) -> int:
    if asked.what == TABLE:
        said = {name: value for name, value in order.spec.items() if name != "out"}
        names = [column.name for column in asked.declared]
        table = declared_table(names, SpecOptions(**said), apart=(asked.label, asked.person))
        return table.output_dim((len(table.columns),))
    extractor = parse_features(order.release["features"])
    if asked.what == IMAGES:
        side = whole(asked, "image_size", 4)
        return extractor.output_dim((side, side) if asked.colour == "grey" else (side, side, 3))
    return extractor.output_dim(())


@lru_cache(maxsize=256)
def price_of(facts: Facts, epsilon: float) -> Price:
    """What is promised at a budget.

    Raises:
        Unready: no noise meets it.
    """
    unit = unit_of(facts.config)
    if facts.epsilon is not None:
        # The planner's design is not known yet: what any of them promises, by the one point (epsilon, delta).
        point = Guarantee(epsilon, facts.delta, Gaussian(1.0), Adjacency.ADD_REMOVE, exact=False)
        return Price(None, epsilon, facts.delta, point.right, point.caught(_QUOTED), unit)
    try:
        plan = facts.config.calibrate(epsilon, facts.delta)
    except InvalidInput as error:
        raise Unready([words_of(error)]) from None
    cost = plan.cost()
    promise = Guarantee(cost.epsilon, facts.delta, plan.event, plan.adjacency, exact=True)
    return Price(plan, cost.epsilon, facts.delta, promise.right, promise.caught(_QUOTED), unit)


def standing(asked: Asked, price: Price, place: str) -> Standing | None:
    """How the ledger that is named stands, and whether the release fits; None where none is named.

    Args:
        asked: with the ledger's file and the dataset's name.
        price: of the release.
        place: the ledger's address.
    """
    if not asked.ledger:
        return None
    try:
        book = Ledger.open(place)
        budget = book.stated_budget(asked.dataset)
    except PrivmixError as error:
        return Standing(None, False, f"{error}")
    if price.plan is None:
        return Standing(budget, None, "Whether the release fits is checked when its design is chosen.")
    try:
        book.check(asked.dataset, price.plan.event, adjacency=price.plan.adjacency, unit=price.unit.one)
    except BudgetExceeded:
        return Standing(budget, False, "This release would cost more than is left. Choose a smaller epsilon.")
    except PrivmixError as error:
        return Standing(budget, False, f"{error}")
    return Standing(budget, True, "This release fits.")


@dataclass(frozen=True)
class Forecast:
    """What is known of a forecast so far.

    Attributes:
        curve: predicted accuracy by epsilon.
        done, total: steps.
        choice: of the planner, where it was asked.
        failed: what went wrong, in words.
    """

    curve: dict[float, float] = field(default_factory=dict)
    done: int = 0
    total: int = len(EPSILONS)
    choice: Choice | None = None
    failed: str = ""

    @property
    def ready(self) -> bool:
        """Whether nothing more is to come."""
        return bool(self.failed) or self.done >= self.total

    @property
    def best(self) -> str:
        """What the planner calls the design that it chose."""
        return "" if self.choice is None else labels()[self.choice.best.name]


class _Stale(Exception):
    """Somebody asks for another forecast by now."""


class Forecasts:
    """Forecasts, one at a time, on a thread of their own: who asks for another one ends the one that is made.

    What was made is kept, so that a slider that comes back finds it.
    """

    def __init__(self) -> None:
        self._kept: dict[Facts, Forecast] = {}
        self._wanted: Facts | None = None
        self._changed = Condition()
        self._closed = False
        self._thread: Thread | None = None

    def ask(self, facts: Facts) -> Forecast:
        """What is known by now; what is not known yet is begun."""
        with self._changed:
            found = self._kept.get(facts, Forecast())
            if not found.ready and facts != self._wanted:
                self._wanted = facts
                self._changed.notify()
            if self._thread is None:
                self._thread = Thread(target=self._work, name="forecasts", daemon=True)
                self._thread.start()
            return found

    def close(self) -> None:
        """End what is made."""
        with self._changed:
            self._closed, self._wanted = True, None
            self._changed.notify()

    def _work(self) -> None:
        while True:
            with self._changed:
                while self._wanted is None and not self._closed:
                    self._changed.wait()
                if self._closed:
                    return
                facts = self._wanted
            assert facts is not None
            try:
                forecast_of(facts, partial(self._keep, facts))
            except _Stale:
                continue
            except Exception as error:
                # What it says is of declared facts; a defect of ours is named by its kind.
                said = str(error) if isinstance(error, PrivmixError) else type(error).__name__
                self._keep(facts, Forecast(failed=said), anyway=True)
            with self._changed:
                if self._wanted == facts:
                    self._wanted = None

    def _keep(self, facts: Facts, found: Forecast, *, anyway: bool = False) -> None:
        with self._changed:
            self._kept[facts] = found
            while len(self._kept) > 64:
                self._kept.pop(next(iter(self._kept)))
            if not anyway and (self._wanted != facts or self._closed):
                raise _Stale


def forecast_of(facts: Facts, tell: Callable[[Forecast], None]) -> Forecast:
    """Predict accuracy against epsilon, telling each step.

    Args:
        facts: declared.
        tell: called with what is known so far; what it raises ends the work.
    """
    model, words = declared_model(
        facts.config, Assumptions(attainable=facts.attainable), parse_features(facts.features)
    )
    found = Forecast()
    if facts.epsilon is not None:

        def step(stage: str, done: int, total: int) -> None:
            tell(Forecast(done=min(done, total - 1), total=total))

        choice = choose_design(
            facts.config,
            facts.epsilon,
            facts.delta,
            model,
            model_words=words,
            project=projects(parse_features(facts.features)),
            progress=step,
        )
        curve = dict(zip(choice.epsilons, choice.curves[choice.best.name], strict=True))
        found = Forecast(curve, 1, 1, choice)
        tell(found)
        return found
    for epsilon in EPSILONS:
        try:
            plan = facts.config.calibrate(epsilon, facts.delta)
            curve = {**found.curve, epsilon: predict_accuracy(plan, model, draws=1).accuracy}
        except InvalidInput:
            curve = found.curve
        found = replace(found, curve=curve, done=found.done + 1)
        tell(found)
    return found


def between(curve: dict[float, float], epsilon: float) -> float | None:
    """The curve's value at an epsilon, along straight lines over the logarithm of epsilon; None beyond its ends.

    Example:
        >>> round(between({1.0: 0.5, 4.0: 0.9}, 2.0), 2)
        0.7
    """
    known = sorted(curve)
    if not known or not known[0] <= epsilon <= known[-1]:
        return None
    return float(np.interp(math.log(epsilon), np.log(known), [curve[one] for one in known]))
