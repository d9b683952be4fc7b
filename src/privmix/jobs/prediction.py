"""What each design would give at a budget, before there is a private row to read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.data.source import resolve_classes
from privmix.designs import Poisson
from privmix.errors import InvalidInput
from privmix.features import parse_features
from privmix.features.tabular import Tabular
from privmix.jobs.columns import Columns, class_list
from privmix.jobs.dataset import open_for
from privmix.jobs.features import features_in_memory
from privmix.jobs.options import CLASSIFY
from privmix.jobs.places import check_figure
from privmix.jobs.planning import check_goal, columns_of, declared_model, projects, public_model
from privmix.jobs.release_options import Assumptions
from privmix.planning import Choice, ReleaseConfig, choose_design
from privmix.planning.config import degree_by_theory
from privmix.planning.diagnostics import minimum_euclidean_distance, neural_collapse
from privmix.planning.table import forecast_table
from privmix.planning.table_choice import TableChoice, choose_table
from privmix.planning.theory import best_mixup_degree
from privmix.progress import Progress, silent
from privmix.reports.pictures import draw_predictions

_MIXTURES: Final = 1000


@dataclass(frozen=True)
class Prediction:
    """What the planner says of every design, and what theory does.

    Attributes:
        choice: accuracy by design, and the best one.
        linear: for linear regression, the best mixup degree and the one that the paper's rate gives (Li et al. 2022,
            Theorem 3.1); None where rows are too few for least squares, or a degree has no price.
        mixup_degree: what a Poisson release takes whose degree is left to theory, which does not look at features.
        collapse: neural collapse of the public data, where there are any.
        distance: least distance of a mixed pair to another class; None where every pair holds all classes, too.
        goal: what was asked for: ``classify`` or ``table``.
        table: the shares that serve a table best, and what is forecast of it; None where features are of no table.
        variations: for each design of ``choice`` that releases a table of pairs its forecast total variation.
    """

    choice: Choice
    linear: dict[str, Any] | None
    mixup_degree: int
    collapse: float | None
    distance: float | None
    goal: str = CLASSIFY
    table: TableChoice | None = None
    variations: Mapping[str, float] = field(default_factory=dict)

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


def predict(
    epsilon: float,
    delta: float,
    records: int,
    classes: str,
    *,
    dim: int | None = None,
    features: str = "identity",
    goal: str = CLASSIFY,
    assumptions: Assumptions | None = None,
    columns: Columns | None = None,
    rows: int | None = None,
    clip_norm: float = 1.0,
    residual_clip_norm: float = 0.55,
    figure: Path | None = None,
    progress: Progress = silent,
) -> Prediction:
    """Ask the planner about every design; see :class:`privmix.planning.Choice`. No private record is looked at.

    Args:
        epsilon, delta: the budget.
        records, classes: public facts of the private data; classes as :func:`privmix.jobs.columns.class_list`. Where
            ``assumptions`` say how many records persons have, ``records`` is how many persons there are.
        dim: number of features, unless public data say it.
        features: the public extractor, for public data; of a table it says ``dim``, too.
        goal: ``classify``, or ``table`` for faithful pairs of a table's columns; see
            :func:`privmix.planning.table_choice.choose_table`.
        assumptions, columns: of the records.
        rows: to release; one a record where None.
        clip_norm, residual_clip_norm: of :class:`privmix.plans.Setting`.
        figure: where to draw accuracy against epsilon.
        progress: called as work proceeds.

    Raises:
        InvalidInput: a value is out of range, or options do not go together.
        StorageError: public data can't be read.
    """
    assumptions, columns = assumptions or Assumptions(), columns or Columns()
    extractor, names = parse_features(features), resolve_classes(class_list(classes))
    proxy = assumptions.proxy
    check_goal(goal, extractor)
    if isinstance(extractor, Tabular) and proxy is None:
        width = extractor.output_dim((len(extractor.columns),))
        if dim not in (None, width):
            raise InvalidInput("dim", dim, f"{width}, the features of the specification, or nothing")
        dim = width
    if (dim is None) == (proxy is None):
        raise InvalidInput("dim, proxy", (dim, proxy), "one of them: the proxy's features have a dimension")
    check_figure(figure)
    # What is said of persons makes them the units.
    of_persons = assumptions.holdings is not None
    assumptions.check(of_persons=of_persons)
    collapse = distance = public = None
    if proxy is not None:
        listed = class_list(assumptions.proxy_classes) or list(names)
        public = features_in_memory(open_for(extractor, proxy, "train", listed, columns), extractor, progress)
        dim = public.features.shape[1]
    assert dim is not None
    config = ReleaseConfig(
        records=records,
        dim=dim,
        classes=names,
        mixup_degree=1,
        rows=rows,
        clip_norm=clip_norm,
        residual_clip_norm=residual_clip_norm,
        per_person=1 if of_persons else None,
    )
    if public is None:
        model, words = declared_model(config, assumptions, extractor)
    else:
        model, words = public_model(config, public.features, public.labels, assumptions.holdings)
        collapse = neural_collapse(public.features, public.labels)
        distance = _distance(public.features, public.labels, clip_norm)
    choice = choose_design(
        config, epsilon, delta, model, model_words=words, project=projects(extractor), progress=progress
    )
    if figure is not None:
        draw_predictions(choice.to_dict(), figure)
    degree = degree_by_theory(config, Poisson(), epsilon, delta)
    found = Prediction(choice, _linear(config, epsilon, delta), degree, collapse, distance, goal)
    if not isinstance(extractor, Tabular):
        return found
    table_columns = columns_of(extractor)
    if not any(one.told for one in table_columns) and goal == CLASSIFY:
        return found
    each = {one.name: forecast_table(one.plan, table_columns) for one in choice.candidates}
    variations = {name: one.variation for name, one in each.items() if one is not None}
    table = choose_table(config, epsilon, delta, table_columns, model)
    return replace(found, table=table, variations=variations)


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
