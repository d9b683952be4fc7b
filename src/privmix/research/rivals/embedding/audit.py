"""The audits of class embeddings: their noise alone, and how far a record moves them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privmix.audits.empty_runs import GAUSSIAN, KEPT, SIDE, FreshStreams, PureNoise, of_part
from privmix.audits.sensitivity import Pair, QuerySensitivity, distances
from privmix.audits.worst_case import EngineFactory
from privmix.mechanisms.streams import SecretStreams
from privmix.research.rivals.embedding.engine import EmbeddingSums
from privmix.research.rivals.embedding.feature_maps import feature_map
from privmix.research.rivals.embedding.plan import SIZES, EmbeddingPlan


def embedding_noises(plan: EmbeddingPlan, samples: int, keys: FreshStreams, make: EngineFactory) -> Iterator[PureNoise]:
    names = plan.classes + tuple(f"{number} more" for number in range(SIDE - plan.num_classes))
    wide = replace(plan.with_small_map(), classes=names, rows=1)
    parts: dict[str, list[NDArray[Any]]] = {name: [] for name in wide.noise_std}

    def one(streams: SecretStreams) -> NDArray[Any]:
        released = EmbeddingSums(wide).released(streams)
        for name, values in {**released.sums, SIZES: released.sizes}.items():
            if len(parts[name]) * values.size < max(samples, KEPT):
                parts[name].append(values.astype(np.float64).ravel())
        return np.zeros(0)

    keys.run("class embeddings", -(-samples // SIDE), one)
    norms, std = feature_map(wide).norms(wide.lattice_bits), wide.noise_std
    for name, drawn in parts.items():
        grid = 1 / norms[name] if name in norms else wide.lattice.step
        label = "class sizes" if name == SIZES else name
        yield of_part(PureNoise(label, GAUSSIAN, std[name], std[name], grid, np.stack(drawn)), plan, name)


def embedding_moved(plan: EmbeddingPlan, pair: Pair) -> list[QuerySensitivity]:
    released = []
    for records in (pair.present, pair.other):
        engine = pair.engine(records)
        # From the row after the last on: no generator is fitted.
        for _ in engine.rows(first=plan.rows):
            pass
        released.append({**engine.beside.sums, SIZES: engine.beside.sizes})
    found, together = [], np.zeros(2)
    for name, noise in plan.noise_std.items():
        one, other = (parts[name].ravel()[None] for parts in released)
        moved, rounding = (float(value[0]) for value in distances(one, other, 1.0, "l2"))
        found.append(QuerySensitivity(name, pair.factor, moved, rounding))
        together += np.square([moved / noise, rounding / noise])
    moved, rounding = np.sqrt(together)
    whole = QuerySensitivity("all embeddings", pair.factor / plan.noise_multiplier, float(moved), float(rounding))
    return [*found, whole]
