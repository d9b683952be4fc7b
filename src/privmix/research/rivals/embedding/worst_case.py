"""Worst case of class embeddings: one query, and rows that are sampled from its answer play no part."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.audits.bounds import Scores
from privmix.audits.worst_case import LONG, EngineFactory, Mask, WorstCase, as_persons, real_engine
from privmix.engine.rows import Engine, PrivateRecords, RowBlock
from privmix.mechanisms.streams import SecretStreams
from privmix.publication.dataset import RecordTransform
from privmix.research.rivals.embedding.feature_maps import feature_map
from privmix.research.rivals.embedding.hermite import HermitePlan
from privmix.research.rivals.embedding.merf import MerfPlan
from privmix.research.rivals.embedding.plan import SIZES, EmbeddingPlan

_TRIALS: Final = 64


@dataclass(frozen=True)
class EmbeddingCase(WorstCase[EmbeddingPlan]):
    """Canary j is the only record of class j: its features, of norm 1, stand alone in a column of the released sums."""

    # All of one Gaussian query shows it: no attack is better. The last class has a bystander, in every dataset.

    def records(self, present: Mask) -> PrivateRecords:
        canaries = np.flatnonzero(present)
        features = np.zeros((len(canaries) + 1, self.plan.dim))
        features[:-1, 0] = LONG * self.plan.clip_norm
        return PrivateRecords(features, np.append(canaries, self.plan.num_classes - 1).astype(np.int64))

    def run(
        self, present: Mask, streams: SecretStreams, make: EngineFactory = real_engine, copies: int | None = None
    ) -> Scores:
        try:
            engine = make(self.plan, as_persons(self.plan, self.records(present), copies), streams)
            # From the row after the last on: no generator is fitted, of which nothing more can be learnt.
            for _ in engine.rows(first=self.plan.rows):
                pass
            return np.concatenate([self.of_rest(engine), np.zeros((1, self.trials))])
        finally:
            streams.destroy()

    def of_rows(self, block: RowBlock, transform: RecordTransform) -> Scores:
        """Rows sampled from what was released add nothing to it."""
        return np.zeros((2, self.trials))

    def of_rest(self, engine: Engine) -> Scores:
        found = engine.beside
        seen = {**found.sums, SIZES: found.sizes[None]}
        gain, linear = np.zeros(self.trials), np.zeros(self.trials)
        for name, own in self._canary.items():
            columns = seen[name][:, : self.trials].astype(np.float64)
            reading, noise = own @ columns, self.plan.noise_std[name]
            gain += (2 * reading - own @ own) / (2 * noise**2)
            linear += reading
        return np.stack([gain, linear])

    @cached_property
    def _canary(self) -> dict[str, NDArray[np.float64]]:
        """(features,) of the canary, by part, as the engine makes them."""
        plan, transform = self.plan, RecordTransform(self.plan.clip_norm)
        probe = np.zeros((1, plan.dim))
        probe[0, 0] = LONG * plan.clip_norm
        public, bits = feature_map(plan), plan.lattice_bits
        steps = public.steps(plan.lattice.quantise(transform(probe) / plan.clip_norm), bits)
        norms = public.norms(bits)
        return {**{name: one[0] / norms[name] for name, one in steps.items()}, SIZES: np.ones(1)}


def merf_case(plan: MerfPlan) -> EmbeddingCase:
    return _reduced(plan, frequencies=1)


def hermite_case(plan: HermitePlan) -> EmbeddingCase:
    # With such a kernel these features leave out 1e-8 of a canary: the price holds for maps that keep all of it.
    return _reduced(plan, kernel_width=1.0, order=20, pair_order=20, pairs=1)


def _reduced(plan: EmbeddingPlan, **changes: Any) -> EmbeddingCase:
    """Return a map of fewer features and equal norms, on records of one feature; each canary has its own class."""
    names = tuple(str(number) for number in range(_TRIALS + 1))
    reduced = replace(plan, dim=1, classes=names, rows=1, **changes)
    assert reduced.event == plan.event, "what runs is not what is audited"
    return EmbeddingCase(reduced, _TRIALS)
