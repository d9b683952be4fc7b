"""Any extractor's features, whitened by public data: the fit is public, and travels with what was made by it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from privmix.errors import InvalidInput, check_integer, check_number
from privmix.features.base import Extractor, Usual
from privmix.features.origin import OwnModel
from privmix.features.projected import Continued
from privmix.features.spec import check_inner, digest, from_spec
from privmix.features.whitening import NAMES, Whitening, WhiteningConfig

if TYPE_CHECKING:
    from torch import Tensor

DATA: Final = "data"
_SOURCE: Final = re.compile(r"data|procedural:[a-z][a-z0-9-]{0,39}")
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_OPTIONS: Final = ("inner", "public", "power", "ridge", "quantile", "norm")
_PUBLIC: Final = {"source", "version", "seed", "records", "classes", "sha256"}


class Whitened(Continued):
    """Another extractor's features after a :class:`~privmix.features.whitening.Whitening`, fitted to public data.

    A release makes one where public data are given; it has no name of its own. ``public`` describes these data:
    ``source``, ``records``, ``classes`` (0: none were used) and ``sha256`` of their content. The source is ``data``, or
    ``procedural:NAME`` with ``version`` and ``seed``. ``norm`` is the ``quantile`` of their norms.

    Formal guarantees:
        - Per record, to the bit, where the inner extractor is: see :class:`~privmix.features.whitening.Whitening`.
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
