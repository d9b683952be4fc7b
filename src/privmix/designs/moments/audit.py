"""Audits of second moments: their worst case, their noise alone, and how far a record moves them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privmix.audits.bounds import Scores
from privmix.audits.empty_runs import GAUSSIAN, KEPT, SIDE, FreshStreams, PureNoise, of_part
from privmix.audits.sensitivity import Pair, Part, QuerySensitivity, moved_parts, triangle
from privmix.audits.worst_case import MOST_TRIALS, AddRemoveCase, EngineFactory, check_room, label_overlap
from privmix.designs.moments.engine import MomentSums
from privmix.designs.moments.plan import MomentsPlan
from privmix.engine.rows import Engine, RowBlock
from privmix.mechanisms.streams import SecretStreams
from privmix.publication import RecordTransform
from privmix.publication.second_moments import SecondMoments


def moments_noises(plan: MomentsPlan, samples: int, keys: FreshStreams, make: EngineFactory) -> Iterator[PureNoise]:
    names = plan.classes + tuple(f"{number} more" for number in range(SIDE - plan.num_classes))
    wide = replace(plan, dim=SIDE, classes=names, rows=1)
    below = np.tril_indices(SIDE, -1)
    parts: dict[str, list[NDArray[Any]]] = {"diagonal": [], "off": [], "cross": [], "labels": []}

    def one(streams: SecretStreams) -> NDArray[Any]:
        released = MomentSums(wide).released(streams)
        parts["diagonal"].append(np.diag(released.second).astype(np.float64))
        parts["labels"].append(released.label_sums.astype(np.float64))
        if len(parts["off"]) * len(below[0]) < max(samples, KEPT):
            parts["off"].append(released.second[below].astype(np.float64))
        if len(parts["cross"]) * released.cross.size < max(samples, KEPT):
            parts["cross"].append(released.cross.astype(np.float64).ravel())
        return np.zeros(0)

    keys.run("moments", -(-samples // SIDE), one)
    step = 2.0**-wide.lattice_bits
    bound, std = wide.final_clip_norm, wide.noise_std
    for name, drawn, part, deviation, grid in (
        ("second moments: diagonal", "diagonal", "second", std["second"], step**2 * bound**2),
        ("second moments: off diagonal", "off", "second", std["second"] / math.sqrt(2), step**2 * bound**2),
        ("cross moments", "cross", "cross", std["cross"], step**2 * bound),
        ("label sums", "labels", "counts", std["counts"], step),
    ):
        noise = PureNoise(name, GAUSSIAN, deviation, deviation, grid, np.stack(parts[drawn]))
        # Not for another number of classes: a label's norm, and with it the noise in label parts, depends on that.
        yield of_part(noise, plan, part, off_diagonal=drawn == "off")


def moments_moved(plan: MomentsPlan, pair: Pair) -> list[QuerySensitivity]:
    released: list[SecondMoments] = []
    for engine in pair.replayed()[:2]:
        for _ in engine.rows():
            pass
        released.append(engine.beside)
    return moved_parts(plan, pair.factor, moment_parts(plan, released), "all moments")


def moment_parts(plan: MomentsPlan, released: Sequence[SecondMoments]) -> list[Part]:
    bound, label = plan.final_clip_norm, plan.label_norm
    return [
        ("second moments", bound**2, plan.noise_std_second, [triangle(one.second) for one in released]),
        ("cross moments", bound * label, plan.noise_std_cross, [one.cross.ravel() for one in released]),
        ("label sums", label, plan.noise_std_counts, [one.label_sums for one in released]),
    ]


def moments_case(plan: MomentsPlan) -> MomentsCase:
    check_room(plan)
    width = 1 if plan.centred else MOST_TRIALS
    names = plan.classes if plan.centred else tuple(str(number) for number in range(width + 1))
    reduced = replace(plan, dim=width, classes=names, rows=1)
    assert reduced.event == plan.event, "what runs is not what is audited"
    return MomentsCase(reduced, width)


@dataclass(frozen=True)
class MomentsCase(AddRemoveCase[MomentsPlan]):
    """The canary alone: all of one Gaussian query shows it, and so there is nothing that a better attack could use."""

    def of_rows(self, block: RowBlock, transform: RecordTransform) -> Scores:
        """Rows sampled from the released moments add nothing to them."""
        return np.zeros((2, self.trials))

    def of_repeats(self, x: Scores, transform: RecordTransform) -> Scores:
        return np.zeros(self.trials)

    def of_rest(self, engine: Engine) -> Scores:
        plan = self.plan
        found, bound, columns = engine.beside, plan.final_clip_norm, np.arange(self.trials)
        own, other = self._canary(engine.transform), 0.0
        labels = np.eye(plan.num_classes)[: self.trials] - plan.label_offset
        overlap = 0.0
        if plan.centred:
            overlap = label_overlap(plan)
            other = float(self.contribution(engine.transform, self._others()[0])[0, 0])
        seen = (
            found.second[columns, columns] / bound**2 - other**2,
            (found.cross * labels).sum(axis=1) / (bound * plan.label_norm**2) - other * overlap,
            labels @ found.label_sums / plan.label_norm**2 - overlap,
        )
        noises = (plan.second_noise_multiplier, plan.cross_noise_multiplier, plan.count_noise_multiplier)
        gain = super().of_rest(engine)[0]
        for part, adds, noise in zip(seen, (own**2, own, 1.0), noises, strict=True):
            gain = np.asarray(gain + adds * (2 * part - adds) / (2 * noise**2))
        return np.stack([gain, seen[0]])
