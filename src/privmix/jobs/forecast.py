"""Forecast of each design at a budget, before there is a private row to read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.data.source import resolve_classes
from privmix.designs.rows.poisson import Poisson
from privmix.errors import InvalidInput
from privmix.features.base import parse_features
from privmix.features.tabular import Tabular
from privmix.jobs.columns import class_list
from privmix.jobs.dataset import open_for
from privmix.jobs.features import features_in_memory
from privmix.jobs.options import CLASSIFY
from privmix.jobs.places import check_figure
from privmix.jobs.planner import check_goal, columns_of, declared_model, projects, public_model
from privmix.named import in_words
from privmix.planning.choice import Candidate, PlannerChoice, labels
from privmix.planning.config import ReleaseConfig, degree_by_theory
from privmix.planning.diagnostics import minimum_euclidean_distance, neural_collapse
from privmix.planning.planner import choose_design
from privmix.planning.table import forecast_table
from privmix.planning.table_choice import TableChoice, choose_table
from privmix.planning.theory import best_mixup_degree
from privmix.progress import Progress, silent
from privmix.reports.pictures import draw_predictions
from privmix.rounding import exact
from privmix.shown import Shown

_MIXTURES: Final = 1000


@dataclass(frozen=True, repr=False)
class ForecastResult(Shown):
    """The planner's forecast of every design, and that of theory."""

    # `linear`: Li et al. 2022, Theorem 3.1: the best mixup degree and the paper's; None where rows are too few or a
    # degree has no price. `mixup_degree`: of a Poisson release by theory. `distance` is None where every pair holds all
    # classes. `goal`: classify or table. `variations`: by design that releases pairs, the forecast total variation.
    choice: PlannerChoice
    linear: dict[str, Any] | None
    mixup_degree: int
    collapse: float | None
    distance: float | None
    goal: str = CLASSIFY
    table: TableChoice | None = None
    variations: Mapping[str, float] = field(default_factory=dict)
    figure: Path | None = None

    def shown(self) -> tuple[str, Mapping[str, object]]:
        """Forecast of each design, and the options that choose it."""
        choice = self.choice
        title = f"Predicted accuracy at epsilon {exact(choice.epsilon)}, delta {exact(choice.delta)}"
        return title, {labels()[one.name]: self._of(one) for one in choice.candidates}

    @property
    def details(self) -> tuple[str, ...]:
        """Reasons, and the results of theory."""
        found = [*self.choice.reasons, *map(str, self.choice.left_out)]
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
        if self.collapse is not None:
            distance = self.distance
            near = "" if distance is None else f"; least distance of a mixed pair to another class: {distance:.3g}"
            smaller = "(the smaller, the better classes survive mixing)"
            found.append(f"neural collapse of the public data: {self.collapse:.3g} {smaller}{near}")
        if self.figure is not None:
            found.append(f"picture: {self.figure}")
        return tuple(found)

    @staticmethod
    def _of(one: Candidate) -> str:
        accuracy, between = f"{100 * one.accuracy:.1f}%", f"{100 * one.low:.0f} to {100 * one.high:.0f}%"
        noise = f"noise multiplier {one.plan.noise_multiplier:.4g}"
        return f"{accuracy} ({between}), {noise}, {in_words_of(one.settings)}"

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {
            **self.choice.to_dict(),
            "left_out": [str(item) for item in self.choice.left_out],
            "linear_regression": self.linear,
            "mixup_degree": self.mixup_degree,
            "neural_collapse": self.collapse,
            "minimum_euclidean_distance": self.distance,
            **({} if self.table is None else {"goal": self.goal, "table": self.table.to_dict()}),
            **({"total_variation": dict(self.variations)} if self.variations else {}),
        }


def predict(asked: Any, progress: Progress = silent) -> ForecastResult:
    """Forecast every design by the planner; see :class:`privmix.planning.PlannerChoice`. Reads no private record.

    Args:
        asked: the command, :class:`privmix.commands.forecast.Forecast`.
        progress: called as work proceeds.

    Raises:
        InvalidInput: a value is out of range, or options do not go together.
        StorageError: public data cannot be read.
    """
    goal, dim, clip_norm = asked.goal, asked.dim, asked.clip_norm
    figure = None if asked.figure is None else Path(asked.figure)
    classes = asked.classes
    extractor = parse_features(asked.features)
    names = resolve_classes(class_list(classes) if isinstance(classes, str) else classes)
    assumed = asked.assumed
    proxy = assumed.proxy
    check_goal(goal, extractor)
    if isinstance(extractor, Tabular) and proxy is None:
        width = extractor.output_dim((len(extractor.columns),))
        if dim not in (None, width):
            raise InvalidInput("dim", dim, f"{width}, the number of features of the specification, or no value")
        dim = width
    if (dim is None) == (proxy is None):
        raise InvalidInput("dim", dim, "the number of features, or a public dataset that has it: `assume` proxy=DATA")
    if figure is not None:
        check_figure(figure)
    # A declaration of persons makes them the units.
    of_persons = assumed.holdings is not None
    assumed.check(of_persons=of_persons)
    collapse = distance = public = None
    if proxy is not None:
        listed = class_list(assumed.proxy_classes) or list(names)
        opened = open_for(extractor, proxy, "train", listed, asked.as_columns())
        public = features_in_memory(opened, extractor, progress)
        dim = public.features.shape[1]
    assert dim is not None
    config = ReleaseConfig(
        records=asked.records,
        dim=dim,
        classes=names,
        mixup_degree=1,
        rows=asked.rows,
        clip_norm=clip_norm,
        residual_clip_norm=asked.residual_clip_norm,
        per_person=1 if of_persons else None,
    )
    if public is None:
        model, words = declared_model(config, assumed, extractor)
    else:
        model, words = public_model(config, public.features, public.labels, assumed.holdings)
        collapse = neural_collapse(public.features, public.labels)
        distance = _distance(public.features, public.labels, clip_norm)
    choice = choose_design(
        config, asked.epsilon, asked.delta, model, model_words=words, project=projects(extractor), progress=progress
    )
    if figure is not None:
        draw_predictions(choice.to_dict(), figure)
    degree = degree_by_theory(config, Poisson(), asked.epsilon, asked.delta)
    linear = _linear(config, asked.epsilon, asked.delta)
    found = ForecastResult(choice, linear, degree, collapse, distance, goal, figure=figure)
    if not isinstance(extractor, Tabular):
        return found
    table_columns = columns_of(extractor)
    if not any(one.told for one in table_columns) and goal == CLASSIFY:
        return found
    each = {one.name: forecast_table(one.plan, table_columns) for one in choice.candidates}
    variations = {name: one.variation for name, one in each.items() if one is not None}
    table = choose_table(config, asked.epsilon, asked.delta, table_columns, model)
    return replace(found, table=table, variations=variations)


def in_words_of(settings: Mapping[str, Any]) -> str:
    """Return settings that a planner chose, as options of ``privmix release``.

    Example:
        >>> in_words_of({"design": "poisson", "mixup_degree": 64, "project": 512})
        '`design` poisson:mixup_degree=64 `project` 512'
    """
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


def _distance(features: NDArray[Any], labels: NDArray[np.int64], clip_norm: float) -> float | None:
    """Li et al. 2024, appendix I.5; None where every pair holds all classes."""
    found = minimum_euclidean_distance(
        features, labels, np.random.default_rng(0), clip_norm=clip_norm, mixtures=min(_MIXTURES, len(labels))
    )
    return found.smallest if math.isfinite(found.smallest) else None
