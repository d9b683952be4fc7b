"""Attacks on rows of a table: the three risks that data protection authorities name, and membership.

Each attack guesses about records that are in the release and about as many others, the control. It shows a leak if it
is right more often about the former: the rest is what rows teach about everyone (Giomi et al. 2023, who take singling
out, linkability and inference from Opinion 05/2014 on anonymisation).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from privmix.attacks.membership.scores import auc_interval, newcombe
from privmix.errors import InvalidInput, Unquoted
from privmix.learning.table_model import TableModel

Places = NDArray[np.int64]

GUESSES: Final = 1000
"""Guesses of each attack about records, and about the control."""

LEAST_CONTROL: Final = 100
# A smaller control, and as few of the data, would hide that a record is singled out.
_MOST_TIMES: Final = 4
# Standard deviations by which more of the control than by chance may be in the data; splits that a spread is taken of.
# At 6, chance refuses about one honest control in a billion.
_ODD, _SPLITS = 6.0, 200
# Rows that attacks search, records that membership is scored of, and nearest rows that count.
_MOST_ROWS, _MOST_SCORED, _NEAREST = 50_000, 10_000, 10
# Targets that are compared with all rows at once.
_BLOCK: Final = 50
# Least share of a state by the model, so that the logarithm of an unseen one is finite.
_TINY: Final = 1e-12


@dataclass(frozen=True)
class RowAttack:
    """Share of right guesses about released records, about the control, and by a ``naive`` guess without rows.

    ``interval``: of the difference between released records and control, 95%.
    """

    name: str
    guesses: int
    released: float
    control: float
    naive: float
    interval: tuple[float, float]

    @property
    def risk(self) -> float:
        """Share of guesses that fail on the control and are right on released records; about 0 without a leak."""
        return (self.released - self.control) / (1 - self.control) if self.control < 1 else 0.0

    def to_dict(self) -> dict[str, Any]:
        found = {name: value for name, value in vars(self).items() if name != "interval"}
        return {**found, "risk": self.risk, "difference_interval_95": list(self.interval)}


@dataclass(frozen=True)
class RowAttacks:
    """All attacks; ``membership`` is the AUC of telling released records from the control, with its 95% interval."""

    attacks: tuple[RowAttack, ...]
    membership: tuple[float, float, float]

    def shown(self) -> Mapping[str, str]:
        auc, low, high = self.membership
        found = {
            f"attack: {one.name}": f"right {100 * one.released:.1f}% of the time, on the control "
            f"{100 * one.control:.1f}%, without rows {100 * one.naive:.1f}%; difference "
            f"{100 * (one.released - one.control):+.1f} ({100 * one.interval[0]:+.1f} to {100 * one.interval[1]:+.1f})"
            for one in self.attacks
        }
        return {**found, "attack: membership": f"AUC {auc:.3f} ({low:.3f} to {high:.3f}); guessing has 0.5"}

    def to_dict(self) -> dict[str, Any]:
        auc, low, high = self.membership
        membership = {"auc": auc, "interval_95": [low, high]}
        return {"attacks": [one.to_dict() for one in self.attacks], "membership": membership}


def attack_rows(
    rows: Places, model: TableModel, released: Places, control: Places, sizes: Sequence[int], seed: int = 0
) -> RowAttacks:
    """Attack rows (n, c) that ``model`` drew, with released and control records (m, c): states of columns.

    Guarantees:
        * Control: an attack guesses as often about the control as about released records, in the same way. The
          difference is 0 in expectation where rows do not depend on released records.
        * Silent: figures are shares of all guesses, and name no record.
    """
    check_control(released, control)
    generator = np.random.default_rng(seed)
    few = min(len(released), len(control))
    inside, outside = (part[generator.choice(len(part), few, replace=False)] for part in (released, control))
    rows = rows[generator.choice(len(rows), min(len(rows), _MOST_ROWS), replace=False)]
    found = [
        _singling_out(rows, (inside, outside), generator),
        _linking(rows, (inside, outside), generator),
        _inferring(rows, (inside, outside), sizes, generator),
    ]
    mine, others = (likelihood_ratio(model, part[:_MOST_SCORED]) for part in (inside, outside))
    return RowAttacks(tuple(found), auc_interval(mine, others))


def check_control(released: Places, control: Places) -> None:
    """Raise :class:`InvalidInput` where the control is too small, or holds records of the data."""
    least = max(LEAST_CONTROL, math.ceil(len(released) / _MOST_TIMES))
    if len(control) < least or len(released) < LEAST_CONTROL:
        allowed = f"{least} records at least, a quarter of the data, and {LEAST_CONTROL} in the data"
        raise InvalidInput("control", len(control), allowed)
    # By chance as large a share of the control is in the data as is repeated within the data.
    weights = _weights(released.shape[1], np.random.default_rng(0))
    keys = [part.astype(np.uint64) @ weights for part in (released, control)]
    values, counts = np.unique(keys[0], return_counts=True)
    repeated = float(counts[counts > 1].sum() / len(released))
    seen = float(np.isin(keys[1], values).mean())
    spread = math.sqrt(max(repeated * (1 - repeated), 1 / least) * (1 / len(released) + 1 / len(control)))
    if seen - repeated > _ODD * spread or np.array_equal(np.sort(keys[0]), np.sort(keys[1])):
        # No share: an error may be logged where the evaluation itself is not.
        shown = Unquoted("more records of the data than chance brings")
        raise InvalidInput("control", shown, "records of the same kind that are not in the release")


def likelihood_ratio(model: TableModel, records: Places) -> NDArray[np.float64]:
    """Return how much likelier the model makes records than their columns on their own, in logarithms."""
    logs = np.zeros((len(records), len(model.weights)))
    alone = np.zeros(len(records))
    for column, shares in enumerate(model.states):
        at = np.minimum(records[:, column], shares.shape[1] - 1)
        logs += np.log(np.maximum(shares.T[at], _TINY))
        alone += np.log(np.maximum((model.weights @ shares)[at], _TINY))
    most = logs.max(axis=1, keepdims=True)
    return np.asarray(np.log(np.exp(logs - most) @ model.weights) + most[:, 0] - alone)


def _singling_out(rows: Places, groups: Sequence[Places], generator: np.random.Generator) -> RowAttack:
    """Guess that a combination of values that one row has is of one record."""
    weights, count = _weights(rows.shape[1], generator), len(groups[0])
    pooled, right, naive = np.concatenate(groups), list[NDArray[np.int64]](), 0
    made: set[tuple[bytes, int]] = set()
    for _ in range(GUESSES):
        columns = np.sort(generator.permutation(rows.shape[1])[: generator.integers(1, rows.shape[1] + 1)])
        # A hash of the values: combinations of many columns have no number of their own.
        mine, theirs = (part[:, columns].astype(np.uint64) @ weights[columns] for part in (rows, pooled))
        values, counts = np.unique(mine, return_counts=True)
        if not (alone := values[counts == 1]).size:
            continue
        guess = generator.choice(alone)
        if (key := (columns.tobytes(), int(guess))) in made:
            # The same guess twice would count as two.
            continue
        made.add(key)
        right.append(np.flatnonzero(theirs == guess))
        blind = np.array([generator.choice(rows[:, column]) for column in columns]).astype(np.uint64) @ weights[columns]
        naive += int(np.count_nonzero(theirs[:count] == blind) == 1)
    # Guesses share records: the spread of their difference is that under other halves of the same records.
    of_data = np.arange(len(pooled)) < count
    gaps = [np.subtract(*_alone(right, generator.permutation(of_data))) for _ in range(_SPLITS if right else 0)]
    spread = float(np.std(gaps)) / len(right) if right else 0.0
    found = _shares("singling out", len(right), np.array(_alone(right, of_data)), naive)
    difference, half = found.released - found.control, float(norm.isf(0.025)) * spread
    return replace(found, interval=(difference - half, difference + half))


def _alone(right: Sequence[NDArray[np.int64]], of_data: NDArray[np.bool_]) -> tuple[int, int]:
    """Return how many guesses are of one record of the data, and of one other record."""
    inside = np.array([np.count_nonzero(of_data[places]) for places in right], np.int64)
    outside = np.array([len(places) for places in right], np.int64) - inside
    return int(np.count_nonzero(inside == 1)), int(np.count_nonzero(outside == 1))


def _linking(rows: Places, groups: Sequence[Places], generator: np.random.Generator) -> RowAttack:
    """Guess that two halves of a record's columns belong together, by a row that is near to both."""
    right, naive, guesses = np.zeros(len(groups)), 0.0, 0
    for start in range(0, min(GUESSES, len(groups[0])), _BLOCK):
        halves = np.array_split(generator.permutation(rows.shape[1]), 2)
        for place, group in enumerate(groups):
            one, other = (_nearest(rows, group[start : start + _BLOCK], half, generator) for half in halves)
            right[place] += sum(bool(np.intersect1d(a, b).size) for a, b in zip(one, other, strict=True))
        guesses += len(one)
        # Chance that two random choices of this number of rows share one.
        naive += len(one) * (1 - (1 - one.shape[1] / len(rows)) ** one.shape[1])
    return _shares("linking two halves of a record", guesses, right, naive)


def _inferring(
    rows: Places, groups: Sequence[Places], sizes: Sequence[int], generator: np.random.Generator
) -> RowAttack:
    """Guess a record's value in one column by the rows that are nearest in all others."""
    right, naive, guesses = np.zeros(len(groups)), 0.0, 0
    for turn, start in enumerate(range(0, min(GUESSES, len(groups[0])), _BLOCK)):
        secret = turn % rows.shape[1]
        known = np.delete(np.arange(rows.shape[1]), secret)
        for place, group in enumerate(groups):
            targets = group[start : start + _BLOCK]
            near = rows[_nearest(rows, targets, known, generator), secret]
            told = [np.bincount(one, minlength=sizes[secret]).argmax() for one in near]
            right[place] += np.count_nonzero(targets[:, secret] == told)
        guesses += len(targets)
        usual = np.bincount(rows[:, secret]).argmax()
        naive += np.count_nonzero(groups[0][start : start + _BLOCK, secret] == usual)
    return _shares("inferring a column", guesses, right, naive)


def _shares(name: str, guesses: int, right: NDArray[Any], naive: float) -> RowAttack:
    of = max(guesses, 1)
    released, control, blind = (float(one) / of for one in (*right, naive))
    _, low, high = newcombe(int(right[0]), of, int(right[1]), of)
    return RowAttack(name, guesses, released, control, blind, (low, high))


def _weights(columns: int, generator: np.random.Generator) -> NDArray[np.uint64]:
    return np.asarray(generator.integers(2**63, size=columns, dtype=np.uint64))


def _nearest(
    rows: Places, targets: Places, columns: NDArray[np.int64], generator: np.random.Generator
) -> NDArray[np.int64]:
    """(t, k) rows that differ from each target in the fewest columns; ties are broken at random."""
    apart = generator.random((len(targets), len(rows)), np.float32)
    for column in columns:
        apart += targets[:, column, None] != rows[None, :, column]
    count = min(_NEAREST, len(rows))
    return np.argpartition(apart, count - 1, axis=1)[:, :count]
