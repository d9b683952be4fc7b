"""Maps of later stages follow from what was released: to the bit here, by what they are where rounding differs."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from privmix.audits.empty_runs import UP_TO_ROUNDING
from privmix.designs import ThreeStagePlan
from privmix.designs.stages.evidence import class_direction_tests, direction_tests
from privmix.designs.stages.released import ThreeStageMoments, class_map, residual_map
from privmix.engine.rows import PrivateRecords
from privmix.errors import InvalidInput
from privmix.planning import ReleaseConfig
from tests.releases.helpers import release

# Fewer records than features, one feature, features that lie in two directions, channels, hardly any noise.
CASES = [
    (600, 7, 4.0, 1, "full"),
    (40, 120, 1.0, 1, "full"),
    (600, 1, 4.0, 1, "full"),
    (600, 40, 4.0, 4, "full"),
    (3000, 40, 1000.0, 4, "low rank"),
    (600, 40, 1000.0, 1, "half of them 0"),
    (40, 40, 0.3, 1, "full"),
]


def make(records: int, dim: int, epsilon: float, channels: int, kind: str) -> tuple[ThreeStagePlan, ThreeStageMoments]:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, records)
    x = rng.normal(size=(records, dim))
    if kind == "low rank":
        x = rng.normal(size=(records, 2)) @ rng.normal(size=(2, dim))
    if kind == "half of them 0":
        x[:, dim // 2 :] = 0
    x += 2 * np.eye(3, dim)[labels]
    config = ReleaseConfig(records=records, dim=dim, classes=("a", "b", "c"), design="three-stage", rows=16)
    plan: Any = replace(config.calibrate(epsilon, 1e-5), channels=channels)
    return plan, release(plan, PrivateRecords(x.astype(np.float32), labels)).beside


def elsewhere(plan: ThreeStagePlan, honest: ThreeStageMoments) -> ThreeStageMoments:
    """The maps of a machine whose matrices are rounded otherwise, by more than OpenBLAS's kernels differ."""
    rng = np.random.default_rng(1)

    def rounded(matrix: NDArray[np.float32]) -> NDArray[np.float32]:
        error = np.tril(rng.normal(size=matrix.shape))
        error += np.tril(error, -1).T
        return np.asarray(matrix * (1 + 3e-7 * error) + 1e-7 * np.abs(matrix).max() * error, np.float32)

    first = residual_map(plan, replace(honest, second=rounded(honest.second)))
    found = replace(honest, directions=first.directions, means=first.means)
    last = class_map(plan, replace(found, within=rounded(honest.within)))
    return replace(found, class_directions=last.directions, class_means=last.means)


def names(plan: ThreeStagePlan, moments: ThreeStageMoments) -> list[str]:
    return [test.name for test in (*direction_tests(plan, moments), *class_direction_tests(plan, moments))]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_maps_hold_to_the_bit_and_where_rounding_differs(case: tuple[Any, ...]) -> None:
    plan, honest = make(*case)
    assert names(plan, honest) == ["directions from the moments", "class directions from the scatter"]
    other = elsewhere(plan, honest)
    if case[1] > 1:
        assert not np.array_equal(other.directions, honest.directions)
    found = names(plan, other)
    # What was not compared to the bit is said; of hardly anything but noise all digits may come out alike.
    first, last = residual_map(plan, other), class_map(plan, other)
    alike = [np.array_equal(first.directions, other.directions) and np.array_equal(first.means, other.means)]
    alike += [np.array_equal(last.directions, other.class_directions) and np.array_equal(last.means, other.class_means)]
    assert [name.endswith(UP_TO_ROUNDING) for name in found] == [not same for same in alike]


def records(honest: ThreeStageMoments, name: str) -> NDArray[np.float32]:
    return np.random.default_rng(2).random(getattr(honest, name).shape).astype(np.float32)


def one_record(honest: ThreeStageMoments, name: str) -> NDArray[np.float32]:
    """In one row, as long as the row was."""
    values = getattr(honest, name).copy()
    row = np.random.default_rng(2).normal(size=values.shape[1])
    values[-1] = row * np.linalg.norm(values[-1]) / np.linalg.norm(row)
    return np.asarray(values)


def faint(honest: ThreeStageMoments, name: str) -> NDArray[np.float32]:
    """A hundredth of the largest number, everywhere."""
    values = getattr(honest, name)
    return np.asarray(values + 0.01 * np.abs(values).max() * records(honest, name), np.float32)


@pytest.mark.parametrize("forge", [records, one_record, faint])
@pytest.mark.parametrize("name", ["directions", "means", "class_directions", "class_means"])
def test_records_in_a_map_are_refused(name: str, forge: Callable[..., Any]) -> None:
    plan, honest = make(600, 40, 4.0, 1, "full")
    with pytest.raises(InvalidInput, match="released"):
        names(plan, replace(honest, **{name: forge(honest, name)}))


def test_a_map_in_another_order_or_of_other_weights_is_refused() -> None:
    plan, honest = make(600, 40, 4.0, 1, "full")
    swapped = replace(honest, directions=honest.directions[::-1], means=honest.means[:, ::-1])
    longer = replace(honest, directions=np.asarray(honest.directions * np.float32(1.01)))
    for forged in (swapped, longer):
        with pytest.raises(InvalidInput, match="released directions"):
            direction_tests(plan, forged)
