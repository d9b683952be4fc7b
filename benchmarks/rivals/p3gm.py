"""P3GM (Takagi et al. 2021), all of it paid for: a private phased generative model, and a classifier of its samples.

A record is its features and its one-hot label, scaled to norm 1 at most. Four kinds of queries, multipliers in the
proportions of the official defaults (PCA 5; EM 100 for 60 sums, which is one query of 13; DP-SGD 1.4), all times one
factor that meets the price:

* the mean of the records, which the official code takes exactly: a query of 13 here;
* the second moments of centred records, clipped to 1 again: 30 principal components;
* sizes, means and squares in the projected space, the statistics of EM. With the one component of the defaults all
  iterations ask for the same sums: here they are asked for once;
* the decoder, one hidden layer of 1,000, by DP-SGD on Poisson batches of 300 (official: a fixed partition, priced as
  if it were Poisson), clipped to 1, Adam at 1e-3, 4 epochs. Before it, as published, it learns the projection itself
  from samples of the mixture, which costs nothing.

Other than there: the encoder's spread is a constant share of the mixture's, and features are no pixels, so that errors
are squared. Released are samples; the classifier is ridge regression on them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from privmix.accounting import Composed, Event, Gaussian, PoissonSampled, Repeated, calibrate
from rivals.task import Array, Task

MEAN, PCA, EM, SGD = 13.0, 5.0, 13.0, 1.4
COMPONENTS, HIDDEN, LOT, EPOCHS = 30, 1000, 300, 4
_RATE, _SPREAD, _PRETRAINING = 1e-3, 0.3, 400
_SAMPLES, _RIDGE = 20_000, 1e-2
_LEAST = 1e-6


def event(records: int, factor: float, *, mean_paid: bool = True) -> Event:
    """All queries at ``factor`` times the default multipliers."""
    steps = EPOCHS * max(1, records // LOT)
    sampled = PoissonSampled(min(1.0, LOT / records), Gaussian(SGD * factor))
    rest = (Gaussian(PCA * factor), Gaussian(EM * factor), Repeated(sampled, steps))
    return Composed((Gaussian(MEAN * factor), *rest) if mean_paid else rest)


def factor_for(records: int, epsilon: float, delta: float) -> float:
    """What the default multipliers are multiplied with to cost (epsilon, delta), the mean included."""
    return calibrate(lambda factor: event(records, factor), epsilon, delta).noise_multiplier


def run(task: Task, epsilon: float, delta: float, rng: np.random.Generator) -> float:
    """Test accuracy of one run."""
    factor = factor_for(len(task.x), epsilon, delta)
    x, y = sampled(task, factor, rng)
    return task.accuracy(ridge(x, y))


def ridge(x: Array, y: Array) -> Array:
    """(d, K) of labels on features, both as they are."""
    second = x.T @ x
    second[np.diag_indices(len(second))] += _RIDGE * np.trace(second) / len(second)
    return np.asarray(np.linalg.solve(second, x.T @ y))


def sampled(task: Task, factor: float, rng: np.random.Generator) -> tuple[Array, Array]:
    """Features and soft labels of samples of the released model."""
    # A record's features and its label have norm 1 at most each.
    records = np.hstack([task.x, np.eye(task.classes, dtype=np.float32)[task.y]]) / np.float32(math.sqrt(2))
    count, width = records.shape
    mean = records.sum(axis=0, dtype=np.float64) + MEAN * factor * rng.standard_normal(width)
    centre = (mean / count).astype(np.float32)
    basis = components(records, centre, PCA * factor, rng)
    places = _clipped((records - centre) @ basis)
    # (1, z, z^2) has norm sqrt(3) at most.
    noise = math.sqrt(3) * EM * factor
    size = max(1.0, count + noise * rng.standard_normal())
    middle = (places.sum(axis=0) + noise * rng.standard_normal(COMPONENTS)) / size
    square = (np.square(places).sum(axis=0) + noise * rng.standard_normal(COMPONENTS)) / size
    spread = np.sqrt(np.maximum(square - middle**2, _LEAST))
    decoder = Decoder.fresh(COMPONENTS, width, rng)
    scale = 1 / spread

    def drawn(rows: int) -> NDArray[np.float32]:
        return (middle + spread * rng.standard_normal((rows, COMPONENTS))).astype(np.float32)

    for _ in range(_PRETRAINING):
        latent = drawn(LOT)
        decoder.step((latent - middle) * scale, centre + latent @ basis.T, np.inf, 0.0, LOT, rng)
    for _ in range(EPOCHS * max(1, count // LOT)):
        batch = np.flatnonzero(rng.random(count) < LOT / count)
        latent = places[batch] + _SPREAD * spread * rng.standard_normal((len(batch), COMPONENTS))
        decoder.step((latent - middle) * scale, records[batch], 1.0, SGD * factor, LOT, rng)
    made = decoder.decode(((drawn(_SAMPLES) - middle) * scale).astype(np.float32))[1]
    labels = made[:, task.dim :] * math.sqrt(2)
    return made[:, : task.dim].astype(np.float64) * math.sqrt(2), labels.astype(np.float64)


def components(
    records: NDArray[np.float32], centre: NDArray[np.float32], noise: float, rng: np.random.Generator
) -> NDArray[np.float32]:
    """(width, 30) principal components of noisy second moments of centred records of norm 1."""
    width = records.shape[1]
    second = np.zeros((width, width))
    for start in range(0, len(records), 4096):
        part = _clipped(records[start : start + 4096] - centre)
        second += part.T @ part
    upper = np.triu(noise * rng.standard_normal((width, width)))
    _, vectors = eigh(second + upper + np.triu(upper, 1).T, subset_by_index=(width - COMPONENTS, width - 1))
    return np.asarray(vectors, np.float32)


def _clipped(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.asarray(rows / np.maximum(1, np.linalg.norm(rows, axis=1, keepdims=True)), np.float32)


@dataclass
class Decoder:
    """One hidden layer of rectified units; all weights in two matrices, the last line of each its offsets.

    Attributes:
        weights: (in + 1, hidden) and (hidden + 1, out).
        first, second: Adam's moments of their gradients.
    """

    weights: list[NDArray[np.float32]]
    first: list[NDArray[np.float32]]
    second: list[NDArray[np.float32]]
    steps: int = 0

    @classmethod
    def fresh(cls, inputs: int, outputs: int, rng: np.random.Generator) -> Decoder:
        shapes = ((inputs + 1, HIDDEN), (HIDDEN + 1, outputs))
        weights = [(rng.standard_normal(s) / math.sqrt(s[0])).astype(np.float32) for s in shapes]
        return cls(weights, [np.zeros_like(one) for one in weights], [np.zeros_like(one) for one in weights])

    def decode(self, latent: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Hidden values, with a column of ones, and outputs."""
        ones = np.ones((len(latent), 1), np.float32)
        hidden = np.hstack([np.maximum(np.hstack([latent, ones]) @ self.weights[0], 0), ones])
        return hidden, hidden @ self.weights[1]

    def step(
        self, latent: Array, target: NDArray[np.float32], clip: float, noise: float, lot: int, rng: np.random.Generator
    ) -> None:
        """One step of Adam on the sum of clipped gradients of squared errors, plus noise, over the public ``lot``."""
        latent = latent.astype(np.float32)
        hidden, out = self.decode(latent)
        inputs = np.hstack([latent, np.ones((len(latent), 1), np.float32)])
        back = out - target
        deep = (back @ self.weights[1][:-1].T) * (hidden[:, :-1] > 0)
        # A layer's gradient is an outer product: its norm is that of both factors.
        norms = _squared(back) * _squared(hidden) + _squared(deep) * _squared(inputs)
        kept = np.minimum(1, clip / np.sqrt(np.maximum(norms, 1e-30))).astype(np.float32)[:, None]
        found = [inputs.T @ (kept * deep), hidden.T @ (kept * back)]
        self.steps += 1
        for number, gradient in enumerate(found):
            if noise:
                gradient = gradient + np.float32(noise * clip) * rng.standard_normal(gradient.shape, dtype=np.float32)
            gradient = gradient / np.float32(lot)
            self.first[number] += 0.1 * (gradient - self.first[number])
            self.second[number] += 0.001 * (gradient**2 - self.second[number])
            first = self.first[number] / (1 - 0.9**self.steps)
            second = self.second[number] / (1 - 0.999**self.steps)
            self.weights[number] -= _RATE * first / (np.sqrt(second) + 1e-8)


def _squared(rows: NDArray[np.float32]) -> NDArray[np.float64]:
    return np.asarray(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
