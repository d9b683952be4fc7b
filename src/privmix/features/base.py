"""Feature extractors: each is a public function of one record, described by data."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import json
import math
import pkgutil
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from privmix.data.source import DECODER, Schema, Source
from privmix.errors import InvalidInput, check_choice, check_integer
from privmix.features.models import OwnModel
from privmix.fields import is_printable

if TYPE_CHECKING:
    from torch import Tensor

# Allowed option texts of a spec, where an extractor does not restrict them.
_WORD: Final = re.compile(r"[0-9A-Za-z_.:+/ -]{0,200}")
_LARGEST: Final = 2**63

LONGEST_NAME: Final = 200
"""Characters of a column's name or a category."""

# Losses and refusals of an extractor of texts, in words.
NO_TEXT: Final = "no text"
CUT: Final = "longer than the encoder's limit: the end is cut"
UNKNOWN: Final = "in words unknown to the encoder"

# Classes that ``Usual.concentration`` and ``Usual.fine_shapes`` are of.
_MANY: Final = 26
MOST_OF_TWO: Final = 4096
"""Bytes that the options of an extractor may take which goes on from another one."""

_REGISTRY: Final[dict[str, type[Extractor]]] = {}
# Extractors of earlier versions, in folders that still exist.
_ENDED: Final = ("patches", "whitened")


@dataclass(frozen=True)
class Usual:
    """The usual look of features of labelled records, which a planner assumes before any record is read."""

    # Measured on public records alone: rendered characters, docstrings of Python's standard library, scikit-learn's
    # wine and breast cancer (benchmarks/results/ended.md). Meaning: privmix.learning.data_model.DataModel.declared.

    spectrum_decay: float = 1.6
    concentration: float = 1.4
    own_shapes: float = 0.0
    gathering: float = 0.0
    fine_shapes: float = 0.0
    number_shapes: float = 0.0
    between: float | None = None
    residual: float = 0.55

    def bound(self, given: float | None, *, rows: bool) -> float:
        """Return the bound after centring: the given one, or the usual one; for ``rows`` of a table that of others."""
        # Learners need directions: records may be shortened. Rows have the lengths that were released.
        return given if given is not None else Usual.residual if rows else self.residual

    def of(self, classes: int) -> dict[str, float | None]:
        """Arguments of :meth:`privmix.learning.data_model.DataModel.declared` for this number of classes."""
        # With fewer classes, features lie more along the widest axes (`gathering`). `fine_shapes` is added where
        # classes are as many as it was measured on, 26 or more. `between` is the variance share between classes, stable
        # from ten classes on. `number_shapes` is that for very many classes; with two it is 0.
        return {
            "spectrum_decay": self.spectrum_decay,
            "concentration": self.concentration + self.gathering * math.log(_MANY / classes),
            "own_shapes": self.own_shapes
            + (self.fine_shapes if classes >= _MANY else 0.0)
            + self.number_shapes * (1 - 2 / classes),
            "between_share": None if self.between is None else min(self.between, 1 - classes**-0.25),
        }


class Extractor(ABC):
    """A public, fixed map from one raw input to one feature vector.

    Formal guarantees:
        - Per record: an output row depends on its own input row only, not on the other rows of the call,
          their number or their order.
        - Public: nothing is fitted to data; ``spec`` holds every constant.

    A subclass sets ``name`` and ``version`` (raise it when outputs change) and implements the abstract methods.

    Attributes:
        argument: what follows ``name:`` in :func:`parse_features`, in capitals; empty where nothing does.
        step: records per call of ``transform`` that give both speed and frequent progress.
        digest_names: further fields of its spec, each a SHA-256 in hexadecimal.
        most_text: bytes that its options may take in a spec, as JSON.
        usual: what a planner assumes of its features.
        decoder: the rule for encoded images (:func:`privmix.data.images.decode_images`); a spec without one means 1.
    """

    name: ClassVar[str]
    version: ClassVar[int] = 1
    argument: ClassVar[str] = ""
    step: ClassVar[int] = 2048
    digest_names: ClassVar[tuple[str, ...]] = ()
    most_text: ClassVar[int] = 2048
    usual: Usual = Usual()
    decoder: int = DECODER

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" in cls.__dict__:
            _REGISTRY[cls.name] = cls

    @abstractmethod
    def output_dim(self, input_shape: tuple[int, ...]) -> int:
        """Length d of the feature vector of one input; :class:`InvalidInput` if inputs of that shape do not fit."""

    def check_schema(self, schema: Schema) -> None:
        """Raise :class:`InvalidInput` unless the extractor takes inputs of this schema (default: arrays)."""
        if schema.columns is not None:
            names = ", ".join(schema.columns)
            raise InvalidInput("features", self.name, f"an extractor of texts or tables for the columns {names}")

    def unusual(self, x: NDArray[Any]) -> Iterator[tuple[int, str, str]]:
        """Yield (row, column, reason), without values, for the (b, columns) cells that lose something; owner only."""
        return iter(())

    @abstractmethod
    def transform(self, x: NDArray[Any]) -> NDArray[np.float32]:
        """(b, *input_shape) inputs -> (b, d) float32 features."""

    def rows(self, source: Source, first: int = 0) -> Iterator[tuple[NDArray[np.float32], NDArray[np.int64]]]:
        """Yield features (b, d) and labels (b,) of a dataset's records, from number ``first`` on."""
        for batch in source.batches(self.step, first):
            yield self.transform(batch.x), batch.y

    def channels(self, input_shape: tuple[int, ...]) -> int:
        """Return the number of channels, for features in order (channel, position); 1 for others."""
        # Designs may use that the covariance of channels is much the same at all positions.
        return 1

    def differentiable(self, input_shape: tuple[int, ...]) -> Callable[[Tensor], Tensor]:
        """:meth:`transform` up to rounding, with gradients: ``(b, *input_shape)`` in [0, 1] to (b, d) float32."""
        raise InvalidInput("features", self.name, "an extractor of images with gradients, such as scattering or pixels")

    @property
    def reads(self) -> Extractor:
        """The extractor that takes raw inputs: itself, unless it goes on where another one ends."""
        return self

    @property
    def image_shape(self) -> tuple[int, ...] | None:
        """Shape that encoded images are converted to by default; None: it must be declared. Options alone decide it."""
        return None

    def options(self) -> dict[str, Any]:
        """Return the constructor's arguments, as JSON values."""
        return {}

    def runtime(self) -> dict[str, Any]:
        """Causes of other last bits of an output from the same extractor: device, threads, libraries."""
        return {}

    @classmethod
    def from_argument(cls, argument: str) -> Self:
        """Build the extractor from the text behind ``name:``; only those with an ``argument`` take one."""
        raise InvalidInput("features", f"{cls.name}:{argument}", f"{cls.name}, which takes no argument")

    @classmethod
    def from_options(cls, options: Mapping[str, Any], own: OwnModel | None = None) -> Self:
        """Rebuild the extractor from a spec's :meth:`options`, which may come from a stranger."""
        # The default is for extractors of constants. One with a model overrides it and opens what `own` names: no
        # option may decide what is opened.
        if own is not None:
            raise InvalidInput("features_model", str(own.path), f"no model: {cls.name} has none")
        return cls(**options)

    @classmethod
    def check_options(cls, options: Mapping[str, Any]) -> None:
        """Raise :class:`InvalidInput` where a spec's options are not ones that it writes. Opens nothing."""
        # Checked before the call, so that a TypeError raised inside is not taken for a wrong option.
        try:
            inspect.signature(cls).bind(**options)
        except TypeError:
            known = ", ".join(inspect.signature(cls).parameters) or "none"
            raise InvalidInput("features options", sorted(options), f"options of {cls.name}: {known}") from None

    @classmethod
    def check_stated(cls, options: Mapping[str, Any]) -> None:
        """Raise :class:`InvalidInput` where these cannot be the options in a certificate's spec. Opens nothing."""
        # A certificate must not contain free text. The default takes switches, numbers, and texts of at most 200
        # letters, digits, blanks and `_.:+-/`. An extractor with other options checks them here.
        cls.check_options(options)
        for name, value in options.items():
            fits = value is None or (isinstance(value, str) and _WORD.fullmatch(value) is not None)
            if not fits and not (isinstance(value, bool | int | float) and abs(value) <= _LARGEST):
                raise InvalidInput(f"features option {name}", value, "a switch, a number, or a short plain text")

    @classmethod
    def names_of(cls, options: Mapping[str, Any]) -> tuple[str, ...]:
        """One name per feature of such a spec; () where its settings give none. Opens nothing."""
        # Names are published: settings alone decide them, never a record.
        return ()

    @property
    def feature_names(self) -> tuple[str, ...]:
        return type(self).names_of(self.options())

    def with_columns(self, columns: tuple[str, ...] | None) -> Extractor:
        """Return the extractor of inputs that are columns of numbers with these names, where names are of use to it."""
        return self

    @classmethod
    def title(cls, options: Mapping[str, Any]) -> str:
        """Return the common name of features of such a spec."""
        return cls.name

    @classmethod
    def statements(cls, options: Mapping[str, Any]) -> tuple[str, ...]:
        """Return a certificate's statements about features of such a spec, a sentence each."""
        return ()

    @classmethod
    def wants(cls, options: Mapping[str, Any]) -> str | None:
        """Items that the user of a spec must have on their own machine and name themselves, in words; or None."""
        return None

    def spec(self) -> dict[str, Any]:
        """Name, version and options: enough for :func:`from_spec` to rebuild the extractor."""
        rule = {"decoder": self.decoder} if self.decoder > 1 else {}
        return {"name": self.name, "version": self.version, "options": self.options(), **rule}

    def fingerprint(self) -> str:
        """SHA-256 of the spec: equal fingerprints mean equal features."""
        return hashlib.sha256(json.dumps(self.spec(), sort_keys=True).encode()).hexdigest()

    def extract(self, x: NDArray[Any], batch_size: int = 1024) -> NDArray[np.float32]:
        """``(n, *input_shape)`` inputs -> (n, d) features; ``batch_size`` does not change the result."""
        check_integer("batch_size", batch_size, low=1)
        features = np.empty((len(x), self.output_dim(x.shape[1:])), dtype=np.float32)
        for start in range(0, len(x), batch_size):
            features[start : start + batch_size] = self.transform(x[start : start + batch_size])
        return features


def fits_name(name: Any) -> bool:
    """Whether this can be the name of a column in a certificate: a short line."""
    return isinstance(name, str) and 0 < len(name) <= LONGEST_NAME and is_printable(name)


def extractor_names() -> list[str]:
    return sorted(extractor_kinds())


@cache
def extractor_kinds() -> dict[str, type[Extractor]]:
    """Every extractor by its name: each registers itself when its file is imported, so all files here are."""
    for name in _files():
        importlib.import_module(f"{__package__}.{name}")
    return _REGISTRY


def _files() -> list[str]:
    return [part.name for part in pkgutil.iter_modules([str(Path(__file__).parent)])]


def extractor_kind(name: str) -> type[Extractor] | None:
    """Return the extractor called ``name``, or None. Others are imported only if no imported one is called so."""
    # Most have the name of their file. Some files take long to import.
    if name not in _REGISTRY and name in _files():
        importlib.import_module(f"{__package__}.{name}")
    return _REGISTRY.get(name) or extractor_kinds().get(name)


def refuse_ended(name: str) -> None:
    """Raise :class:`InvalidInput` where only earlier versions had the extractor."""
    if name in _ENDED:
        allowed = "another extractor: this version no longer reads these features, so make the release or model again"
        raise InvalidInput("features", name, allowed)


def known_kind(name: str) -> type[Extractor]:
    """Return the extractor called ``name``; InvalidInput for an unknown name."""
    refuse_ended(name)
    return extractor_kind(name) or extractor_kinds()[check_choice("features", name, extractor_names())]


def get_extractor(name: str, **options: Any) -> Extractor:
    """Build the extractor called ``name``; without options, ``NAME:ARGUMENT`` works as well."""
    if not options:
        return parse_features(name)
    extractor = known_kind(name)
    extractor.check_options(options)
    return extractor(**options)


def parse_features(text: str | Extractor) -> Extractor:
    """Build the extractor that ``NAME`` or ``NAME:ARGUMENT`` describes; return an extractor as it is.

    Example:
        >>> parse_features("scattering:ycbcr,mirror").name
        'scattering'
    """
    if isinstance(text, Extractor):
        return text
    if not isinstance(text, str):
        raise InvalidInput("features", type(text).__name__, "the name of an extractor, or an Extractor")
    name, colon, argument = text.partition(":")
    extractor = known_kind(name)
    if colon and not extractor.argument:
        return extractor.from_argument(argument)
    if extractor.argument and not argument:
        raise InvalidInput("features", text, f"{name}:{extractor.argument}")
    return extractor.from_argument(argument) if extractor.argument else extractor()
