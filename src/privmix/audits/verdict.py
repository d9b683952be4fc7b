"""Verdict of an audit: a claim, and the bound proven for every mechanism."""

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from privmix.audits.bounds import Rates
from privmix.rounding import exact, rounded_down, rounded_up
from privmix.shown import Bar, Bars, Shown

LINEAR: Final = "linear statistic, which knows neither rates nor noise"
"""The weaker attack."""


class ShownProof(Shown):
    """An audit that shows its claim next to the proven bound."""

    @property
    @abstractmethod
    def proves(self) -> Any:
        """The claim, and the bound that an attack proves, as :class:`AuditVerdict` has them."""

    def shown(self) -> tuple[str, Mapping[str, object]]:
        proof = self.proves
        claimed = "nothing" if math.isinf(proof.claimed_epsilon) else f"epsilon {rounded_up(proof.claimed_epsilon, 4)}"
        return f"Audit: {'refuted' if proof.violated else 'not refuted'} at confidence {proof.confidence:g}", {
            "claim": f"{claimed} at delta {exact(proof.delta)}",
            "proven": f"epsilon at least {rounded_down(proof.proven_epsilon, 4)}",
        }

    def picture(self) -> Bars:
        proof, bars = self.proves, []
        if not math.isinf(proof.claimed_epsilon):
            claimed = f"at most {rounded_up(proof.claimed_epsilon)}"
            bars.append(Bar("claimed", proof.claimed_epsilon, claimed, strong=False))
        proven = f"at least {rounded_down(proof.proven_epsilon)}"
        return Bars(f"Epsilon at delta {exact(proof.delta)}", [*bars, Bar("proven", proof.proven_epsilon, proven)])


@dataclass(frozen=True, repr=False)
class AuditVerdict(ShownProof):
    """Result of a worst-case audit.

    Formal guarantees:
        * Sound: ``violated`` is true of a correct claim with chance at most 1 - ``confidence``. It rests on bounds that
          hold for every mechanism with the claimed (epsilon, delta). If the claim is the plan's own price, it also
          rests on the plan's own trade-off curve. The accountant gives a lower bound of this curve, both for the exact
          attack and for a search for noise that was used twice. The chance is shared among them.
        * ``proven_epsilon`` is at most the true epsilon at ``delta`` with chance at least ``confidence``, for any
          mechanism. It may be far below: what no experiment of this size can show is not shown.
        * Trials are independent if the engine draws records and noise as its plan states; an engine that does not is at
          fault with any verdict.
    """

    # priced_epsilon: upper bound by PLD; published_epsilon: the papers' formula, or None. below_curve: rates that the
    # plan's trade-off curve rules out. linear_epsilon: proven by the weaker, linear attack; points: one threshold at a
    # time, over all runs. looks: more than 1 if it could stop early.

    design: str
    attack: str
    runs: int
    delta: float
    confidence: float
    claimed_epsilon: float
    priced_epsilon: float
    published_epsilon: float | None
    proven_epsilon: float
    largest_provable_epsilon: float
    below_curve: bool
    violated: bool
    linear_epsilon: float | None
    points: tuple[Rates, ...]
    looks: int = 1

    @property
    def proves(self) -> Any:
        return self

    def shown(self) -> tuple[str, Mapping[str, object]]:
        title, facts = super().shown()
        published = self.published_epsilon
        formula = {} if published is None else {"the papers' formula": f"epsilon {rounded_up(published, 4)}, no bound"}
        return title, {
            **facts,
            "proven by": f"Clopper-Pearson, {self.runs} runs; for every mechanism",
            "price of what ran": f"epsilon {rounded_up(self.priced_epsilon, 4)}, an upper bound",
            **formula,
        }

    def to_dict(self) -> dict[str, Any]:
        black_box = None
        if self.linear_epsilon is not None:
            black_box = {"attack": LINEAR, "proven_epsilon": self.linear_epsilon}
        return {
            "design": self.design,
            "method": "worst case",
            "attack": self.attack,
            "runs": self.runs,
            "delta": self.delta,
            "confidence": self.confidence,
            "claimed_epsilon": _finite(self.claimed_epsilon),
            "priced_epsilon": _finite(self.priced_epsilon),
            "published_epsilon": self.published_epsilon,
            "proven_epsilon": self.proven_epsilon,
            "proven_by": {"clopper-pearson": self.proven_epsilon},
            "looks": self.looks,
            "largest_provable_epsilon": self.largest_provable_epsilon,
            "below_curve": self.below_curve,
            "violated": self.violated,
            "black_box": black_box,
            "points": {
                "alpha": [point.false_alarm for point in self.points],
                "beta": [point.miss for point in self.points],
                "alpha_high": [point.false_alarm_high for point in self.points],
                "beta_high": [point.miss_high for point in self.points],
            },
        }

    @property
    def statements(self) -> list[str]:
        """Sentences that must accompany the figures."""
        chance = f"{1 - self.confidence:.3g}"
        found = [
            f"The audit attacks the worst pair of neighbouring datasets of design {self.design} with the real engine; "
            "no private record was read.",
            f"Proven epsilon is a lower bound by Clopper-Pearson, above the true one with chance at most {chance}. "
            f"With {self.runs} runs no attack could have proven more than {rounded_up(self.largest_provable_epsilon)}.",
        ]
        if not self.violated:
            found.append("That nothing was refuted does not prove the claim: the accountant's bound does.")
        return found


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
