"""What a guarantee says about poisoned records.

* :mod:`~privmix.accounting.poisoning.bounds`: from an (epsilon, delta) by group privacy (Ma, Zhu and Hsu 2019).
* :mod:`~privmix.accounting.poisoning.line`: from the trade-off curve of all that ran, composed once a poisoned record
  (Dong, Roth and Su 2021); never larger than what any (epsilon, delta) of the same event gives.
* :mod:`~privmix.accounting.poisoning.line`: a bound with all that it rests on, and its sentence in words.
"""

from __future__ import annotations

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
