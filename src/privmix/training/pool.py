"""Public labelled examples that views are mixed with: what a generator made, or public data of the same classes."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from privmix.data import Source, open_dataset
from privmix.errors import InvalidInput, check_integer
from privmix.features.base import Extractor
from privmix.features.identity import unit_range
from privmix.training.layout import ImageLayout


@dataclass(frozen=True, eq=False)
class Pool:
    """Public examples (z, y), the set D of Bao et al. 2023, Algorithm 1. Make one with :meth:`of` or :meth:`open`.

    Nothing of it is private, so errors name its classes and shapes. It must be chosen without looking at the private
    records: a pool picked for how well it fits them costs privacy that nobody counts.

    Attributes:
        x: (m, d) float32, features of the same extractor as the private records'.
        targets: (m, classes) float32; rows are distributions over the classes.
        input_shape: shape of one raw input where it is known, to tell images of another size apart.

    Example:
        >>> pool = Pool.of(np.zeros((4, 2, 2), dtype=np.uint8), np.array([0, 1, 2, 1]), classes=3)
        >>> len(pool), pool.dim, pool.targets[3].tolist()
        (4, 4, [0.0, 1.0, 0.0])
    """

    x: Tensor = field(repr=False)
    targets: Tensor = field(repr=False)
    input_shape: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.x.dim() != 2 or self.x.dtype != torch.float32 or min(self.x.shape) == 0:
            found = f"{tuple(self.x.shape)} of {self.x.dtype}"
            raise InvalidInput("pool", found, "float32 features of shape (examples, d), at least one")
        if self.targets.dim() != 2 or self.targets.dtype != torch.float32 or len(self.targets) != len(self.x):
            found = f"{tuple(self.targets.shape)} of {self.targets.dtype}"
            raise InvalidInput("pool targets", found, f"float32 of shape ({len(self.x)}, classes)")
        if not bool(torch.isfinite(self.x).all()):
            raise InvalidInput("pool", "a value that is not finite", "finite numbers")
        sums = self.targets.sum(dim=1)
        if not bool((self.targets >= 0).all()) or not bool(((sums - 1).abs() < 1e-4).all()):
            raise InvalidInput("pool targets", "rows that are no distributions", "numbers >= 0 that sum to 1")

    @classmethod
    def of(cls, x: NDArray[Any] | Tensor, labels: NDArray[Any] | Tensor, classes: int) -> Pool:
        """A pool of arrays in memory.

        Args:
            x: (m, ...) numbers, with images as (m, H, W) or (m, H, W, C); uint8 is divided by 255.
            labels: (m,) integers from 0 to ``classes - 1``.
            classes: number of classes of the private data.

        Raises:
            InvalidInput: wrong shapes, types or labels.
        """
        check_integer("classes", classes, low=1)
        inputs, classed = (part.cpu().numpy() if isinstance(part, Tensor) else part for part in (x, labels))
        if inputs.ndim < 2 or inputs.dtype.kind not in "uif":
            raise InvalidInput("pool", f"{inputs.shape} of {inputs.dtype}", "numbers of shape (examples, ...)")
        if classed.shape != inputs.shape[:1] or classed.dtype.kind not in "ui":
            raise InvalidInput("pool labels", f"{classed.shape} of {classed.dtype}", "one integer an example")
        outside = sorted({int(label) for label in classed if not 0 <= label < classes})
        if outside:
            raise InvalidInput("pool labels outside the class list", outside, f"0 to {classes - 1}")
        scaled = unit_range(inputs) if inputs.dtype == np.uint8 else inputs.astype(np.float32)
        shape = inputs.shape[1:] if inputs.ndim > 2 else None
        return cls._made(scaled.reshape(len(inputs), math.prod(inputs.shape[1:])), classed, classes, shape)

    @classmethod
    def open(
        cls,
        path: str | Path,
        extractor: Extractor,
        classes: Sequence[str],
        *,
        split: str = "train",
        input_shape: tuple[int, ...] | None = None,
        **options: Any,
    ) -> Pool:
        """Read a pool from whatever :func:`privmix.data.open_dataset` opens, such as one sub-folder a class.

        Classes are matched by name, so the pool's own order does not matter, and it need not have all of them. Where
        the pool's labels are digits and the private classes are names, digits are places in ``classes``.

        Args:
            path: a file, folder, pattern or address.
            extractor: the private data's.
            classes: the private data's class names, in order.
            split: of the pool.
            input_shape: shape of one private raw input; encoded images become such, and a pool of other inputs is
                refused before it is read.
            **options: for ``open_dataset``: ``label_column``, ``image_column``, ``image_size``, ...

        Raises:
            InvalidInput: labels outside the class list (named where the pool has a list of its own), wrong shapes, or
                as ``open_dataset``.
            StorageError, MissingExtra: as ``open_dataset``.

        Example:
            >>> import tempfile
            >>> from privmix.features import Identity
            >>> file = Path(tempfile.mkdtemp()) / "pool.npz"
            >>> np.savez(file, x=np.eye(2), y=np.array([0, 1]), classes=np.array(["dog", "cat"]))
            >>> Pool.open(file, Identity(), ("cat", "dog")).targets.tolist()
            [[0.0, 1.0], [1.0, 0.0]]
        """
        source = open_source(path, classes, split, {"input_shape": input_shape, **options})
        schema = source.schema
        if input_shape is not None and schema.input_shape != tuple(input_shape):
            allowed = f"{tuple(input_shape)} as the private inputs"
            raise InvalidInput(f"shape of the pool's inputs in {path}", schema.input_shape, allowed)
        extractor.check_schema(schema)
        try:
            content = source.read()
        except InvalidInput as error:
            if error.field != "label":
                raise
            found = "a label outside the class list"
            raise InvalidInput(f"pool labels in {path}", found, _listed(classes)) from None
        places = _places(schema.classes, np.unique(content.y), classes, path)
        shape = schema.input_shape if schema.columns is None else None
        return cls._made(extractor.extract(content.x), places[content.y], len(classes), shape)

    @classmethod
    def _made(cls, x: NDArray[Any], labels: NDArray[Any], classes: int, shape: tuple[int, ...] | None) -> Pool:
        targets = functional.one_hot(torch.from_numpy(labels.astype(np.int64)), classes).to(torch.float32)
        return cls(torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32)), targets, shape)

    def __len__(self) -> int:
        return len(self.x)

    @property
    def dim(self) -> int:
        """d."""
        return self.x.shape[1]

    @property
    def classes(self) -> int:
        """Number of classes."""
        return self.targets.shape[1]

    def check(self, *, classes: int, layout: ImageLayout | None) -> None:
        """Raise :class:`InvalidInput` unless the pool can be mixed with records of these classes and images."""
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
        """Raise :class:`InvalidInput` unless the pool's features have ``dim`` entries."""
        if self.dim != dim:
            raise InvalidInput("features of the pool", f"{self.dim} an example", f"{dim}, as the private records have")

    def take(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """(...) integers -> (..., d) examples and (..., classes) targets, where ``index`` is."""
        places = index.to(self.x.device)
        return self.x[places].to(index.device), self.targets[places].to(index.device)

    def fingerprint(self) -> str:
        """SHA-256 of the examples and targets, in order: equal pools give equal views."""
        digest = hashlib.sha256()
        for part in (self.x, self.targets):
            digest.update(f"{tuple(part.shape)};".encode())
            # Float32, little-endian and row by row on every machine.
            digest.update(np.ascontiguousarray(part.cpu().numpy(), dtype="<f4").data)
        return digest.hexdigest()


def open_source(path: str | Path, classes: Sequence[str], split: str, options: dict[str, Any]) -> Source:
    """The pool's dataset, with its own list of classes if it has one, else with the private data's."""
    try:
        return open_dataset(path, split=split, **options)
    except InvalidInput as error:
        if error.field != "classes":
            raise
        return open_dataset(path, split=split, classes=list(classes), **options)


def _places(own: Sequence[str], used: NDArray[Any], classes: Sequence[str], path: str | Path) -> NDArray[np.int64]:
    """Place in ``classes`` of each of the pool's own classes; -1 for those without examples."""
    # As everywhere in data: a name or, failing that, a place in digits.
    known = {str(place): place for place in range(len(classes))} | {name: place for place, name in enumerate(classes)}
    unknown = [own[label] for label in used if own[label] not in known]
    if unknown:
        raise InvalidInput(f"pool labels outside the class list, in {path}", unknown, _listed(classes))
    return np.array([known.get(name, -1) for name in own], dtype=np.int64)


def _listed(classes: Sequence[str]) -> str:
    shown = ", ".join(list(classes)[:20])
    return f"the private data's classes: {shown}" + (", ..." if len(classes) > 20 else "")


def _in_words(layout: ImageLayout) -> str:
    return f"{layout.height} x {layout.width} pixels in {layout.channels} channels"
