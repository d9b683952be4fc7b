"""Forecast of each design at a budget, before there is a private row to read."""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from privmix.certificate.guarantee import Guarantee
from privmix.data.source import resolve_classes
from privmix.designs.moments.plan import MOMENTS
from privmix.designs.rows.poisson import Poisson
from privmix.errors import InvalidInput, check_number
from privmix.features.base import Extractor, parse_features
from privmix.features.tabular import Tabular
from privmix.jobs.columns import NO_LABEL, class_list
from privmix.jobs.dataset import open_dataset
from privmix.jobs.features import features_in_memory
from privmix.jobs.options import CLASSIFY, TABLE
from privmix.jobs.places import check_figure
from privmix.jobs.planner import check_goal, columns_of, declared_model, projects, public_model
from privmix.learning.data_model import DataModel
from privmix.mechanisms.plan import ALL_RECORDS
from privmix.named import in_words
from privmix.planning.choice import Candidate, PlannerChoice, auc_of, labels
from privmix.planning.config import ReleaseConfig, degree_by_theory
from privmix.planning.planner import TableChoice, choose_design, choose_table
from privmix.planning.table import TableForecast, forecast_table
from privmix.planning.theory import best_mixup_degree
from privmix.plans.plan import Plan
from privmix.progress import Progress, silent
from privmix.reports.pictures import draw_predictions
from privmix.rounding import exact, percent_up
from privmix.shown import Bar, Bars, Shown

# Budgets that are tried for a wanted accuracy. Forecasts are no closer than steps of a third or so.
_BUDGETS: Final = (0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0)

# Points by which `privmix train` was above the planner's release: median, least, most; in how many cases it was, of how
# many: public datasets at epsilon 1 and 8 (benchmarks/results/designs.md). A simulation cannot rank the two.
TRAINED: Final = (-0.6, -20.4, 0.8, 4, 22)


@dataclass(frozen=True, repr=False)
class ForecastResult(Shown):
    """The planner's forecast of every design, and that of theory."""

    # `linear`: Li et al. 2022, Theorem 3.1: the best mixup degree and the paper's; None where rows are too few or a
    # degree has no price. `mixup_degree`: of a Poisson release by theory. `goal`: classify or table. `variations`: by
    # design that releases pairs, the forecast total variation.
    choice: PlannerChoice
    linear: dict[str, Any] | None
    mixup_degree: int
    goal: str = CLASSIFY
    table: TableChoice | None = None
    variations: Mapping[str, float] = field(default_factory=dict)
    figure: Path | None = None

    @property
    def of_goal(self) -> TableChoice | Candidate:
        return self.table if self.goal == TABLE and self.table is not None else self.choice.best

    @property
    def plan(self) -> Plan:
        return self.of_goal.plan

    @property
    def right(self) -> float:
        """How often the best attack on that plan is right on an even bet, at most."""
        return Guarantee.of_plan(self.plan).right

    @property
    def accuracy(self) -> float:
        return self.of_goal.accuracy

    @property
    def variation(self) -> float | None:
        """Forecast total variation of two columns: by the goal's plan; None where no rows of a table can be drawn."""
        if isinstance(self.of_goal, TableChoice):
            return self.of_goal.forecast.variation
        return self.variations.get(self.choice.best.name)

    def in_a_line(self) -> str:
        """Return what a budget buys: the best attack, the best design and its accuracy, and distance of rows."""
        best, attack = self.choice.best, f"best attack right {percent_up(self.right)} of the time at most"
        between = "" if self.variation is None else f", rows differ by {self.variation:.4f}"
        if isinstance(self.of_goal, TableChoice):
            return f"{100 * self.accuracy:.1f}% by {self.plan.design}{between}; {attack}"
        area = "" if best.auc is None else f", AUC {auc_of(best)}"
        span = f"({100 * best.low:.0f} to {100 * best.high:.0f}%)"
        return f"{100 * best.accuracy:.1f}% {span}{area} by {self.plan.design}{between}; {attack}"

    def shown(self) -> tuple[str, Mapping[str, object]]:
        choice = self.choice
        title = f"Predicted accuracy at epsilon {exact(choice.epsilon)}, delta {exact(choice.delta)}"
        return title, {labels()[one.name]: self._of(one) for one in choice.candidates}

    @property
    def details(self) -> tuple[str, ...]:
        # Forecasts of the other designs stand above.
        reasons = self.choice.reasons
        found = [reasons[0], *reasons[len(self.choice.candidates) :], *map(str, self.choice.left_out)]
        if self.table is not None:
            chosen, far = self.table, self.variations.get(self.choice.best.name)
            between = "no table" if far is None else f"total variation of two columns {far:.4f}"
            found += [
                f"goal classify: {self.choice.best.plan.design}, accuracy {100 * self.choice.best.accuracy:.1f}%, "
                f"{between}",
                f"goal table: {in_words_of(chosen.config.design.settings())}, accuracy {100 * chosen.accuracy:.1f}%, "
                f"total variation of two columns {chosen.forecast.variation:.4f}",
                *chosen.reasons,
            ]
        if self.linear is not None:
            found.append(
                "theory for linear regression (Li et al. 2022, Theorem 3.1, at the noise by PLD): best mixup degree "
                f"{self.linear['mixup_degree']}; the paper's rate gives {self.linear['published_mixup_degree']:.0f}"
            )
        found.append(f"a Poisson release takes mixup degree {self.mixup_degree} where none is given")
        if self.goal == CLASSIFY:
            median, least, most, better, cases = TRAINED
            found.append(
                f"one model and no release: privmix train is expected to do no better; on public datasets the release "
                f"was as good or better in {cases - better} of {cases} cases, by {-median:g} points in the median "
                f"({-most:g} to {-least:g})"
            )
        if self.figure is not None:
            found.append(f"picture: {self.figure}")
        return tuple(found)

    @staticmethod
    def _of(one: Candidate) -> str:
        accuracy, between = f"{100 * one.accuracy:.1f}%", f"{100 * one.low:.0f} to {100 * one.high:.0f}%"
        noise = f"noise multiplier {one.plan.noise_multiplier:.4g}"
        if one.auc is not None:
            noise = f"AUC {auc_of(one)}, {noise}"
        return f"{accuracy} ({between}), {noise}, {in_words_of(one.settings)}"

    def to_dict(self) -> dict[str, Any]:
        return {
            **self.choice.to_dict(),
            "left_out": [str(item) for item in self.choice.left_out],
            "linear_regression": self.linear,
            "mixup_degree": self.mixup_degree,
            **({} if self.table is None else {"goal": self.goal, "table": self.table.to_dict()}),
            **({"total_variation": dict(self.variations)} if self.variations else {}),
            "right_at_most": self.right,
        }


@dataclass(frozen=True, repr=False)
class Budgets(Shown):
    """Forecasts at several budgets, the smallest first; ``accuracy`` or ``auc`` is the wanted one, if any."""

    forecasts: tuple[ForecastResult, ...]
    accuracy: float | None = None
    auc: float | None = None
    figure: Path | None = None

    @property
    def least(self) -> ForecastResult | None:
        """The least of these budgets whose best design is forecast to reach the wanted accuracy."""
        return next((one for one in self.forecasts if reaches(one, self.accuracy, self.auc)), None)

    @property
    def choice(self) -> PlannerChoice:
        """The planner's choice at that budget, or else at the largest."""
        return (self.least or self.forecasts[-1]).choice

    def shown(self) -> tuple[str, Mapping[str, object]]:
        lines = {f"epsilon {exact(one.choice.epsilon)}": one.in_a_line() for one in self.forecasts}
        title = f"Predicted accuracy by epsilon, delta {exact(self.forecasts[0].choice.delta)}"
        if self.accuracy is None and self.auc is None:
            return title, lines
        least = "none of these" if self.least is None else exact(self.least.choice.epsilon)
        wanted = f"AUC {self.auc:g}" if self.accuracy is None else f"{100 * self.accuracy:g}%"
        return title, {f"least epsilon for {wanted}": least, **lines}

    @property
    def details(self) -> tuple[str, ...]:
        found = ["best attack: on an even bet whether a record is in the data; guessing is right 50% of the time"]
        if any(one.variation is not None for one in self.forecasts):
            found.append("rows differ: total variation of two columns of drawn rows and of the records, by noise alone")
        choice = self.forecasts[0].choice
        if choice.class_shares is not None:
            always = f"{100 * max(choice.class_shares):.1f}%"
            found.append(f"always naming the most frequent class is right {always} of the time")
        # The last one states which records the figures assume; the others explain a choice, which no line shows.
        found.append(choice.reasons[-1])
        return (*found, *(() if self.figure is None else (f"picture: {self.figure}",)))

    def picture(self) -> Bars:
        bars = [
            Bar(f"epsilon {exact(one.choice.epsilon)}", best.accuracy, f"{100 * best.accuracy:.1f}%", one is self.least)
            for one in self.forecasts
            for best in (one.choice.best,)
        ]
        return Bars("Predicted accuracy", bars, full=1.0)

    def drawn(self) -> dict[str, Any]:
        """Return the record of a picture: that of the least budget, or the largest, with curves through all."""
        chosen = self.choice
        reached = [{one.name: one.counted for one in forecast.choice.candidates} for forecast in self.forecasts]
        names = [name for name in chosen.to_dict()["predicted"] if all(name in one for one in reached)]
        curves = {name: [one[name] for one in reached] for name in names}
        return {**chosen.to_dict(), "epsilons": [one.choice.epsilon for one in self.forecasts], "curves": curves}

    def to_dict(self) -> dict[str, Any]:
        least = self.least
        return {
            "budgets": [one.to_dict() for one in self.forecasts],
            **{name: value for name in ("accuracy", "auc") if (value := getattr(self, name)) is not None},
            **({} if least is None else {"least_epsilon": least.choice.epsilon}),
        }


def budgets_of(epsilon: Any) -> tuple[float, ...]:
    """Return budgets as they are given: a number, several with commas, or a sequence of numbers; the smallest first."""
    several = epsilon.split(",") if isinstance(epsilon, str) else epsilon
    try:
        found = sorted({float(value) for value in (several if isinstance(several, Sequence) else [several])})
    except (TypeError, ValueError):
        found = []
    if not found:
        raise InvalidInput("epsilon", epsilon, "a number > 0, or several with commas")
    for value in found:
        check_number("epsilon", value, low=0, low_open=True)
    return tuple(found)


def predict(asked: Any, progress: Progress = silent) -> ForecastResult | Budgets | TableForecast:
    """Forecast every design by the planner, for the options of the command. Reads no private record."""
    # One budget gives its forecast, several or a wanted accuracy give a line each; a table without a label that of its
    # pairs of columns.
    dim, assumed, extractor = asked.dim, asked.assumed, parse_features(asked.features)
    figure = None if asked.figure is None else Path(asked.figure)
    if asked.classes == NO_LABEL or asked.label is None:
        return _of_columns(asked, extractor)
    names, proxy = resolve_classes(class_list(asked.classes)), assumed.proxy
    check_goal(asked.goal, extractor)
    if isinstance(extractor, Tabular) and proxy is None:
        width = extractor.output_dim((len(extractor.columns),))
        if dim not in (None, width):
            raise InvalidInput("dim", dim, f"{width}, the number of features of the specification, or no value")
        dim = width
    if (dim is None) == (proxy is None):
        raise InvalidInput("dim", dim, "the number of features, or a public dataset that has it: `assume` proxy=DATA")
    check_figure(figure)
    wanted = [name for name in ("accuracy", "auc") if getattr(asked, name) is not None]
    if (asked.epsilon is None and not wanted) or len(wanted) > 1:
        raise InvalidInput("epsilon", asked.epsilon, "a budget, several with commas, or one of `accuracy` and `auc`")
    for name in wanted:
        check_number(name, getattr(asked, name), low=0, high=1, low_open=True, high_open=True)
    if asked.auc is not None and assumed.class_shares is None:
        raise InvalidInput("auc", asked.auc, "only with `assume` class_shares, the shares of the classes")
    # A declaration of persons makes them the units.
    of_persons = assumed.holdings is not None
    assumed.check(of_persons=of_persons)
    public = None
    # Opened before the config, whose number of features the public records have.
    if proxy is not None:
        listed = class_list(assumed.proxy_classes) or list(names)
        opened = open_dataset(proxy, extractor, classes=listed, columns=asked.as_columns())
        public = features_in_memory(opened.source, extractor, progress)
        dim = public.features.shape[1]
    assert dim is not None
    config = ReleaseConfig(
        records=asked.records,
        dim=dim,
        classes=names,
        mixup_degree=1,
        rows=asked.rows,
        clip_norm=asked.clip_norm,
        residual_clip_norm=extractor.usual.bound(asked.residual_clip_norm, rows=False),
        per_person=1 if of_persons else None,
    )
    if public is None:
        model, words = declared_model(config, assumed, extractor)
    else:
        model, words = public_model(config, public, assumed.holdings)

    def at(epsilon: float, curve: bool = False) -> ForecastResult:
        budget = epsilon, asked.delta
        wide = projects(extractor)
        choice = choose_design(config, *budget, model, model_words=words, curve=curve, project=wide, progress=progress)
        degree = degree_by_theory(config, Poisson(), *budget)
        found = ForecastResult(choice, _linear(config, *budget), degree, asked.goal)
        bound = extractor.usual.bound(asked.residual_clip_norm, rows=True)
        return _with_table(found, replace(config, residual_clip_norm=bound), extractor, model)

    budgets = () if asked.epsilon is None else budgets_of(asked.epsilon)
    if len(budgets) == 1 and not wanted:
        single = at(budgets[0], curve=True)
        if figure is not None:
            draw_predictions(single.choice.to_dict(), figure)
        return replace(single, figure=figure)
    tried = {epsilon: at(epsilon) for epsilon in budgets} or _until(at, asked.accuracy, asked.auc)
    found = Budgets(tuple(tried[epsilon] for epsilon in sorted(tried)), asked.accuracy, asked.auc, figure)
    if figure is not None:
        draw_predictions(found.drawn(), figure)
    return found


def _of_columns(asked: Any, extractor: Extractor) -> TableForecast:
    """Return the forecast of a table without a label."""
    columns = columns_of(extractor) if isinstance(extractor, Tabular) else ()
    given = [name for name in ("accuracy", "auc", "figure") if getattr(asked, name) is not None]
    if sum(one.told for one in columns) < 2 or given or asked.assumed.any or len(budgets_of(asked.epsilon)) > 1:
        allowed = (
            "a label; without one, one budget for tabular: features of two or more columns with bins or categories"
        )
        raise InvalidInput("classes", NO_LABEL, allowed)
    clipped = {"residual_clip_norm": extractor.usual.bound(asked.residual_clip_norm, rows=True)}
    dim = extractor.output_dim((len(columns),))
    config = ReleaseConfig(asked.records, dim, ALL_RECORDS, MOMENTS, clip_norm=asked.clip_norm, **clipped)
    found = forecast_table(config.calibrate(budgets_of(asked.epsilon)[0], asked.delta), columns)
    assert found is not None
    return found


def reaches(found: ForecastResult, accuracy: float | None, auc: float | None) -> bool:
    """Whether the best design is forecast to reach a wanted accuracy, or area under the curve; False for neither."""
    if accuracy is not None:
        return found.accuracy >= accuracy
    return auc is not None and (found.choice.best.auc or 0.0) >= auc


def _until(
    at: Callable[[float], ForecastResult], accuracy: float | None, auc: float | None
) -> dict[float, ForecastResult]:
    """Halve the list of budgets until the least that reaches what is wanted is found; return those that were tried."""
    tried: dict[float, ForecastResult] = {}

    def reached(epsilon: float) -> bool:
        tried[epsilon] = at(epsilon)
        return reaches(tried[epsilon], accuracy, auc)

    # Accuracy rises with epsilon: at most four of the fourteen budgets are forecast.
    bisect_left(_BUDGETS, True, key=reached)
    return tried


def _with_table(found: ForecastResult, config: ReleaseConfig, extractor: Extractor, model: DataModel) -> ForecastResult:
    """Add what noise does to pairs of a table's columns, where features are those of a table with bins."""
    if not isinstance(extractor, Tabular):
        return found
    table_columns = columns_of(extractor)
    if not any(one.told for one in table_columns) and found.goal == CLASSIFY:
        return found
    choice = found.choice
    each = {one.name: forecast_table(one.plan, table_columns) for one in choice.candidates}
    variations = {name: one.variation for name, one in each.items() if one is not None}
    table = choose_table(config, choice.epsilon, choice.delta, table_columns, model)
    return replace(found, table=table, variations=variations)


def in_words_of(settings: Mapping[str, Any]) -> str:
    """Return settings that a planner chose, as options of ``privmix release``."""
    own = {name: value for name, value in settings.items() if name not in ("design", "project") and value is not False}
    project = f" `project` {settings['project']}" if settings.get("project") else ""
    return f"`design` {in_words(settings['design'], own)}{project}"


def _linear(config: ReleaseConfig, epsilon: float, delta: float) -> dict[str, Any] | None:
    sampled = config.rows or config.records
    # Least squares needs more rows than features; where there are fewer, the designs are compared all the same.
    if sampled <= config.dim + 1:
        return None
    try:
        found = best_mixup_degree(config.records, sampled, config.dim, epsilon, delta)
    except InvalidInput:
        # No noise was found for some degree: the designs are compared all the same.
        return None
    return {"mixup_degree": found.mixup_degree, "published_mixup_degree": found.published_degree}
