"""Public facts of a model, and public labelled examples: to warm up on, to help in every step, to mix views with."""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn import functional

from privmix.data.dataset import Source, open_dataset
from privmix.errors import InvalidInput, check_integer
from privmix.features.base import Extractor
from privmix.features.identity import unit_range
from privmix.fields import Checked, Count, check_fields
from privmix.mechanisms.plan import check_classes


@dataclass(frozen=True)
class ImageLayout(Checked):
    """Images of ``channels`` x ``height`` x ``width`` in vectors laid out as (height, width, channels)."""

    channels: Count
    height: Count
    width: Count

    @classmethod
    def of_input(cls, shape: Sequence[int]) -> "ImageLayout":
        """Return the layout of raw inputs of shape (H, W) or (H, W, C); raise for others."""
        if len(shape) == 2:
            return cls(1, shape[0], shape[1])
        if len(shape) == 3:
            return cls(shape[2], shape[0], shape[1])
        raise InvalidInput("input shape", tuple(shape), "images: (height, width) or (height, width, channels)")

    @property
    def dim(self) -> int:
        return self.channels * self.height * self.width

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.channels, self.height, self.width

    def to_images(self, x: Tensor) -> Tensor:
        """(..., d) vectors -> (..., C, H, W) images."""
        if x.shape[-1] != self.dim:
            raise InvalidInput("features", x.shape[-1], f"vectors of {self.dim} pixels")
        lead = x.shape[:-1]
        return x.reshape(*lead, self.height, self.width, self.channels).movedim(-1, -3)


_MOST_AXES: Final = 8


@dataclass(frozen=True)
class ModelFacts:
    """The public facts with which a model classifies raw inputs of ``input_shape`` on its own."""

    classes: tuple[str, ...]
    extractor: Mapping[str, Any] = field(repr=False)
    input_shape: tuple[int, ...]
    dim: Count

    def __post_init__(self) -> None:
        check_fields(self)
        check_classes(self.classes)
        if len(self.classes) == 1:
            allowed = "the name of the label column: a model needs a label, a table without one `privmix release`"
            raise InvalidInput("label", None, allowed)
        if not 0 < len(self.input_shape) <= _MOST_AXES:
            raise InvalidInput("input_shape", len(self.input_shape), f"1 to {_MOST_AXES} sizes")
        for size in self.input_shape:
            check_integer("input_shape", size, low=1, high=2**31)

    @property
    def layout(self) -> ImageLayout | None:
        """How the features are images, or None where they are not pixels in the input's own order."""
        # Augmentations need values in [0, 1] in the order of the image, which only this extractor keeps.
        if self.extractor.get("name") != "pixels" or len(self.input_shape) not in (2, 3):
            return None
        return ImageLayout.of_input(self.input_shape)


# (x (b, ...), targets (b, classes), seeds (b,) int64) -> augmented (x, targets); all randomness comes from the seeds.
Augment = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]

_TARGET_SLACK: Final = 1e-3


@dataclass(frozen=True, eq=False)
class PublicData:
    """Records without protection: published, or made by a model that saw public records only.

    Warm-up and public methods learn from them, and Bao et al. 2023, Algorithm 1 mixes with them (the set D). The caller
    declares them public: nothing here can check it. Private records in here have no protection at all, and choosing
    public ones by their fit to the private ones costs privacy that no certificate counts. Tensors are not copied and
    must not be written to.

    Attributes:
        x: (m, d) float32 features, extracted as the private ones are, or (m, ...) inputs of a model.
        targets: (m, classes) float32 soft targets; every row is non-negative and sums to 1.
        input_shape: shape of one raw input where it is known, to detect images of another size.
    """

    x: Tensor = field(repr=False)
    targets: Tensor = field(repr=False)
    input_shape: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.targets.dim() != 2 or self.x.dim() < 2 or len(self.x) != len(self.targets) or 0 in self.x.shape:
            shapes = tuple(self.x.shape), tuple(self.targets.shape)
            raise InvalidInput("public data", shapes, "inputs (m, ...) and targets (m, classes), at least one")
        if self.x.dtype != torch.float32 or self.targets.dtype != torch.float32:
            raise InvalidInput("public data", (self.x.dtype, self.targets.dtype), "float32 inputs and targets")
        if not bool(torch.isfinite(self.x).all()):
            raise InvalidInput("public inputs", "values that are infinite or not numbers", "finite numbers")
        sums = self.targets.sum(dim=1)
        if not bool((self.targets >= 0).all()) or not bool(((sums - 1).abs() <= _TARGET_SLACK).all()):
            raise InvalidInput("public targets", "other rows", "rows of non-negative numbers that sum to 1")

    @classmethod
    def of(cls, x: Tensor | ArrayLike, labels: Tensor | ArrayLike, classes: int) -> "PublicData":
        """Public records (m, ...) in memory with labels (m,) from 0 to ``classes`` - 1; uint8 is divided by 255."""
        check_integer("classes", classes, low=2)
        inputs, chosen = (part.cpu().numpy() if isinstance(part, Tensor) else np.asarray(part) for part in (x, labels))
        if inputs.ndim < 2 or inputs.dtype.kind not in "uif":
            raise InvalidInput("public data", f"{inputs.shape} of {inputs.dtype}", "numbers of shape (m, ...)")
        if chosen.shape != inputs.shape[:1] or chosen.dtype.kind not in "ui":
            raise InvalidInput("public labels", f"{chosen.shape} of {chosen.dtype}", "one integer an input, (m,)")
        outside = sorted({int(label) for label in np.unique(chosen) if not 0 <= label < classes})
        if outside:
            raise InvalidInput("public labels outside the class list", outside, f"0 to {classes - 1}")
        scaled = unit_range(inputs) if inputs.dtype == np.uint8 else inputs.astype(np.float32)
        shape = inputs.shape[1:] if inputs.ndim > 2 else None
        return cls._made(scaled.reshape(len(inputs), math.prod(inputs.shape[1:])), chosen, classes, shape)

    @classmethod
    def open(
        cls,
        path: Any,
        extractor: Extractor,
        classes: Sequence[str],
        *,
        split: str = "train",
        input_shape: tuple[int, ...] | None = None,
        **options: Any,
    ) -> "PublicData":
        """Read public records from any source of :func:`privmix.data.open_dataset`, to which ``options`` go."""
        # Classes are matched by name, in any order, and some may be missing. If labels are digits and the private
        # classes are names, digits are places in ``classes``. Images become ``input_shape``, or are refused before they
        # are read.
        source = open_source(path, classes, split, {"input_shape": input_shape, **options})
        schema, where = source.schema, str(path) if isinstance(path, str | Path) else "memory"
        if input_shape is not None and schema.input_shape != tuple(input_shape):
            allowed = f"{tuple(input_shape)} as the private inputs"
            raise InvalidInput(f"shape of the public inputs in {where}", schema.input_shape, allowed)
        extractor.check_schema(schema)
        try:
            content = source.read()
        except InvalidInput as error:
            if error.field != "label":
                raise
            found = "a label outside the class list"
            raise InvalidInput(f"public labels in {where}", found, _listed(classes)) from None
        places = _places(schema.classes, np.unique(content.y), classes, where)
        shape = schema.input_shape if schema.columns is None else None
        return cls._made(extractor.extract(content.x), places[content.y], len(classes), shape)

    @classmethod
    def _made(cls, x: NDArray[Any], labels: NDArray[Any], classes: int, shape: tuple[int, ...] | None) -> "PublicData":
        targets = functional.one_hot(torch.from_numpy(labels.astype(np.int64)), classes).to(torch.float32)
        return cls(torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32)), targets, shape)

    @property
    def size(self) -> int:
        return len(self.x)

    @property
    def dim(self) -> int:
        return math.prod(self.x.shape[1:])

    @property
    def classes(self) -> int:
        return self.targets.shape[1]

    def check(self, *, classes: int, layout: ImageLayout | None) -> None:
        """Raise :class:`InvalidInput` unless these can be mixed with records of these classes and images."""
        if self.classes != classes:
            raise InvalidInput("classes of the pool", self.classes, f"{classes}, as the private data")
        if layout is None:
            return
        if self.input_shape is not None and len(self.input_shape) in (2, 3):
            found = ImageLayout.of_input(self.input_shape)
            if found != layout:
                raise InvalidInput("images of the pool", _in_words(found), f"{_in_words(layout)}, as the private ones")
        self.check_dim(layout.dim)
        if float(self.x.min()) < 0 or float(self.x.max()) > 1:
            raise InvalidInput("images of the pool", "values outside [0, 1]", "uint8, or floats in [0, 1]")

    def check_dim(self, dim: int) -> None:
        if self.x.dim() != 2 or self.dim != dim:
            raise InvalidInput("features of the pool", f"{self.dim} an example", f"{dim}, as the private records have")

    def take(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """(...) integers -> (..., d) examples and (..., classes) targets, where ``index`` is."""
        places = index.to(self.x.device)
        return self.x[places].to(index.device), self.targets[places].to(index.device)

    def join(self, other: "PublicData") -> "PublicData":
        """Return these records followed by ``other``'s; raise where inputs or classes differ in shape."""
        if self.x.shape[1:] != other.x.shape[1:] or self.classes != other.classes:
            given = (*other.x.shape[1:], other.classes)
            raise InvalidInput("joined data", given, f"inputs and classes {(*self.x.shape[1:], self.classes)}")
        shape = self.input_shape if self.input_shape == other.input_shape else None
        return PublicData(torch.cat([self.x, other.x]), torch.cat([self.targets, other.targets]), shape)

    def batch(
        self, step: int, size: int, seed: int, part: int = 0, augment: Augment | None = None
    ) -> tuple[Tensor, Tensor]:
        """Draw ``size`` different records, x (size, ...) and targets (size, classes), by (seed, step, part) alone."""
        generator = public_generator("batch", seed, step, part)
        rows = torch.from_numpy(generator.choice(self.size, size, replace=False))
        return self.rows(rows, generator, augment)

    def rows(self, rows: Tensor, generator: np.random.Generator, augment: Augment | None) -> tuple[Tensor, Tensor]:
        """Return the records of indices ``rows`` (b,), augmented with seeds from ``generator`` if asked to."""
        rows = rows.to(self.x.device)
        x, targets = self.x[rows], self.targets[rows]
        if augment is None:
            return x, targets
        x, targets = augment(x, targets, torch.from_numpy(generator.integers(0, 2**63 - 1, size=len(rows))))
        if len(x) != len(targets) or targets.shape[-1] != self.classes:
            shapes = tuple(x.shape), tuple(targets.shape)
            raise InvalidInput("augmented batch", shapes, f"inputs (b, ...) and targets (b, {self.classes})")
        return x, targets

    def fingerprint(self) -> str:
        """Return a digest of all values, 64 hexadecimal digits. Public, as the records are."""
        return self._digest

    @cached_property
    def _digest(self) -> str:
        digest = hashlib.sha256()
        for tensor in (self.x, self.targets):
            # The shape is hashed as well: the same bytes in another shape are other data.
            digest.update(repr(tuple(tensor.shape)).encode())
            digest.update(tensor.detach().cpu().contiguous().numpy().astype("<f4", copy=False).data)
        return digest.hexdigest()


def public_generator(purpose: str, *indices: int) -> np.random.Generator:
    """Return a generator for public draws, named by ``purpose`` and ``indices``. Anyone can re-create it."""
    numbers = [check_integer("seed or step", index, low=0) for index in indices]
    # The purpose is hashed, so that draws for different purposes are independent under one seed.
    digest = hashlib.blake2b(repr((purpose, numbers)).encode(), digest_size=16, person=b"privmix-public").digest()
    # These draws concern public records only, so a fast generator without secrecy suffices.
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest, "little")))


def open_source(path: Any, classes: Sequence[str], split: str, options: dict[str, Any]) -> Source:
    """Return a public dataset, with its own list of classes if it has one, else with the private data's."""
    try:
        return open_dataset(path, split=split, **options)
    except InvalidInput as error:
        if error.field != "classes":
            raise
        return open_dataset(path, split=split, classes=list(classes), **options)


def _places(own: Sequence[str], used: NDArray[Any], classes: Sequence[str], path: str) -> NDArray[np.int64]:
    """Place in ``classes`` of each of the dataset's own classes; -1 for those without examples."""
    # As everywhere in data: a name or, failing that, a place in digits.
    known = {str(place): place for place in range(len(classes))} | {name: place for place, name in enumerate(classes)}
    unknown = [own[label] for label in used if own[label] not in known]
    if unknown:
        raise InvalidInput(f"public labels outside the class list, in {path}", unknown, _listed(classes))
    return np.array([known.get(name, -1) for name in own], dtype=np.int64)


def _listed(classes: Sequence[str]) -> str:
    shown = ", ".join(list(classes)[:20])
    return f"the private data's classes: {shown}" + (", ..." if len(classes) > 20 else "")


def _in_words(layout: ImageLayout) -> str:
    return f"{layout.height} x {layout.width} pixels in {layout.channels} channels"
