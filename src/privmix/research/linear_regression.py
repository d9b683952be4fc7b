"""Linear regression from a release: the papers' bound on its error, and the error itself by the real mechanism."""

import math

import numpy as np
from numpy.typing import NDArray

from privmix.errors import InvalidInput, check_integer
from privmix.mechanisms.clipping import clip_l2
from privmix.mechanisms.membership import draw_rectangle
from privmix.mechanisms.mixing import LatticeRecords, sum_rows
from privmix.mechanisms.noise import Lattice, gaussian_on_lattice
from privmix.planning.theory import LinearError, LinearTask, check_sizes

_LATTICE = Lattice(bits=15)
# Entries of a block of rows, or of its membership list, held at once.
_BLOCK = 2**21


def error_bound(task: LinearTask, records: int, rows: int, mixup_degree: float, noise_multiplier: float) -> float:
    """DPFMix, Theorem 3.1 (Equation 3): a bound on ||b~ - b||_2 that holds with probability tending to 1 as n grows.

    With 1 / s^2 for ln(1 + mu^2 n^2 / (m^2 T)), to which it is equal under the papers' noise (Lemma C.3):

        (2 C_X ||b|| + 2 C_Y) / (sqrt(l_min) (1 - sqrt(a))) * s / sqrt(m (n - m) / n)
          + 2 sigma sqrt(d) ln(n) / sqrt(n) * (1 + sqrt(a)) sqrt(l_max) / ((1 - sqrt(a)) sqrt(l_min))

    where a = n / T, C_X = C_x sqrt(1 + lambda^2) / lambda and C_Y = C_y sqrt(1 + lambda^2). The theorem asks for
    m T / n^2 -> 0; its constants are loose tenfold or more: for sizes see `planning.theory.expected_error`.
    """
    check_sizes(records, rows, mixup_degree, noise_multiplier)
    if rows <= records:
        raise InvalidInput("rows", rows, f"more than the {records} records: the theorem needs n / T below 1")
    lam, smallest, largest = task.label_noise_ratio, min(task.spectrum), max(task.spectrum)
    alpha = math.sqrt(records / rows)
    joint_x, joint_y = task.clip_x * math.sqrt(lam**2 + 1) / lam, task.clip_y * math.sqrt(lam**2 + 1)
    spread = math.sqrt(mixup_degree * (records - mixup_degree) / records)
    noise = 2 * (joint_x * task.coefficient_norm + joint_y) / (math.sqrt(smallest) * (1 - alpha))
    sampling = 2 * task.residual_std * math.sqrt(task.dim / records) * math.log(records)
    return noise * noise_multiplier / spread + sampling * (1 + alpha) / (1 - alpha) * math.sqrt(largest / smallest)


def simulate_linear_regression(
    task: LinearTask,
    records: int,
    rows: int,
    mixup_degree: int,
    noise_multiplier: float,
    generator: np.random.Generator,
) -> LinearError:
    """Release synthetic data by the real mechanism and measure the error of least squares on the rows."""
    # X is Gaussian with the task's spectrum, b has a random direction, X and y are centred (Li et al. 2024, section
    # 3.2). Rows are formed in blocks and only their second moments kept, so memory is bounded.
    check_sizes(records, rows, mixup_degree, noise_multiplier)
    check_integer("rows", rows, low=task.dim + 1)
    x, y, coefficients = _synthetic(task, records, generator)
    # In units of the clipping bounds, so that one lattice fits both.
    features = clip_l2(x, task.clip_x) / task.clip_x
    targets = clip_l2(y[:, None], task.clip_y) / task.clip_y
    lattice = LatticeRecords.of(_LATTICE.quantise(np.hstack([features, targets])))
    stds = [s / _LATTICE.step for s in task.noise_multipliers(noise_multiplier)]
    moments = np.zeros((task.dim + 1, task.dim + 1))
    block = max(1, _BLOCK // max(task.dim + 1, mixup_degree))
    for start in range(0, rows, block):
        count = min(block, rows - start)
        sums = sum_rows(lattice, draw_rectangle(generator, count, records, mixup_degree / records)).astype(np.float64)
        sums[:, :-1] += gaussian_on_lattice(generator, (count, task.dim), stds[0])
        sums[:, -1] += gaussian_on_lattice(generator, count, stds[1])
        moments += sums.T @ sums
    estimate = np.linalg.solve(moments[:-1, :-1], moments[:-1, -1]) * task.clip_y / task.clip_x
    gap = estimate - coefficients
    return LinearError(float(np.linalg.norm(gap)), float(np.asarray(task.spectrum) @ gap**2))


def _synthetic(
    task: LinearTask, records: int, generator: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """X (n, d) and y (n,), both centred, and b (d,)."""
    direction = generator.standard_normal(task.dim)
    coefficients = task.coefficient_norm * direction / np.linalg.norm(direction)
    x = generator.standard_normal((records, task.dim)) * np.sqrt(np.asarray(task.spectrum))
    y = x @ coefficients + task.residual_std * generator.standard_normal(records)
    return x - x.mean(axis=0), y - y.mean(), coefficients
