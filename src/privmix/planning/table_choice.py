"""Budget shares that are best for a table of pairs, and their cost for a classifier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from privmix.designs.moments.class_plan import ClassMoments
from privmix.designs.moments.plan import LARGEST_DIM, Moments
from privmix.errors import InvalidInput
from privmix.learning.data_model import DataModel
from privmix.planning.config import ReleaseConfig
from privmix.planning.planner import predict_accuracy
from privmix.planning.table import TableColumn, TableForecast, forecast_table, listed
from privmix.plans.plan import Plan
from privmix.plans.registry import made_by
from privmix.shown import Bars, Shown

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
        """Share of the budget for X'Y and the counts."""
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
