"""The composed loss in one direction: which tilt, which window and which grid a question needs, and the answer."""

import math
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from privmix.accounting.compose import TiltedSum, compose, exp_of
from privmix.accounting.queries import Query, least_variance
from privmix.accounting.tilting import Cumulants, Tilted

# Share of delta that each query's tails, and what lies above the window, may take.
_TAIL_SHARE = 1e-4
# Mass of the tilted law outside the window, e^-34 = 2e-15: a window serves all epsilons near its own.
_LOG_OUTSIDE = -34.0
# Mass of the tilted law that may come around the circle to where it counts, e^-25 = 1e-11.
_LOG_AROUND = -25.0
# A delta below this is bounded by Chernoff's inequality alone.
_NOTHING = 1e-60
# Most that the grid may add to epsilon, in units of the tolerance, while the window has at most this many points.
_LADDER = ((1.0, 2**16), (3.0, 2**18), (10.0, 2**19), (60.0, 2**20))
_MOST_POINTS = 2**20
# Compositions kept for further questions: points in all, of 16 bytes each.
_KEPT_POINTS = 2**23
# Share of a delta that may be allowance for errors before another tilt is tried; what it may cost of an epsilon.
_ALLOWANCE = 1e-3
_ALLOWED_COST = 2e-3
# If the tilted law is far from normal, the guess may be too high by this share.
_MARGIN = 0.4
# A bound above the guess by this factor is worth a composition of its own.
_FAR = 1.02
_MOST_TILTS = 4
# A tilt as close to the last one as this, in logarithms, would give the same.
_SAME_TILT = 0.05
# One more try of a composition this long would take too much time.
_DEAR_POINTS = 2**19
# Share of epsilon that the grid of the last composition may have cost; where the slope of log delta is measured.
_GRID_COST = 1e-3
_SLOPE_AT = 1e-3
# A smaller epsilon counts as 0.
_LEAST_EPSILON = 1e-290
# The normal law answers where it is certain to this share of epsilon, and the window would be so large.
_CERTAIN_FROM, _CERTAIN = 2**19, 1e-3


@dataclass(frozen=True)
class _Window:
    """A tilt, a grid and the part of it that is composed."""

    tilt: float
    step: float
    lower: int
    size: int
    top_tilt: float
    least: float
    log_tail: float


@dataclass(frozen=True)
class _Grid:
    """A window, and the variance that tiny losses may add to it before they are composed in blocks."""

    window: _Window
    most: float = math.inf


class LossDirection:
    """The loss of all ``queries`` together, in the direction "add" or "remove".

    Formal guarantees:
        * ``epsilon``, ``delta`` and a true ``surely_within`` are upper bounds; the guesses are not;
        * answers depend on the question alone, to the last bit, and not on earlier questions: anyone who recomputes a
          certificate's figures gets the same figures. The cache only saves time.
    """

    def __init__(self, queries: Sequence[Query], add: bool, tolerance: float) -> None:
        self._queries = queries
        self._add = add
        self._tolerance = tolerance
        self._runs = sum(query.count for query in queries)
        self._label_error = math.fsum(query.count * query.label_error for query in queries)
        self._cumulants = lru_cache(maxsize=16)(self._cumulants_at)
        self._solved = lru_cache(maxsize=64)(self._solve)

    def guess_epsilon(self, delta: float) -> float:
        """Saddle-point approximation of epsilon at ``delta``."""
        cumulants = self._cumulants(_level(delta))
        return self._first_guess(cumulants, delta)[1] if cumulants.infinity < delta else math.inf

    def guess_log_delta(self, epsilon: float) -> float:
        """Saddle-point approximation of log delta at ``epsilon``."""
        return self._guess(epsilon)[0]

    def surely_within(self, epsilon: float, delta: float) -> bool:
        """Whether a cheap proven bound shows the divergence at ``epsilon`` to be at most ``delta``."""
        if not 0 < delta < 1 or not math.isfinite(epsilon):
            return delta >= 1 or epsilon == math.inf
        cumulants = self._cumulants(_level(delta))
        epsilon = epsilon - self._label_error
        tilted = cumulants.at(cumulants.tilt_for(epsilon))
        return cumulants.infinity + exp_of(cumulants.log_bound(tilted, epsilon)) <= delta

    def epsilon(self, delta: float) -> float:
        """Upper bound on epsilon >= 0 at ``delta``; infinity if there is none."""
        return self._solved(delta)[0] + self._label_error

    def _solve(self, delta: float) -> tuple[float, tuple[_Grid, ...]]:
        """Epsilon at ``delta`` without the labels' error, and the last compositions that it took, the best one last."""
        cumulants = self._cumulants(_level(delta))
        if cumulants.infinity > delta:
            return math.inf, ()
        tilt, near = self._first_guess(cumulants, delta)
        found = math.inf
        grids: tuple[_Grid, ...] = ()
        for _ in range(_MOST_TILTS):
            window = self._window(cumulants, tilt, near, delta)
            by_law, certain = self._by_normal_law(cumulants, tilt, near, delta)
            found = min(found, by_law)
            if certain <= self._certain_enough(window):
                break
            grids = (_Grid(window),)
            composed = self._compose(grids[-1])
            here = composed.epsilon(delta)
            if here < math.inf:
                value, allowance = composed.delta(here)
                found = min(found, here)
                cost = -math.log1p(-min(0.99, allowance / max(value, delta))) / (tilt * max(here, 1e-300))
                # Far below the guess, what comes around the circle may be all of delta.
                served = composed.reaches(here) and here >= near - _MARGIN * abs(near)
                if here == 0 or (served and (cost <= _ALLOWED_COST or allowance <= _ALLOWANCE * value)):
                    break
            if window.size > _DEAR_POINTS and composed.reaches(here):
                break
            if here == math.inf:
                tilt /= 2
            else:
                near, last = (here if composed.reaches(here) else here / 2), tilt
                tilt = cumulants.tilt_for(near)
                if served and abs(math.log(tilt / last)) < _SAME_TILT:
                    break
        if grids and _LEAST_EPSILON < found < math.inf:
            refined, best = self._refined(cumulants, grids[-1], found, delta)
            found, grids = min(found, refined), (*grids, best)
        return found, grids

    def _refined(self, cumulants: Cumulants, grid: _Grid, found: float, delta: float) -> tuple[float, _Grid]:
        """Once more with tiny losses in blocks, if ``grid`` seems to have cost much of ``found``; the last grid."""
        window, last, most = grid.window, self._compose(grid), math.inf
        for attempt in range(_MOST_TILTS):
            further = found * (1 + _SLOPE_AT)
            if found > last.least_loss and last.delta(further)[0] > 0:
                slope = math.log(last.delta(found)[0] / last.delta(further)[0]) / (further - found)
                most = 2 * _GRID_COST * found / (1 + slope)
                added = cumulants.variance_added(cumulants.at(window.tilt), window.step)
                low = not last.reaches(found)
                if (added <= most and not low) or (attempt > 0 and window.size > _DEAR_POINTS) or attempt > 2:
                    break
                if low or (1 + slope) / 2 * added > found - last.least_loss:
                    # Without that cost epsilon would be lower than this window reaches.
                    window = self._window(cumulants, window.tilt, found / 2, delta)
            elif attempt == 0:
                break
            else:
                window = self._window(cumulants, window.tilt, found / 2, delta)
            while least_variance(window.step, self._runs) > most and self._can_hold(window, window.step / 2):
                window = replace(window, step=window.step / 2, lower=2 * window.lower, size=2 * window.size)
            grid = _Grid(window, most)
            last = self._compose(grid)
            here = last.epsilon(delta)
            if here >= found * (1 - _GRID_COST) or here <= _LEAST_EPSILON:
                return min(found, here), grid
            found = here
        return found, grid

    def _first_guess(self, cumulants: Cumulants, delta: float) -> tuple[float, float]:
        """Tilt and epsilon at ``delta``: by the saddle point, or by Chernoff's inequality where that is less."""
        # A few large losses make the tilted law far from normal; the saddle point then overstates epsilon.
        tilt, near = cumulants.estimate(delta)
        most = cumulants.upper_quantile(0.0, math.log(delta))[0]
        return (cumulants.tilt_for(most), most) if 0 < most < near else (tilt, near)

    def delta(self, epsilon: float) -> float:
        epsilon -= self._label_error
        log_delta, level = self._guess(epsilon)
        cumulants = self._cumulants(level)
        tilted = cumulants.at(cumulants.tilt_for(epsilon))
        best = min(1.0, cumulants.infinity + exp_of(cumulants.log_bound(tilted, epsilon)))
        if best < _NOTHING:
            return best
        # The composition for epsilon at the round delta nearby serves here too, and many questions share it.
        near = log_delta / math.log(10)
        for _ in range(2):
            at = 10.0 ** round(min(-1.0, max(-300.0, near)))
            best = min([best, *(self._compose(grid).delta(epsilon)[0] for grid in self._solved(at)[1])])
            near = math.log10(max(best, 1e-300))
        # A composition of its own, if those are too far away to be close, unless the normal law is certain.
        guessed = math.exp(max(log_delta, -690.0))
        if best <= _FAR * guessed:
            return best
        window = self._window(cumulants, tilted.tilt, epsilon, guessed)
        upper, lower = (cumulants.normal_log_bound(tilted, epsilon, sign) for sign in (1, -1))
        certain = upper - lower <= self._certain_enough(window) * max(1.0, tilted.tilt * epsilon)
        return best if certain else min(best, self._compose(_Grid(window)).delta(epsilon)[0])

    def _guess(self, epsilon: float) -> tuple[float, float]:
        """Approximate log delta, and the level whose tails suit it."""
        level = 1e-5
        for _ in range(6):
            found = self._cumulants(level).estimate_log_delta(epsilon)
            right = _level(math.exp(max(found, -690.0)))
            if right >= level / 10 and right <= level * 1e3:
                break
            level = right
        return found, min(level, right)

    def _cumulants_at(self, level: float) -> Cumulants:
        log_tail = self._log_tail(level)
        return Cumulants([(query.atoms(log_tail, self._add), query.count) for query in self._queries])

    def _log_tail(self, level: float) -> float:
        return math.log(level) + math.log(_TAIL_SHARE) - math.log(self._runs)

    def _window(self, cumulants: Cumulants, tilt: float, near: float, delta: float) -> _Window:
        """Around the tilted mass and ``near``; as fine as the ladder allows."""
        # If few large losses rule the tilted law, delta is a small share of it, and the omitted mass a smaller one.
        share = math.log(delta) - (cumulants.log_mgf(tilt) - tilt * near) + math.log(_TAIL_SHARE)
        share = max(share, 2 * _LOG_OUTSIDE)
        outside, around_it = min(_LOG_OUTSIDE, share), min(_LOG_AROUND, share)
        top, extra = cumulants.upper_quantile(tilt, outside)
        top_tilt = tilt + extra
        enough, its_tilt = cumulants.upper_quantile(0.0, math.log(delta) + math.log(_TAIL_SHARE / 10))
        if enough < top:
            top, top_tilt = enough, its_tilt
        low = min(cumulants.lower_quantile(tilt, outside), near - _MARGIN * abs(near))
        # Mass above the window comes in at its bottom: the first epsilon that it does not reach is ``least``.
        around = cumulants.upper_quantile(tilt, around_it)[0]
        tilted = cumulants.at(tilt)
        served = near - _MARGIN * abs(near)
        width = max(top - low, around - served, 1e-9 * abs(near), 1e-290)
        scale = max(near, 0.2 * math.sqrt(tilted.variance))
        log_tail = self._log_tail(_level(delta))
        step, size = width / (_MOST_POINTS - 16), _MOST_POINTS
        for portion, most in _LADDER:
            wanted = cumulants.step_adding(tilted, portion * self._tolerance * scale, width)
            if width / wanted + 16 <= most:
                size = max(64, _power_of_two(width / wanted + 16))
                step = width / (size - 16)
                break
        atom = max(query.atom for query in self._queries)
        if atom > 0:
            step = atom / math.ceil(atom / step)
        while self._grid_points(log_tail, step) > _MOST_POINTS:
            step *= 2
        size = min(size * 2, max(64, _power_of_two(width / step + 16)))
        least = min(served, max(low, around - size * step))
        return _Window(tilt, step, math.floor(low / step) - 2, size, top_tilt, least, log_tail)

    def _grid_points(self, log_tail: float, step: float) -> int:
        return max(query.grid_points(log_tail, step, self._add) for query in self._queries)

    def _can_hold(self, window: _Window, step: float) -> bool:
        """Whether half the step still keeps the window and every query's loss in memory."""
        return window.size < _MOST_POINTS and self._grid_points(window.log_tail, step) <= _MOST_POINTS

    def _certain_enough(self, window: _Window) -> float:
        """Uncertainty of epsilon at which the normal law spares the composition."""
        return _CERTAIN if window.size >= _CERTAIN_FROM else -1.0

    def _by_normal_law(self, cumulants: Cumulants, tilt: float, near: float, delta: float) -> tuple[float, float]:
        """Proven epsilon by the normal law under the tilt, and its distance to a proven lower bound, relative."""
        tilted: Tilted = cumulants.at(tilt)
        goal = math.log(max(delta - cumulants.infinity, 1e-320))
        low, high = 0.0, max(near, tilted.mean, 1e-300)
        if cumulants.normal_log_bound(tilted, high) > goal:
            low, high = high, high * 1.5 + 3 * math.sqrt(tilted.variance)
        if cumulants.normal_log_bound(tilted, high) > goal:
            return math.inf, math.inf
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (low, middle) if cumulants.normal_log_bound(tilted, middle) <= goal else (middle, high)
            if high - low <= 1e-9 * high:
                break
        gap = cumulants.normal_log_bound(tilted, high) - cumulants.normal_log_bound(tilted, high, -1)
        return high, gap / (tilt * max(high, 1e-300))

    def _compose(self, grid: _Grid) -> TiltedSum:
        if (kept := _KEPT.get((self, grid))) is not None:
            return kept
        window, most = grid.window, grid.most
        parts = [part for query in self._queries for part in query.parts(window.log_tail, window.step, self._add, most)]
        composed = compose(parts, window.tilt, window.lower, window.size, window.top_tilt, window.least)
        _KEPT.add((self, grid), composed)
        return composed


class _KeptSums:
    """Compositions for further questions, of all losses together; those asked for least recently go first."""

    def __init__(self, most_points: int) -> None:
        self._most = most_points
        self._points = 0
        self._sums: OrderedDict[tuple[LossDirection, _Grid], TiltedSum] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: tuple[LossDirection, _Grid]) -> TiltedSum | None:
        with self._lock:
            if key in self._sums:
                self._sums.move_to_end(key)
            return self._sums.get(key)

    def add(self, key: tuple[LossDirection, _Grid], found: TiltedSum) -> None:
        with self._lock:
            # Two threads may have composed the same.
            self._points += found.above.size - (self._sums[key].above.size if key in self._sums else 0)
            self._sums[key] = found
            while len(self._sums) > 1 and self._points > self._most:
                self._points -= self._sums.popitem(last=False)[1].above.size


_KEPT = _KeptSums(_KEPT_POINTS)


def _level(delta: float) -> float:
    """Return the power of ten at or below ``delta``: tails are cut for it."""
    return 10.0 ** max(-300, math.floor(math.log10(delta) + 1e-9))


def _power_of_two(points: float) -> int:
    return 1 << max(0, math.ceil(math.log2(points)))
