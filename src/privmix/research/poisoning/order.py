"""Whether one defence does better than another, from trials that are paired by seed."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import permutations
from typing import Any

from scipy.stats import binomtest

from privmix.errors import InvalidInput
from privmix.research.poisoning.trials import PoisoningResult


@dataclass(frozen=True)
class PairComparison:
    """Two defences against the same attacks, trial by trial; `better` and `worse` as a paper claims."""

    # fewer, more: trials in which a smaller, or larger, share of goal inputs got the attacker's class against
    # `better`. p_value: two-sided sign test, 1 where all trials are ties. difference: mean share, `better` minus
    # `worse`.
    better: str
    worse: str
    fewer: int
    more: int
    p_value: float
    difference: float

    @property
    def verdict(self) -> str:
        """``holds``, ``reversed``, each with `` (p < 0.05)`` where the sign test shows it, or ``equal``."""
        if self.difference == 0:
            return "equal"
        sure = self.p_value < 0.05 and (self.fewer > self.more) == (self.difference < 0)
        return ("holds" if self.difference < 0 else "reversed") + " (p < 0.05)" * sure

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "verdict": self.verdict}


def compare(better: PoisoningResult, worse: PoisoningResult) -> PairComparison:
    shares = [{one.number: one.share for one in result.outcomes} for result in (better, worse)]
    if better.attack != worse.attack or set(shares[0]) != set(shares[1]) or not shares[0]:
        raise InvalidInput("results", (better.attack, worse.attack), "two of one attack and the same trials")
    gaps = [shares[0][number] - shares[1][number] for number in shares[0]]
    fewer, more = sum(gap < 0 for gap in gaps), sum(gap > 0 for gap in gaps)
    p_value = float(binomtest(fewer, fewer + more).pvalue) if fewer + more else 1.0
    return PairComparison(better.defence, worse.defence, fewer, more, p_value, sum(gaps) / len(gaps))


def check_order(results: Sequence[PoisoningResult], published: Mapping[str, float]) -> list[PairComparison]:
    """Compare each pair of defences that a paper ranks with our trials of one attack."""
    # `published`: defence -> the attack's success, in any unit; smaller is better. Untried defences and ties are
    # left out.
    known = {one.defence: one for one in results if one.defence in published}
    return [compare(known[a], known[b]) for a, b in permutations(known, 2) if published[a] < published[b]]
