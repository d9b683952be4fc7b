"""Evidence about the noise of a release of class embeddings, from its numbers."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

import numpy as np

from privmix.audits.evidence import PRODUCTS, Law, RowLaw
from privmix.audits.noise_parts import check_grid
from privmix.audits.noise_tests import NoiseTest, energy_test, small_values_test
from privmix.errors import InvalidInput
from privmix.research.rivals.embedding.feature_maps import feature_map
from privmix.research.rivals.embedding.plan import SIZES, EmbeddingPlan
from privmix.research.rivals.embedding.released import ClassEmbeddings

_ABOUT: Final = {
    "embedding": "the class embeddings",
    "coordinates": "embedded coordinates",
    "pairs": "embedded pairs",
    SIZES: "the class sizes",
}


def embedding_row_law(plan: EmbeddingPlan, beside: ClassEmbeddings) -> RowLaw:
    """Return the blur of samples of the generator."""
    return RowLaw(Law(plan.blur * (1 - PRODUCTS), 0.0), numbered=False)


def embedding_tests(plan: EmbeddingPlan, found: ClassEmbeddings) -> list[NoiseTest]:
    """Test released class embeddings; each was released once, so that signals hide more than they do in rows."""
    for name, values in feature_map(plan).arrays().items():
        # Numbers without noise: a record could be hidden in them, and so could what was learnt from all.
        if not np.array_equal(values, found.map.arrays()[name]):
            raise InvalidInput(f"class embeddings: {name}", "other numbers", "those that follow from map_seed")
    std, norms, tests = plan.noise_std, found.map.norms(plan.lattice_bits), []
    for name, values in (*found.sums.items(), (SIZES, found.sizes)):
        unit = 1 / norms[name] if name in norms else plan.lattice.step
        check_grid(f"class embeddings: {name}", values, unit, std[name])
        scaled = values.astype(np.float64) / std[name]
        half = unit / std[name] / 2
        rounding = half * math.sqrt(scaled.size)
        noise = energy_test(f"noise of {name}", np.square(scaled).sum(), scaled.size, rounding)
        tests.append(replace(noise, about=_ABOUT[name]))
        tests.append(small_values_test(f"small values of {name}", scaled, half))
    return tests
