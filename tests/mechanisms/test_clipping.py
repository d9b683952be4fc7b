from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from privmix.mechanisms.clipping import clip_l1, clip_l2
from tests.refusals import refuses

Clip = Callable[[NDArray[np.float64], float], NDArray[np.float64]]
both_norms = pytest.mark.parametrize(("clip", "power"), [(clip_l1, 1), (clip_l2, 2)])
BOUNDS = st.floats(1e-6, 1e6)
ROWS = arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(0, 8)), elements=st.floats(-1e9, 1e9))


def exact_norm_power(row: NDArray[np.float64], power: int) -> Fraction:
    """L1 norm, or squared L2 norm, in rational arithmetic."""
    return sum((abs(Fraction(float(value))) ** power for value in row), Fraction(0))


@both_norms
@given(x=ROWS, bound=BOUNDS)
def test_bounded_exactly(clip: Clip, power: int, x: NDArray[np.float64], bound: float) -> None:
    for row in clip(x, bound):
        assert exact_norm_power(row, power) <= Fraction(bound) ** power


@both_norms
def test_bounded_exactly_for_long_rows_at_the_bound(clip: Clip, power: int) -> None:
    # Rows already of norm 1 up to rounding, as extractors return them: about half are a few ulps too long.
    x = np.random.default_rng(0).normal(size=(20, 1000))
    x /= (np.abs(x) ** power).sum(axis=1, keepdims=True) ** (1 / power)
    assert any(exact_norm_power(row, power) > 1 for row in x)
    assert all(exact_norm_power(row, power) <= 1 for row in clip(x, 1.0))


@both_norms
@given(x=ROWS, bound=BOUNDS)
def test_direction_is_kept_and_norm_used_up(clip: Clip, power: int, x: NDArray[np.float64], bound: float) -> None:
    norms = (np.abs(x) ** power).sum(axis=1) ** (1 / power)
    factors = np.minimum(1, bound / np.maximum(norms, 1e-300))
    np.testing.assert_allclose(clip(x, bound), x * factors[:, None], rtol=1e-12, atol=1e-300)


@both_norms
@given(x=ROWS, bound=BOUNDS)
def test_in_its_own_memory_it_is_the_same(clip: Clip, power: int, x: NDArray[np.float64], bound: float) -> None:
    before, expected = x.copy(), clip(x, bound)
    np.testing.assert_array_equal(x, before)
    found = (clip_l1 if power == 1 else clip_l2)(x, bound, overwrite=True)
    assert np.shares_memory(found, x) or not x.size
    np.testing.assert_array_equal(found, expected)


# Beside small ones: around the buffers of NumPy's sums, and wider than any of them.
WIDTHS = (1, 2, 5, 33, 1000, 4097, 8191, 8192, 8193, 16384, 16500, 20_000, 150_528, 1_000_000)


def of_any_size(rows: int, dim: int, seed: int = 0) -> NDArray[np.float64]:
    """Entries of many magnitudes, whose sum depends on the order in which they are added."""
    rng = np.random.default_rng(seed)
    return np.asarray(rng.normal(size=(rows, dim)) * np.exp(2 * rng.normal(size=(rows, dim))))


@both_norms
@pytest.mark.parametrize("dim", WIDTHS)
def test_per_record(clip: Clip, power: int, dim: int) -> None:
    """To the last bit, alone and in blocks of any size, at any place of them."""
    x = of_any_size(max(3, min(130, 10**6 // dim)), dim)
    together = clip(x, 1.0)
    for size in (1, 2, 3, 64, 65):
        for start in range(0, len(x), size):
            np.testing.assert_array_equal(clip(x[start : start + size], 1.0), together[start : start + size])


LAYOUTS: dict[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "columns first": np.asfortranarray,
    "every third row": lambda x: np.repeat(x, 3, axis=0)[::3],
    "every other column": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
    "backwards": lambda x: np.ascontiguousarray(x[::-1, ::-1])[::-1, ::-1],
    "one row repeated": lambda x: np.broadcast_to(x[0], x.shape),
    "foreign bytes": lambda x: x.astype(x.dtype.newbyteorder()),
    "off alignment": lambda x: np.frombuffer(b"." + x.tobytes(), np.uint8)[1:].view(x.dtype).reshape(x.shape),
    "within others": lambda x: np.pad(x, ((2, 1), (3, 4)))[2:-1, 3:-4],
}


@both_norms
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dim", [7, 8193, 20_000])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_per_record_however_it_lies_in_memory(clip: Clip, power: int, layout: str, dim: int, dtype: Any) -> None:
    x = LAYOUTS[layout](of_any_size(5, dim).astype(dtype))
    plain = np.array(x, np.float64, order="C")
    for size in (1, 2, 5):
        found = np.concatenate([clip(x[start : start + size], 1.0) for start in range(0, 5, size)])
        np.testing.assert_array_equal(found, np.concatenate([clip(row[None], 1.0) for row in plain]))


@both_norms
def test_per_record_on_any_thread(clip: Clip, power: int) -> None:
    x = of_any_size(16, 20_000)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda row: clip(row[None], 1.0)[0], x))
    np.testing.assert_array_equal(found, clip(x, 1.0))


@both_norms
def test_input_is_left_alone_and_any_number_type_taken(clip: Clip, power: int) -> None:
    x = np.array([[200, 100], [0, 1]], np.uint8)
    clipped = clip(x, 1.0)
    assert clipped.dtype == np.float64
    np.testing.assert_allclose(clip(x.astype(np.float32), 1.0), clipped)
    assert x[0, 0] == 200
    floats = np.ones((2, 2))
    assert not np.shares_memory(clip(floats, 1e9), floats)


@both_norms
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e308])
def test_what_is_not_finite_is_refused_and_not_shown(clip: Clip, power: int, bad: float) -> None:
    x = np.ones((3, 4))
    x[1] = bad
    with refuses("features") as caught:
        clip(x, 1.0)
    assert "nan" not in str(caught.value)
    assert "1e+308" not in str(caught.value)


@both_norms
@pytest.mark.parametrize("bound", [0.0, -1.0, np.nan, np.inf, 1e200])
def test_bad_bounds_are_refused(clip: Clip, power: int, bound: float) -> None:
    with refuses("clipping bound"):
        clip(np.ones((1, 1)), bound)


@both_norms
@pytest.mark.parametrize("x", [np.ones(3), np.ones((1, 2, 3)), np.array([["a"]]), np.ones((1, 1), complex)])
def test_other_shapes_and_types_are_refused(clip: Clip, power: int, x: NDArray[np.float64]) -> None:
    with refuses("features"):
        clip(x, 1.0)
