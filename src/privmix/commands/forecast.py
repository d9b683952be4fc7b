"""Forecast each design at a budget: ``privmix plan`` and ``pm.forecast``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from privmix.commands.base import Command, function
from privmix.jobs.columns import Columns
from privmix.jobs.options import CLASSIFY, DELTA_HELP
from privmix.jobs.release_options import PlannerAssumptions, as_in_release
from privmix.options import option
from privmix.progress import Progress

if TYPE_CHECKING:
    from privmix.features.base import Extractor
    from privmix.jobs.forecast import Budgets, ForecastResult
    from privmix.planning.table import TableForecast


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Forecast(Columns, PlannerAssumptions, Command["ForecastResult | Budgets | TableForecast"]):
    """Predict every design's accuracy at a budget, and name the best.

    Several budgets, or an accuracy to reach, give a line each: accuracy, the best attack's odds, distance of rows.
    Simulates each design on a public dataset (--assume proxy=DATA), or on made-up records with the accuracy that
    you expect (--assume attainable=0.9). Without an assumption, a range shows the uncertainty. Reads no private
    data.

    Raises:
        InvalidInput: a value is out of range, or options do not go together.
        StorageError: public data can't be read.

    Example:
        >>> found = forecast(records=2_000, dim=8, classes=2, epsilon=1, delta=1e-5, assume="attainable=0.9")
        >>> found.choice.best.plan.epsilon
        1.0
    """

    called = "plan"
    example = "privmix plan --records 60000 --dim 3969 --classes 10 --epsilon 1 --delta 1e-5 --assume attainable=0.99"

    epsilon: str | Sequence[float] | float | None = option(
        None, "Privacy budget, or several with commas: a line each.", in_python="Also a sequence."
    )
    accuracy: float | None = option(None, "Wanted accuracy, 0 to 1: shows the least epsilon for it.")
    auc: float | None = option(None, "Wanted AUC, in the same way; needs `assume` class_shares.")
    delta: float = option(MISSING, DELTA_HELP)
    records: int = option(MISSING, "Public record count (with `assume` records_per_person: number of persons).")
    classes: Any = option(MISSING, "Class list: a number K, names with commas, or @FILE; none: no label.")
    dim: int | None = option(None, "Number of features, unless `assume` proxy or tabular: features state it.")
    features: str | Extractor = as_in_release("features", "identity")
    goal: str = as_in_release("goal", CLASSIFY)
    rows: int | None = option(None, "Number of rows to release, T. Default: n.")
    clip_norm: float = as_in_release("clip_norm", 1.0)
    residual_clip_norm: float | None = as_in_release("residual_clip_norm")
    figure: str | Path | None = option(None, "Figure to write: predicted accuracy by epsilon (.svg, .png).")

    def run(self, progress: Progress) -> ForecastResult | Budgets | TableForecast:
        from privmix.jobs.forecast import predict

        return predict(self, progress)


forecast: Final = function(Forecast, "forecast")
