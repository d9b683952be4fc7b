"""Audits of releases in stages: their noise alone, and how far a record moves them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.audits.empty_runs import GAUSSIAN, KEPT, SIDE, FreshStreams, PureNoise, of_part
from privmix.audits.sensitivity import Pair, Part, QuerySensitivity, moved_parts, triangle
from privmix.audits.worst_case import EngineFactory
from privmix.designs.moments.audit import moment_parts, moments_noises
from privmix.designs.stages.three_engine import ClassScatter
from privmix.designs.stages.three_plan import ThreeStagePlan
from privmix.designs.stages.two_engine import NormCounts, WithinScatter
from privmix.designs.stages.two_plan import NORM_EDGES, TwoStagePlan
from privmix.designs.stages.two_released import TwoStageMoments
from privmix.mechanisms.streams import SecretStreams

# Records of a plan whose classes all have the full number of directions.
_MANY: Final = 2**40


def two_stage_noises(plan: TwoStagePlan, samples: int, keys: FreshStreams, make: EngineFactory) -> Iterator[PureNoise]:
    """Yield the noises of the first stage, and of the second stage's release."""
    yield from moments_noises(plan.first, samples, keys, make)
    wide = replace(plan, dim=SIDE, directions=SIDE, channels=1)
    below = np.tril_indices(SIDE, -1)
    parts: dict[str, list[NDArray[Any]]] = {"diagonal": [], "off": [], "norms": []}

    def one(streams: SecretStreams) -> NDArray[Any]:
        released = WithinScatter(wide).released(streams)
        parts["diagonal"].append(np.diag(released).astype(np.float64))
        parts["norms"].append(NormCounts(wide).released(streams).astype(np.float64))
        if len(parts["off"]) * len(below[0]) < max(samples, KEPT):
            parts["off"].append(released[below].astype(np.float64))
        return np.zeros(0)

    keys.run("second stage", -(-samples // len(NORM_EDGES)), one)
    std = wide.noise_std
    for name, drawn, part, deviation, grid in (
        ("scatter within classes: diagonal", "diagonal", "within", std["within"], wide.unit_within),
        ("scatter within classes: off diagonal", "off", "within", std["within"] / math.sqrt(2), wide.unit_within),
        ("norms", "norms", "norms", std["norms"], wide.unit_norms),
    ):
        noise = PureNoise(name, GAUSSIAN, deviation, deviation, grid, np.stack(parts[drawn]))
        yield of_part(noise, plan, part, off_diagonal=drawn == "off")


def three_stage_noises(
    plan: ThreeStagePlan, samples: int, keys: FreshStreams, make: EngineFactory
) -> Iterator[PureNoise]:
    """Yield the noises of two stages, and of each class's scatter."""
    yield from two_stage_noises(plan, samples, keys, make)
    # With this many records each class has all the directions there are.
    wide = replace(plan, dim=SIDE, directions=SIDE, channels=1, records=_MANY)
    below = np.tril_indices(wide.class_directions, -1)
    parts: dict[str, list[NDArray[Any]]] = {"diagonal": [], "off": []}

    def one(streams: SecretStreams) -> NDArray[Any]:
        released = ClassScatter(wide).released(streams).astype(np.float64)
        parts["diagonal"].append(np.diagonal(released, axis1=1, axis2=2).ravel())
        if len(parts["off"]) * len(below[0]) * len(released) < max(samples, KEPT):
            parts["off"].append(released[:, *below].ravel())
        return np.zeros(0)

    keys.run("third stage", -(-samples // (plan.num_classes * wide.class_directions)), one)
    std = wide.noise_std["class_within"]
    for name, part, deviation in (
        ("scatter of each class: diagonal", "diagonal", std),
        ("scatter of each class: off diagonal", "off", std / math.sqrt(2)),
    ):
        noise = PureNoise(name, GAUSSIAN, deviation, deviation, wide.unit_within, np.stack(parts[part]))
        yield of_part(noise, plan, "class_within", off_diagonal=part == "off")


def two_stage_moved(plan: TwoStagePlan, pair: Pair) -> list[QuerySensitivity]:
    """Return sensitivities; both runs use the map and the clipping bound of the first run's release."""
    first, second, _ = pair.replayed()
    for _ in first.rows():
        pass
    parts = _two_stage_parts(plan, first, second)
    return moved_parts(plan, pair.factor, parts, "all of both stages")


def three_stage_moved(plan: ThreeStagePlan, pair: Pair) -> list[QuerySensitivity]:
    """Return the same, and the map of the last stage."""
    first, second, _ = pair.replayed()
    for _ in first.rows():
        pass
    mapped = first._class_map(first.beside)
    second._class_map = lambda two: mapped
    parts = _two_stage_parts(plan, first, second)
    classes = [np.concatenate([triangle(one) for one in engine.beside.class_within]) for engine in (first, second)]
    parts.append(("scatter of each class", 1.0, plan.class_noise_multiplier, classes))
    return moved_parts(plan, pair.factor, parts, "all of three stages")


def _two_stage_parts(plan: TwoStagePlan, first: Any, second: Any) -> list[Part]:
    """Return the parts that both runs released in the first two stages; the second one runs now."""
    one: TwoStageMoments = first.beside
    mapped = first._map(one)
    second._map, second._bound = lambda moments: mapped, lambda norms: one.bound
    for _ in second.rows():
        pass
    released = [one, second.beside]
    parts = moment_parts(plan.first, released)
    parts.append(("norms", 1.0, plan.norm_noise_multiplier, [found.norms for found in released]))
    within = [triangle(found.within) for found in released]
    parts.append(("scatter within classes", 1.0, plan.noise_std_within, within))
    return parts
