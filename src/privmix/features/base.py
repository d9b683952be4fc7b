"""What a feature extractor is: a public function of one record, described by data."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from privmix.data.source import Schema
from privmix.errors import InvalidInput, check_choice, check_integer

_REGISTRY: Final[dict[str, type[Extractor]]] = {}


class Extractor(ABC):
    """A public, fixed map from one raw input to one feature vector.

    Formal guarantees:
        - Per record: an output row depends on its own input row only, not on the other rows of the call,
          their number or their order.
        - Public: nothing is fitted to data; ``spec`` holds every constant.

    A subclass sets ``name`` and ``version`` (raise it when outputs change) and implements the three abstract
    methods.
    """

    name: ClassVar[str]
    version: ClassVar[int] = 1

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" in cls.__dict__:
            _REGISTRY[cls.name] = cls

    @abstractmethod
    def output_dim(self, input_shape: tuple[int, ...]) -> int:
        """Length d of the feature vector of one input; :class:`InvalidInput` if inputs of that shape do not fit."""

    def check_schema(self, schema: Schema) -> None:
        """Raise :class:`InvalidInput` unless inputs of this schema are ones that the extractor takes.

        The default takes arrays of numbers; extractors of texts and tables override it.
        """
        if schema.columns is not None:
            names = ", ".join(schema.columns)
            raise InvalidInput("features", self.name, f"an extractor of texts or tables for the columns {names}")

    @abstractmethod
    def transform(self, x: NDArray[Any]) -> NDArray[np.float32]:
        """(b, *input_shape) inputs -> (b, d) float32 features."""

    def options(self) -> dict[str, Any]:
        """The constructor's arguments, as JSON values."""
        return {}

    def spec(self) -> dict[str, Any]:
        """Name, version and options: enough for :func:`from_spec` to rebuild the extractor."""
        return {"name": self.name, "version": self.version, "options": self.options()}

    def fingerprint(self) -> str:
        """SHA-256 of the spec: equal fingerprints mean equal features."""
        return hashlib.sha256(json.dumps(self.spec(), sort_keys=True).encode()).hexdigest()

    def extract(
        self, x: NDArray[Any], batch_size: int = 1024, progress: Callable[[int], None] | None = None
    ) -> NDArray[np.float32]:
        """(n, *input_shape) inputs -> (n, d) features, ``batch_size`` at a time.

        Args:
            x: raw inputs.
            batch_size: records a step; changes memory, not the result.
            progress: called with the number of records done after every step.
        """
        check_integer("batch_size", batch_size, low=1)
        features = np.empty((len(x), self.output_dim(x.shape[1:])), dtype=np.float32)
        for start in range(0, len(x), batch_size):
            stop = min(start + batch_size, len(x))
            features[start:stop] = self.transform(x[start:stop])
            if progress is not None:
                progress(stop)
        return features


def extractor_names() -> list[str]:
    """Names that :func:`get_extractor` knows."""
    return sorted(_REGISTRY)


def get_extractor(name: str, **options: Any) -> Extractor:
    """Build the extractor called ``name``.

    Example:
        >>> get_extractor("scattering").output_dim((28, 28))
        3969
    """
    extractor = _REGISTRY[check_choice("features", name, extractor_names())]
    try:
        return extractor(**options)
    except TypeError:
        raise InvalidInput("features options", sorted(options), f"options of {name}") from None


def from_spec(spec: Mapping[str, Any]) -> Extractor:
    """Rebuild an extractor from :meth:`Extractor.spec`; another version's spec is refused.

    Example:
        >>> from_spec(get_extractor("pixels").spec()).name
        'pixels'
    """
    name, options = spec.get("name"), spec.get("options", {})
    if not isinstance(name, str) or not isinstance(options, Mapping):
        raise InvalidInput("extractor spec", dict(spec), "a mapping with name, version and options")
    extractor = get_extractor(name, **options)
    if spec.get("version") != extractor.version:
        allowed = f"{extractor.version}, the version of {name} in this release of privmix"
        raise InvalidInput("extractor version", spec.get("version"), allowed)
    return extractor
