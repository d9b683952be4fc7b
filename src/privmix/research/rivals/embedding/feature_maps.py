"""Public feature maps of records, of which class embeddings are sums.

A map takes clipped records, on their lattice, to integers: its features in steps of 2^-bits. Each is a function of one
record, to the last bit: products with frequencies are exact integers, and everything that is not linear is looked up in
a table. So features do not depend on other records, and the tables bound the norms, not usual rounding.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.errors import InvalidInput
from privmix.mechanisms.noise import Lattice
from privmix.plans.registry import Deferred, made_by
from privmix.research.rivals.embedding.hermite import HermitePlan
from privmix.research.rivals.embedding.merf import MerfPlan
from privmix.research.rivals.embedding.plan import EmbeddingPlan

if TYPE_CHECKING:
    import torch

Features = dict[str, NDArray[np.int32]]

# Angles are rounded to this many bits of a turn.
_ANGLE_BITS: Final = 16
# Coordinates are rounded to this many bits of the clipping bound.
_COORDINATE_BITS: Final = 12
# Products of records and frequencies stay exact integers below this, frequencies exact in float32.
_PRODUCT_BITS: Final = 51
_FREQUENCY_BITS: Final = 23
_FINEST: Final = 20
_LEARNING_BITS: Final = 15


class FeatureMap(ABC):
    """A public map of records in parts, each of norm at most 1.

    Formal guarantees:
        * Bounded: the features of a part, as whole numbers, have a Euclidean norm of at most ``norms``;
        * Per record: features of a record are a function of it alone, to the last bit.
    """

    @classmethod
    @abstractmethod
    def drawn(cls, plan: Any) -> FeatureMap:
        """Return the map of a plan, made of its public seed."""

    @classmethod
    @abstractmethod
    def of_arrays(cls, plan: Any, arrays: Mapping[str, NDArray[np.float32]]) -> FeatureMap:
        """Return the map of a plan whose :meth:`arrays` are these."""

    @abstractmethod
    def norms(self, bits: int) -> dict[str, float]:
        """By part: the norm that its integers do not exceed, which stands for 1."""

    @abstractmethod
    def steps(self, records: NDArray[np.float64], bits: int) -> Features:
        """By part (b, features) integers of (b, d) records, given as integers in steps of 2^-bits of their bound."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Features of all parts."""

    @abstractmethod
    def arrays(self) -> dict[str, NDArray[np.float32]]:
        """Arrays of the map that do not follow from a plan's other fields, for the files of a release."""

    @abstractmethod
    def whole(self) -> dict[str, NDArray[np.float32]]:
        """All that makes the map, for the files of a model; :func:`map_from` is its inverse."""

    @abstractmethod
    def torch_features(self, records: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the same features in units of their part's norm: (b, d) records in clipping bounds."""

    def __call__(self, records: NDArray[Any]) -> dict[str, NDArray[np.float32]]:
        """By part (b, features) float32, of norm at most 1, of (b, d) records of norm at most 1, in clipping bounds."""
        lattice, norms = Lattice(_LEARNING_BITS), self.norms(_LEARNING_BITS)
        found = self.steps(lattice.quantise(records), lattice.bits)
        return {name: steps * np.float32(1 / norms[name]) for name, steps in found.items()}


@dataclass(frozen=True, eq=False)
class FourierMap(FeatureMap):
    """Random Fourier features: (cos, sin) of 2 pi w'x over sqrt(F), frequencies w (F, d) in turns per bound."""

    frequencies: NDArray[np.float32]

    @classmethod
    def drawn(cls, plan: MerfPlan) -> FourierMap:
        drawn = np.random.default_rng(plan.map_seed).standard_normal((plan.frequencies, plan.dim))
        drawn /= 2 * math.pi * plan.kernel_width
        # On a grid that float32 holds exactly: files and memory have one map.
        finest = _finest(drawn, plan.lattice_bits)
        return cls((np.rint(drawn * 2.0**finest) * 2.0**-finest).astype(np.float32))

    @classmethod
    def of_arrays(cls, plan: MerfPlan, arrays: Mapping[str, NDArray[np.float32]]) -> FourierMap:
        return cls(arrays["frequencies"])

    def norms(self, bits: int) -> dict[str, float]:
        return {"embedding": 2.0**bits * math.sqrt(len(self.frequencies))}

    def steps(self, records: NDArray[np.float64], bits: int) -> Features:
        table = _turn(bits)
        exact = self.frequencies.astype(np.float64)
        finest = _finest(exact, bits)
        # Both factors are integers, and no partial sum exceeds 2^52: exact in any order in which BLAS adds.
        angles = (records @ np.rint(exact.T * 2.0**finest)).astype(np.int64)
        shift = bits + finest - _ANGLE_BITS
        angles = angles >> shift if shift >= 0 else angles << -shift
        angles &= 2**_ANGLE_BITS - 1
        count = len(self.frequencies)
        found = np.empty((len(records), 2 * count), np.int32)
        found[:, :count] = table[0][angles]
        found[:, count:] = table[1][angles]
        return {"embedding": found}

    @property
    def size(self) -> int:
        return 2 * len(self.frequencies)

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        return {"frequencies": self.frequencies}

    def whole(self) -> dict[str, NDArray[np.float32]]:
        return self.arrays()

    def torch_features(self, records: torch.Tensor) -> dict[str, torch.Tensor]:
        import torch

        angles = records @ (torch.from_numpy(self.frequencies).T * (2 * math.pi))
        return {"embedding": torch.cat([angles.cos(), angles.sin()], 1) / math.sqrt(len(self.frequencies))}


@dataclass(frozen=True, eq=False)
class HermiteMap(FeatureMap):
    """Hermite features of coordinates and of products of pairs: see `HermitePlan`."""

    decay: float
    order: int
    pair_order: int
    dim: int
    pairs: NDArray[np.float32]

    def __post_init__(self) -> None:
        if (
            not 0 < self.decay < 1
            or not 1 <= min(self.order, self.pair_order) <= max(self.order, self.pair_order) <= 200
        ):
            raise InvalidInput("hermite", (self.decay, self.order, self.pair_order), "rho in (0, 1), orders up to 200")
        whole = self.pairs.astype(np.int64)
        if not whole.size or not np.array_equal(whole, self.pairs) or whole.min() < 0 or whole.max() >= self.dim:
            raise InvalidInput("chosen_pairs", "other numbers", f"numbers of coordinates, from 0 to {self.dim - 1}")

    @classmethod
    def drawn(cls, plan: HermitePlan) -> HermiteMap:
        drawn = np.random.default_rng(plan.map_seed).integers(0, plan.dim, (plan.pairs, 2)).astype(np.float32)
        return cls.of_arrays(plan, {"chosen_pairs": drawn})

    @classmethod
    def of_arrays(cls, plan: HermitePlan, arrays: Mapping[str, NDArray[np.float32]]) -> HermiteMap:
        decay = np.clip(np.float32(plan.decay), np.float32(2.0**-60), np.float32(1 - 2.0**-24))
        return cls(float(decay), plan.order, plan.pair_order, plan.dim, arrays["chosen_pairs"])

    def norms(self, bits: int) -> dict[str, float]:
        return {"coordinates": 2.0**bits * math.sqrt(self.dim), "pairs": 2.0**bits * math.sqrt(len(self.pairs))}

    def steps(self, records: NDArray[np.float64], bits: int) -> Features:
        # Coordinates on a coarser grid, as places in a table that begins at -1.
        places = (records.astype(np.int64) >> max(0, bits - _COORDINATE_BITS)) + 2 ** min(bits, _COORDINATE_BITS)
        single = _hermite_table(self.decay, self.order, self.dim, bits)
        paired = _hermite_table(self.decay, self.pair_order, self.dim, bits)
        first, second = self.pairs.T.astype(np.int64)
        left, right = paired[places[:, first]].astype(np.int64), paired[places[:, second]].astype(np.int64)
        # Toward zero, so that no product is longer than the product of the lengths.
        products = left[..., :, None] * right[..., None, :]
        products = np.sign(products) * (np.abs(products) >> bits)
        return {
            "coordinates": single[places].reshape(len(records), -1),
            "pairs": products.reshape(len(records), -1).astype(np.int32),
        }

    @property
    def size(self) -> int:
        return self.dim * self.order + len(self.pairs) * self.pair_order**2

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        return {"chosen_pairs": self.pairs}

    def whole(self) -> dict[str, NDArray[np.float32]]:
        return {**self.arrays(), "hermite": np.array([self.decay, self.order, self.pair_order], np.float32)}

    def torch_features(self, records: torch.Tensor) -> dict[str, torch.Tensor]:
        import torch

        scaled = records * math.sqrt(self.dim)
        single = torch.stack(_hermite(scaled, self.decay, self.order, torch.exp), -1)
        first, second = self.pairs.T.astype(np.int64)
        left, right = (
            torch.stack(_hermite(scaled[:, torch.from_numpy(one)], self.decay, self.pair_order, torch.exp), -1)
            for one in (first, second)
        )
        products = left[..., :, None] * right[..., None, :]
        return {
            "coordinates": single.flatten(1) / math.sqrt(self.dim),
            "pairs": products.flatten(1) / math.sqrt(len(self.pairs)),
        }


FEATURE_MAP: Final = Deferred[type[FeatureMap]]("feature_map", "one whose map is known")


def feature_map(plan: EmbeddingPlan) -> FeatureMap:
    return FEATURE_MAP.of(made_by(plan)).drawn(plan)


def map_of_arrays(plan: EmbeddingPlan, arrays: Mapping[str, NDArray[np.float32]]) -> FeatureMap:
    """Return the map that a release of ``plan`` came with."""
    return FEATURE_MAP.of(made_by(plan)).of_arrays(plan, arrays)


def map_from(arrays: Mapping[str, NDArray[np.float32]], dim: int, size: int) -> FeatureMap:
    """Return the map whose `whole()` is `arrays` (float32), from a file that a stranger may have written."""
    shapes = {name: values.shape for name, values in arrays.items()}
    found: FeatureMap | None = None
    if size < 1 or not all(np.isfinite(values).all() for values in arrays.values()):
        pass
    elif shapes == {"frequencies": (size // 2, dim)}:
        found = FourierMap(arrays["frequencies"])
    elif (
        set(shapes) == {"chosen_pairs", "hermite"} and shapes["hermite"] == (3,) and shapes["chosen_pairs"][1:] == (2,)
    ):
        decay, order, pair_order = arrays["hermite"].tolist()
        found = HermiteMap(decay, int(order), int(pair_order), dim, arrays["chosen_pairs"])
    if found is None or found.size != size:
        raise InvalidInput("map", shapes, f"finite arrays of a map of {size} features, one at least")
    return found


def _finest(frequencies: NDArray[np.float64], bits: int) -> int:
    """Bits of frequencies for which products with records of norm 2^bits are exact in float64."""
    longest = float(np.sqrt(np.square(frequencies).sum(axis=1).max()))
    largest = float(np.abs(frequencies).max())
    room = _PRODUCT_BITS - bits - math.ceil(math.log2(max(longest, 2.0**-40)))
    return min(_FINEST, room, _FREQUENCY_BITS - math.ceil(math.log2(max(largest, 2.0**-40))))


@lru_cache(maxsize=2)
def _turn(bits: int) -> NDArray[np.int32]:
    """(2, 65536) cosine and sine of every angle, in steps of 2^-bits, toward zero."""
    angles = np.arange(2**_ANGLE_BITS) * (2 * math.pi / 2**_ANGLE_BITS)
    # Rounding toward zero, after a shrink that is larger than the error of cos and sin: never longer than 1.
    return np.trunc(np.stack([np.cos(angles), np.sin(angles)]) * ((1 - 2.0**-50) * 2.0**bits)).astype(np.int32)


@lru_cache(maxsize=4)
def _hermite_table(decay: float, order: int, dim: int, bits: int) -> NDArray[np.int32]:
    """(places, order) features of every coordinate on the grid, in steps of 2^-bits, toward zero."""
    half = 2 ** min(bits, _COORDINATE_BITS)
    scaled = np.arange(-half, half + 1) * (math.sqrt(dim) / half)
    found = np.stack(_hermite(scaled, decay, order, np.exp), axis=1)
    # The recurrence may be off by more than a rounding: rows that are longer than 1 are shortened.
    lengths = np.sqrt(np.square(found).sum(axis=1, keepdims=True))
    found *= (1 - 2.0**-40) / np.maximum(1, lengths)
    return np.trunc(found * 2.0**bits).astype(np.int32)


def _hermite(x: Any, decay: float, order: int, exponential: Any) -> list[Any]:
    """phi_0 .. phi_(order - 1) of numbers, by the recurrence of the Hermite polynomials with all weights in it."""
    # Vinaroz et al. 2022, eq. 9: phi_c(x) = (1 - rho^2)^(1/4) sqrt(rho^c / (2^c c!)) H_c(x) exp(-rho / (1 + rho)
    # x^2).
    # phi_c(x) = (1 - rho^2)^(1/4) sqrt(rho^c / (2^c c!)) H_c(x) exp(-rho / (1 + rho) x^2), Vinaroz et al. 2022, eq.
    # 9.
    found = [(1 - decay**2) ** 0.25 * exponential(-decay / (1 + decay) * x * x)]
    for number in range(1, order):
        following = x * math.sqrt(2 * decay / number) * found[-1]
        if number > 1:
            following = following - decay * math.sqrt((number - 1) / number) * found[-2]
        found.append(following)
    return found
