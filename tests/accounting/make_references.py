"""Epsilons of Poisson-sampled Gaussian queries to 12 digits, by 60-digit arithmetic: writes references.json.

No grid of losses, no FFT: the divergence is an integral over the characteristic function (Zhu, Dong, Wang 2022), on a
line through the saddle point,

    delta(epsilon) = 1/(2 pi) integral of M(z)^T e^(-z epsilon) / (z (1 + z)) dt,   z = theta + i t,
    M(z) = integral of p(x) e^(z loss(x)) dx,

and both integrands are analytic and fall like a Gaussian, so that the trapezoidal rule converges geometrically. Run
``python tests/accounting/make_references.py`` to make the file anew (three minutes of one processor).
"""

from __future__ import annotations

import json
from pathlib import Path

import mpmath as mp

REFERENCES = Path(__file__).with_name("references.json")
# Sampling rate, noise multiplier, runs, delta.
CASES = [
    ("1.28e-3", "1.26", 50_000, "1e-5"),
    ("6.4e-4", "1", 100_000, "1e-12"),
    ("1e-3", "3", 1_000_000, "1e-11"),
    ("0.1", "2", 30, "1e-15"),
    ("0.3", "5", 1_000, "1e-13"),
    ("0.5", "500", 10_000_000, "1e-9"),
    ("0.01", "10", 1_000_000, "1e-15"),
    ("1e-4", "2", 100_000_000, "1e-12"),
    ("1e-5", "20", 1_000_000_000, "1e-15"),
    ("1e-6", "1.5", 1_000_000_000, "1e-10"),
]


class Transform:
    """M(theta + i t)^T on the points that the trapezoidal rule takes."""

    def __init__(self, rate: mp.mpf, noise: mp.mpf, runs: int, add: bool) -> None:
        self.rate, self.noise, self.runs, self.add = rate, noise, runs, add
        width = noise / 30
        self.losses, self.weights = [], []
        for index in range(-20 * 30, 24 * 30 + int(1 / width)):
            x = index * width
            loss = mp.log1p(rate * mp.expm1((2 * x - 1) / (2 * noise**2)))
            density = mp.npdf(x, 0, noise) * width
            self.losses.append(-loss if add else loss)
            self.weights.append(density if add else density * mp.exp(loss))

    def log_mgf(self, z: mp.mpc) -> mp.mpc:
        pairs = zip(self.weights, self.losses, strict=True)
        return mp.log(mp.fsum(weight * mp.exp(z * loss) for weight, loss in pairs))

    def at(self, theta: mp.mpf) -> None:
        """Fix the line of integration; steps are a fortieth of the tilted sum's inverse deviation."""
        self.theta = theta
        pairs = list(zip(self.weights, self.losses, strict=True))
        tilted = [weight * mp.exp(theta * loss) for weight, loss in pairs]
        total = mp.fsum(tilted)
        self.mean = mp.fsum(w * loss for w, (_, loss) in zip(tilted, pairs, strict=True)) / total
        square = mp.fsum(w * (loss - self.mean) ** 2 for w, (_, loss) in zip(tilted, pairs, strict=True)) / total
        self.deviation = mp.sqrt(self.runs * square)

    def tabulate(self) -> None:
        self.step = 2 * mp.pi / (self.deviation * 40)
        self.values = []
        while True:
            z = mp.mpc(self.theta, len(self.values) * self.step)
            value = self.runs * self.log_mgf(z)
            self.values.append((z, value))
            if mp.re(value) < mp.re(self.values[0][1]) - 60:
                return

    def delta(self, epsilon: mp.mpf) -> mp.mpf:
        terms = [mp.re(mp.exp(value - z * epsilon) / (z * (1 + z))) for z, value in self.values]
        return (terms[0] / 2 + mp.fsum(terms[1:])) * self.step / mp.pi


def epsilon(transform: Transform, delta: mp.mpf) -> mp.mpf:
    """Epsilon at ``delta``: the saddle in ten digits, then bisection of the exact divergence."""
    mp.mp.dps = 15
    low, high = mp.mpf("1e-3"), mp.mpf("1e6")
    for _ in range(60):
        theta = mp.sqrt(low * high)
        transform.at(theta)
        mean = transform.runs * transform.mean
        guess = (
            transform.runs * mp.re(transform.log_mgf(theta)) - theta * (mean - 2 / theta) - mp.log(theta * (1 + theta))
        )
        low, high = (theta, high) if guess > mp.log(delta) else (low, theta)
    near, spread = mean, transform.deviation
    mp.mp.dps = 60
    transform.at(theta)
    transform.tabulate()
    low, high = max(mp.mpf(0), near - 3 * spread), near + 3 * spread
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if transform.delta(middle) > delta else (low, middle)
    return high


def main() -> None:
    references = []
    for rate, noise, runs, delta in CASES:
        mp.mp.dps = 60
        found = max(epsilon(Transform(mp.mpf(rate), mp.mpf(noise), runs, add), mp.mpf(delta)) for add in (False, True))
        case = {"rate": rate, "noise": noise, "runs": runs, "delta": delta, "epsilon": mp.nstr(found, 12)}
        print(case, flush=True)
        references.append(case)
    REFERENCES.write_text(json.dumps(references, indent=1) + "\n")


if __name__ == "__main__":
    main()
