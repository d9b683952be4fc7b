"""Attacks on rows: a planted copy is found by each, and rows that depend on no record leak nothing."""

import numpy as np
import pytest
from numpy.typing import NDArray

from privmix.attacks.table_rows import GUESSES, RowAttack, RowAttacks, attack_rows
from privmix.learning.table_model import TableModel
from tests.refusals import refuses

SIZES = [5, 4, 6, 3, 5, 4, 2]
ATTACKS = ["singling out", "linking two halves of a record", "inferring a column"]


def records(count: int, seed: int) -> NDArray[np.int64]:
    """Draw records of one law, in which the last column follows the first one nine times in ten."""
    rng = np.random.default_rng(seed)
    found = np.column_stack([rng.integers(0, size, count) for size in SIZES])
    found[:, -1] = np.where(rng.random(count) < 0.9, found[:, 0] % 2, 1 - found[:, 0] % 2)
    return found


def copied(rows: NDArray[np.int64]) -> TableModel:
    states = tuple(np.eye(size)[rows[:, column]] for column, size in enumerate(SIZES))
    return TableModel(np.full(len(rows), 1 / len(rows)), states, (), 1.0)


def attacked(rows: NDArray[np.int64], released: NDArray[np.int64]) -> RowAttacks:
    return attack_rows(rows, copied(rows[:2000]), released, records(2000, 2), SIZES)


def test_copies_of_the_records_are_found_by_every_attack() -> None:
    released = records(2000, 1)
    found = attacked(released, released)
    assert [one.name for one in found.attacks] == ATTACKS
    for one in found.attacks:
        assert min(one.interval[0], one.risk) > 0.05
        assert one.released > one.naive + 0.05
    assert found.membership[1] > 0.7


def test_rows_that_depend_on_no_record_leak_nothing() -> None:
    """Rates differ by less than 6.5 standard deviations of two shares, but with probability below 1e-9."""
    found = attacked(records(2000, 3), records(2000, 1))
    for one in found.attacks:
        assert abs(one.released - one.control) < 6.5 * np.sqrt(0.5 / one.guesses)
    assert abs(found.membership[0] - 0.5) < 6.5 * np.sqrt(1 / 6 / 2000)
    # They teach about everyone: the control's last column is known from the first one.
    _, _, inferring = found.attacks
    assert inferring.control > inferring.naive


def test_intervals_hold_chance_where_few_guesses_can_be_made() -> None:
    """Intervals hold 0 in 95% of 30 sets of 260 records and 4 columns: in fewer than 15 with probability 1e-9."""
    held = dict.fromkeys(ATTACKS, 0)
    states = tuple(np.full((1, size), 1 / size) for size in SIZES[:4])
    model = TableModel(np.ones(1), states, (), 1.0)
    for seed in range(30):
        rows, released, control = (records(260, 100 * seed + place)[:, :4] for place in range(3))
        found = attack_rows(rows, model, released, control, SIZES[:4])
        for one in found.attacks:
            held[one.name] += one.interval[0] <= 0 <= one.interval[1]
            assert one.interval[0] <= one.released - one.control <= one.interval[1]
    assert min(held.values()) >= 15


def test_risk_is_the_part_that_the_control_leaves() -> None:
    assert RowAttack("a", 100, 0.3, 0.2, 0.1, (0.0, 0.2)).risk == pytest.approx(0.125)
    assert RowAttack("a", GUESSES, 1.0, 1.0, 0.1, (0.0, 0.0)).risk == 0


@pytest.mark.parametrize(
    ("released", "control"),
    [
        (records(500, 2), records(99, 3)),
        (records(5000, 2), records(1249, 3)),
        (records(500, 2), records(500, 2)),
        (records(500, 2), records(500, 2)[::-1][:400]),
        (records(500, 2), np.concatenate([records(500, 2)[:150], records(350, 3)])),
    ],
)
def test_a_control_that_is_small_or_of_the_data_is_refused(
    released: NDArray[np.int64], control: NDArray[np.int64]
) -> None:
    with refuses("control"):
        attack_rows(records(500, 1), copied(records(500, 1)), released, control, SIZES)
