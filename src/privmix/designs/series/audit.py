"""Audits of a series: the noise of its step alone, and how far a record moves it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privmix.audits.empty_runs import GAUSSIAN, SIDE, FreshStreams, PureNoise, of_part
from privmix.audits.sensitivity import Pair, QuerySensitivity, moved_parts
from privmix.audits.worst_case import EngineFactory
from privmix.designs.moments.audit import moment_parts
from privmix.designs.series.engine import SeriesSums
from privmix.designs.series.plan import SeriesPlan
from privmix.mechanisms.streams import SecretStreams
from privmix.publication.second_moments import SecondMoments


def series_noises(plan: SeriesPlan, samples: int, keys: FreshStreams, make: EngineFactory) -> Iterator[PureNoise]:
    """Yield the noises of each moment as the plan's step releases it, the steps before made too."""
    names = plan.classes + tuple(f"{number} more" for number in range(SIDE - plan.num_classes))
    wide = replace(plan.of_first(), dim=SIDE, classes=names, rows=1)
    below = np.tril_indices(SIDE, -1)
    parts: dict[str, list[NDArray[Any]]] = {"diagonal": [], "off": [], "cross": [], "labels": []}

    def one(streams: SecretStreams) -> NDArray[Any]:
        released = empty_series(wide, plan.step, streams)[-1]
        parts["diagonal"].append(np.diag(released.second).astype(np.float64))
        parts["labels"].append(released.label_sums.astype(np.float64))
        # Entries of all keys would fill the memory: keep enough for the samples.
        if len(parts["off"]) * len(below[0]) < samples:
            parts["off"].append(released.second[below].astype(np.float64))
            parts["cross"].append(released.cross.astype(np.float64).ravel())
        return np.zeros(0)

    keys.run("moments", -(-samples // SIDE), one)
    at = wide
    while at.step < plan.step:
        at = at.after(1)
    std, units = at.noise_std, at.units
    for name, drawn, part, deviation in (
        ("second moments: diagonal", "diagonal", "second", std["second"]),
        ("second moments: off diagonal", "off", "second", std["second"] / math.sqrt(2)),
        ("cross moments", "cross", "cross", std["cross"]),
        ("label sums", "labels", "counts", std["counts"]),
    ):
        noise = PureNoise(name, GAUSSIAN, deviation, deviation, units[part], np.stack(parts[drawn]))
        # Not for another number of classes: a label's norm, and with it the noise in label parts, depends on that.
        yield of_part(noise, plan, part, off_diagonal=drawn == "off")


def empty_series(plan: SeriesPlan, steps: int, streams: SecretStreams) -> list[SecondMoments]:
    """Return what the first ``steps`` steps release of no record; ``plan`` is that of the first."""
    found: list[SecondMoments] = []
    for step in range(steps):
        plan = plan if step == 0 else plan.after(1)
        sums = SeriesSums(plan)
        sums.before = found[-1] if found else None
        found.append(sums.released(streams))
    return found


def series_moved(plan: SeriesPlan, pair: Pair) -> list[QuerySensitivity]:
    """Each moment, as the record's step releases it; and what all steps of the series together show of that."""
    released: list[SecondMoments] = []
    for engine in pair.replayed()[:2]:
        for _ in engine.rows():
            pass
        released.append(engine.beside)
    # A record moves row t of C x + z by C_t1 of it: by the norm of that column in all, in noise that is as much larger.
    parts = [(name, bound, std / plan.growth, moved) for name, bound, std, moved in moment_parts(plan, released)]
    return moved_parts(plan, pair.factor, parts, "all moments")
