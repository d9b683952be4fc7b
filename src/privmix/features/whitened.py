"""Any extractor's features, whitened by public data: the fit is public, and travels with what was made by it."""
# Noise of a release has the same size in every direction. Features are stretched first by the inverse root of the
# covariance within a class, of similar public records, since that of private records is private.

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from privmix.errors import InvalidInput, check_integer, check_number
from privmix.features.base import Extractor, Usual
from privmix.features.models import OwnModel
from privmix.features.projected import Continued
from privmix.features.spec import check_inner, digest, from_spec
from privmix.fields import Checked, Count, Number, Positive, Share

if TYPE_CHECKING:
    from torch import Tensor


DATA: Final = "data"
_SOURCE: Final = re.compile(r"data|procedural:[a-z][a-z0-9-]{0,39}")
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_OPTIONS: Final = ("inner", "public", "power", "ridge", "quantile", "norm")
_PUBLIC: Final = {"source", "version", "seed", "records", "classes", "sha256"}
# Bits of a feature on its grid, of a weight on its, and those that float64 adds without rounding.
_FEATURE_BITS: Final = 17
_WEIGHT_BITS: Final = 23
_EXACT_BITS: Final = 52
# How far beyond the public records a feature may go before it is cut.
_HEADROOM: Final = 8.0
_BATCH: Final = 4096
NAMES: Final = ("offset", "step", "weights", "width")


@dataclass(frozen=True)
class WhiteningConfig(Checked):
    """How a whitening is fitted: (S + ridge * mean variance)^(-p/2), with power p and at most ``rank`` directions."""

    # Power and ridge come from a first experiment that had looked at MNIST's test images; they were not tuned since.
    # The rank is a matter of cost. quantile: the share of public records' norms that are at most `norm`.

    power: Annotated[float, Number(0, 2)] = 0.75
    ridge: Positive = 0.3
    rank: Count = 1000
    quantile: Share = 0.25

    def dim(self, features: int) -> int:
        """Directions kept of this many features."""
        return min(self.rank, features)


@dataclass(frozen=True, eq=False)
class Whitening:
    """x -> (S + ridge * mean variance)^(-p/2) V'(x - mean), for S and mean of public records, on grids of integers.

    Formal guarantees:
        - Per record, to the bit: an output row is the same with any other rows in the call, and on every machine.
    """

    # Public grids are so fine that accuracy does not suffer, and so coarse that float64 adds the products without
    # rounding. The order of a sum, which differs between processors and with the records of a call, changes nothing.
    # step: (d,) powers of two, the grid of each feature. weights: (d, r) whole numbers. width: (r,) powers of two, the
    # unit of each output. offset: (r,) output of the mean record, subtracted.

    step: NDArray[np.float32]
    weights: NDArray[np.float32]
    width: NDArray[np.float32]
    offset: NDArray[np.float32]

    @classmethod
    def fit(
        cls, features: NDArray[np.float32], labels: NDArray[np.int64], config: WhiteningConfig, norm: float
    ) -> Whitening:
        """Fit to (n, d) public features; variance within ``labels`` (all zeros: total variance) becomes equal."""
        # `norm`: the bound for a share `config.quantile` of the public records' output norms.
        from scipy.linalg import eigh

        check_number("norm", norm, low=0, low_open=True)
        if len(features) < 2:
            raise InvalidInput("public records", len(features), "at least two")
        mean, covariance = covariance_within(features, labels)
        variance = float(np.trace(covariance)) / len(covariance)
        if not variance > 0:
            raise InvalidInput("public records", "identical records within each class", "different records in a class")
        rank, dim = config.dim(len(covariance)), len(covariance)
        values, vectors = eigh(covariance, subset_by_index=[dim - rank, dim - 1], overwrite_a=True)
        # The largest first; a sign of their own keeps vectors the same where libraries differ in it.
        values, vectors = values[::-1].clip(min=0), vectors[:, ::-1]
        vectors = vectors * np.where(vectors[np.abs(vectors).argmax(axis=0), np.arange(rank)] < 0, -1.0, 1.0)
        straight = vectors * (values + config.ridge * variance) ** (-config.power / 2)
        norms = [
            np.linalg.norm((features[start : start + _BATCH] - mean) @ straight, axis=1)
            for start in range(0, len(features), _BATCH)
        ]
        scale = norm / max(float(np.quantile(np.concatenate(norms), config.quantile)), 1e-30)
        return cls._on_grids(straight * scale, mean, np.abs(features).max(axis=0).astype(np.float64))

    @classmethod
    def _on_grids(
        cls, straight: NDArray[np.float64], mean: NDArray[np.float64], largest: NDArray[np.float64]
    ) -> Whitening:
        # A feature that is nought in all public records has a grid as coarse as the others' largest.
        largest = np.where(largest > 0, largest, largest.max())
        step = 2.0 ** (np.ceil(np.log2(_HEADROOM * largest)) - _FEATURE_BITS)
        bits = _weight_bits(len(step))
        weights = straight * step[:, None]
        width = 2.0 ** (np.ceil(np.log2(np.abs(weights).max(axis=0).clip(min=1e-30))) - bits)
        offset = mean @ straight
        return cls(
            step.astype(np.float32),
            np.rint(weights / width).astype(np.float32),
            width.astype(np.float32),
            offset.astype(np.float32),
        )

    @classmethod
    def of(cls, arrays: Mapping[str, NDArray[Any]]) -> Whitening:
        shapes = {name: array.shape for name, array in arrays.items()}
        dim, rank = shapes.get("weights", (0, 0)) if len(shapes.get("weights", ())) == 2 else (0, 0)
        wanted = {"offset": (rank,), "step": (dim,), "weights": (dim, rank), "width": (rank,)}
        if shapes != wanted or not dim or not rank:
            raise InvalidInput(
                "arrays of the extractor", str(shapes), "step (d,), weights (d, r), width and offset (r,)"
            )
        for name, array in arrays.items():
            if array.dtype != np.float32 or not np.isfinite(array).all():
                raise InvalidInput(f"arrays of the extractor: {name}", str(array.dtype), "finite float32 numbers")
        if not all((np.frexp(arrays[name])[0] == 0.5).all() for name in ("step", "width")):
            raise InvalidInput("arrays of the extractor", "other grids", "grids whose steps are powers of two")
        weights = arrays["weights"]
        # Others would be added with rounding, in an order that depends on who else is there.
        if not (np.abs(weights) <= 2.0 ** _weight_bits(dim)).all() or not (weights == np.rint(weights)).all():
            raise InvalidInput("arrays of the extractor", "other weights", f"2^{_weight_bits(dim)} whole steps at most")
        return cls(arrays["step"], arrays["weights"], arrays["width"], arrays["offset"])

    @property
    def arrays(self) -> dict[str, NDArray[np.float32]]:
        return {name: getattr(self, name) for name in NAMES}

    @property
    def dims(self) -> tuple[int, int]:
        return int(self.weights.shape[0]), int(self.weights.shape[1])

    def __call__(self, features: NDArray[Any]) -> NDArray[np.float32]:
        """(b, d) features -> (b, r)."""
        most = 2.0**_FEATURE_BITS
        points = np.clip(np.rint(features.astype(np.float64) / self.step), -most, most)
        sums = points @ self._weights
        return (sums * self.width.astype(np.float64) - self.offset).astype(np.float32)

    @property
    def _weights(self) -> NDArray[np.float64]:
        found = self.__dict__.get("_wide")
        if found is None:
            # Kept: there are many calls.
            object.__setattr__(self, "_wide", found := self.weights.astype(np.float64))
        kept: NDArray[np.float64] = found
        return kept

    def matrix(self) -> NDArray[np.float32]:
        """(d, r) the linear part without grids, for those who need gradients."""
        found = self._weights * self.width.astype(np.float64) / self.step.astype(np.float64)[:, None]
        return found.astype(np.float32)


def _weight_bits(dim: int) -> int:
    """Bits of weights for which ``dim`` products with features on their grid add up without rounding."""
    return min(_WEIGHT_BITS, _EXACT_BITS - _FEATURE_BITS - math.ceil(math.log2(dim + 1)))


def covariance_within(
    features: NDArray[np.float32], labels: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean (d,) of all records, and their covariance within classes (d, d)."""
    dim = features.shape[1]
    present, places = np.unique(labels, return_inverse=True)
    sums = np.zeros((len(present), dim))
    for start in range(0, len(features), _BATCH):
        np.add.at(sums, places[start : start + _BATCH], features[start : start + _BATCH].astype(np.float64))
    means = sums / np.bincount(places)[:, None]
    covariance = np.zeros((dim, dim))
    for start in range(0, len(features), _BATCH):
        rest = features[start : start + _BATCH] - means[places[start : start + _BATCH]]
        covariance += rest.T @ rest
    return sums.sum(axis=0) / len(features), covariance / len(features)


class Whitened(Continued):
    """Another extractor's features after a :class:`~privmix.features.whitened.Whitening`, fitted to public data.

    A release makes one where public data are given; it has no name of its own. ``public`` describes these data:
    ``source``, ``records``, ``classes`` (0: none were used) and ``sha256`` of their content. The source is ``data``, or
    ``procedural:NAME`` with ``version`` and ``seed``. ``norm`` is the ``quantile`` of their norms.

    Formal guarantees:
        - Per record, to the bit, where the inner extractor is: see :class:`~privmix.features.whitened.Whitening`.
        - Public: nothing was fitted to private records.
    """

    name: ClassVar[str] = "whitened"
    # Whitening at its usual power leaves a quarter of the usual decay, 1.6.
    usual: ClassVar[Usual] = Usual(spectrum_decay=0.4)
    argument: ClassVar[str] = "EXTRACTOR"
    carries: ClassVar[tuple[str, ...]] = NAMES

    def __init__(
        self,
        inner: Extractor | Mapping[str, Any],
        public: Mapping[str, Any],
        power: float = 0.75,
        ridge: float = 0.3,
        quantile: float = 0.25,
        norm: float = 1.0,
        *,
        whitening: Whitening | None = None,
    ) -> None:
        if whitening is None:
            raise InvalidInput("arrays of the extractor", None, "the arrays next to its spec")
        self._inner = inner if isinstance(inner, Extractor) else from_spec(inner)
        if self._inner.carries:
            raise InvalidInput("features", self._inner.name, "an extractor that was not fitted to public data yet")
        config = WhiteningConfig(power, ridge, whitening.dims[1], quantile)
        self._public, self._config, self._norm, self._whitening = dict(public), config, norm, whitening
        self.check_options(self.options())

    @classmethod
    def from_argument(cls, argument: str) -> Self:
        raise InvalidInput("features", f"{cls.name}:{argument}", f"{argument}, with public data in `public`")

    @classmethod
    def from_options(cls, options: Mapping[str, Any], own: OwnModel | None = None) -> Self:
        raise InvalidInput("arrays of the extractor", None, "the arrays next to its spec in a release or model")

    @classmethod
    def from_arrays(
        cls, options: Mapping[str, Any], arrays: Mapping[str, NDArray[np.float32]], own: OwnModel | None = None
    ) -> Self:
        """As it was, of its numbers; ``own`` is the inner extractor's model."""
        cls.check_options(options)
        return cls(**{**options, "inner": cls.inner_of(options, own)}, whitening=Whitening.of(arrays))

    @classmethod
    def check_options(cls, options: Mapping[str, Any]) -> None:
        if set(options) != set(_OPTIONS):
            raise InvalidInput("extractor options", sorted(options), ", ".join(_OPTIONS))
        WhiteningConfig(options["power"], options["ridge"], 1, options["quantile"])
        check_number("norm", options["norm"], low=0, low_open=True)
        inner, public = options["inner"], options["public"]
        if not isinstance(inner, Mapping) or inner.get("name") == cls.name:
            raise InvalidInput("extractor's inner", type(inner).__name__, "the spec of another extractor")
        check_inner(inner)
        if not isinstance(public, Mapping) or not set(public) <= _PUBLIC:
            raise InvalidInput("extractor's public data", type(public).__name__, ", ".join(sorted(_PUBLIC)))
        source = public.get("source")
        if not isinstance(source, str) or not _SOURCE.fullmatch(source):
            raise InvalidInput("source of public data", source, "data, or procedural:NAME")
        made = ("version", "seed") if source != DATA else ()
        for name, low in (("records", 2), ("classes", 0), *((name, 0) for name in made)):
            check_integer(f"{name} of public data", public.get(name), low=low, high=2**53)
        if source == DATA and ("version" in public or "seed" in public):
            raise InvalidInput("extractor's public data", sorted(public), "no version and seed of given data")
        if not isinstance(public.get("sha256"), str) or not _HASH.fullmatch(public["sha256"]):
            raise InvalidInput("sha256 of public data", public.get("sha256"), "a SHA-256 in hexadecimal")

    @classmethod
    def title(cls, options: Mapping[str, Any]) -> str:
        source = options["public"]["source"]
        by = "public data" if source == DATA else f"{source}, a procedural prior"
        return f"{options['inner']['name']} (whitened by {by})"

    @classmethod
    def statements(cls, options: Mapping[str, Any]) -> tuple[str, ...]:
        public, inner = options["public"], options["inner"]["name"]
        before = super().statements(options)
        within = "within-class covariance" if public["classes"] else "covariance"
        used = f"{public['records']} public records (SHA-256 {public['sha256'][:16]}...)"
        fixed = f"Before any private record was read, {inner} features were whitened by the {within} of {used}"
        if public["source"] != DATA:
            return (
                *before,
                f"Procedural prior: {fixed}, which privmix made as {public['source']}, version {public['version']}, "
                f"seed {public['seed']}, from fonts, formulas and pseudo-random numbers: no records of anybody. "
                "Compare figures of this release with those of others that have such a prior.",
            )
        return (
            *before,
            f"Public data: {fixed}, which the owner says are public. The guarantee does not cover them, and nothing "
            "here proves that they are public. Compare figures of this release with those of others that use them.",
        )

    def options(self) -> dict[str, Any]:
        return {
            "inner": self._inner.spec(),
            "public": dict(self._public),
            "power": self._config.power,
            "ridge": self._config.ridge,
            "quantile": self._config.quantile,
            "norm": self._norm,
        }

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        return self._whitening.arrays

    def spec(self) -> dict[str, Any]:
        arrays = self.arrays()
        shapes = {name: list(array.shape) for name, array in sorted(arrays.items())}
        return {**super().spec(), "arrays": shapes, "arrays_sha256": digest(arrays)}

    def output_dim(self, input_shape: tuple[int, ...]) -> int:
        found, (dim, rank) = self._inner.output_dim(input_shape), self._whitening.dims
        if found != dim:
            raise InvalidInput(
                "input shape", tuple(input_shape), f"a shape that gives {dim} features with {self._inner.name}"
            )
        return rank

    def transform(self, x: NDArray[Any]) -> NDArray[np.float32]:
        self.output_dim(x.shape[1:])
        return self._whitening(self._inner.transform(x))

    def differentiable(self, input_shape: tuple[int, ...]) -> Callable[[Tensor], Tensor]:
        """Return the inner extractor's, and a product with the weights; without grids."""
        import torch

        inner = self._inner.differentiable(input_shape)
        matrix, offset = torch.from_numpy(self._whitening.matrix()), torch.from_numpy(self._whitening.offset.copy())
        return lambda x: inner(x) @ matrix.to(x.device) - offset.to(x.device)
