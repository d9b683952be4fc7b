"""What a feature extractor is: a public function of one record, described by data."""

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

from privmix.data.images import DECODER
from privmix.data.source import Schema
from privmix.errors import InvalidInput, check_choice, check_integer
from privmix.features.origin import OwnModel
from privmix.fields import is_printable

if TYPE_CHECKING:
    from torch import Tensor

# What options of a spec may be, where an extractor does not say it.
_WORD: Final = re.compile(r"[0-9A-Za-z_.:+/ -]{0,200}")
_LARGEST: Final = 2**63

LONGEST_NAME: Final = 200
"""Characters of a column's name or a category."""

# What an extractor of texts loses, in words, and what it refuses.
NO_TEXT: Final = "no text"
CUT: Final = "longer than the encoder takes: cut at its end"
UNKNOWN: Final = "in words that the encoder does not know"

# Classes that ``Usual.concentration`` and ``Usual.fine_shapes`` are of.
_MANY: Final = 26
MOST_OF_TWO: Final = 4096
"""Bytes that the options of an extractor may take which goes on from another one."""

_REGISTRY: Final[dict[str, type[Extractor]]] = {}


@dataclass(frozen=True)
class Usual:
    """What features of labelled records usually look like: assumed by a planner before any record is read.

    Measured on public records alone: characters that privmix renders, docstrings of Python's standard library,
    scikit-learn's wine and breast cancer (``benchmarks/bench_planner_constants.py``). What the attributes mean:
    :meth:`privmix.learning.DataModel.declared`.
    """

    spectrum_decay: float = 1.6
    concentration: float = 1.4
    own_shapes: float = 0.0
    gathering: float = 0.0
    fine_shapes: float = 0.0
    between: float | None = None

    def of(self, classes: int) -> dict[str, float | None]:
        """What is assumed of so many classes.

        The fewer they are, the more they lie along the widest axes, by ``gathering``. ``fine_shapes`` is added to what
        shapes of their own bring where they are as many as it was measured of, 26 or more. ``between`` is the share of
        the variance between classes, where that is much the same for ten classes and more.

        Returns:
            arguments of :meth:`privmix.learning.DataModel.declared`.

        Example:
            >>> Usual(concentration=1.4, gathering=0.1).of(26)["concentration"]
            1.4
            >>> round(Usual(concentration=1.4, gathering=0.1).of(2)["concentration"], 2)
            1.66
            >>> [Usual(fine_shapes=0.002).of(number)["own_shapes"] for number in (2, 77)]
            [0.0, 0.002]
        """
        return {
            "spectrum_decay": self.spectrum_decay,
            "concentration": self.concentration + self.gathering * math.log(_MANY / classes),
            "own_shapes": self.own_shapes + (self.fine_shapes if classes >= _MANY else 0.0),
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
        step: records a call of ``transform`` that gives both speed and frequent progress.
        carries: names of arrays that it needs beside its spec, and that travel with what it made features for.
        digest_names: fields of its spec, beside name, version and options, each a SHA-256 in hexadecimal.
        most_text: bytes that its options may take in a spec, as JSON.
        usual: what a planner assumes of its features.
        decoder: the rule by which encoded images become its inputs (:func:`privmix.data.images.decode_images`); 1 is
            what a spec without a rule means, and what is of no consequence where inputs are no images.
    """

    name: ClassVar[str]
    version: ClassVar[int] = 1
    argument: ClassVar[str] = ""
    step: ClassVar[int] = 2048
    carries: ClassVar[tuple[str, ...]] = ()
    digest_names: ClassVar[tuple[str, ...]] = ()
    most_text: ClassVar[int] = 2048
    usual: ClassVar[Usual] = Usual()
    decoder: int = DECODER

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

    def unusual(self, x: NDArray[Any]) -> Iterator[tuple[int, str, str]]:
        """Of (b, columns) cells those that lose something: (row, column, why), no value. For the owner's eyes."""
        return iter(())

    @abstractmethod
    def transform(self, x: NDArray[Any]) -> NDArray[np.float32]:
        """(b, *input_shape) inputs -> (b, d) float32 features."""

    def channels(self, input_shape: tuple[int, ...]) -> int:
        """How many channels the features lie on, in order (channel, position); 1 where they lie on no two axes.

        Designs may use that the covariance of channels is much the same at all positions.
        """
        return 1

    def differentiable(self, input_shape: tuple[int, ...]) -> Callable[[Tensor], Tensor]:
        """The extractor of images as a function of tensors, through which gradients go.

        Args:
            input_shape: (H, W) or (H, W, colours).

        Returns:
            a function from (b, *input_shape) float32 in [0, 1] to (b, d) float32: :meth:`transform` up to rounding.

        Raises:
            InvalidInput: the extractor has no gradients, or takes other inputs.
        """
        raise InvalidInput("features", self.name, "an extractor of images with gradients, such as scattering or pixels")

    @property
    def reads(self) -> Extractor:
        """The extractor that takes raw inputs: itself, unless it goes on where another one ends."""
        return self

    @property
    def image_shape(self) -> tuple[int, ...] | None:
        """What encoded images are scaled and converted to where nothing is declared; None: it must be declared.

        An extractor that says so makes it public: it follows from its options alone, never from an image.
        """
        return None

    def options(self) -> dict[str, Any]:
        """The constructor's arguments, as JSON values."""
        return {}

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        """What it ``carries``: public numbers, too many for a spec, which then has their shapes and digest."""
        return {}

    def runtime(self) -> dict[str, Any]:
        """What may change the last bits of an output without changing the extractor: device, threads, libraries."""
        return {}

    @classmethod
    def from_argument(cls, argument: str) -> Self:
        """Build the extractor from the text behind ``name:``; only those with an ``argument`` take one."""
        raise InvalidInput("features", f"{cls.name}:{argument}", f"{cls.name}, which takes no argument")

    @classmethod
    def from_options(cls, options: Mapping[str, Any], own: OwnModel | None = None) -> Self:
        """Rebuild the extractor from :meth:`options` of a spec, which may come from a stranger.

        The default is for extractors that are constants alone. One with a model overrides it, and opens what ``own``
        names: no option may decide what is opened.
        """
        if own is not None:
            raise InvalidInput("features_model", str(own.path), f"none: {cls.name} has no model")
        return cls(**options)

    @classmethod
    def from_arrays(
        cls, options: Mapping[str, Any], arrays: Mapping[str, NDArray[np.float32]], own: OwnModel | None = None
    ) -> Self:
        """As :meth:`from_options`, for extractors that carry arrays; both may come from a stranger."""
        raise InvalidInput("arrays of the extractor", sorted(arrays), f"none: {cls.name} has none")

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
        """Raise :class:`InvalidInput` where these can't be the options in a certificate's spec. Opens nothing.

        Nothing may be free in a certificate. The default takes scalars alone: switches, numbers, and texts of at most
        200 letters, digits, blanks and ``_.:+-/``. An extractor whose options are something else, or more narrow, says
        here what they are; ``most_text`` bounds their size whatever it says.
        """
        cls.check_options(options)
        for name, value in options.items():
            check_scalar(f"features option {name}", value)

    @classmethod
    def names_of(cls, options: Mapping[str, Any]) -> tuple[str, ...]:
        """What features of such a spec are called, one name a feature; () where their settings give them no names.

        They are published: settings alone decide them, never a record. The default gives none, and features then are
        "feature 0", "feature 1", and so on. Opens nothing.
        """
        return ()

    @property
    def feature_names(self) -> tuple[str, ...]:
        """What its features are called; see :meth:`names_of`."""
        return type(self).names_of(self.options())

    def with_columns(self, columns: tuple[str, ...] | None) -> Extractor:
        """The extractor of inputs that are columns of numbers with these names, where names are of use to it."""
        return self

    @classmethod
    def title(cls, options: Mapping[str, Any]) -> str:
        """What people call features of such a spec."""
        return cls.name

    @classmethod
    def statements(cls, options: Mapping[str, Any]) -> tuple[str, ...]:
        """What a certificate says of features of such a spec, a sentence each."""
        return ()

    @classmethod
    def wants(cls, options: Mapping[str, Any]) -> str | None:
        """What the user of a spec must have on their own machine and name themselves, in words; None for nothing."""
        return None

    def spec(self) -> dict[str, Any]:
        """Name, version and options: enough for :func:`from_spec` to rebuild the extractor."""
        rule = {"decoder": self.decoder} if self.decoder > 1 else {}
        return {"name": self.name, "version": self.version, "options": self.options(), **rule}

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


def check_scalar(field: str, value: Any) -> None:
    """Raise :class:`InvalidInput` unless ``value`` is a switch, a number, a short plain text, or nothing.

    Example:
        >>> check_scalar("model", "facebook/dinov2-small")
        >>> check_scalar("model", [0.1, 0.2])
        Traceback (most recent call last):
        ...
        privmix.errors.InvalidInput: model: got [0.1, 0.2]; allowed: a switch, a number, or a short plain text
    """
    if value is None or isinstance(value, bool):
        return
    fits = isinstance(value, str) and _WORD.fullmatch(value) is not None
    if isinstance(value, int | float):
        fits = bool(abs(value) <= _LARGEST)
    if not fits:
        raise InvalidInput(field, value, "a switch, a number, or a short plain text")


def fits_name(name: Any) -> bool:
    """Whether this can be the name of a column in a certificate: a short line."""
    return isinstance(name, str) and 0 < len(name) <= LONGEST_NAME and is_printable(name)


def extractor_names() -> list[str]:
    """Names that :func:`get_extractor` knows."""
    return sorted(extractor_kinds())


def extractor_kinds() -> dict[str, type[Extractor]]:
    """Every extractor by its name: each registers itself when its file is imported, so all files here are."""
    _import_all()
    return _REGISTRY


@cache
def _import_all() -> None:
    package = __name__.rpartition(".")[0]
    for part in pkgutil.iter_modules([str(Path(__file__).parent)]):
        importlib.import_module(f"{package}.{part.name}")


def get_extractor(name: str, **options: Any) -> Extractor:
    """Build the extractor called ``name``; without options, ``NAME:ARGUMENT`` is understood as well.

    Raises:
        InvalidInput: unknown name or options, or an argument that is missing or wrong.

    Example:
        >>> get_extractor("scattering").output_dim((28, 28))
        3969
    """
    if not options:
        return parse_features(name)
    extractor = extractor_kinds()[check_choice("features", name, extractor_names())]
    extractor.check_options(options)
    return extractor(**options)


def parse_features(text: str | Extractor) -> Extractor:
    """Build the extractor that ``NAME`` or ``NAME:ARGUMENT`` describes, as users write it.

    ``vision:FOLDER`` or ``vision:HUB_NAME``, ``text:FOLDER`` or ``text:HUB_NAME``, ``tabular:SPEC.json``,
    ``module:FILE``, ``scattering`` or ``scattering:ycbcr,mirror``, ``minilm`` or ``minilm:3+4+5+6``; the others
    (``pixels``, ``identity``) take no argument. An extractor is itself.

    Raises:
        InvalidInput: unknown name, neither a text nor an extractor, or an argument that is missing or wrong.
        MissingExtra: the extractor's library is not installed (some extractors find out only when they are used).

    Example:
        >>> parse_features("pixels").name
        'pixels'
        >>> parse_features("vision")
        Traceback (most recent call last):
            ...
        privmix.errors.InvalidInput: features: got 'vision'; allowed: vision:MODEL
    """
    if isinstance(text, Extractor):
        return text
    if not isinstance(text, str):
        raise InvalidInput("features", type(text).__name__, "the name of an extractor, or an Extractor")
    name, colon, argument = text.partition(":")
    extractor = extractor_kinds()[check_choice("features", name, extractor_names())]
    if colon and not extractor.argument:
        return extractor.from_argument(argument)
    if extractor.argument and not argument:
        raise InvalidInput("features", text, f"{name}:{extractor.argument}")
    return extractor.from_argument(argument) if extractor.argument else extractor()
