"""The certified line: a bound on an attack's success with all that it rests on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from privmix.accounting.events import Adjacency
from privmix.accounting.poisoning.curves import NeighbourCurve
from privmix.errors import check_number
from privmix.rounding import exact, rounded_up


@dataclass(frozen=True)
class CertifiedLine:
    """How often any attack by so many poisoned records succeeds at most, against anything made under one guarantee.

    The probability is over the mechanism's randomness (and the randomness of what is made of its output), for a clean
    dataset, a target and a meaning of success that were fixed before it ran; the attacker may know all of them and the
    mechanism, and choose the records by them. Where targets or datasets are drawn, the bound holds for the average
    success in terms of the average success without poisoning, since it is concave in it.

    A base rate that was measured is an upper confidence limit, and the line then holds at that confidence: the limit
    is wrong with chance 1 - ``confidence`` at most, over the runs that measured it (Clopper and Pearson 1934).

    Attributes:
        poisoned: records that the attacker controls.
        poisoning: what happens to them: changed, inserted or deleted.
        adjacency: the relation of the guarantee.
        base: success without poisoning: known, or an upper confidence limit.
        success: the bound, unrounded.
        confidence: of ``base`` where it was measured; None where it is known.

    Example:
        >>> curve = NeighbourCurve.of_point(0.5, 0.0, Adjacency.ADD_REMOVE)
        >>> line = CertifiedLine.of(curve, 0.01, poisoned=2, poisoning="inserted")
        >>> print(line)
        with 2 records inserted the attack succeeds with probability at most 0.02719 (0.01 without), whatever is done with the result
    """  # noqa: E501

    poisoned: int
    poisoning: str
    adjacency: Adjacency
    base: float
    success: float
    confidence: float | None = None

    @classmethod
    def of(
        cls,
        curve: NeighbourCurve,
        base: float,
        poisoned: int,
        *,
        poisoning: str = "changed",
        confidence: float | None = None,
    ) -> Self:
        """The line of a guarantee.

        Args:
            curve: of the guarantee.
            base: success without poisoning, in [0, 1]: known, or an upper limit at ``confidence``.
            poisoned, poisoning: as for :meth:`NeighbourCurve.success`.
            confidence: in (0, 1), of a measured base.

        Raises:
            InvalidInput: as :meth:`NeighbourCurve.success`.
        """
        if confidence is not None:
            check_number("confidence", confidence, low=0, high=1, low_open=True, high_open=True)
        success = curve.success(base, poisoned, poisoning)
        return cls(poisoned, poisoning, curve.adjacency, base, success, confidence)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form, with the sentence."""
        return {
            "success_bound": self.success,
            "adjacency": self.adjacency.value,
            "poisoning": self.poisoning,
            "poisoned": self.poisoned,
            "clean_success": self.base,
            "confidence": self.confidence,
            "words": str(self),
        }

    def __str__(self) -> str:
        known = "" if self.confidence is None else f", measured at {exact(100 * self.confidence)}% confidence"
        base = exact(self.base) if self.confidence is None else f"at most {rounded_up(self.base, 4)}"
        return (
            f"with {self.poisoned} record{'s' * (self.poisoned != 1)} {self.poisoning} the attack succeeds with "
            f"probability at most {rounded_up(self.success, 4)} ({base} without{known}), whatever is done with the "
            "result"
        )
