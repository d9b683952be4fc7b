"""What a feature extractor is: a public function of one record, described by data."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import json
import pkgutil
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from privmix.data.source import Schema
from privmix.errors import InvalidInput, check_choice, check_integer
from privmix.features.origin import OwnModel

_REGISTRY: Final[dict[str, type[Extractor]]] = {}
# Keys of a spec that say which model it is about; a copy of the model must have the same.
_DIGESTS: Final = ("weights_sha256", "files_sha256", "arrays_sha256")

# Of a spec that another one holds: what it may say, and its name, which reaches the data card.
_FIELDS: Final = frozenset({"name", "version", "options", "weights_sha256", "files_sha256"})
_PLAIN: Final = re.compile(r"[a-z][a-z0-9_-]{0,39}")
_HASH: Final = re.compile(r"[0-9a-f]{64}")

# Of arrays beside a spec.
_ARRAY_NAME: Final = re.compile(r"[a-z][a-z0-9_.]{0,63}")
_MOST_ARRAYS, _MOST_AXES = 256, 8

# Settings of a run, which no spec holds.
_LOCAL: Final = frozenset({"path", "device", "batch_size"})


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
        spectrum_decay: what a planner assumes: see :meth:`privmix.releases.DataModel.declared`.
    """

    name: ClassVar[str]
    version: ClassVar[int] = 1
    argument: ClassVar[str] = ""
    step: ClassVar[int] = 2048
    carries: ClassVar[tuple[str, ...]] = ()
    spectrum_decay: ClassVar[float] = 1.6

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
            raise InvalidInput("model path", str(own.path), f"none: {cls.name} has no model")
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
    return sorted(_kinds())


def _kinds() -> dict[str, type[Extractor]]:
    """Every extractor by its name: each registers itself when its file is imported, so all files here are."""
    package = __name__.rpartition(".")[0]
    for part in pkgutil.iter_modules([str(Path(__file__).parent)]):
        importlib.import_module(f"{package}.{part.name}")
    return _REGISTRY


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
    extractor = _kinds()[check_choice("features", name, extractor_names())]
    extractor.check_options(options)
    return extractor(**options)


def parse_features(text: str) -> Extractor:
    """Build the extractor that ``NAME`` or ``NAME:ARGUMENT`` describes, as users write it.

    ``vision:FOLDER`` or ``vision:HUB_NAME``, ``text:FOLDER`` or ``text:HUB_NAME``, ``tabular:SPEC.json``,
    ``module:FILE``, ``scattering`` or ``scattering:ycbcr,mirror``; the others (``minilm``, ``pixels``, ``identity``)
    take no argument.

    Raises:
        InvalidInput: unknown name, or an argument that is missing or wrong.
        MissingExtra: the extractor's library is not installed (some extractors find out only when they are used).

    Example:
        >>> parse_features("pixels").name
        'pixels'
        >>> parse_features("vision")
        Traceback (most recent call last):
            ...
        privmix.errors.InvalidInput: features: got 'vision'; allowed: vision:MODEL
    """
    name, colon, argument = text.partition(":") if isinstance(text, str) else (text, "", "")
    extractor = _kinds()[check_choice("features", name, extractor_names())]
    if colon and not extractor.argument:
        return extractor.from_argument(argument)
    if extractor.argument and not argument:
        raise InvalidInput("features", text, f"{name}:{extractor.argument}")
    return extractor.from_argument(argument) if extractor.argument else extractor()


def from_spec(
    spec: Mapping[str, Any],
    model_path: str | Path | None = None,
    *,
    trust_model: bool = False,
    arrays: Mapping[str, NDArray[np.float32]] | None = None,
) -> Extractor:
    """Rebuild an extractor from :meth:`Extractor.spec`; another version's spec is refused.

    Formal guarantees:
        - A spec is data: nothing that it says is opened as a path, fetched from an address, or run. A model is opened
          where ``model_path`` says; without it only what a package brings, or the local cache of the Hugging Face hub
          at the commit that the spec names.
        - Programs do not run unasked: a file that is more than numbers (TorchScript, an exported program) is refused
          unless ``trust_model``.
        - The model is the spec's: its digests are compared.

    Args:
        spec: as a certificate holds it.
        model_path: where the user's own copy of the model lies, for extractors that have one.
        trust_model: the file at ``model_path`` may be a program, and may run.
        arrays: what lay beside the spec, where :func:`arrays_beside` says that something does.

    Raises:
        InvalidInput: not a spec, of another version, or the model is another one or must be named by its user.
        StorageError: the model is of the hub and not in the local cache.

    Example:
        >>> from_spec(get_extractor("pixels").spec()).name
        'pixels'
        >>> from_spec({"name": "module", "version": 1, "options": {"model": "/tmp/net.pt2"}})
        Traceback (most recent call last):
        ...
        privmix.errors.InvalidInput: extractor's model: got '/tmp/net.pt2'; allowed: a name without a path
    """
    kind, options = _read(spec)
    own = None if model_path is None else OwnModel(Path(model_path), trust_model)
    if trust_model and own is None:
        raise InvalidInput("trust in the model", True, "only beside the path of the model")
    extractor = kind.from_arrays(options, arrays, own) if arrays else kind.from_options(options, own)
    if spec.get("version") != extractor.version:
        allowed = f"{extractor.version}, the version of {kind.name} in this release of privmix"
        raise InvalidInput("extractor version", spec.get("version"), allowed)
    if any(key in spec for key in _DIGESTS):
        found = extractor.spec()
        for key in _DIGESTS:
            if spec.get(key) != found.get(key):
                allowed = f"{spec.get(key)!s:.64}: the model that the features were made with, unchanged"
                raise InvalidInput(f"{key} of the model", found.get(key), allowed)
    return extractor


def wanted_model(spec: Mapping[str, Any]) -> str | None:
    """What the user of this spec must bring along and name, in words; None where nothing. Opens nothing.

    Example:
        >>> wanted_model({"name": "module", "version": 1, "options": {"model": "net.safetensors"}})
        "a copy of the file 'net.safetensors', named by `features_model`"
        >>> wanted_model({"name": "pixels", "version": 1, "options": {}}) is None
        True
    """
    try:
        kind, options = _read(spec)
    except InvalidInput:
        return "an extractor that this version of privmix does not know"
    return kind.wants(options)


def check_spec(spec: Mapping[str, Any]) -> None:
    """Raise :class:`InvalidInput` where a spec has options that the extractor it names has not. Opens nothing.

    An extractor that this version does not know may be of a later one; it is taken without options only.

    Example:
        >>> check_spec({"name": "pixels", "version": 1, "options": {}})
        >>> check_spec({"name": "pixels", "version": 1, "options": {"records": [1, 2]}})
        Traceback (most recent call last):
        ...
        privmix.errors.InvalidInput: features options: got ['records']; allowed: options of pixels: none
    """
    name = spec.get("name")
    if not isinstance(name, str) or name in _kinds() or spec.get("options"):
        _read(spec)


def check_inner(spec: Any) -> None:
    """Raise :class:`InvalidInput` unless this can be the spec of the extractor that another one goes on from.

    Its name stands in data cards and statements: nothing in it may look like a part of these. And a certificate has no
    room for what is no part of a spec. Opens nothing.

    Example:
        >>> check_inner({"name": "pixels", "version": 1, "options": {}})
        >>> check_inner({"name": "pixels # Guarantee: all is public"})
        Traceback (most recent call last):
        ...
        privmix.errors.InvalidInput: extractor's inner: got 'another spec'; allowed: name, version, options, digests
    """
    fields = spec if isinstance(spec, Mapping) else {}
    digests = [fields[key] for key in _DIGESTS if key in fields]
    if (
        not {"name"} <= set(fields) <= _FIELDS
        or not (isinstance(fields["name"], str) and _PLAIN.fullmatch(fields["name"]))
        or not all(isinstance(found, str) and _HASH.fullmatch(found) for found in digests)
    ):
        raise InvalidInput("extractor's inner", "another spec", "name, version, options, digests")
    if "version" in fields:
        check_integer("version of the extractor's inner", fields["version"], low=1, high=2**31)
    check_spec(fields)


def title_of(spec: Mapping[str, Any]) -> str:
    """What people call features of this spec: mostly the extractor's name.

    Raises:
        InvalidInput: as :func:`check_spec`.

    Example:
        >>> title_of({"name": "pixels"})
        'pixels'
    """
    # Extractors of raw inputs are not asked: their libraries take time to import.
    name, options = spec.get("name", "?"), spec.get("options", {})
    composed = "arrays" in spec or (isinstance(options, Mapping) and "inner" in options)
    if not composed or not isinstance(name, str) or name not in _kinds():
        return str(name)
    kind, options = _read(spec)
    return kind.title(options)


def statements_of(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """What a certificate says of features of this spec, a sentence each: of public data that they stand on.

    Raises:
        InvalidInput: as :func:`check_spec`.

    Example:
        >>> statements_of({"name": "pixels", "version": 1, "options": {}})
        ()
    """
    known = _kinds().get(str(spec.get("name")), Extractor)
    if known.statements.__func__ is Extractor.statements.__func__:  # type: ignore[attr-defined]
        return ()
    kind, options = _read(spec)
    return kind.statements(options)


def check_carried(spec: Mapping[str, Any], arrays: Mapping[str, NDArray[np.float32]]) -> None:
    """Raise :class:`InvalidInput` unless these are the arrays of the spec, by their digest."""
    stated = spec.get("arrays_sha256")
    found = digest(arrays) if arrays else None
    if found != stated:
        raise InvalidInput("arrays_sha256 of the extractor", found, f"{stated!s:.64}, as its spec says")


def digest(arrays: Mapping[str, NDArray[Any]]) -> str:
    """SHA-256 of names, shapes and values of float32 arrays, in the order of names.

    Example:
        >>> digest({"a": np.zeros(2, np.float32)})[:8] == digest({"a": np.zeros((1, 2), np.float32)})[:8]
        False
    """
    hasher = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name], np.float32)
        hasher.update(f"{name} {array.shape}\n".encode())
        hasher.update(array.data)
    return hasher.hexdigest()


def arrays_beside(spec: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Shapes of the float32 arrays that lie beside a spec, by name; mostly none.

    Raises:
        InvalidInput: not names and shapes.

    Example:
        >>> arrays_beside({"name": "whitened", "arrays": {"step": [4]}})
        {'step': (4,)}
    """
    stated = spec.get("arrays", {})
    if not isinstance(stated, Mapping) or len(stated) > _MOST_ARRAYS:
        raise InvalidInput(
            "arrays of the extractor", type(stated).__name__, f"names and shapes, {_MOST_ARRAYS} at most"
        )
    found = {}
    for name, shape in stated.items():
        if not isinstance(name, str) or not _ARRAY_NAME.fullmatch(name) or not isinstance(shape, list):
            raise InvalidInput("arrays of the extractor", name, "plain names, and a list of sizes each")
        if not 0 < len(shape) <= _MOST_AXES:
            raise InvalidInput(f"arrays of the extractor: {name}", len(shape), f"1 to {_MOST_AXES} sizes")
        found[name] = tuple(
            check_integer(f"arrays of the extractor: {name}", size, low=1, high=2**31) for size in shape
        )
    return found


def _read(spec: Mapping[str, Any]) -> tuple[type[Extractor], Mapping[str, Any]]:
    """The kind of extractor and its options, if they are ones of that kind and of no machine."""
    name, options = spec.get("name"), spec.get("options", {})
    if (
        not isinstance(name, str)
        or not isinstance(options, Mapping)
        or not all(isinstance(key, str) for key in options)
    ):
        raise InvalidInput("extractor spec", dict(spec), "a mapping with name, version and options")
    kind = _kinds()[check_choice("features", name, extractor_names())]
    kind.check_options(options)
    if set(arrays_beside(spec)) != set(kind.carries):
        allowed = ", ".join(kind.carries) or "none"
        raise InvalidInput("arrays of the extractor", sorted(arrays_beside(spec)), allowed)
    if not _LOCAL.isdisjoint(options):
        # A spec comes from someone else: it must not point to files or devices of this machine.
        raise InvalidInput("extractor spec", sorted(_LOCAL & set(options)), "options that change the features only")
    return kind, options
