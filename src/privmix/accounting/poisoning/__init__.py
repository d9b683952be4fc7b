"""Bounds on poisoned records from a guarantee: by one (epsilon, delta), and by the whole trade-off curve."""

from privmix.accounting.poisoning.bounds import (
    POISONINGS,
    poisoning_cost_bound,
    poisoning_gain_bound,
    poisoning_success_bound,
)
from privmix.accounting.poisoning.line import CertifiedLine, NeighbourCurve

__all__ = [
    "POISONINGS",
    "CertifiedLine",
    "NeighbourCurve",
    "poisoning_cost_bound",
    "poisoning_gain_bound",
    "poisoning_success_bound",
]
