"""Overlaps of worst pairs: against direct integration and closed forms, and along what composes and samples."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from scipy import integrate, stats

from privmix.accounting import (
    Adjacency,
    Bounded,
    ClusterSampled,
    Composed,
    Event,
    FixedSizeSampled,
    Gaussian,
    Laplace,
    NormalWeighted,
    PoissonSampled,
    Repeated,
    UnsupportedEvent,
)
from privmix.accounting.overlap import dominates, log_overlap, with_noise_times

ADD, REPLACE = Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE
Density = Callable[[float], float]


def integrated(one: Density, other: Density, reach: float) -> float:
    def product(z: float) -> float:
        return math.sqrt(one(z) * other(z))

    return math.log(integrate.quad(product, -reach, reach, points=[-1, 0, 1], limit=500, epsabs=1e-13)[0])


def mixture(rate: float, noise: stats.rv_continuous, scale: float, centre: float) -> Density:
    return lambda z: float((1 - rate) * noise.pdf(z / scale) + rate * noise.pdf((z - centre) / scale)) / scale


@pytest.mark.parametrize(("rate", "scale"), [(0.01, 0.4), (0.3, 1.0), (1.0, 6.0)])
def test_sampled_queries_against_integration(rate: float, scale: float) -> None:
    pairs: list[tuple[stats.rv_continuous, type[Gaussian | Laplace]]] = [
        (stats.norm, Gaussian),
        (stats.laplace, Laplace),
    ]
    for noise, event in pairs:
        none = mixture(0.0, noise, scale, 0.0)
        one, other = mixture(rate, noise, scale, 1.0), mixture(rate, noise, scale, -1.0)
        reach = 60 * scale if event is Laplace else 15 * scale + 1
        found = log_overlap(PoissonSampled(rate, event(scale)), ADD)
        assert found == pytest.approx(integrated(one, none, reach), rel=1e-4, abs=1e-9)
        found = log_overlap(FixedSizeSampled(100, round(100 * rate), event(scale)), REPLACE)
        assert found == pytest.approx(integrated(one, other, reach), rel=1e-4, abs=1e-9)


def test_closed_forms() -> None:
    assert log_overlap(Gaussian(3.0), REPLACE) == pytest.approx(-((2 / 3) ** 2) / 8)
    near = log_overlap(PoissonSampled(1.0, Gaussian(3.0)), ADD)
    assert near == pytest.approx(-1 / 72, rel=1e-9)
    wide = math.hypot(2.0, 1.0)
    weighted = integrated(lambda z: stats.norm.pdf(z, 0, 2), lambda z: stats.norm.pdf(z, 0, wide), 40)
    assert log_overlap(NormalWeighted(Gaussian(2.0)), ADD) == pytest.approx(weighted, rel=1e-6)


def test_overlaps_multiply_and_public_bits_average() -> None:
    row: Event = PoissonSampled(0.02, Gaussian(0.7))
    both = Composed((Repeated(row, 30), Gaussian(5.0)))
    assert log_overlap(both, ADD) == pytest.approx(30 * log_overlap(row, ADD) - 1 / 200)
    cluster = 1 - math.exp(log_overlap(ClusterSampled(0.3, 0.02, Gaussian(0.7)), ADD))
    assert cluster == pytest.approx(0.3 * (1 - math.exp(log_overlap(row, ADD))), rel=1e-6)


def test_what_is_not_known_is_refused() -> None:
    for event, adjacency in ((Bounded(1.0, 0.0), ADD), (ClusterSampled(0.3, 0.02, Gaussian(0.7)), REPLACE)):
        with pytest.raises(UnsupportedEvent, match="not known"):
            log_overlap(event, adjacency)
    with pytest.raises(UnsupportedEvent, match="no noise"):
        with_noise_times(Bounded(1.0, 0.0), 2.0)
    assert dominates(Gaussian(1.0), REPLACE)
    assert not dominates(FixedSizeSampled(10, 1, Gaussian(1.0)), REPLACE)
