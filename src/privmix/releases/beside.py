"""What a release holds beside its rows, for designs that release more: as learners take it, and as it is stored.

Both are functions of a type: a design with a class of its own for what it releases says here how that is stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privmix.designs import BasePlan

Arrays = Mapping[str, NDArray[np.float32]]


@singledispatch
def from_arrays(plan: BasePlan, arrays: Arrays) -> Any:
    """What learners take, made of the arrays of a release of ``plan``: by default the arrays themselves."""
    return arrays


@singledispatch
def to_arrays(beside: Any) -> Arrays:
    """The arrays, as they are stored: float32, of the names and shapes that the design's ``beside`` says."""
    return dict(beside)
