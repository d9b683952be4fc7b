"""Random numbers of a record: their laws, and that they are its own."""

import hashlib
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from privmix.training.views.augmentation import RecordRandom
from tests.refusals import refuses

# Seeds are fixed, so a test that passes once always does; the level says how surprising a failure would be.
# No test makes more than 100 comparisons: below 1e-9 in all.
FALSE_ALARM = 1e-11
SEEDS = torch.arange(50_000)

DRAWS = {
    "bits": lambda random: random.bits("a", 3, 2),
    "uniform": lambda random: random.uniform("a", 3, 2),
    "integers": lambda random: random.integers("a", 7, 5),
    "normal": lambda random: random.normal("a", 3, 3),
    "beta": lambda random: random.beta("a", 0.2, 5),
    "subset": lambda random: random.subset("a", 9, 4),
    "pairs": lambda random: torch.stack(random.pairs("a", 5, 3), dim=1),
    "derive": lambda random: random.derive("a").uniform("b", 2),
}


def assert_law(sample: Tensor, law: str | object) -> None:
    assert stats.kstest(sample.double().numpy().ravel(), law).pvalue > FALSE_ALARM  # type: ignore[arg-type]


@pytest.mark.parametrize("name", DRAWS)
def test_own_seed_only(name: str) -> None:
    seeds = RecordRandom(torch.arange(37)).bits("seed") & (2**63 - 1)
    whole = DRAWS[name](RecordRandom(seeds))
    for index in ([0], [36], [5, 3, 11], list(range(10, 31)), []):
        assert torch.equal(DRAWS[name](RecordRandom(seeds[index])), whole[index])


@pytest.mark.parametrize("name", DRAWS)
def test_purposes_apart_and_calls_repeat(name: str) -> None:
    random = RecordRandom(torch.arange(11))
    before = DRAWS[name](random)
    random.uniform("something else", 5)
    assert torch.equal(DRAWS[name](random), before)
    assert not torch.equal(random.uniform("a", 3), random.uniform("b", 3))


def test_every_device_bits_are_those_of_plain_integers() -> None:
    """Against 64-bit arithmetic written in Python's integers: the numbers are the same wherever int64 wraps."""
    mask, step = 2**64 - 1, 0x9E3779B97F4A7C15

    def mix(z: int) -> int:
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        return z ^ (z >> 31)

    purpose = int.from_bytes(hashlib.blake2b(b"flip", digest_size=8).digest(), "little")
    seeds = [0, 1, 2**63 - 1, 123456789]
    expected = [
        [mix((mix(mix((seed + step) & mask) ^ purpose) + count * step) & mask) for count in range(1, 5)]
        for seed in seeds
    ]
    random = RecordRandom(torch.tensor(seeds))
    assert (random.bits("flip", 4).numpy().view(np.uint64) == np.array(expected, dtype=np.uint64)).all()
    uniform = np.array([[(bits >> 40) / 2**24 for bits in row] for row in expected])
    assert (random.uniform("flip", 4).double().numpy() == uniform).all()


def test_shorter_draws_begin_longer_ones() -> None:
    random = RecordRandom(torch.arange(5))
    assert torch.equal(random.uniform("a", 3, 4), random.uniform("a", 7, 4)[:, :3])
    assert torch.equal(random.normal("a", 3, 3), random.normal("a", 8, 3)[:, :3])
    assert torch.equal(random.subset("a", 4, 4).sort(dim=1).values, torch.arange(4).expand(5, 4))
    few, many = random.views(2).uniform("a").view(5, 2), random.views(6).uniform("a").view(5, 6)
    assert torch.equal(few, many[:, :2])


def test_uniform_law() -> None:
    random = RecordRandom(SEEDS)
    across_seeds, across_counters = random.uniform("a"), RecordRandom(SEEDS[:1]).uniform("a", 50_000)
    for sample in (across_seeds, across_counters, random.uniform("b", 1), random.derive("a").uniform("a")):
        assert_law(sample, "uniform")
        assert 0 <= sample.min() <= sample.max() < 1


def test_normal_law() -> None:
    sample = RecordRandom(SEEDS).normal("a", 2)
    assert_law(sample, "norm")
    # Box-Muller's two outputs of one pair: uncorrelated, and so are their squares.
    for power in (1, 2):
        first, second = (part**power for part in sample.double().unbind(1))
        assert abs(np.corrcoef(first, second)[0, 1]) < 5.4 / len(SEEDS) ** 0.5


@pytest.mark.parametrize("alpha", [0.2, 0.5, 1.0, 4.0])
def test_beta_law(alpha: float) -> None:
    sample = RecordRandom(SEEDS).beta("a", alpha, 2).double()
    # Float32 has no room near 1, where Beta(0.2, 0.2) has much of its mass: the lower half, and the symmetry.
    lower = sample[sample < 0.5]
    half = stats.beta(alpha, alpha)
    assert stats.kstest(lower.numpy(), lambda x: 2 * half.cdf(x)).pvalue > FALSE_ALARM
    assert stats.binomtest(len(lower), sample.numel(), 0.5).pvalue > FALSE_ALARM
    assert 0 <= sample.min() <= sample.max() <= 1


@pytest.mark.parametrize("alpha", [1e-3, 1e3])
def test_beta_of_extreme_alpha_is_finite(alpha: float) -> None:
    sample = RecordRandom(SEEDS).beta("a", alpha)
    assert torch.isfinite(sample).all()
    assert_law((sample < 0.5).double() + RecordRandom(SEEDS).uniform("spread"), stats.uniform(0, 2).cdf)


@pytest.mark.parametrize(
    ("drawn", "kinds"),
    [
        (lambda random: random.integers("a", 7, 2).view(-1, 1), 7),
        (lambda random: random.subset("a", 5, 3).sort(dim=1).values, 10),
        (lambda random: torch.stack(random.pairs("a", 4, 2), dim=-1).flatten(0, 1), 12),
    ],
    ids=["integers", "subsets", "pairs"],
)
def test_choices_are_uniform_and_distinct(drawn: Callable[[RecordRandom], Tensor], kinds: int) -> None:
    chosen = drawn(RecordRandom(SEEDS))
    assert (chosen.sort(dim=1).values.diff(dim=1) > 0).all()
    _, counts = chosen.unique(dim=0, return_counts=True)
    assert len(counts) == kinds
    assert stats.chisquare(counts.numpy()).pvalue > FALSE_ALARM


def test_draws_are_independent_across_seeds_counters_and_purposes() -> None:
    """Joint counts on an 8 x 8 grid, which also finds dependence that correlations miss."""
    random = RecordRandom(SEEDS)
    rows, derived = random.uniform("a", 2), random.derive("c")
    couples = {
        "counters": (rows[:, 0], rows[:, 1]),
        "neighbouring seeds": (rows[:-1, 0], rows[1:, 0]),
        "purposes": (rows[:, 0], random.uniform("b")),
        "derived": (rows[:, 0], derived.uniform("a")),
        "views": tuple(random.views(2).uniform("a").view(-1, 2).unbind(1)),
        "seed and draw": (SEEDS / len(SEEDS), rows[:, 0]),
    }
    for name, (first, second) in couples.items():
        cells = ((first * 8).long() * 8 + (second * 8).long()).bincount(minlength=64)
        assert stats.chisquare(cells.numpy()).pvalue > FALSE_ALARM, name


@pytest.mark.parametrize("dtype", [torch.int32, torch.float32])
def test_seeds_are_int64(dtype: torch.dtype) -> None:
    with refuses("seeds"):
        RecordRandom(torch.zeros(3, dtype=dtype))
    with refuses("size of a subset"):
        RecordRandom(torch.zeros(3, dtype=torch.int64)).subset("a", 2, 3)
