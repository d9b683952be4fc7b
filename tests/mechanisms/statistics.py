"""Statistics the mechanism tests share. All use a fixed seed and reject a correct mechanism with chance < 1e-9."""

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from privmix.mechanisms.membership import ROW_TILE, Membership
from privmix.mechanisms.sampling import Sampler
from privmix.mechanisms.streams import SecretStreams

# Two-sided normal tail beyond 7 is 3e-12: a test of up to 300 such statistics, or of 100 p-values, stays below 1e-9.
Z_LIMIT = 7.0
P_LIMIT = 1e-11


def proportion_z(successes: float, trials: int, rate: float) -> float:
    """How many standard deviations a binomial count lies from its mean."""
    return float((successes - trials * rate) / np.sqrt(trials * rate * (1 - rate)))


def chi_square_p(observed: NDArray[np.int64], probabilities: NDArray[np.float64]) -> float:
    """p-value of observed category counts; categories with fewer than 20 expected counts are pooled."""
    expected = probabilities * observed.sum()
    rare = expected < 20
    obs = np.append(observed[~rare], observed[rare].sum())
    exp = np.append(expected[~rare], observed.sum() - expected[~rare].sum())
    if exp[-1] < 5:
        obs = np.append(obs[:-2], obs[-2] + obs[-1])
        exp = np.append(exp[:-2], exp[-2] + exp[-1])
    return float(stats.chisquare(obs, exp * obs.sum() / exp.sum()).pvalue)


def to_matrix(membership: Membership, records: int) -> NDArray[np.bool_]:
    """(rows, records) inclusion matrix of a membership; fails if a row repeats a record."""
    matrix = np.zeros((membership.rows, records), bool)
    matrix[np.repeat(np.arange(membership.rows), membership.counts), membership.indices] = True
    assert matrix.sum() == len(membership.indices)
    return matrix


def draw_matrix(sampler: Sampler, streams: SecretStreams, labels: NDArray[np.int64] | None = None) -> NDArray[np.bool_]:
    """Inclusion matrix of all rows of a sampler whose records fit one tile."""
    parts = [sampler.draw(streams, tile, 0, labels) for tile in range(-(-sampler.rows // ROW_TILE))]
    return to_matrix(Membership.stack(parts), sampler.records)
