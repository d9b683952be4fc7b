"""Evidence about the noise of a release of class embeddings, from its numbers."""

import numpy as np

from privmix.audits.empty_runs import part_tests
from privmix.audits.evidence import PRODUCTS, Law, RowLaw
from privmix.audits.noise_tests import NoiseTest
from privmix.errors import InvalidInput
from privmix.research.rivals.embedding.feature_maps import feature_map
from privmix.research.rivals.embedding.plan import EmbeddingPlan
from privmix.research.rivals.embedding.released import ClassEmbeddings


def embedding_row_law(plan: EmbeddingPlan, beside: ClassEmbeddings) -> RowLaw:
    """Return the blur of samples of the generator."""
    return RowLaw(Law(plan.blur * (1 - PRODUCTS), 0.0), numbered=False)


def embedding_tests(plan: EmbeddingPlan, found: ClassEmbeddings) -> list[NoiseTest]:
    """Test released class embeddings; each was released once, so that signals hide more than they do in rows."""
    for name, values in feature_map(plan).arrays().items():
        # Numbers without noise: a record could be hidden in them, and so could what was learnt from all.
        if not np.array_equal(values, found.map.arrays()[name]):
            raise InvalidInput(f"class embeddings: {name}", "other numbers", "those that follow from map_seed")
    return part_tests(plan, found)
