"""The law of rows sampled from released second moments."""

from __future__ import annotations

from privmix.audits.evidence import PRODUCTS, Law, RowLaw
from privmix.designs.moments.plan import MomentsPlan
from privmix.publication.second_moments import SecondMoments, sampled_std


def moments_row_law(plan: MomentsPlan, beside: SecondMoments) -> RowLaw:
    """Return the least noise that samples of the moments have."""
    return RowLaw(Law(sampled_std(beside) * (1 - PRODUCTS), 0.0), numbered=False)
