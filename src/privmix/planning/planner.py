"""The planner: which design, settings, learner and shares of a table are expected to serve best for a budget."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from privmix.designs.corrected.plan import CORRECTED
from privmix.designs.moments.plan import LARGEST_DIM, MOMENTS, ClassMoments, Moments
from privmix.errors import InvalidInput, check_integer, check_number
from privmix.learning.base import LEARNERS
from privmix.learning.data_model import DataModel, Measures
from privmix.learning.holdings import ONE_EACH
from privmix.planning import choice
from privmix.planning.config import ReleaseConfig
from privmix.planning.table import TableColumn, TableForecast, forecast_table, listed
from privmix.plans.plan import Plan
from privmix.plans.registry import all_designs, made_by, takes_persons, weighs
from privmix.progress import Progress
from privmix.shown import Bars, Shown

_Found = tuple[ReleaseConfig, Plan, choice.PredictedAccuracy]


def predict_accuracy(
    plan: Plan, model: DataModel, *, learner: str | None = None, draws: int = 3
) -> choice.PredictedAccuracy:
    """Predict the accuracy of a learner of the release on records of the model, averaged over ``draws`` of noise."""
    name = made_by(plan).learner if learner is None else learner
    kind = LEARNERS[name]
    found = []
    if plan.dim < model.dim:
        model = model.projected(plan.dim)
    if plan.noise_std_centre is not None:
        model = model.shortened(plan.dim * (plan.noise_std_centre / plan.final_clip_norm) ** 2)
    for seed in range(draws):
        rule = kind.forecast(plan, model, seed)
        if rule is None:
            raise InvalidInput("learner", name, f"one whose accuracy on design {plan.design} can be forecast")
        found.append(model.measured(*rule, seed=seed))
    mean = Measures(*(float(value) for value in np.mean(found, axis=0)))
    accuracy, balanced, auc = kind.improved(mean, plan, model)
    if not model.known_shares:
        return choice.PredictedAccuracy(max(1 / len(model.shares), accuracy), name)
    return choice.PredictedAccuracy(accuracy, name, balanced, auc, float(model.shares.max()))


# Numbers that features may be projected to, where these are twice as many at least.
_WIDTHS: Final = (64, 128, 256, 512, 1024, 2048)
# Forecasts of widths are no better than that share of their errors. Among widths that do as well the narrowest is
# taken, and no width if features as they are do as well.
_WIDTH_MARGIN: Final = 0.05
_WIDTH_SHARES: Final = (0.35, 0.65, 0.9)
_DRAWS: Final = 3
_INDIFFERENT: Final = 0.003
# Rounds of the search over options of one price, which seldom gains in the second.
_ROUNDS: Final = 2
# Epsilons of the picture, relative to the one asked for.
_CURVE: Final = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
# Odds of the attainable accuracy, harder and easier: for a declared one, and for one from public data. The model's own
# uncertainty adds two standard errors.
_UNSURE: Final = 3.0
_SURE: Final = 1.5
# Odds of a declared share of variance between classes. For public records they are between an eighth and 2.6 times
# those of the most that is assumed (benchmarks/results/ended.md).
_APART: Final = 4.0


def choose_design(
    config: ReleaseConfig,
    epsilon: float,
    delta: float,
    model: DataModel | None = None,
    *,
    model_words: str = choice.DECLARED,
    curve: bool = True,
    seed: int = 0,
    project: bool = True,
    progress: Progress | None = None,
) -> choice.PlannerChoice:
    """Predict every design's accuracy over its settings and choose. Reads no private row."""
    # Every design is tried with fit's learner for it. Options that change the price get a noise of their own each.
    # Options that divide the budget are searched one after the other, from the preferred values on, which stay if the
    # simulation cannot separate values. Moments of randomly projected features are tried at the width with the best
    # forecast. Settings without a plan at the budget are listed as left out. `seed`, of the declared model, is public.
    check_number("epsilon", epsilon, low=0, low_open=True)
    check_number("delta", delta, low=0, high=1, low_open=True, high_open=True)
    check_integer("seed", seed, low=0)
    if model is None:
        model = DataModel.declared(config.dim, len(config.classes), np.random.default_rng(seed))
        model_words = choice.DECLARED
    if model.dim != config.dim or len(model.means) != len(config.classes):
        raise InvalidInput("model", (model.dim, len(model.means)), "a model of the release's features and classes")
    if not choice.is_model_words(model_words):
        raise InvalidInput("model_words", model_words, f"{choice.DECLARED!r} or '5 {choice.PUBLIC}'")
    if config.per_person is None and model.holdings != ONE_EACH:
        raise InvalidInput("model", model.holdings.counts, "one record each: records are the units, not persons")
    odds = math.exp(math.hypot(math.log(_UNSURE if model_words == choice.DECLARED else _SURE), 2 * model.doubt))
    harder, easier = model.with_odds(1 / odds), model.with_odds(odds)
    edges = [harder, easier]
    if model_words == choice.DECLARED:
        edges += [edge.with_share_odds(factor) for edge in edges for factor in (1 / _APART, _APART)]
    elif model.holdings != ONE_EACH:
        # Persons' records may be as good as equal: each then shows no more than one.
        edges.append(replace(harder, holdings=ONE_EACH))
    trials = _trials(config)
    if project:
        trials += _projections(config, epsilon, delta, model)
    steps = len(trials) + (len(_CURVE) if curve else 0)
    best: dict[str, _Found] = {}
    refusals: list[tuple[choice.LeftOut, InvalidInput]] = []
    for done, (name, trial) in enumerate(trials, start=1):
        try:
            plan = trial.calibrate(epsilon, delta)
        except InvalidInput as refusal:
            why = f"{refusal.field} is to be {refusal.allowed}"
            refusals.append((choice.LeftOut(name, trial.design.settings(), why), refusal))
        else:
            found = _searched(trial, plan, model)
            # Forecasts of narrower features err by more: these have to do better by a margin.
            margin = _WIDTH_MARGIN if name in best and plan.dim < best[name][1].dim else 0.0
            if name not in best or 1 - found[2].counted < (1 - margin) * (1 - best[name][2].counted):
                best[name] = found
        if progress:
            progress("planning", done, steps)
    if not best:
        # Each was refused; the reason is mostly the same.
        raise refusals[0][1]
    candidates = []
    for name, (chosen, plan, predicted) in best.items():
        # One draw is enough for a range.
        reached = [predicted, *(predict_accuracy(plan, edge, draws=1) for edge in edges)]
        low, high = _range([one.accuracy for one in reached])
        candidates.append(
            choice.Candidate(
                **vars(predicted),
                name=name,
                config=chosen,
                plan=plan,
                low=low,
                high=high,
                project=None if chosen.dim == config.dim else chosen.dim,
                auc_range=_range([one.auc for one in reached if one.auc is not None]),
            )
        )
    ordered = tuple(sorted(candidates, key=lambda one: choice.counted_error(one.name, one.counted)))
    epsilons = tuple(float(f"{point:.3g}") for point in (epsilon * factor for factor in _CURVE)) if curve else ()
    curves: dict[str, list[float]] = {item.name: [] for item in ordered} if curve else {}
    shown = []
    for done, at in enumerate(epsilons, start=len(trials) + 1):
        values = [item.counted if at == epsilon else _at(item.config, at, delta, model) for item in ordered]
        # Curves share their epsilons: one at which a design has no plan is not drawn.
        if (known := [value for value in values if value is not None]) == values:
            shown.append(at)
            for item, value in zip(ordered, known, strict=True):
                curves[item.name].append(value)
        if progress:
            progress("planning", done, steps)
    attainable = harder.attainable, model.attainable, easier.attainable
    left_out = tuple(one for one, _ in refusals)
    said = model.holdings.counts if model.holdings != ONE_EACH else None
    shares = tuple(map(float, model.shares)) if model.known_shares else None
    return choice.PlannerChoice(
        epsilon, delta, ordered, tuple(shown), curves, model_words, attainable, left_out, said, shares
    )


def _range(values: list[float]) -> tuple[float, float]:
    return min(values, default=0.0), max(values, default=0.0)


def _at(config: ReleaseConfig, epsilon: float, delta: float, model: DataModel) -> float | None:
    """Return what designs are compared by, by one draw and about the plan's noise; None without a plan."""
    try:
        plan = config.sketch(epsilon, delta)
    except InvalidInput:
        return None
    return predict_accuracy(plan, model, draws=1).counted


def _trials(config: ReleaseConfig) -> list[tuple[str, ReleaseConfig]]:
    """Return settings that need a noise of their own."""
    found = []
    for kind in all_designs():
        if config.per_person is not None and not takes_persons(kind):
            continue
        for name, design in kind.trials(config):
            # Options that the owner set for one design hold for the others that have them.
            names = {option.name for option in design.options()} & {"label_noise_ratio"}
            asked = {name: getattr(config.design, name) for name in names if hasattr(config.design, name)}
            design = replace(design, **asked)
            if not weighs(design, config.per_person, config.person_quantile):
                continue
            found.append((name, replace(config, design=design, rows=None if design.rows_follow else config.rows)))
    return found


def _projections(
    config: ReleaseConfig, epsilon: float, delta: float, model: DataModel
) -> list[tuple[str, ReleaseConfig]]:
    """Moments of projected features, at the narrowest width that does as well as the best."""
    narrow = [replace(config, dim=width, channels=1) for width in _WIDTHS if 2 * width <= config.dim]
    trials = [trial for one in narrow for trial in _trials(one) if trial[0] == MOMENTS]
    if not trials:
        return []
    try:
        # The cost of a query does not depend on the number of features.
        noise = trials[0][1].calibrate(epsilon, delta)
    except InvalidInput:
        return []

    def forecast(trial: ReleaseConfig) -> float:
        given = ({"label_share": share} for share in _WIDTH_SHARES)
        designs = (replace(trial.design, **options) for options in given)
        plans = (
            replace(trial, design=one).with_noise(noise.noise_multiplier, noise.centre_noise_multiplier)
            for one in designs
        )
        return max(predict_accuracy(plan, model, draws=2).counted for plan in plans)

    errors = [1 - forecast(trial) for _, trial in trials]
    most = (1 + _WIDTH_MARGIN) * min(errors)
    width = next(trial.dim for (_, trial), error in zip(trials, errors, strict=True) if error <= most)
    return [trial for one in narrow if one.dim == width for trial in _trials(one) if trial[0] in (MOMENTS, CORRECTED)]


def _searched(config: ReleaseConfig, plan: Plan, model: DataModel) -> _Found:
    """Return the settings and plan with the best of the options that do not change the price."""
    known: dict[tuple[float, ...], _Found] = {}
    ranges = config.design.ranges()
    chosen = {name: values[0] for name, values in ranges.items()}

    def tried(values: dict[str, float]) -> _Found:
        key = tuple(values.values())
        if key not in known:
            variant = replace(config, design=replace(config.design, **values))
            divided = variant.with_noise(plan.noise_multiplier, plan.centre_noise_multiplier)
            divided = replace(divided, epsilon=plan.epsilon, delta=plan.delta)
            known[key] = variant, divided, predict_accuracy(divided, model, draws=_DRAWS)
        return known[key]

    for _ in range(_ROUNDS if len(ranges) > 1 else 1):
        before = dict(chosen)
        for name, values in ranges.items():
            results = [(value, tried({**chosen, name: value})[2].counted) for value in values]
            highest = max(accuracy for _, accuracy in results)
            # If a simulation shows no difference between values, the design's own preference decides.
            chosen[name] = next(value for value, accuracy in results if accuracy >= highest - _INDIFFERENT)
        if chosen == before:
            break
    return tried(chosen)


# Shares of the budget for X'Y: pairs of columns are many, those with the classes few.
_LABEL_SHARES: Final = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5)
# With X'X of each class, whose diagonals count the values in each class, X'Y needs less.
_CLASS_LABEL_SHARES: Final = (0.01, 0.02, 0.05, 0.1)
# Total variation of pairs up to which X'X of each class, whose noise is larger, costs pairs less than triples gain
# (benchmarks/results/tables.md).
_SMALL: Final = 0.01


@dataclass(frozen=True, repr=False)
class TableChoice(Shown):
    """The budget shares with the least forecast distance of pairs, plan, forecast and predicted accuracy; public."""

    # Designs of one stage, since a later stage measures no pairs.

    config: ReleaseConfig
    plan: Plan
    forecast: TableForecast
    accuracy: float

    @property
    def label_share(self) -> float:
        return float(self.config.design.settings()["label_share"])

    @property
    def reasons(self) -> list[str]:
        share, found = self.label_share, self.forecast
        lost = "" if not found.lost else f" Not: {listed(' x '.join(one.columns) for one in found.lost)}."
        return [
            f"{made_by(self.plan).released.capitalize()} were chosen for a table (label_share {share:g}): noise is "
            f"forecast to move pairs of columns by a total variation of {found.variation:.4f} on average; a classifier "
            f"is predicted to reach {100 * self.accuracy:.1f}%.",
            *found.notes,
            f"{len(found.pairs) - len(found.lost):,} of {len(found.pairs):,} pairs of columns are carried.{lost}",
            *([listed(map(str, found.advice), " ")] if found.advice else []),
        ]

    def shown(self) -> tuple[str, Mapping[str, object]]:
        share = {"label share": self.label_share}
        return "Choice for a table", share | {**self.forecast.shown()[1], "accuracy": f"{100 * self.accuracy:.1f}%"}

    def picture(self) -> Bars:
        return self.forecast.picture()

    def to_dict(self) -> dict[str, Any]:
        settings = self.config.design.settings()
        return {**self.forecast.to_dict(), "settings": settings, "accuracy": self.accuracy, "reasons": self.reasons}


def choose_table(
    config: ReleaseConfig, epsilon: float, delta: float, columns: Sequence[TableColumn], model: DataModel
) -> TableChoice:
    """Divide a budget so that noise changes the pairs of a table least. Reads no private row."""
    if epsilon <= 0 or not 0 < delta < 1:
        raise InvalidInput("epsilon, delta", (epsilon, delta), "epsilon > 0 and delta between 0 and 1")
    base = replace(config, design=Moments(), rows=None)
    # How the query is divided does not change its price.
    priced = base.calibrate(epsilon, delta)

    def best(designs: Sequence[Moments]) -> tuple[ReleaseConfig, Plan, TableForecast]:
        found = []
        for design in designs:
            tried = replace(base, design=design)
            plan = tried.with_noise(priced.noise_multiplier, priced.centre_noise_multiplier)
            plan = replace(plan, epsilon=priced.epsilon, delta=priced.delta)
            forecast = forecast_table(plan, columns)
            assert forecast is not None
            found.append((tried, plan, forecast))
        return min(found, key=lambda one: one[2].variation)

    chosen, plan, forecast = best([Moments(label_share=share) for share in _LABEL_SHARES])
    # X'X of each class is noisier than that of all.
    if forecast.variation <= _SMALL and len(config.classes) * config.dim**2 <= LARGEST_DIM**2:
        by_class = best([ClassMoments(label_share=share) for share in _CLASS_LABEL_SHARES])
        if by_class[2].variation <= _SMALL:
            chosen, plan, forecast = by_class
    return TableChoice(chosen, plan, forecast, predict_accuracy(plan, model).accuracy)
