"""Whether one defence does better than another, from trials that are paired by seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import permutations
from typing import Any

from scipy.stats import binomtest

from privmix.errors import InvalidInput
from privmix.research.poisoning.trials import PoisoningResult


@dataclass(frozen=True)
class Comparison:
    """Two defences against the same attacks, trial by trial.

    Attributes:
        better, worse: the defences, as it is claimed.
        fewer, more: trials in which a smaller, or a larger, share of goal inputs got the attacker's class against
            ``better`` than against ``worse``.
        p_value: probability of a split of these trials as uneven as this, or more so, were neither defence better
            (two-sided sign test); 1 where all trials are ties.
        difference: mean share against ``better`` minus mean share against ``worse``.
    """

    better: str
    worse: str
    fewer: int
    more: int
    p_value: float
    difference: float

    @property
    def verdict(self) -> str:
        """``holds``, ``reversed``, each with `` (p < 0.05)`` where the sign test says so, or ``equal``."""
        if self.difference == 0:
            return "equal"
        sure = self.p_value < 0.05 and (self.fewer > self.more) == (self.difference < 0)
        return ("holds" if self.difference < 0 else "reversed") + " (p < 0.05)" * sure

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {**asdict(self), "verdict": self.verdict}


def compare(better: PoisoningResult, worse: PoisoningResult) -> Comparison:
    """Two results of one attack on the same scenes.

    Raises:
        InvalidInput: they are of other trials.
    """
    shares = [{one.number: one.share for one in result.outcomes} for result in (better, worse)]
    if better.attack != worse.attack or set(shares[0]) != set(shares[1]) or not shares[0]:
        raise InvalidInput("results", (better.attack, worse.attack), "two of one attack and the same trials")
    gaps = [shares[0][number] - shares[1][number] for number in shares[0]]
    fewer, more = sum(gap < 0 for gap in gaps), sum(gap > 0 for gap in gaps)
    p_value = float(binomtest(fewer, fewer + more).pvalue) if fewer + more else 1.0
    return Comparison(better.defence, worse.defence, fewer, more, p_value, sum(gaps) / len(gaps))


def check_order(results: Sequence[PoisoningResult], published: Mapping[str, float]) -> list[Comparison]:
    """Each pair of defences of which a paper says that the one does better, held against our trials.

    Args:
        results: of one attack.
        published: defence -> the paper's success of the attack, in any unit; smaller is better. Defences that were not
            tried, and pairs that the paper has equal, are left out.

    Example:
        >>> from privmix.research.poisoning import PoisoningResult, Trial
        >>> def result(defence, *shares):
        ...     trials = tuple(Trial(number, share > 0.5, share, 0.9) for number, share in enumerate(shares))
        ...     return PoisoningResult("a", defence, "", 1, 3, 0, (0, 1), 0, 0, None, 1.0, None, 0, 0, trials)
        >>> (found,) = check_order([result("none", 1, 1, 0), result("mixup", 0, 1, 0)], {"none": 80, "mixup": 5})
        >>> found.better, found.verdict, found.p_value
        ('mixup', 'holds', 1.0)
    """
    known = {one.defence: one for one in results if one.defence in published}
    return [compare(known[a], known[b]) for a, b in permutations(known, 2) if published[a] < published[b]]
