"""What a release holds beside its rows, for designs that release more: as learners take it, and as it is stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from privmix.plans import Plan, made_by
from privmix.plans.doors import Door

Arrays = Mapping[str, NDArray[np.float32]]


class Stored(Protocol):
    """What learners take, for a design whose ``released_as`` names a class of its own."""

    @classmethod
    def from_arrays(cls, plan: Any, arrays: Arrays) -> Self:
        """Made of the arrays of a release of ``plan``."""

    def to_arrays(self) -> Arrays:
        """The arrays, as they are stored: float32, of the names and shapes that the design's ``beside`` says."""


RELEASED_AS: Final = Door[type[Stored]]("released_as")


def from_arrays(plan: Plan, arrays: Arrays) -> Any:
    """What learners take, made of the arrays of a release of ``plan``; the arrays themselves without a class of it."""
    return RELEASED_AS.of(made_by(plan)).from_arrays(plan, arrays) if RELEASED_AS.is_in(made_by(plan)) else arrays


def to_arrays(plan: Plan, beside: Any) -> Arrays:
    """The arrays of what a release of ``plan`` holds beside its rows."""
    return dict(beside.to_arrays() if RELEASED_AS.is_in(made_by(plan)) else beside)
