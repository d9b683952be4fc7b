"""Public records: what they are, how batches of them are drawn, and what each scenario uses them for."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from privmix.errors import InvalidInput, check_integer

# (x (b, ...), targets (b, classes), seeds (b,) int64) -> augmented (x, targets); all randomness comes from the seeds.
Augment = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]

_TARGET_SLACK = 1e-3


@dataclass(frozen=True, eq=False)
class PublicData:
    """Records that nobody protects: shared by their owners, or made by a model that saw public records only.

    That they are public is the caller's word: nothing here can check it. Private records in here have no protection
    at all. The tensors are not copied and must not be written to.

    Attributes:
        x: (m, ...) model inputs, float32.
        targets: (m, classes) soft targets, float32; every row is non-negative and sums to 1.

    Raises:
        InvalidInput: the shapes do not fit, there are no records, or values are not as above.

    Example:
        >>> data = PublicData.of([[0.0, 1.0], [1.0, 0.0]], [0, 2], classes=3)
        >>> data.size, data.targets.tolist()
        (2, [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    """

    x: Tensor
    targets: Tensor

    def __post_init__(self) -> None:
        if self.targets.dim() != 2 or self.x.dim() < 2 or len(self.x) != len(self.targets) or len(self.x) == 0:
            shapes = tuple(self.x.shape), tuple(self.targets.shape)
            raise InvalidInput("public data", shapes, "inputs (m, ...) and targets (m, classes) with m >= 1")
        if self.x.dtype != torch.float32 or self.targets.dtype != torch.float32:
            raise InvalidInput("public data", (self.x.dtype, self.targets.dtype), "float32 inputs and targets")
        if not bool(torch.isfinite(self.x).all()):
            raise InvalidInput("public inputs", "values that are infinite or not numbers", "finite numbers")
        sums = self.targets.sum(dim=1)
        if not bool((self.targets >= 0).all()) or not bool(((sums - 1).abs() <= _TARGET_SLACK).all()):
            raise InvalidInput("public targets", "other rows", "rows of non-negative numbers that sum to 1")

    @classmethod
    def of(cls, x: Tensor | ArrayLike, labels: Tensor | ArrayLike, classes: int) -> PublicData:
        """Public records with class labels.

        Args:
            x: (m, ...) model inputs.
            labels: (m,) integers from 0 to ``classes`` - 1.
            classes: their number, at least 2.

        Raises:
            InvalidInput: the shapes do not fit or a label is no class.
        """
        check_integer("classes", classes, low=2)
        inputs = torch.as_tensor(x, dtype=torch.float32)
        chosen = torch.as_tensor(labels)
        if chosen.dim() != 1 or chosen.is_floating_point() or chosen.dtype == torch.bool:
            raise InvalidInput("public labels", (tuple(chosen.shape), chosen.dtype), "integers of shape (m,)")
        if len(chosen) and not 0 <= int(chosen.min()) <= int(chosen.max()) < classes:
            wrong = int(chosen.min()), int(chosen.max())
            raise InvalidInput("public labels", f"labels from {wrong[0]} to {wrong[1]}", f"0 to {classes - 1}")
        return cls(inputs, torch.nn.functional.one_hot(chosen.long(), classes).to(torch.float32))

    @property
    def size(self) -> int:
        """Number of records m."""
        return len(self.x)

    @property
    def classes(self) -> int:
        """Number of classes."""
        return self.targets.shape[1]

    def join(self, other: PublicData) -> PublicData:
        """These records and ``other``'s after them, such as synthetic ones.

        Raises:
            InvalidInput: inputs or classes differ in shape.
        """
        if self.x.shape[1:] != other.x.shape[1:] or self.classes != other.classes:
            given = (*other.x.shape[1:], other.classes)
            raise InvalidInput("joined data", given, f"inputs and classes {(*self.x.shape[1:], self.classes)}")
        return PublicData(torch.cat([self.x, other.x]), torch.cat([self.targets, other.targets]))

    def batch(
        self, step: int, size: int, seed: int, part: int = 0, augment: Augment | None = None
    ) -> tuple[Tensor, Tensor]:
        """Draw ``size`` different records; batches of different steps and parts are drawn independently.

        The draw depends on (seed, step, part) alone: not on the order of calls, nor on any global state.

        Args:
            step: of training, from 0.
            size: from 1 to m.
            seed: a public integer >= 0.
            part: tells batches of one step apart.
            augment: applied to the batch, with one seed for each of its records.

        Returns:
            x (size, ...), targets (size, classes).

        Raises:
            InvalidInput: there are fewer than ``size`` records, or a number is negative.

        Example:
            >>> data = PublicData.of(torch.arange(10.0).reshape(5, 2), [0, 1, 0, 1, 0], classes=2)
            >>> x, targets = data.batch(step=3, size=2, seed=0)
            >>> tuple(x.shape), bool((x == data.batch(step=3, size=2, seed=0)[0]).all())
            ((2, 2), True)
        """
        check_integer("public batch size", size, low=1, high=self.size)
        generator = public_generator("batch", seed, step, part)
        rows = torch.from_numpy(generator.choice(self.size, size, replace=False))
        return self.rows(rows, generator, augment)

    def rows(self, rows: Tensor, generator: np.random.Generator, augment: Augment | None) -> tuple[Tensor, Tensor]:
        """The records of indices ``rows`` (b,), augmented with seeds from ``generator`` if asked to."""
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
        """A digest of all values, 64 hexadecimal digits. Public, as the records are."""
        return self._digest

    @cached_property
    def _digest(self) -> str:
        digest = hashlib.sha256()
        for tensor in (self.x, self.targets):
            digest.update(repr(tuple(tensor.shape)).encode())
            digest.update(tensor.detach().cpu().contiguous().numpy().astype("<f4", copy=False).data)
        return digest.hexdigest()


def public_generator(purpose: str, *indices: int) -> np.random.Generator:
    """A generator for public draws, named by ``purpose`` and ``indices``. Anyone can re-create it: it hides nothing.

    Raises:
        InvalidInput: an index is no integer >= 0.
    """
    numbers = [check_integer("seed or step", index, low=0) for index in indices]
    digest = hashlib.blake2b(repr((purpose, numbers)).encode(), digest_size=16, person=b"privmix-public").digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest, "little")))


class Scenario(StrEnum):
    """When public data is used (Park et al. 2024, section 3).

    * ``cold``: never; training starts from the model as given.
    * ``warm``: public records warm the model up before the private phase.
    * ``warm-synthetic``: synthetic records warm it up, joined to the real public ones if there are any.
    * ``extended``: as either warm scenario, and every private step uses the same records too.
    """

    COLD = "cold"
    WARM = "warm"
    WARM_SYNTHETIC = "warm-synthetic"
    EXTENDED = "extended"


@dataclass(frozen=True, eq=False)
class PublicUse:
    """What a scenario uses: records for the warm-up, and for the private phase; None where there is no use."""

    warm_up: PublicData | None
    private_phase: PublicData | None


def plan_public_use(
    scenario: str, public: PublicData | None = None, synthetic: PublicData | None = None, method: str = "none"
) -> PublicUse:
    """Say which records ``scenario`` uses when, and refuse what does not fit it.

    Args:
        scenario: one of :class:`Scenario`.
        public: real public records.
        synthetic: records that a model made from public ones.
        method: name of the extended method (see :func:`privmix.training.public.registry.parse_method`).

    Raises:
        InvalidInput: the scenario is unknown, lacks data or a method, or was given some that it would ignore.

    Example:
        >>> data = PublicData.of([[0.0], [1.0]], [0, 1], classes=2)
        >>> use = plan_public_use("warm-synthetic", data, data)
        >>> use.warm_up.size, use.private_phase
        (4, None)
    """
    try:
        chosen = Scenario(scenario)
    except ValueError:
        raise InvalidInput("scenario", scenario, "one of " + ", ".join(Scenario)) from None
    given: dict[str, Any] = {"public data": public, "synthetic data": synthetic}
    needed, refused = _NEEDS[chosen]
    for name in needed:
        if given[name] is None:
            raise InvalidInput(name, None, f"records, as scenario {chosen} needs them")
    for name in refused:
        if given[name] is not None:
            raise InvalidInput(name, "records", f"none in scenario {chosen}, which does not use them")
    if (chosen is Scenario.EXTENDED) != (method != "none"):
        allowed = "a method that uses public data" if chosen is Scenario.EXTENDED else "none"
        raise InvalidInput("public method", method, f"{allowed} in scenario {chosen}")
    records = public.join(synthetic) if public is not None and synthetic is not None else public or synthetic
    if chosen is Scenario.EXTENDED and records is None:
        raise InvalidInput("public data", None, f"real or synthetic records, as scenario {chosen} needs them")
    return PublicUse(records, records if chosen is Scenario.EXTENDED else None)


_NEEDS: dict[Scenario, tuple[tuple[str, ...], tuple[str, ...]]] = {
    Scenario.COLD: ((), ("public data", "synthetic data")),
    Scenario.WARM: (("public data",), ("synthetic data",)),
    Scenario.WARM_SYNTHETIC: (("synthetic data",), ()),
    Scenario.EXTENDED: ((), ()),
}
