"""Divergences to about ten digits without privmix: an integral over the characteristic function of the composed loss.

With Lambda(z) = log E[e^(z L)] of the composed loss L (Zhu, Dong, Wang 2022),

    delta(epsilon) = 1/pi Re integral over t > 0 of e^(Lambda(z) - z epsilon) / (z (1 + z)),   z = theta + i t,

theta at the saddle point, so that little cancels. No loss is put on a grid and nothing is convolved. Each query's
E[e^(z l)] - 1 is a Gauss-Legendre sum over its output x, in float64 and with an error relative to the loss itself,
which a billion runs do not make large. Plain Gaussian queries and sums with normal weights have theirs in closed form.

The trapezoidal rule with step 2 pi / P gives the sum over k of e^(theta k P) delta(epsilon + k P): P is so long that
the others are below ``_ALIAS`` of delta. Where few records are drawn, L is nearly 0 but for rare jumps, and the
characteristic function falls only at frequencies that resolve that bulk: it is then subtracted, jumps being told from
it by a smooth share of each output, after Chernoff's inequality has shown that the bulk alone has no part in delta.
"""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, log_ndtr, ndtr, ndtri_exp

from privmix.accounting import (
    Adjacency,
    ClusterSampled,
    Composed,
    Event,
    FixedSizeSampled,
    Gaussian,
    NormalWeighted,
    PoissonSampled,
    Repeated,
)

Real = NDArray[np.float64]
Complex = NDArray[np.complex128]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_ALIAS = 1e-7
# Of the least divergence that is asked for.
_LEFT_OUT = 1e-8
# Losses are cut off over so many standard deviations of the noise.
_TAPER = 0.3
# Where records are drawn seldom, a loss so far above epsilon is as good as an infinite one. What is cut off smoothly
# below that costs accuracy: at 22 a delta was 8e-5 too high.
_FAR, _SELDOM = 40.0, 3.0
_MOST_NODES = 100_000
# Outputs times frequencies.
_MOST_WORK = 1e9
_BLOCK = 64
# A jump is more than this share of epsilon.
_JUMPS = (0.3, 0.15, 0.5, 0.08)


class NoReference(Exception):
    """Not to be had in float64, or not here."""


@dataclass(frozen=True)
class Sampled:
    """A Gaussian query on a sample, ``runs`` times: a record is in it at ``rate``, if its cluster is at ``cluster``."""

    rate: float
    noise: float
    runs: int
    shift: float = 1.0
    cluster: float = 1.0
    two_sided: bool = False


@dataclass(frozen=True)
class Spread:
    """Sums with normal weights: N(0, s^2) against N(0, s^2 + 1), ``runs`` times."""

    noise: float
    runs: int


def parts_of(event: Event, adjacency: Adjacency, runs: int = 1) -> tuple[float, list[Sampled], list[Spread]]:
    """Sum of (shift/s)^2 of plain Gaussian queries; sampled ones; sums with normal weights."""
    shift = 2.0 if adjacency is Adjacency.REPLACE_ONE else 1.0
    match event:
        case Repeated(inner, count):
            return parts_of(inner, adjacency, runs * count)
        case Composed(events):
            squares, sampled, spread = zip(*(parts_of(one, adjacency, runs) for one in events), strict=True)
            return math.fsum(squares), list(chain(*sampled)), list(chain(*spread))
        case Gaussian(noise):
            return runs * (shift / noise) ** 2, [], []
        case NormalWeighted(Gaussian(noise)):
            return 0.0, [], [Spread(noise, runs)]
        case PoissonSampled(rate, Gaussian(noise)):
            cluster, two_sided = 1.0, shift == 2
        case ClusterSampled(cluster, rate, Gaussian(noise)):
            two_sided = False
        case FixedSizeSampled(population, size, Gaussian(noise)):
            cluster, rate, two_sided = 1.0, size / population, True
        case _:
            raise NoReference(f"no reference for {event}")
    if rate == 1 and cluster == 1:
        return runs * (shift / noise) ** 2, [], []
    return 0.0, [Sampled(rate, noise, runs, shift, cluster, two_sided)], []


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Divergence of N(mu, 1) from N(0, 1), relative accuracy kept in the tail."""
    z = epsilon / mu - mu / 2
    near, far = (float(erfcx(one / math.sqrt(2))) for one in (z, z + mu))
    return 0.5 * math.exp(-z * z / 2) * (near - far)


@dataclass(frozen=True)
class _Table:
    """One query: losses at the nodes, logarithms of their masses, and what share of each is a jump."""

    losses: Real
    log_masses: Real
    jumps: Real
    log_bulk: Real
    runs: int
    cluster: float

    def changes(self, tilt: float) -> tuple[float, float, float]:
        """E[e^(tilt l)] - 1 of all, of the bulk alone, and E[e^(tilt l)] of the jumps."""
        exponent, masses = tilt * self.losses, np.exp(self.log_masses)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            grown = np.exp(self.log_masses + exponent)
            whole = np.where(exponent < 1, masses * np.expm1(np.minimum(exponent, 1)), grown - masses)
            jumps = np.where(self.jumps > 0, np.exp(self.log_masses + exponent + np.log(self.jumps)), 0.0)
            bulk = np.where(
                self.jumps < 0.5, whole - jumps, np.exp(self.log_masses + exponent + self.log_bulk) - masses
            )
            found = tuple(self.cluster * float(one.sum()) for one in (whole, bulk, jumps))
        return tuple(one if math.isfinite(one) else math.inf for one in found)  # type: ignore[return-value]


def _cut(query: Sampled, add: bool, tail: float, cap: float) -> float:
    """Output above which are losses that come with probability below ``tail`` in any run, or exceed ``cap``."""
    if add and not query.two_sided:
        return math.inf
    s, q, shift = query.noise, query.rate, query.shift
    share = math.log(tail / query.runs / query.cluster)
    rare = max(-s * float(ndtri_exp(min(-1.0, share))), shift - s * float(ndtri_exp(min(-1.0, share - math.log(q)))))
    if cap == math.inf:
        return rare
    ratio = cap + math.log1p(-(1 - q) * math.exp(-cap)) - math.log(q)
    return min(rare, ratio * s * s / shift + shift / 2)


def _beyond(query: Sampled, add: bool, tail: float, cap: float) -> float:
    """Probability that some run's loss is cut off."""
    cut, width = _cut(query, add, tail, cap), query.noise * math.hypot(1, _TAPER)
    one = query.rate * float(ndtr((query.shift - cut) / width)) + (1 - query.rate) * float(ndtr(-cut / width))
    return -math.expm1(query.runs * math.log1p(-query.cluster * one))


def _table(query: Sampled, add: bool, tilt: float, top: float, most: float, tail: float, cap: float) -> _Table:
    """Panels that resolve Gaussian and loss, phases up to ``top`` times the loss; jumps are losses above ``most``.

    Losses that any run has with probability below ``tail`` are left out, since a large tilt sees little else; smoothly,
    since the transform would fall slowly.
    """
    s, q, shift = query.noise, query.rate, query.shift
    cut = _cut(query, add, tail, cap)
    high = min(cut + 3 * s, (10 * s + shift) if add and not query.two_sided else (1 + tilt) * shift + 10 * s + shift)
    low = shift / 2 if query.two_sided else -10 * s - (tilt * q * shift if add else 0.0)
    width = min(s, 2 * s * s / shift)
    if (high - low) / width > 50_000:
        raise NoReference("too wide")
    edges = np.linspace(low, high, max(2, math.ceil((high - low) / width) + 1))
    pieces = np.maximum(1, np.ceil(top * np.diff(_loss(query, edges)) / 8)).astype(int)
    if pieces.sum() > 20_000:
        raise NoReference("too many turns")
    steps = np.repeat(np.diff(edges) / pieces, pieces)
    place = np.arange(pieces.sum()) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    starts = np.repeat(edges[:-1], pieces) + place * steps
    x = (starts[:, None] + steps[:, None] * (1 + _NODES) / 2).ravel()
    widths = np.log((steps[:, None] * _WEIGHTS / 2).ravel() / (s * math.sqrt(2 * math.pi)))
    log_masses, losses = widths - x * x / (2 * s * s), _loss(query, x)
    if cut < math.inf:
        log_masses = log_masses + log_ndtr((cut - x) / (_TAPER * s))
    if query.two_sided:
        losses, log_masses = np.concatenate((losses, -losses)), np.concatenate((log_masses + losses, log_masses))
    elif add:
        losses = -losses
    else:
        log_masses = log_masses + losses
    log_bulk = -(np.clip(losses / most, -10.0, 10.0) ** 4)
    return _Table(losses, log_masses, -np.expm1(log_bulk), log_bulk, query.runs, query.cluster)


def _loss(query: Sampled, x: Real) -> Real:
    ratio = query.shift * (2 * x - query.shift) / (2 * query.noise**2)
    near = np.log1p(query.rate * np.expm1(np.minimum(ratio, 30.0)))
    return np.where(
        ratio < 30,
        near,
        math.log(query.rate) + ratio + np.log1p((1 - query.rate) / query.rate * np.exp(-np.maximum(ratio, 0.0))),
    )


def _turn(angle: Real) -> Complex:
    """e^(i angle) - 1."""
    return np.asarray(-2 * np.sin(angle / 2) ** 2 + 1j * np.sin(angle))


def _turns(losses: Real, step: float, count: int) -> Complex:
    """e^(i k step loss) - 1 for k < ``count``, one row a loss: k = 16 a + b, and few sines."""
    far = _turn(np.outer(losses, 16 * step * np.arange(-(-count // 16))))[:, :, None]
    near = _turn(np.outer(losses, step * np.arange(16)))[:, None, :]
    return (far + near + far * near).reshape(losses.size, -1)[:, :count]


def _log1p(z: Complex) -> Complex:
    change = 2 * z.real + z.real**2 + z.imag**2
    far = np.log(np.hypot(1 + z.real, z.imag) + 1e-300)
    return np.asarray(
        np.where(change > -0.5, 0.5 * np.log1p(np.maximum(change, -0.5)), far) + 1j * np.arctan2(z.imag, 1 + z.real)
    )


class Direction:
    """The composed loss of an event in one direction."""

    def __init__(self, event: Event, adjacency: Adjacency, add: bool, least: float) -> None:
        self._square, self._sampled, self._spread = parts_of(event, adjacency)
        self._add = add
        self._tail = _LEFT_OUT * least
        self._cap = math.inf

    def deltas(self, epsilons: Sequence[float]) -> tuple[float, ...]:
        beyond = 0.0
        if (
            sum(one.runs * one.rate * one.cluster for one in self._sampled) <= _SELDOM
            and self._square < 0.1
            and not self._spread
        ):
            # No other loss is far below 0: with such a one the composed loss is above epsilon by 36 at least.
            self._cap = max(epsilons) + _FAR
            for one in self._sampled:
                beyond += (1 - beyond) * _beyond(one, self._add, self._tail, self._cap)
        for most in (math.inf, *(share * epsilons[0] for share in _JUMPS)):
            with suppress(NoReference):
                return tuple(beyond + one for one in self._integrated(epsilons, most))
        raise NoReference("in no way")

    def _closed(self, z: Complex) -> Complex:
        """Of plain Gaussian queries and of sums with normal weights."""
        total = self._square * z * (1 + z) / 2
        for one in self._spread:
            r = one.noise**-2
            if self._add:
                total = total + one.runs / 2 * (z * math.log1p(r) - _log1p(z * r / (1 + r)))
            else:
                total = total - one.runs / 2 * (z * math.log1p(r) + _log1p(-z * r))
        return np.asarray(total)

    def _most_tilt(self) -> float:
        return math.inf if self._add else min((one.noise**2 for one in self._spread), default=math.inf)

    def _log_mgfs(self, tilt: float, most: float = math.inf) -> tuple[float, float]:
        """Lambda, and that of the bulk, at a real argument; infinity where there is none."""
        if tilt >= self._most_tilt():
            return math.inf, math.inf
        whole = bulk = float(self._closed(np.array([tilt + 0j]))[0].real)
        for query in self._sampled:
            table = _table(query, self._add, tilt, 0.0, most, self._tail, self._cap)
            change, its_bulk, _ = table.changes(tilt)
            whole += query.runs * math.log1p(change)
            bulk += query.runs * math.log1p(its_bulk)
        return whole, bulk

    def _saddle(self, epsilon: float, most: float = math.inf) -> tuple[float, float]:
        """The tilt at which the integrand is least (of the bulk if ``most`` is finite), and its logarithm there."""
        part = 0 if most == math.inf else 1
        known: dict[float, float] = {}

        def size(log_tilt: float) -> float:
            if log_tilt not in known:
                tilt = math.exp(log_tilt)
                found = self._log_mgfs(tilt, most)[part] - tilt * epsilon
                # The factor 1 / (z (1 + z)) moves the saddle; the bulk is only bounded.
                known[log_tilt] = found - (math.log(tilt) + math.log1p(tilt) if part == 0 else 0.0)
            return known[log_tilt]

        at, step = math.log(1 / epsilon), 1.0
        while size(at) == math.inf and at > -60:
            at -= 1
        while step > 0.03 and size(at) >= math.log(self._tail) - 20:
            best = min((at, at - step, at + step), key=size)
            if best == at:
                step /= 2
            at = best
            if abs(at) > 60:
                raise NoReference("no saddle point")
        return math.exp(at), size(at)

    def _integrated(self, epsilons: Sequence[float], most: float) -> tuple[float, ...]:
        epsilon = epsilons[0]
        tilt, log_size = self._saddle(epsilon)
        if log_size < math.log(self._tail):
            return (0.0,) * len(epsilons)
        if not math.isfinite(log_size):
            raise NoReference("no saddle point")
        around = [math.exp(d) * tilt for d in (-0.02, 0.0, 0.02)]
        low, here, up = (self._log_mgfs(t)[0] for t in around)
        spread = math.sqrt(max((up - 2 * here + low) / (0.02 * tilt) ** 2, 1e-300))
        # About delta itself, for the period and for what may be left out. Rare large losses make a poor saddle point.
        log_delta = min(0.0, log_size - math.log(spread) - 1, math.log(self._tail / _LEFT_OUT))
        need = -log_delta - math.log(_ALIAS)
        if most < math.inf:
            need += 5
            if self._saddle(epsilon, most)[1] > log_delta + math.log(_ALIAS):
                raise NoReference("the bulk has a part in delta")
        period = need / tilt
        ways = []
        for more in (1.1, 1.3, 1.6, 2.0, 2.5, 4.0):
            ways.append((self._log_mgfs(more * tilt)[0] - more * tilt * epsilon + need) / ((more - 1) * tilt))
        period = max(period, min(ways))
        if period == math.inf:
            raise NoReference("no period")
        step, top = 2 * math.pi / period, 10 / spread
        while True:
            if top / step > _MOST_NODES:
                raise NoReference("too many frequencies")
            found = self._trapezoid(epsilons, tilt, step, top, most)
            if found is not None:
                return found
            top *= 3

    def _trapezoid(
        self, epsilons: Sequence[float], tilt: float, step: float, top: float, most: float
    ) -> tuple[float, ...] | None:
        """None where the integrand is not yet small at ``top``."""
        tables = []
        for query in self._sampled:
            table = _table(query, self._add, tilt, top, most, self._tail, self._cap)
            log_weights = table.log_masses + tilt * table.losses
            kept = log_weights > -42 - math.log(query.runs)
            tables.append(
                (table, np.exp(log_weights[kept]), table.losses[kept], table.jumps[kept], *table.changes(tilt)[::2])
            )
        count = math.ceil(top / step) + 1
        if count * sum(weights.size for _, weights, *_ in tables) > _MOST_WORK:
            raise NoReference("too much work")
        size = min(_BLOCK, count)
        inner = [_turns(losses, step, size) for _, _, losses, _, _, _ in tables]
        at = np.asarray(epsilons)[:, None]
        sums = np.zeros(len(epsilons))
        # What is left out may be as large as the last values, as far as a plain Gaussian query lets them through.
        rest = 9 / (math.sqrt(self._square) * step) if self._square > 0 else 0.0
        last, first, blocks = 0.0, 0, 2
        while first < count:
            # Many blocks at once: one product of matrices, which stay in the cache.
            blocks = min(2 * blocks, _BLOCK, -(-(count - first) // size))
            starts = first + size * np.arange(blocks)
            z = tilt + 1j * step * (starts[:, None] + np.arange(size)).ravel()
            bulk, jumped = self._closed(z), np.zeros(z.size, dtype=np.complex128)
            for (table, weights, losses, jumps, change, jump), turned in zip(tables, inner, strict=True):
                outer = _turn(np.outer(losses, step * starts))
                parts = (weights, weights * jumps) if most < math.inf else (weights,)
                added = [
                    table.cluster * ((share @ outer)[:, None] + (share[:, None] * (1 + outer)).T @ turned).ravel()
                    for share in parts
                ]
                whole = change + added[0]
                if most < math.inf:
                    jumping = jump + added[1]
                    bulk = bulk + table.runs * _log1p(whole - jumping)
                    jumped = jumped + table.runs * _log1p(jumping / (1 + whole - jumping))
                else:
                    bulk = bulk + table.runs * _log1p(whole)
            factor = 1 / (z * (1 + z))
            values = np.exp(bulk[None] - z[None] * at)
            if most < math.inf:
                values = values * _expm1(jumped)[None]
            values = values * factor[None]
            if first == 0:
                values[:, 0] /= 2
            sums += values.real.sum(axis=1)
            first += size * blocks
            last = float(np.abs(values[0, -8:]).max()) * max(first, rest)
            if last < 1e-8 * abs(float(sums.min())):
                break
        else:
            if last > 1e-6 * abs(float(sums.min())):
                return None
        return tuple(float(one) * step / math.pi for one in sums)


def _expm1(z: Complex) -> Complex:
    return np.asarray(
        np.expm1(z.real) * np.cos(z.imag) - 2 * np.sin(z.imag / 2) ** 2 + 1j * np.exp(z.real) * np.sin(z.imag)
    )


def deltas(event: Event, adjacency: Adjacency, epsilons: Sequence[float], least: float) -> tuple[float, ...]:
    """The larger of both directions' divergences of Gaussian queries at each of ``epsilons`` > 0, near each other.

    What changes ``least``, about the least of the divergences, by a millionth may be left out.
    """
    square, sampled, spread = parts_of(event, adjacency)
    if not sampled and not spread:
        return tuple(gaussian_delta(math.sqrt(square), one) for one in epsilons)
    both = [Direction(event, adjacency, add, least).deltas(epsilons) for add in (False, True)]
    return tuple(max(pair) for pair in zip(*both, strict=True))
