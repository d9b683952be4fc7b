"""Run a plan of class embeddings: exact integer sums of a public map's features, one draw of noise, done."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from privmix.engine.passes import Pass, Room, SumEngine
from privmix.engine.tiles import TileReader
from privmix.mechanisms.noise import gaussian_on_lattice
from privmix.mechanisms.persons import RecordWeights
from privmix.mechanisms.streams import SecretStreams
from privmix.progress import Progress
from privmix.publication.dataset import RecordTransform
from privmix.research.rivals.embedding.feature_maps import FeatureMap, feature_map
from privmix.research.rivals.embedding.generator import sample_rows
from privmix.research.rivals.embedding.plan import SIZES, EmbeddingPlan
from privmix.research.rivals.embedding.released import ClassEmbeddings

# Physical sizes: they set speed and memory and change no bit of the sums.
_NUMBERS_AT_ONCE = 2**23
MOST_RECORDS_AT_ONCE = 1024


class EmbeddingEngine(SumEngine[ClassEmbeddings]):
    """Carries out a plan of class embeddings on private records.

    Formal guarantees:
        * every record is clipped and rounded to the lattice before its features are taken, and features are a function
          of one record, to the last bit;
        * sums are exact integers: blocks and order change no bit of the output;
        * noise is drawn once for each released number, after the sums, from secret streams: running again under the
          same key re-creates the same release;
        * nothing but the noisy sums leaves; rows are samples of a generator that saw those alone;
        * an engine runs once, and streams serve one engine.
    """

    _plan: EmbeddingPlan

    def _release(self, tell: Progress) -> ClassEmbeddings:
        self._transform = RecordTransform(self._plan.clip_norm)
        return self._passes.over(EmbeddingPass(self._plan, self._transform), tell).released(self._streams)

    def _sampled(self, tell: Progress) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        with self._streams.lent("sampled rows") as generator:
            seed = int(generator.integers(2**63))
        return sample_rows(self.beside, self._plan, seed, tell)


@dataclass(frozen=True, eq=False)
class EmbeddingPass(Pass["EmbeddingSums"]):
    """Features of records, by class."""

    plan: EmbeddingPlan
    transform: RecordTransform
    stage: ClassVar[str] = "embeddings"

    def empty(self) -> "EmbeddingSums":
        return EmbeddingSums(self.plan)

    def add(self, reader: TileReader, index: int, sums: "EmbeddingSums", done: Callable[[int], None]) -> None:
        passed = 0
        for features, labels, weights in reader.blocks(index, sums.records_at_once):
            steps = reader.lattice_steps(self.transform, np.asarray(features))
            if weights is None:
                sums.add(steps, labels)
            else:
                sums.add_persons(steps, weights)
            passed += len(labels)
            done(passed)


class EmbeddingSums:
    """Exact class sums of features. Secret.

    Formal guarantees:
        * Exact: every sum is an integer below 2^53, so block sizes and the order of records change no bit of it; more
          records than that allows raise.
        * One person adds to each part what a record may at most. This is, for each class, a whole-number share of the
          sum of their features there, rounded toward zero: by the triangle inequality no norm grows.
    """

    def __init__(self, plan: EmbeddingPlan) -> None:
        self._plan, self._bits, self._room = plan, plan.lattice_bits, Room(2**plan.lattice_bits)
        self._map: FeatureMap = feature_map(plan)
        self._sums = {name: np.zeros((plan.num_classes, size), np.int64) for name, size in plan.map_sizes.items()}
        # In lattice steps: records count a whole one, those of persons what they weigh.
        self._sizes, self._one = np.zeros(plan.num_classes, np.int64), 2**plan.lattice_bits
        self.records_at_once: int = max(1, min(MOST_RECORDS_AT_ONCE, _NUMBERS_AT_ONCE // sum(plan.map_sizes.values())))

    def __repr__(self) -> str:
        return "<EmbeddingSums>"

    def add(self, records: NDArray[np.float64], labels: NDArray[np.int64]) -> None:
        """Add records: (b, d) integers, in lattice steps of the clipping bound, and (b,) labels in 0..K-1."""
        self._room.take(len(labels))
        order = np.argsort(labels, kind="stable")
        present, starts = np.unique(labels[order], return_index=True)
        for name, steps in self._map.steps(records[order], self._bits).items():
            self._sums[name][present] += np.add.reduceat(steps, starts, axis=0, dtype=np.int64)
        self._sizes += np.bincount(labels, minlength=self._plan.num_classes) * self._one

    def add_persons(self, records: NDArray[np.float64], weights: RecordWeights) -> None:
        """Add (b, d) records of whole persons, in lattice steps of the clipping bound."""
        self._room.take(weights.persons)
        groups, at_once = weights.groups, self.records_at_once
        sizes = np.diff(np.append(groups.starts, len(records)))
        # A record weighs one part in this many: in whole numbers, no value of a person is rounded up.
        parts = np.maximum(np.diff(weights.starts), weights.most)[groups.persons]
        whose = np.repeat(np.arange(len(sizes)), sizes)
        summed = {name: np.zeros((len(sizes), sums.shape[1]), np.int64) for name, sums in self._sums.items()}
        for start in range(0, len(records), at_once):
            own = slice(start, start + at_once)
            present, starts = np.unique(whose[own], return_index=True)
            for name, steps in self._map.steps(records[own], self._bits).items():
                summed[name][present] += np.add.reduceat(steps, starts, axis=0, dtype=np.int64)
        for name, found in summed.items():
            np.add.at(self._sums[name], groups.labels, np.sign(found) * (np.abs(found) // parts[:, None]))
        np.add.at(self._sizes, groups.labels, sizes * self._one // parts)

    def merge(self, other: "EmbeddingSums") -> None:
        self._room.take(other._room.taken)
        for name, more in other._sums.items():
            self._sums[name] += more
        self._sizes += other._sizes

    def released(self, streams: SecretStreams) -> ClassEmbeddings:
        """Add the noise, once, and scale: the only way out of these sums."""
        plan, norms, noise = self._plan, self._map.norms(self._bits), self._plan.noise_std
        found = {}
        for number, (name, sums) in enumerate(self._sums.items()):
            with streams.lent("embedding noise", number) as generator:
                drawn = gaussian_on_lattice(generator, sums.shape, noise[name] * norms[name])
            found[name] = np.ascontiguousarray(((sums + drawn) / norms[name]).T, dtype=np.float32)
        with streams.lent("class size noise") as generator:
            drawn = gaussian_on_lattice(generator, self._sizes.shape, noise[SIZES] / plan.lattice.step)
        sizes = (self._sizes + drawn) * plan.lattice.step
        return ClassEmbeddings(found, sizes.astype(np.float32), self._map, plan.records, noise)
