"""Planned and adaptive budgets: what each lets through, and what choosing after seeing does to both."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.stats import norm

import common
from privmix.accounting import Adjacency, Bounded, Composed, Event, Gaussian, Laplace, PoissonSampled, Repeated, epsilon
from privmix.accounting.filters import Cost, Filter, make_filter

DELTA = 1e-5
COUNTS = (1, 2, 5, 10, 50)
KINDS: dict[str, Callable[[float], Event]] = {
    "moments": Gaussian,
    "Poisson rows (n = T = 60,000, m = 64)": lambda s: Repeated(PoissonSampled(64 / 60_000, Gaussian(s)), 60_000),
    "Poisson rows (n = T = 50,000, m = 4)": lambda s: Repeated(PoissonSampled(4 / 50_000, Gaussian(s)), 50_000),
    "DP-SGD (rate 0.01, 2,000 steps)": lambda s: Repeated(PoissonSampled(0.01, Gaussian(s)), 2_000),
    "one Laplace query": Laplace,
}
NOISES = (0.2, 0.4, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0)
# A second release after moments of noise 4.5, in a budget of (1, 1e-5): each fills what is left of a planned budget.
FIRST = Gaussian(4.5)
REVEALS = (0.0, 1e-6, 3e-6, 5e-6, 7e-6, 8e-6, 9e-6, 9.5e-6)


def least_noise(fits: Callable[[float], bool]) -> float:
    """The least noise that fits, by bisection on its logarithm to 1e-4, rounded up."""
    low, high = 1e-2, 1e-2
    while not fits(high):
        low, high = high, high * 4
    while high / low > 1 + 1e-4:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def allowed(made: Filter, kind: Callable[[float], Event], count: int) -> float:
    """Planned price of the strongest ``count`` equal releases that the filter accepts."""

    def fits(noise: float) -> bool:
        cost = made.cost(kind(noise), Adjacency.ADD_REMOVE)
        return count * cost.share(made.capacity) <= 1

    return epsilon(Repeated(kind(least_noise(fits)), count), DELTA).epsilon


def profile(event: Event, at: np.ndarray) -> np.ndarray:
    """Delta at every real epsilon, exactly, where the dataset with the record is the true one."""
    match event:
        case PoissonSampled(rate, query):
            # max(0, (1-q) f0 + q f1 - a f0) = q max(0, f1 - b f0) with b = (a - 1 + q) / q.
            inner = (np.exp(at) - 1 + rate) / rate
            inside = np.log(np.where(inner > 0, inner, 1.0))
            return np.asarray(np.where(inner > 0, rate * profile(query, inside), 1 - np.exp(at)))
        case Gaussian(noise):
            return np.asarray(norm.cdf(-at * noise + 0.5 / noise) - np.exp(at) * norm.cdf(-at * noise - 0.5 / noise))
        case Bounded(bound, delta):
            keep = 1 / (1 + math.exp(-bound))
            answer = np.where(at < bound, keep - np.exp(at) * (1 - keep), 0.0)
            return np.asarray(delta + (1 - delta) * np.where(at <= -bound, 1 - np.exp(at), answer))
        case Composed((query, Bounded(0.0, delta))):
            return np.asarray(delta + (1 - delta) * profile(query, at))
    raise AssertionError(event)


def chosen_delta(seconds: list[Event], at: float) -> tuple[float, float]:
    """Delta at epsilon ``at`` of FIRST and whichever second is worst for the loss seen; and of the best fixed one."""
    mu = 1 / FIRST.noise_multiplier
    losses = mu**2 / 2 + mu * np.linspace(-12, 12, 240_001)
    weights = norm.pdf(losses, mu**2 / 2, mu) * (losses[1] - losses[0])
    deltas = np.stack([profile(second, at - losses) for second in seconds])
    return float(weights @ deltas.max(axis=0)), float((deltas @ weights).max())


def chosen_epsilon(seconds: list[Event]) -> float:
    """Epsilon at DELTA of the same."""
    low, high = 0.0, 4.0
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if chosen_delta(seconds, middle)[0] > DELTA else (low, middle)
    return high


def filling_rows(fits: Callable[[Event], bool]) -> list[Event]:
    """One mixed row of each noise, at the largest sampling rate that fits."""
    found: list[Event] = []
    for noise in NOISES:
        low, high = 1e-8, 1.0
        while high / low > 1 + 1e-4:
            rate = math.sqrt(low * high)
            low, high = (rate, high) if fits(PoissonSampled(rate, Gaussian(noise))) else (low, rate)
        if fits(PoissonSampled(low, Gaussian(noise))):
            found.append(PoissonSampled(low, Gaussian(noise)))
    return found


def planned_seconds(total: float) -> tuple[list[Event], list[Event]]:
    """What fills a planned budget of (``total``, DELTA) after FIRST: rows and moments; bounded mechanisms."""

    def fits(event: Event) -> bool:
        return epsilon(Composed((FIRST, event)), DELTA).epsilon <= total

    def bounded(reveal: float) -> Event:
        noise = least_noise(lambda noise: fits(Bounded(min(600.0, 1 / noise), reveal)))
        return Bounded(min(600.0, 1 / noise), reveal)

    rows = [Gaussian(least_noise(lambda noise: fits(Gaussian(noise)))), *filling_rows(fits)]
    return rows, [bounded(reveal) for reveal in REVEALS]


def adaptive_seconds(made: Filter) -> tuple[list[Event], list[Event]]:
    """What fills an adaptive budget after FIRST: rows and moments; bounded mechanisms and mixtures."""
    relation, capacity = Adjacency.ADD_REMOVE, made.capacity
    used = made.cost(FIRST, relation)

    def fits(event: Event) -> bool:
        return used.plus(made.cost(event, relation)).share(capacity) <= 1

    left = Cost(capacity.amount - used.amount, capacity.slack - used.slack)
    reveals = [-math.expm1(-left.slack * share) * (1 - 1e-9) for share in (0.0, 0.25, 0.5, 0.75, 1.0)]
    moments = Gaussian(least_noise(lambda noise: fits(Gaussian(noise))))
    found: list[Event] = []
    for reveal in reveals if left.slack else [0.0]:
        noise = least_noise(lambda noise, reveal=reveal: fits(Bounded(min(600.0, 1 / noise), reveal)))
        found.append(Bounded(1 / noise, reveal))
        if reveal:
            found += [Bounded(0.0, reveal), Composed((moments, Bounded(0.0, reveal)))]
    return [moments, *filling_rows(fits)], found


def main() -> None:
    results, tables = [], []
    for total in (1.0, 8.0):
        rows = []
        for label, kind in KINDS.items():
            for name in ("gdp", "rdp"):
                made = make_filter(name, total, DELTA)
                shares = [allowed(made, kind, count) / total for count in COUNTS]
                results += [
                    {"total": total, "kind": label, "filter": name, "releases": count, "share": share}
                    for count, share in zip(COUNTS, shares, strict=True)
                ]
                rows.append((label, name, *(f"{100 * share:.1f}%" for share in shares)))
                print(rows[-1], flush=True)
        header = ["releases of one kind", "filter", *(f"{count} of them" for count in COUNTS)]
        tables += [
            f"Budget ({total:g}, {DELTA:g}). Share of epsilon that an adaptive budget lets through: the planned price "
            "of the strongest releases that it accepts, over the total. A planned budget lets 100% through.",
            common.table(header, rows),
        ]
    total, rows = 1.0, []
    cases = [("planned", planned_seconds(total))]
    cases += [(f"adaptive, {name}", adaptive_seconds(make_filter(name, total, DELTA))) for name in ("gdp", "rdp")]
    for label, (designs, others) in cases:
        for what, seconds in (("rows, moments", designs), ("anything", [*designs, *others])):
            chosen, fixed = chosen_delta(seconds, total)
            at = chosen_epsilon(seconds)
            rows.append((label, f"{what} ({len(seconds)})", f"{fixed:.3g}", f"{chosen:.3g}", f"{at:.3f}"))
            result = {"choices": len(seconds), "fixed": fixed, "chosen": chosen, "epsilon": at}
            results.append({"budget": label, "what": what, **result})
    tables += [
        f"Choosing after seeing: a budget of ({total:g}, {DELTA:g}); the first release is a Gaussian query of noise "
        "4.5 (moments), the second whichever of the accepted ones is worst for the privacy loss that was seen: "
        "moments and mixed rows that fill the budget, or also any mechanism with a bound of its own. Computed by "
        "integration over that loss, without sampling.",
        common.table(
            ["budget", "choices", "delta at epsilon 1, best fixed", "chosen after seeing", "epsilon at delta 1e-5"],
            rows,
        ),
    ]
    settings = {"noise": "to 1e-4", "integration": "240,001 points over 24 standard deviations"}
    common.save("filters", "Planned and adaptive budgets", settings, results, tables)


if __name__ == "__main__":
    main()
