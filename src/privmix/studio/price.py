"""Forecast a release's cost and worth from declarations alone: no file is opened for it."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from threading import Condition, Thread
from typing import Final

import numpy as np

from privmix.accounting.events import Adjacency, Gaussian
from privmix.certificate.guarantee import Guarantee
from privmix.data.source import resolve_classes
from privmix.errors import InvalidInput, PrivmixError
from privmix.features.base import parse_features
from privmix.jobs.columns import class_list
from privmix.jobs.options import SpecOptions
from privmix.jobs.planner import declared_model, projects
from privmix.jobs.release_options import Assumptions
from privmix.jobs.table_words import declared_table
from privmix.ledger.entries import Budget
from privmix.ledger.ledger import Ledger
from privmix.ledger.pricing import BudgetExceeded
from privmix.mechanisms.plan import Unit, unit_of
from privmix.planning.choice import PlannerChoice, labels
from privmix.planning.config import ReleaseConfig
from privmix.planning.planner import choose_design, predict_accuracy
from privmix.plans.plan import Plan
from privmix.studio.asked import (
    AUTO,
    IMAGES,
    PERSON,
    TABLE,
    FormData,
    Problem,
    Unready,
    number,
    problems_of,
    shares_asked,
    whole,
    words_of,
)
from privmix.studio.order import Order

EPSILONS: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0)
"""At these the curve of predicted accuracy is drawn."""
_QUOTED: Final = 0.05


@dataclass(frozen=True)
class DataFacts:
    """Public facts of the data, as declared; equal facts have equal forecasts."""

    # records: number of records or persons; features: the extractor by name; auto: the planner chooses among all
    # designs, for epsilon (None: a design was chosen). attainable: accuracy without privacy, with shares the AUC.

    records: int
    dim: int
    classes: tuple[str, ...]
    persons: bool
    features: str
    delta: float
    attainable: float
    epsilon: float | None = None
    shares: tuple[float, ...] = ()

    @property
    def chance(self) -> float:
        """The figure that guessing reaches."""
        return 0.5 if self.shares else 1 / len(self.classes)

    @property
    def config(self) -> ReleaseConfig:
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
    """The promise of a plan in plain figures; ``plan`` None where the planner will choose."""

    # right: bound on guesses about membership that are right, where chance is a half. caught: bound on members found by
    # an attacker who wrongly accuses one in twenty of the others.

    plan: Plan | None
    epsilon: float
    delta: float
    right: float
    caught: float
    unit: Unit


@dataclass(frozen=True)
class Standing:
    """State of the ledger: the dataset's budget or None, and whether the release fits (None: not known yet)."""

    budget: Budget | None
    fits: bool | None
    words: str


def facts_of(asked: FormData) -> DataFacts:
    if found := problems_of(asked):
        raise Unready(found)
    try:
        names, order = resolve_classes(class_list(asked.classes)), Order.of(asked)
        features = "identity" if asked.what == TABLE else str(order.release["features"])
        return DataFacts(
            records=whole(asked, "records", 2),
            dim=_dim(asked, order),
            classes=tuple(names),
            persons=asked.unit == PERSON,
            features=features,
            delta=number(asked, "delta"),
            attainable=number(asked, "attainable") / 100,
            epsilon=number(asked, "epsilon") if asked.design == AUTO else None,
            shares=shares_asked(asked),
        )
    except InvalidInput as error:
        raise Unready([words_of(error)]) from None
    except PrivmixError as error:
        raise Unready([Problem("", str(error))]) from None


def _dim(asked: FormData, order: Order) -> int:
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


# The page requests it at each change of the form.
@lru_cache(maxsize=256)
def price_of(facts: DataFacts, epsilon: float) -> Price:
    """Return the promise at a budget; raise Unready where no noise meets it."""
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


def standing(asked: FormData, price: Price, place: str) -> Standing | None:
    """Return the state of the named ledger at ``place``; None without one."""
    if not asked.ledger:
        return None
    try:
        book = Ledger.open(place)
        budget = book.stated_budget(asked.dataset)
    except PrivmixError as error:
        return Standing(None, False, f"{error}")
    if price.plan is None:
        return Standing(budget, None, "The budget is checked when the design is known.")
    try:
        book.check(asked.dataset, price.plan.event, adjacency=price.plan.adjacency, unit=price.unit.one)
    except BudgetExceeded:
        return Standing(budget, False, "This release exceeds the remaining budget. Choose a smaller epsilon.")
    except PrivmixError as error:
        return Standing(budget, False, f"{error}")
    return Standing(budget, True, "This release fits the budget.")


@dataclass(frozen=True)
class RunningForecast:
    """A forecast so far: accuracy by epsilon, steps, the planner's choice, and a failure in words."""

    curve: dict[float, float] = field(default_factory=dict)
    done: int = 0
    total: int = len(EPSILONS)
    choice: PlannerChoice | None = None
    failed: str = ""

    @property
    def ready(self) -> bool:
        return bool(self.failed) or self.done >= self.total

    @property
    def best(self) -> str:
        return "" if self.choice is None else labels()[self.choice.best.name]


class _Stale(Exception):
    """The user requests another forecast by now."""


class Forecasts:
    """Forecasts, one at a time on a thread; a new one ends the running one. Results are kept for a slider's return."""

    def __init__(self) -> None:
        self._kept: dict[DataFacts, RunningForecast] = {}
        self._wanted: DataFacts | None = None
        self._changed = Condition()
        self._closed = False
        self._thread: Thread | None = None

    def ask(self, facts: DataFacts) -> RunningForecast:
        """Return the forecast so far and start computing the rest."""
        with self._changed:
            found = self._kept.get(facts, RunningForecast())
            if not found.ready and facts != self._wanted:
                self._wanted = facts
                self._changed.notify()
            if self._thread is None:
                # A daemon: a forecast must not keep the studio from ending.
                self._thread = Thread(target=self._work, name="forecasts", daemon=True)
                self._thread.start()
            return found

    def close(self) -> None:
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
                # The library's text is about declared facts; a defect in privmix is named by its kind.
                said = str(error) if isinstance(error, PrivmixError) else type(error).__name__
                self._keep(facts, RunningForecast(failed=said), anyway=True)
            with self._changed:
                # Another forecast that was requested meanwhile stays.
                if self._wanted == facts:
                    self._wanted = None

    def _keep(self, facts: DataFacts, found: RunningForecast, *, anyway: bool = False) -> None:
        with self._changed:
            self._kept[facts] = found
            # A slider passes many values: the oldest forecasts go.
            while len(self._kept) > 64:
                self._kept.pop(next(iter(self._kept)))
            # A thread cannot be ended from outside: it ends at its next step.
            if not anyway and (self._wanted != facts or self._closed):
                raise _Stale


def forecast_of(facts: DataFacts, tell: Callable[[RunningForecast], None]) -> RunningForecast:
    """Predict accuracy or AUC against epsilon. After each step it calls `tell`, whose exceptions end the work."""
    assumed = Assumptions(attainable=facts.attainable)
    if facts.shares:
        assumed = Assumptions(class_shares=facts.shares, auc=facts.attainable)
    extractor = parse_features(facts.features)
    config = replace(facts.config, residual_clip_norm=extractor.usual.residual)
    model, words = declared_model(config, assumed, extractor)
    found = RunningForecast()
    if facts.epsilon is not None:

        def step(stage: str, done: int, total: int) -> None:
            # The last step is the choice itself, which comes after the planner's.
            tell(RunningForecast(done=min(done, total - 1), total=total))

        choice = choose_design(
            config, facts.epsilon, facts.delta, model, model_words=words, project=projects(extractor), progress=step
        )
        curve = dict(zip(choice.epsilons, choice.curves[choice.best.name], strict=True))
        found = RunningForecast(curve, 1, 1, choice)
        tell(found)
        return found
    for epsilon in EPSILONS:
        try:
            plan = config.calibrate(epsilon, facts.delta)
            curve = {**found.curve, epsilon: predict_accuracy(plan, model, draws=1).counted}
        # A budget that no noise meets leaves a gap in the curve.
        except InvalidInput:
            curve = found.curve
        found = replace(found, curve=curve, done=found.done + 1)
        tell(found)
    return found


def between(curve: dict[float, float], epsilon: float) -> float | None:
    """Interpolate the curve at an epsilon, linearly in its logarithm; None beyond its ends."""
    known = sorted(curve)
    if not known or not known[0] <= epsilon <= known[-1]:
        return None
    return float(np.interp(math.log(epsilon), np.log(known), [curve[one] for one in known]))
