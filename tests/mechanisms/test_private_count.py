"""Numbers of records and persons, and K, as they are estimated: the law of the noise, and what one unit moves."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privmix.errors import InvalidInput
from privmix.mechanisms.private_count import (
    RECORD_COUNTS,
    PrivateCount,
    most_units,
    private_count,
    private_record_count,
    quantile_of,
    records_of_persons,
    weight_of_persons,
)
from privmix.mechanisms.streams import SecretStreams
from privmix.planning import ReleaseConfig
from privmix.plans.registry import plan_from_dict

CONFIG = ReleaseConfig(5000, 8, ("a", "b"), "moments", per_person=1, records_noise_multiplier=20.0, person_quantile=0.9)
COUNTS = st.lists(st.integers(1, 3000), min_size=2, max_size=30)


def streams(seed: int = 0) -> SecretStreams:
    return SecretStreams.from_seed(seed)


def test_estimates_follow_their_law() -> None:
    """Formal guarantee: Gaussian of the stated deviation, below the count; 0.95 of that deviation shows. 25,000 keys;
    bounds 6.5 standard errors (false alarm 1e-10), which 0.95 is further away than."""
    sigma, count, keys = 20.0, 10_000, 25_000
    drawn = np.array([private_record_count(count, sigma, SecretStreams.from_seed(seed)) for seed in range(keys)])
    noise = drawn - count + math.ceil(4 * sigma)
    assert abs(noise.mean()) < 6.5 * sigma / math.sqrt(keys)
    for scale, right in ((1.0, True), (0.95, False), (1.05, False)):
        score = (np.square(noise).mean() / (scale * sigma) ** 2 - 1) * math.sqrt(keys / 2)
        assert bool(abs(score) < 6.5) is right
    assert (drawn <= count).mean() > 0.99


def test_an_estimate_is_at_least_one_and_the_same_again() -> None:
    assert private_record_count(3, 50.0, SecretStreams.from_seed(0)) == 1
    first = [private_record_count(5000, 20.0, SecretStreams.from_seed(7)) for _ in range(2)]
    assert first[0] == first[1]


def test_numbers_of_persons_by_their_records_follow_their_law() -> None:
    """Formal guarantee: Gaussian of the stated deviation in each place. 2,000 keys of 24 places; bounds 6.5 standard
    errors (two false alarms of 8e-11), which 2/3 of the deviation is far beyond."""
    sigma, counts = 20.0, np.repeat([1, 5, 70], 1000)
    drawn = np.stack([records_of_persons(counts, sigma, streams(seed)) for seed in range(2000)])
    expected = np.zeros(len(RECORD_COUNTS))
    expected[[0, 4, 16]] = 1000
    noise = drawn - expected
    assert abs(noise.mean()) < 6.5 * sigma / math.sqrt(noise.size)
    for scale, right in ((1.0, True), (2 / 3, False), (1.05, False)):
        score = (np.square(noise).mean() / (scale * sigma) ** 2 - 1) * math.sqrt(noise.size / 2)
        assert bool(abs(score) < 6.5) is right
    assert (drawn == np.round(drawn)).all()


def test_both_queries_for_a_quantile_have_their_noise() -> None:
    """Formal guarantee: sqrt(2) times the plan's noise in the number of persons, which 1 time is far from, and in the
    histogram as much. 3,000 keys; bounds 6.5 standard errors (false alarm 1e-10)."""
    held, keys = np.full(5000, 1), 3000
    drawn = np.array([private_count(CONFIG, held, streams(seed)).records for seed in range(keys)])
    for scale, right in ((math.sqrt(2), True), (1.0, False)):
        score = (drawn.var() / (scale * 20.0) ** 2 - 1) * math.sqrt(keys / 2)
        assert bool(abs(score) < 6.5) is right
    asked: list[float] = []
    with pytest.MonkeyPatch.context() as patched:
        honest = records_of_persons
        counting = lambda counts, noise, own: asked.append(noise) or honest(counts, noise, own)  # noqa: E731
        patched.setattr("privmix.mechanisms.private_count.records_of_persons", counting)
        private_count(CONFIG, held, streams())
    assert asked == [math.sqrt(2) * 20.0]


@settings(max_examples=60, deadline=None)
@given(counts=COUNTS, at=st.integers(0, 29), most=st.sampled_from(RECORD_COUNTS))
def test_one_person_moves_both_queries_by_no_more_than_their_noise_allows(
    counts: list[int], at: int, most: int
) -> None:
    """Formal guarantee: what an attacker who knows all others can tell is one Gaussian query at the plan's noise, for
    every K that the first answer may lead to, and wherever the number of records lies."""
    held = np.array(counts)
    others = np.delete(held, at % len(held))
    histogram = [records_of_persons(of, 1.0, streams()) for of in (held, others)]
    weight = [weight_of_persons(of, most) for of in (held, others)]
    moved = math.hypot(float(np.linalg.norm(histogram[0] - histogram[1])), weight[0] - weight[1])
    assert 1.0 <= moved <= math.sqrt(2)
    # Both with sqrt(2) times the noise of one query that a person moves by 1.
    assert moved / math.sqrt(2) <= 1.0


def test_weights_are_exact_where_a_sum_of_fractions_would_round() -> None:
    """One person more is at most one more, however thirds add up."""
    for persons in (3, 10**5, 10**6 + 1):
        held = np.ones(persons, np.int64)
        assert weight_of_persons(held, 3) == persons // 3
        assert weight_of_persons(np.append(held, 99), 3) - weight_of_persons(held, 3) == 1


def test_the_quantile_is_found_where_there_are_persons_enough() -> None:
    """Most have three records, and of the rest each has forty."""
    held = np.repeat([3, 40], [9000, 500])
    found = [private_count(CONFIG, held, streams(seed)) for seed in range(20)]
    assert {one.per_person for one in found} == {3}
    # A person with forty weighs one; on the low side by 4 deviations of sqrt(2) x 20, and at most 6 more.
    assert all(9500 - 10 * 29 < one.records <= 9500 + 2 * 29 for one in found)
    assert private_count(CONFIG, held, streams(3)) == private_count(CONFIG, held, streams(3))
    strict, more = replace(CONFIG, person_quantile=0.999), np.repeat([3, 40], [9000, 2000])
    assert {private_count(strict, more, streams(seed)).per_person for seed in range(20)} == {40}


def test_nothing_but_noise_is_a_number_all_the_same() -> None:
    for seed in range(30):
        found = private_count(CONFIG, np.array([2]), streams(seed))
        assert found.records >= 1
        assert found.per_person in RECORD_COUNTS
    assert quantile_of(np.zeros(24, np.int64), 0.5, 1.0) == 1
    assert quantile_of(-np.ones(24, np.int64), 0.5, 1.0) == 1
    assert quantile_of(np.append(np.zeros(23, np.int64), 70), 0.5, 1.0) == RECORD_COUNTS[-1]


def test_without_a_quantile_the_number_alone_is_asked() -> None:
    plain = replace(CONFIG, person_quantile=None, per_person=2)
    held = np.full(5000, 1)
    assert private_count(plain, held, streams(4)) == PrivateCount(private_record_count(2500, 20.0, streams(4)), 2)
    assert private_count(plain, 5000, streams(4)) == PrivateCount(private_record_count(5000, 20.0, streams(4)))


def test_most_units_lie_four_deviations_above_the_count() -> None:
    assert (most_units(9_000, 20.0), most_units(9_000, 20.0, 3)) == (9160, 27482)


@pytest.mark.parametrize(
    "changes",
    [{"per_person": None}, {"records_noise_multiplier": None}, {"person_quantile": 0.0}, {"person_quantile": 1.0}],
)
def test_a_quantile_is_of_persons_and_paid_for(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="person_quantile"):
        replace(CONFIG, **changes)


def test_a_plan_keeps_it_and_one_without_is_stored_as_before() -> None:
    plan = CONFIG.with_noise(1.0)
    assert plan_from_dict(plan.to_dict()) == plan
    assert plan.to_dict()["person_quantile"] == 0.9
    assert "person_quantile" not in replace(CONFIG, person_quantile=None).with_noise(1.0).to_dict()
    assert plan.event == replace(plan, person_quantile=None).event
    with pytest.raises(InvalidInput, match="person_quantile"):
        plan_from_dict({**plan.to_dict(), "per_person": None})
