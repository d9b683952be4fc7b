"""The likelihood ratio of one row or step that a record joins by chance."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

# exp of more overflows float64.
_LARGE: Final = 700.0


def log_mixture(rate: NDArray[np.float64] | float, gain: NDArray[np.float64]) -> NDArray[np.float64]:
    """log(1 - rate + rate e^gain): the row's likelihood ratio when the record joins it with chance ``rate``.

    Example:
        >>> log_mixture(0.5, np.array([0.0, 2000.0])).round(3).tolist()
        [0.0, 1999.307]
    """
    with np.errstate(divide="ignore"):
        found = np.log1p(rate * np.expm1(np.minimum(gain, _LARGE)))
        found += np.maximum(gain - _LARGE, 0)
        # Where the record is certain to join, all digits of 1 - rate + rate e^gain are those of e^gain.
        return np.maximum(found, np.log(rate) + gain) if np.max(rate) == 1 else np.asarray(found)
