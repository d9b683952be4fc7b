"""Epsilons of sampled Gaussian queries to 12 digits, and to 10 where few records are drawn and noise is small.

Writes those of all cases in references.json and references_sparse.json anew. The divergence is an integral over the
characteristic function (Zhu, Dong, Wang 2022). It is taken on a line close to the imaginary axis, in 43-digit
fixed-point arithmetic that survives the cancellation: where rare losses are large, the tilted law of a saddle point
would be dominated by losses that never happen. No grid of losses, no FFT:

    delta(epsilon) = 1/(2 pi) integral of M(z)^T e^(-z epsilon) / (z (1 + z)) dt,   z = c + i t,
    M(z) = 1 - p + p E r(x)^(z+1) (remove) or E r(x)^-z (add),   r = 1 - q + q e^((2x - 1)/(2 s^2)), x ~ N(0, s^2),

p the rate at which a cluster runs, q the rate of sampling. The trapezoidal rule with step 2 pi/P returns the sum over k
of e^(c k P) delta(epsilon + k P): terms below are at most e^(-c P), those above are bounded by Chernoff at 2 c. All
powers of the characteristic function are products of two tables. ``python tests/accounting/make_references.py`` takes a
quarter of an hour of one processor.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import mpmath as mp
import numpy as np

LIMB, LIMBS = 18, 8
BITS = LIMB * LIMBS
ONE = 1 << BITS


def fixed(values: list[mp.mpf]) -> np.ndarray:
    return np.array([int(mp.floor(mp.ldexp(value, BITS) + mp.mpf(1) / 2)) for value in values], dtype=object)


class Complex:
    """An array of fixed-point complex numbers of size at most 1."""

    def __init__(self, real: np.ndarray, imag: np.ndarray) -> None:
        self.real, self.imag = real, imag

    def times(self, other: Complex) -> Complex:
        real = (self.real * other.real - self.imag * other.imag) >> BITS
        return Complex(real, (self.real * other.imag + self.imag * other.real) >> BITS)

    def limbs(self) -> list[list[np.ndarray]]:
        return [limbs(part) for part in (self.real, self.imag)]


def limbs(numbers: np.ndarray) -> list[np.ndarray]:
    """Digits in base 2^18 with the number's sign, the lowest first: products and sums of 100,000 are exact floats."""
    sign, size = np.where(numbers < 0, -1.0, 1.0), abs(numbers)
    return [sign * ((size >> (LIMB * i)) & ((1 << LIMB) - 1)).astype(float) for i in range(LIMBS + 1)]


def product(left: list[np.ndarray], right: list[np.ndarray]) -> np.ndarray:
    """Matrix product with the transpose, exact but for what is below the last digit."""
    total = 0
    for i, one in enumerate(left):
        for j, two in enumerate(right):
            if i + j >= LIMBS - 1 and one.any() and two.any():
                total = total + (np.array((one @ two.T).astype(np.int64), dtype=object) << (LIMB * (i + j)))
    return total >> BITS


def powers(start: Complex, base: Complex, count: int) -> Complex:
    """Rows start, start base, start base^2, ..."""
    rows = [start]
    while len(rows) < count:
        rows.append(rows[-1].times(base))
    return Complex(np.stack([row.real for row in rows]), np.stack([row.imag for row in rows]))


class Divergence:
    """The divergence in one direction, from a table of M^T / (z (1 + z))."""

    def __init__(self, cluster: str, rate: str, noise: str, runs: int, add: bool, least: float) -> None:
        self.cluster, self.runs, self.add = mp.mpf(cluster), runs, add
        self.rate, self.noise = mp.mpf(rate), mp.mpf(noise)
        self.pairs = self.nodes(self.noise / 20)
        need = -math.log(least) + 30
        for c in (8, 4, 2, 1, 0.5):
            # Longer where Chernoff at 2 c asks for it, for what comes from above; sizes that the fixed point can hold.
            self.c, self.period = c, mp.mpf(need + max(0.0, self.log_power(2 * c))) / c
            if self.log_power(c) < 60:
                break
        else:
            raise ValueError("no line of integration")
        self.step = 2 * mp.pi / self.period
        # Far out the integrand turns by t / s^2 per unit of x: the rule's nodes must resolve that.
        top = self.top(-need - 5)
        turns = top / self.noise**2 + 30 / self.noise
        self.pairs = self.nodes(min(self.noise / 20, 2 * mp.pi / turns))
        self.tabulate(1.05 * top)

    def nodes(self, width: mp.mpf) -> list[tuple[mp.mpf, mp.mpf]]:
        """Losses and their masses on equally spaced outputs."""
        q, s = self.rate, self.noise
        pairs = []
        for k in range(-int(12.5 * s / width), int((13 * s + 18) / width) + 1):
            x = k * width
            loss = mp.log1p(q * mp.expm1((2 * x - 1) / (2 * s**2)))
            mass = mp.npdf(x, 0, s) * width
            pairs.append((-loss, mass) if self.add else (loss, mass * mp.exp(loss)))
        return pairs

    def top(self, log_least: float) -> mp.mpf:
        """Where the characteristic function has fallen to exp(``log_least``), in double precision."""
        q, s, c = float(self.rate), float(self.noise), self.c
        x = np.arange(-9 * s, 9 * s + c + 2, s / 40)
        t = 1.0
        while True:
            fine = np.arange(x[0], x[-1], min(s / 20, 1 / (t / s**2 + 30 / s)))
            loss = np.log1p(q * np.expm1((2 * fine - 1) / (2 * s**2)))
            order = -c if self.add else c + 1
            mass = np.exp(order * loss - fine**2 / (2 * s**2)) / (s * math.sqrt(2 * math.pi)) * (fine[1] - fine[0])
            size = abs(1 + float(self.cluster) * (mass @ np.exp(1j * t * loss) - 1))
            if self.runs * math.log(size + 1e-300) < log_least:
                return mp.mpf(t)
            t *= 1.03

    def log_power(self, c: float) -> float:
        total = mp.fsum(w * mp.expm1(c * loss) for loss, w in self.pairs)
        return float(self.runs * mp.log1p(self.cluster * total))

    def tabulate(self, top: mp.mpf) -> None:
        kept = [(loss, w * mp.exp(self.c * loss)) for loss, w in self.pairs]
        kept = [(loss, w) for loss, w in kept if w > mp.mpf(2) ** (12 - BITS)]
        base = Complex(*(fixed([part(mp.expj(self.step * loss)) for loss, _ in kept]) for part in (mp.re, mp.im)))
        nothing = np.array([0] * len(kept), dtype=object)
        count = int(top / self.step) + 1
        baby = powers(Complex(nothing + ONE, nothing), base, 1 + int(math.sqrt(count)))
        stride = len(baby.real)
        real, imag = baby.limbs()
        last = Complex(baby.real[-1], baby.imag[-1])
        giants = powers(Complex(fixed([w for _, w in kept]), nothing), last.times(base), -(-count // stride))
        table = []
        for first in range(0, len(giants.real), 32):
            a, b = Complex(giants.real[first : first + 32], giants.imag[first : first + 32]).limbs()
            block = (product(a, real) - product(b, imag), product(a, imag) + product(b, real))
            for one, two in zip(block[0].ravel().tolist(), block[1].ravel().tolist(), strict=True):
                z = mp.mpc(self.c, len(table) * self.step)
                mean = mp.mpc(mp.ldexp(one, -BITS), mp.ldexp(two, -BITS))
                table.append(mp.exp(self.runs * mp.log1p(self.cluster * (mean - 1))) / (z * (1 + z)))
        table[0] /= 2
        self.real, self.imag = fixed([mp.re(v) for v in table]), fixed([mp.im(v) for v in table])

    def at(self, epsilon: mp.mpf) -> mp.mpf:
        turn = mp.expj(-self.step * epsilon)
        real, imag = (int(mp.ldexp(part, BITS)) for part in (mp.re(turn), mp.im(turn)))
        a, b, total = ONE, 0, 0
        for u, v in zip(self.real.tolist(), self.imag.tolist(), strict=True):
            total += u * a - v * b
            a, b = (a * real - b * imag) >> BITS, (a * imag + b * real) >> BITS
        return mp.ldexp(total, -2 * BITS) * self.step / mp.pi * mp.exp(-self.c * epsilon)

    def epsilon(self, delta: mp.mpf) -> mp.mpf:
        """By bisection to two digits and the secant of log delta after that."""
        if self.at(mp.mpf(0)) <= delta:
            return mp.mpf(0)
        low, high = mp.mpf(0), mp.mpf("1e-6")
        while self.at(high) > delta:
            low, high = high, high * 4
        while high - low > high / 50:
            middle = (low + high) / 2
            low, high = (middle, high) if self.at(middle) > delta else (low, middle)
        here, there = mp.log(self.at(low) / delta), mp.log(self.at(high) / delta)
        for _ in range(12):
            new = high - there * (high - low) / (there - here)
            low, here, high, there = high, there, new, mp.log(self.at(new) / delta)
            if abs(high - low) <= mp.mpf("1e-13") * high:
                break
        return high


def main() -> None:
    mp.mp.dps = 50
    for name, digits in (("references.json", 12), ("references_sparse.json", 10)):
        path = Path(__file__).with_name(name)
        cases = json.loads(path.read_text())
        for case in cases:
            query, delta = (case.get("cluster", "1"), case["rate"], case["noise"], case["runs"]), mp.mpf(case["delta"])
            both = [Divergence(*query, add, float(delta)).epsilon(delta) for add in (False, True)]
            case["epsilon"] = mp.nstr(max(both), digits)
            print(case, file=sys.stderr, flush=True)
        path.write_text(json.dumps(cases, indent=1) + "\n")


if __name__ == "__main__":
    main()
