"""Designs that release class embeddings: sums of a public feature map over each class.

A public map phi takes a clipped record to a vector of norm at most 1. Released is each class's sum of these vectors
with Gaussian noise: a noisy kernel mean embedding. A map may have several parts, each of norm at most 1 with a share of
the budget. Each design has its map in a file of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Final, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from privmix.errors import InvalidInput
from privmix.fields import Number, Share, Whole
from privmix.options import described, option
from privmix.plans.design import BOTH, Beside
from privmix.plans.parts import Part, ReleasedArray, SumDesign, SumPlan
from privmix.plans.setting import AssumedRecords, MomentForecast, Setting

SIZES: Final = "sizes"
"""Name of the released class sizes."""

LARGEST_MAP: Final = 2**20
"""Features of a map, at most: released are as many numbers for every class."""

_Seed = Annotated[int, Whole(0, 2**31 - 1, plain=True)]
_WORDS: Final = {"embedding": "class embeddings", "coordinates": "embedded coordinates", "pairs": "embedded pairs"}
# Rows sampled from a generator: enough for any classifier, little enough to carry.
_SAMPLED_ROWS: Final = 10_000
# Sampled rows are blurred by this share of the kernel's width: detail that the kernel does not see.
_BLUR: Final = 0.1
# Kernel widths that the planner tries.
_WIDTHS: Final = (1.0, 0.7, 0.5, 1.4)


@dataclass(frozen=True, kw_only=True)
class EmbeddingPlan(SumPlan):
    """Everything public about a release of class embeddings before it runs.

    Released are, for every part of the map, the sums of phi(x) over the records of each class (its features, K), and
    the class sizes (K). One record adds a vector of norm at most 1 to one column of each, so all together are ONE
    Gaussian query of noise multiplier s: 1/s^2 = sum of 1/s_part^2. Here 1/s_sizes^2 = ``size_share`` of 1/s^2, and the
    rest is dealt out by the parts' shares. Rows are samples of a generator of the released sums: they cost nothing.

    Formal guarantees:
        * every field is a public constant: no value depends on a private row;
        * one record changes a part by at most 1 in Euclidean norm, and the class sizes by 1, to which noise is scaled;
        * ``event`` is one Gaussian query at the joint multiplier.
    """

    kernel_width: Annotated[float, Number(1e-3, 1e3)]
    map_seed: _Seed
    size_share: Share

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.centred:
            raise InvalidInput("centre", "private", f"none for design {self.design}")
        if sum(self.map_sizes.values()) > LARGEST_MAP:
            raise InvalidInput("map features", sum(self.map_sizes.values()), f"at most {LARGEST_MAP}")

    @property
    def map_sizes(self) -> Mapping[str, int]:
        """Features of each part of the map, by name."""
        raise NotImplementedError

    @property
    def map_norms(self) -> Mapping[str, float]:
        """Lattice steps that stand for a norm of 1, by part of the map."""
        raise NotImplementedError

    @property
    def map_arrays(self) -> Mapping[str, tuple[int, ...]]:
        """Shapes of the arrays that make the map, by name: they are released with the sums."""
        raise NotImplementedError

    def with_small_map(self) -> Self:
        """Return the plan with few features of few coordinates: the noise of each released number is the same."""
        raise NotImplementedError

    @property
    def part_shares(self) -> Mapping[str, float]:
        """Share of what the class sizes leave of the budget, by part; they sum to 1."""
        return {name: 1 / len(self.map_sizes) for name in self.map_sizes}

    def response(self, within: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
        """(k,) divisors D and a level L: the kernel's response to a Gaussian class, to first order in its mean m."""
        # The part of phi(x)'E phi of a record x that separates classes is L x'D^-1 m. `within`: (k,) variances along
        # the axes, in clipping bounds.
        raise NotImplementedError

    @property
    def arrays(self) -> tuple[ReleasedArray, ...]:
        left, classes = 1 - self.size_share, self.num_classes
        sums = (
            Part(
                name=name,
                words=_WORDS[name],
                meaning="sums over each class",
                shape=(size, classes),
                bound=1.0,
                noise_std=self.noise_multiplier / math.sqrt(left * self.part_shares[name]),
                unit=1 / self.map_norms[name],
            )
            for name, size in self.map_sizes.items()
        )
        sizes = Part(
            name=SIZES,
            words="class sizes",
            meaning="records of each class",
            shape=(classes,),
            bound=1.0,
            noise_std=self.noise_multiplier / math.sqrt(self.size_share),
            unit=self.lattice.step,
        )
        made = (
            ReleasedArray(name=name, shape=shape, meaning="the public map itself")
            for name, shape in self.map_arrays.items()
        )
        return *made, *sums, sizes

    @property
    def noise_std_score(self) -> float:
        """Standard deviation of the noise in phi(x)'S of a record x and a class sum S: each part of phi has norm 1."""
        return math.sqrt(sum(std**2 for name, std in self.noise_std.items() if name != SIZES))

    @property
    def blur(self) -> float:
        """Standard deviation of the Gaussian that is added to each number of a sampled row."""
        return _BLUR * self.kernel_width * self.clip_norm / math.sqrt(self.dim)


E = TypeVar("E", bound=EmbeddingPlan)


@described
@dataclass(frozen=True)
class EmbeddingDesign(SumDesign[E]):
    """Class sums of a public feature map, and rows sampled from a generator that is fitted to them."""

    # The kernel's width is public: one taken from the records would be one more query.
    learner = "class-embeddings"
    file = "embeddings.safetensors"
    # Records are read once and in blocks: there is nothing to spread.
    engines: ClassVar[Mapping[str, str]] = dict.fromkeys(
        BOTH, "privmix.research.rivals.embedding.engine:EmbeddingEngine"
    )
    released = "class embeddings"
    feature_map: ClassVar[str] = ""
    released_as = "privmix.research.rivals.embedding.released:ClassEmbeddings"
    row_law = "privmix.research.rivals.embedding.evidence:embedding_row_law"
    pure_noises = "privmix.research.rivals.embedding.audit:embedding_noises"
    beside_tests = "privmix.research.rivals.embedding.evidence:embedding_tests"
    statements: ClassVar[tuple[str, ...]] = (
        "The rows are samples of a generator fitted to the released sums; they add nothing to what the sums show.",
    )
    map_words: ClassVar[str]

    kernel_width: Annotated[float, Number(1e-3, 1e3)] = option(
        1.0, "Public kernel width, in clipping bounds (hermite: per feature)."
    )
    map_seed: _Seed = option(0, "Seed of the map's public randomness.")
    size_share: Share = option(0.01, "Share of the budget for the class sizes.")

    @property
    def centre(self) -> str:
        return "none"

    def check(self, setting: Setting) -> None:
        # The kernel sees differences of records: a mean that all of them lose would be paid for, and change nothing.
        if setting.centre == "private":
            raise InvalidInput("centre", setting.centre, f"none for design {self.name}")

    def shared(
        self, setting: Setting, noise_multiplier: float, centre_noise_multiplier: float | None
    ) -> dict[str, Any]:
        return {
            "design": self.name,
            "rows": setting.rows or min(setting.records, _SAMPLED_ROWS),
            "noise_multiplier": float(noise_multiplier),
            "lattice_bits": setting.lattice_bits,
            "kernel_width": float(self.kernel_width),
            "map_seed": self.map_seed,
            "size_share": float(self.size_share),
            **setting.shared(centre_noise_multiplier),
        }

    def ranges(self) -> Mapping[str, Sequence[float]]:
        return {"kernel_width": _WIDTHS}

    def settings(self) -> dict[str, Any]:
        return {"design": self.name, "kernel_width": self.kernel_width}

    @classmethod
    def beside(cls, plan: E) -> Beside:
        return replace(super().beside(plan), rows=plan.num_classes)

    @classmethod
    def mechanism(cls, plan: E, multiplier: str) -> str:
        return (
            f"Sums over each class of {cls.map_words}, and class sizes, in one query with Gaussian noise, {multiplier} "
            "times what adding one record can change."
        )

    @classmethod
    def card(cls, plan: E, extractor: str) -> str:
        return f"""`{cls.file}` holds sums over each class of a public map of all records' `{extractor}` features: {cls.map_words},
scaled to norm 1 or less.

{cls.table(sorted(plan.arrays, key=lambda one: one.name in plan.map_arrays))}

The {plan.rows} rows (columns `x`, {plan.dim} float32, and `y`, {plan.num_classes} float32) are no records and no averages of them: they are samples of a
generator that was fitted to these sums, for classifiers that want rows.
"""  # noqa: E501

    @classmethod
    def summary(cls, plan: E, about: str) -> str:
        return f"Noisy class embeddings of {about}, with {plan.rows:,} rows sampled from them"

    @classmethod
    def shown(cls, plan: E) -> dict[str, str]:
        sizes = ", ".join(f"{features:,} {name}" for name, features in plan.map_sizes.items())
        return {
            "sampled rows": f"{plan.rows:,}",
            "features of the map": sizes,
            "kernel width": f"{plan.kernel_width:g}",
        }

    @classmethod
    def forecast(cls, plan: E, assumed: AssumedRecords) -> MomentForecast:
        # If the kernel is as wide as the records are long, embeddings carry the information of class sums.
        return MomentForecast(None, assumed.noise * plan.noise_std_score, counts=plan.noise_std[SIZES])
