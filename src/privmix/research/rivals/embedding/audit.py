"""The audit of class embeddings: their noise alone."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from privmix.audits.empty_runs import SIDE, FreshStreams, PureNoise, part_noises
from privmix.audits.worst_case import EngineFactory
from privmix.mechanisms.streams import SecretStreams
from privmix.research.rivals.embedding.engine import EmbeddingSums
from privmix.research.rivals.embedding.plan import EmbeddingPlan


def embedding_noises(plan: EmbeddingPlan, samples: int, keys: FreshStreams, make: EngineFactory) -> Iterator[PureNoise]:
    names = plan.classes + tuple(f"{number} more" for number in range(SIDE - plan.num_classes))
    wide = replace(plan.with_small_map(), classes=names, rows=1)

    def release(streams: SecretStreams) -> list[NDArray[np.float32]]:
        released = EmbeddingSums(wide).released(streams)
        return [released.arrays[part.name] for part in wide.parts]

    yield from part_noises(plan, wide, tuple(plan.noise_std), release, samples, keys)
