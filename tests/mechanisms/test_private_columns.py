"""Columns estimated from records: the law of the noise, what one record moves, and what noise lets through."""

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import norm

from privmix.jobs.column_estimates import calibrated
from privmix.mechanisms import private_columns
from privmix.mechanisms.private_columns import EDGES, ColumnQueries, estimate_columns
from privmix.mechanisms.streams import SecretStreams

QUERIES = ColumnQueries(("age", "pay"), ("ward",), 10.0, 1e-6)
ALONE = ColumnQueries((), ("ward",), 10.0, 1e-6)
NUMBERS = st.lists(
    st.floats(allow_nan=True, allow_infinity=True) | st.sampled_from([0.0, 1.0, -5e-7, 1e13]), max_size=20
)


def no_wards() -> dict[str, Counter[str]]:
    return {"ward": Counter()}


@settings(max_examples=60, deadline=None)
@given(values=NUMBERS, extra=st.floats(allow_nan=True, allow_infinity=True))
def test_one_record_is_in_one_cell_of_each_histogram(values: list[float], extra: float) -> None:
    """Formal guarantee: a record adds at most 1 to one cell of either histogram of a column; cells are public."""
    seen: list[NDArray[np.int64]] = []

    def kept(cells: NDArray[np.int64], size: int, noise: float, streams: Any, *index: int) -> NDArray[np.int64]:
        seen.append(np.bincount(cells, minlength=size))
        made = np.zeros(size, np.int64)
        made[size // 2 : size // 2 + 40] = 10_000
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(private_columns, "_counts", kept)
        queries, streams = ColumnQueries(("age",), (), 10.0, 0.0), SecretStreams.from_seed(0)
        found = [estimate_columns(queries, {"age": np.array(part)}, {}, streams) for part in (values, [*values, extra])]
    # The same answers to both histograms: the same entry, whatever the records are.
    assert found[0] == found[1]
    few, more = seen[:2], seen[2:]
    for before, after in zip(few, more, strict=True):
        assert len(before) == len(after)
        assert np.abs(after - before).sum() == (1 if math.isfinite(extra) else 0)


def test_noise_follows_its_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """Formal guarantee: Gaussian of the multiplier times the root of the number of queries, in each cell. 370 cells of
    400 keys; bounds 6.5 standard errors (false alarm 1e-10), which 2/3 of the deviation is far beyond."""
    drawn: list[NDArray[np.int64]] = []
    inside = private_columns._counts
    monkeypatch.setattr(private_columns, "_counts", lambda *given: drawn.append(inside(*given)) or drawn[-1])
    values = np.full(1000, np.nan)
    for seed in range(400):
        assert estimate_columns(QUERIES, {"age": values, "pay": values}, no_wards(), SecretStreams.from_seed(seed))
    noise = np.concatenate([one for one in drawn if len(one) == len(EDGES) + 1]).astype(float)
    assert noise.size > 2 * 400 * 370 - 1
    for scale, right in ((1.0, True), (2 / 3, False), (1.02, False)):
        score = (np.square(noise).mean() / (scale * 10 * math.sqrt(5)) ** 2 - 1) * math.sqrt(noise.size / 2)
        assert bool(abs(score) < 6.5) is right
    assert (noise == np.round(noise)).all()
    # Columns and histograms have noise of their own.
    assert len({tuple(one[:50]) for one in drawn}) == len(drawn)


def test_a_value_of_one_record_is_listed_as_seldom_as_is_paid_for() -> None:
    """Formal guarantee: at most the delta, and a value without records never. 200,000 values; bounds 6.5 deviations
    (false alarm 1e-10), which a threshold lower by a deviation of the noise is far beyond."""
    queries = ColumnQueries((), ("ward",), 3.0, 1e-2)
    rate = norm.sf((queries.threshold - 1.5) / queries.noise)
    assert rate <= 1e-2
    counts = Counter({f"v{place:03d}": 1 for place in range(1000)})
    listed = 0
    for seed in range(200):
        found = estimate_columns(queries, {}, {"ward": counts}, SecretStreams.from_seed(seed))["ward"]
        listed += 0 if found is None else len(found["categories"])
    assert abs(listed - 200_000 * rate) < 6.5 * math.sqrt(200_000 * rate)
    assert estimate_columns(queries, {}, no_wards(), SecretStreams.from_seed(0)) == {"ward": None}


@pytest.mark.parametrize("categories", [(), ("ward", "town")])
def test_the_price_is_the_target_by_another_accountant(categories: tuple[str, ...]) -> None:
    """Formal guarantee: dp_accounting's price of all queries and the thresholds' delta is at most epsilon."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    queries = calibrated(("age", "pay"), categories, 0.7, 1e-6)
    one = pld.from_gaussian_mechanism(queries.noise, value_discretization_interval=1e-4)
    together = one.self_compose(4 + len(categories))
    assert 0.69 < together.get_epsilon_for_delta(1e-6 - queries.selection_delta) < 0.7005
    # Each column's share of the delta pays for one value that only one record has.
    if categories:
        assert 2 * norm.sf((queries.threshold - 1.5) / queries.noise) <= queries.selection_delta


def test_estimates_fit_the_records() -> None:
    """Bounds hold nearly all records, bins about as many each, and categories are the frequent ones."""
    rng = np.random.default_rng(0)
    age = rng.normal(50, 15, 20_000).clip(18, 95).round()
    pay = np.exp(rng.normal(8, 1, 20_000))
    age[:50] = np.nan
    pay[:3] = [np.inf, -1e300, 1e300]
    wards = Counter({"b": 9000, "a": 10_000, "rare": 1, "twice": 2})
    queries = calibrated(("age", "pay"), ("ward",), 1.0, 1e-6)
    found: Any = estimate_columns(
        queries, {"age": age, "pay": pay}, {"ward": wards}, SecretStreams.from_seed(0), whole=["age"]
    )
    assert found["ward"] == {"categories": ["a", "b"], "other": True}
    assert found["age"]["integer"]
    assert 15 <= found["age"]["range"][0] <= 25
    assert 85 <= found["age"]["range"][1] <= 100
    for name, values in (("age", age), ("pay", pay)):
        low, high = found[name]["range"]
        inside = values[np.isfinite(values)]
        assert ((inside >= low) & (inside <= high)).mean() > 0.98
        shares = np.histogram(inside, [low, *found[name]["bins"], high])[0] / len(inside)
        assert len(shares) >= 8
        assert shares.max() < 0.17


@pytest.mark.parametrize(
    ("values", "bounds"),
    [([7.0] * 9000, [7, 8]), ([0.0] * 5000 + [1.0] * 5000, [0, 1]), ([-3.0] * 4000 + [12.0] * 4000, [-3, 12])],
)
def test_whole_numbers_have_whole_bounds(values: list[float], bounds: list[int]) -> None:
    queries = calibrated(("age",), (), 1.0, 1e-6)
    found: Any = estimate_columns(queries, {"age": np.array(values)}, {}, SecretStreams.from_seed(1), ["age"])
    assert found["age"]["range"] == bounds
