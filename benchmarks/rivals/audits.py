"""What two published generators leave unpaid, and attacks that see it.

P3GM (Takagi et al. 2021): the official code subtracts the exact mean of the private records in its DP-PCA, and keeps it
to shift what it generates. That mean is a query without noise. DPPro (Xu et al. 2017), as run by Li et al. 2022, adds
noise to projected features and gives every record's label as it is.

An attack looks at the unpaid part alone, on a worst pair of neighbours: whatever noise is on the rest. The same part is
attacked when it is paid for: the mean as a Gaussian query, the label by randomised response, at the claimed epsilon.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from privmix.audits.bounds import largest_provable, proven_epsilon
from rivals.task import multiplier

RECORDS, RUNS = 1000, 20_000
ALPHA = 1e-6


def mean_scores(noise: float, present: bool, rng: np.random.Generator) -> NDArray[np.float64]:
    """(runs,) sum behind the released mean in the canary's coordinate: the canary's own 1, if present, and noise."""
    return float(present) + noise * rng.standard_normal(RUNS)


def unpaid_mean(epsilon: float, delta: float, rng: np.random.Generator) -> dict[str, float]:
    """Epsilon that is proven of the released mean, exact and paid for, at a claim of ``epsilon``."""
    found = {"provable at most": largest_provable(2 * RUNS, delta, ALPHA)}
    for name, noise in (("as published", 0.0), ("paid for", multiplier(epsilon, delta))):
        without, present = (mean_scores(noise, there, rng) for there in (False, True))
        found[name] = proven_epsilon(without, present, np.array([0.5, 1.0 + noise]), delta, ALPHA)
    return found


def unpaid_labels(epsilon: float, delta: float, rng: np.random.Generator) -> dict[str, float]:
    """The same for DPPro's labels: replaced records differ in their label, which is released as it is."""
    found = {"provable at most": largest_provable(2 * RUNS, delta, ALPHA)}
    # Randomised response at epsilon is the price of one bit.
    for name, keep in (("as published", 1.0), ("paid for", float(np.exp(epsilon) / (1 + np.exp(epsilon))))):
        told = (rng.random((2, RUNS)) < keep).astype(float)
        found[name] = proven_epsilon(1 - told[0], told[1], np.array([0.5]), delta, ALPHA)
    return found
