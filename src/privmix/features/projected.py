"""Any extractor's features, projected to fewer numbers at random: the projection is public and fixed by a seed."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from privmix.data.source import Schema
from privmix.errors import InvalidInput, check_integer
from privmix.features.base import MOST_OF_TWO, Extractor, parse_features
from privmix.features.models import OwnModel
from privmix.features.spec import check_spec, from_spec, statements_of, title_of, wanted_model

if TYPE_CHECKING:
    from torch import Tensor

_OPTIONS: Final = ("inner", "dim", "seed")
# Records projected at once: what stays in a processor's cache.
_BATCH: Final = 32
_MOST: Final = 2**20


class Continued(Extractor):
    """An extractor of another one's features: ``inner`` among its options is that one's spec."""

    decoder: int = 1
    most_text: ClassVar[int] = MOST_OF_TWO
    _inner: Extractor

    @classmethod
    def check_stated(cls, options: Mapping[str, Any]) -> None:
        cls.check_options(options)

    @classmethod
    def wants(cls, options: Mapping[str, Any]) -> str | None:
        return wanted_model(options["inner"])

    @classmethod
    def statements(cls, options: Mapping[str, Any]) -> tuple[str, ...]:
        return statements_of(options["inner"])

    @property
    def reads(self) -> Extractor:
        return self._inner.reads

    def runtime(self) -> dict[str, Any]:
        return self._inner.runtime()

    def check_schema(self, schema: Schema) -> None:
        self._inner.check_schema(schema)


class Projected(Continued):
    """A random projection of another extractor's features: a subsampled randomised Hadamard transform.

    With D the power of 2 at or above the d features, y = (H S x)_R / sqrt(N). S are d random signs, H is the D x D
    Hadamard matrix, and R are N random outputs (Ailon and Chazelle 2009). Squared lengths are kept on average. Second
    moments hold (N / d)^2 of the numbers. Random directions see N / d of the variance.

    Formal guarantees:
        - Per record, to the bit: outputs are sums and differences in an order that does not depend on other records.
        - Public: signs and outputs follow from the seed in the spec, by a counter-based generator whose bits no version
          changes; nothing is fitted.
    """

    name: ClassVar[str] = "projected"
    argument: ClassVar[str] = "DIM:EXTRACTOR"

    def __init__(self, inner: Extractor | Mapping[str, Any], dim: int, seed: int = 0) -> None:
        self._inner = inner if isinstance(inner, Extractor) else from_spec(inner)
        # Two projections are one with fewer directions, and only lose.
        if isinstance(self._inner, Projected):
            raise InvalidInput("features", self._inner.name, "an extractor of raw inputs, to be projected")
        self._dim = check_integer("dim of a projection", dim, low=1, high=_MOST)
        self._seed = check_integer("seed of a projection", seed, low=0, high=2**63 - 1)
        self._drawn: dict[int, tuple[NDArray[np.float32], NDArray[np.int64]]] = {}

    @classmethod
    def from_argument(cls, argument: str) -> Self:
        """From ``DIM:EXTRACTOR``, as in ``projected:4096:scattering``."""
        dim, _, inner = argument.partition(":")
        # Nine digits exceed every dimension, and a longer text takes long to convert.
        if not dim.isdecimal() or len(dim) > 9 or not inner:
            raise InvalidInput("features", f"{cls.name}:{argument}", f"{cls.name}:{cls.argument}")
        return cls(parse_features(inner), int(dim))

    @classmethod
    def from_options(cls, options: Mapping[str, Any], own: OwnModel | None = None) -> Self:
        cls.check_options(options)
        return cls(from_spec(options["inner"], own), options["dim"], options["seed"])

    @classmethod
    def check_options(cls, options: Mapping[str, Any]) -> None:
        if set(options) != set(_OPTIONS):
            raise InvalidInput("extractor options", sorted(options), ", ".join(_OPTIONS))
        check_integer("dim of a projection", options["dim"], low=1, high=_MOST)
        check_integer("seed of a projection", options["seed"], low=0, high=2**63 - 1)
        inner = options["inner"]
        if not isinstance(inner, Mapping) or inner.get("name") == cls.name:
            raise InvalidInput("extractor's inner", type(inner).__name__, "the spec of an extractor of raw inputs")
        check_spec(inner)

    @classmethod
    def title(cls, options: Mapping[str, Any]) -> str:
        return f"{title_of(options['inner'])} (projected to {options['dim']})"

    def options(self) -> dict[str, Any]:
        return {"inner": self._inner.spec(), "dim": self._dim, "seed": self._seed}

    def output_dim(self, input_shape: tuple[int, ...]) -> int:
        found = self._inner.output_dim(input_shape)
        # A projection to as many numbers would only add error.
        if not self._dim < found <= _MOST:
            allowed = f"less than the {found} features of {self._inner.name}"
            raise InvalidInput("dim of a projection", self._dim, allowed)
        return self._dim

    def transform(self, x: NDArray[Any]) -> NDArray[np.float32]:
        self.output_dim(x.shape[1:])
        features = self._inner.transform(x)
        signs, chosen = self._constants(features.shape[1])
        projected = np.empty((len(features), self._dim), np.float32)
        size = _size(features.shape[1])
        for start in range(0, len(features), _BATCH):
            part = features[start : start + _BATCH] * signs
            # The transform needs a power of 2; zeros add nothing.
            padded = np.pad(part, ((0, 0), (0, size - part.shape[1])))
            projected[start : start + _BATCH] = hadamard(padded)[:, chosen]
        return projected * np.float32(1 / math.sqrt(self._dim))

    def differentiable(self, input_shape: tuple[int, ...]) -> Callable[[Tensor], Tensor]:
        import torch

        self.output_dim(input_shape)
        inner = self._inner.differentiable(input_shape)
        dim = self._inner.output_dim(input_shape)
        signs, chosen = (torch.from_numpy(part) for part in self._constants(dim))
        size, scale = _size(dim), 1 / math.sqrt(self._dim)

        def project(x: Tensor) -> Tensor:
            found = torch.nn.functional.pad(inner(x) * signs.to(x.device), (0, size - dim))
            width = 1
            while width < size:
                pairs = found.reshape(len(found), -1, 2, width)
                first, second = pairs[:, :, 0], pairs[:, :, 1]
                found = torch.stack([first + second, first - second], dim=2).reshape(len(found), size)
                width *= 2
            return found[:, chosen.to(x.device)] * scale

        return project

    def _constants(self, dim: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """(d,) signs and (N,) chosen outputs, ascending."""
        if dim not in self._drawn:
            size = _size(dim)
            key = hashlib.sha256(f"privmix projection {self._seed} {dim}".encode()).digest()
            # Raw bits: what distributions make of them may change between versions of NumPy.
            bits = np.random.Philox(key=int.from_bytes(key[:16], "little")).random_raw(dim + size)
            signs = np.where(bits[:dim] >> np.uint64(63), 1.0, -1.0).astype(np.float32)
            order = np.argsort(bits[dim:], kind="stable")
            self._drawn[dim] = signs, np.sort(order[: self._dim])
        return self._drawn[dim]


def hadamard(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """(b, D) H' for (b, D) rows, D a power of 2, by D log2(D) additions per row; H has entries 1 and -1."""
    size = x.shape[1]
    # Pairs that are far apart are added many at a time: near ones are made far by a turn in between.
    outer = 1 << (size.bit_length() // 2)
    x = _far(x.reshape(len(x), outer, size // outer))
    turned = _far(np.ascontiguousarray(x.transpose(0, 2, 1)))
    return np.ascontiguousarray(turned.transpose(0, 2, 1)).reshape(len(x), size)


def _far(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the transform along the middle of three axes."""
    count, size, rest = x.shape
    width = 1
    while width < size:
        pairs = x.reshape(count, size // (2 * width), 2, width * rest)
        made = np.empty_like(pairs)
        np.add(pairs[:, :, 0], pairs[:, :, 1], out=made[:, :, 0])
        np.subtract(pairs[:, :, 0], pairs[:, :, 1], out=made[:, :, 1])
        x = made.reshape(count, size, rest)
        width *= 2
    return x


def _size(dim: int) -> int:
    return 1 << max(dim - 1, 1).bit_length()
