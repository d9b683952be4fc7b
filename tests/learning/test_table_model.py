"""The mixture of a table meets what was released, within its noise, and no more than the numbers say."""

from dataclasses import replace

import numpy as np
import pytest

from privmix.learning.table_mixture import ColumnStates, Mixture, draw
from privmix.learning.table_model import FINE, TableModel, _halves, fit_table
from privmix.publication.dataset import RecordTransform
from privmix.publication.second_moments import ClassSecondMoments, SecondMoments
from tests.refusals import refuses

RECORDS = 4000


def columns(sizes: tuple[int, ...] = (3, 4, 2)) -> list[ColumnStates]:
    scale = len(sizes) ** -0.5
    return [
        ColumnStates(f"c{place}", np.eye(size) * scale, np.full(size, 1 / size)) for place, size in enumerate(sizes)
    ]


def table(seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    hidden = rng.integers(3, size=RECORDS)
    flip = rng.random((RECORDS, 3)) < 0.2
    return np.column_stack(
        [
            np.where(flip[:, 0], rng.integers(3, size=RECORDS), hidden),
            np.where(flip[:, 1], rng.integers(4, size=RECORDS), hidden),
            np.where(flip[:, 2], rng.integers(2, size=RECORDS), hidden == 1),
            hidden == 2,
        ]
    )


def moments(
    rows: np.ndarray, std: float, *, transform: RecordTransform | None = None, seed: int = 0
) -> tuple[SecondMoments, RecordTransform]:
    transform = transform or RecordTransform(1.0)
    x = transform(features_of(rows))
    y = np.eye(2)[rows[:, -1]] - 0.5
    rng = np.random.default_rng(seed)
    noise = np.tril(rng.normal(size=(x.shape[1],) * 2), -1) / 2**0.5
    noise += noise.T + np.diag(rng.normal(size=x.shape[1]))
    found = SecondMoments(
        (x.T @ x + std * noise).astype(np.float32),
        (x.T @ y + std * rng.normal(size=(x.shape[1], 2))).astype(np.float32),
        (y.sum(axis=0) + std * rng.normal(size=2)).astype(np.float32),
        len(rows), std, std, std,
    )  # fmt: skip
    return found, transform


def pair_shares(rows: np.ndarray, first: int, second: int) -> np.ndarray:
    return np.histogram2d(rows[:, first], rows[:, second], bins=(range(5), range(5)))[0] / len(rows)


def furthest(first: np.ndarray, second: np.ndarray) -> float:
    pairs = [(a, b) for a in range(4) for b in range(a)]
    return max(np.abs(pair_shares(first, *pair) - pair_shares(second, *pair)).sum() / 2 for pair in pairs)


def fitted(std: float, transform: RecordTransform | None = None, **more: float) -> TableModel:
    found, used = moments(table(), std, transform=transform)
    return fit_table(found, 0.5, used, columns(), label="label", **more)


def features_of(rows: np.ndarray) -> np.ndarray:
    return np.concatenate([c.features[rows[:, j]] for j, c in enumerate(columns())], axis=1)


def sampled(model: TableModel) -> np.ndarray:
    return model.sample(RECORDS, np.random.default_rng(0))


@pytest.fixture(scope="module")
def usual() -> TableModel:
    return fitted(15.0)


def test_pairs_of_columns_come_back(usual: TableModel) -> None:
    assert furthest(sampled(usual), table()) < 0.05
    assert len(usual.pairs) == 6
    assert all(pair.met for pair in usual.pairs)
    assert {pair.columns for pair in usual.pairs} >= {("c0", "c1"), ("c1", "label")}


def test_noise_that_is_next_to_nothing_is_no_fault_of_the_fit() -> None:
    """What rounding leaves is of no weight in the rows."""
    pairs = fitted(0.02).pairs
    assert all(pair.met and pair.beyond <= FINE for pair in pairs)
    assert not any(pair.lost for pair in pairs)


def test_clipped_and_centred_records_are_taken_for_what_they_are() -> None:
    features = features_of(table())
    transform = RecordTransform(1.0, centre=features.mean(axis=0).astype(np.float32), residual_clip_norm=0.55)
    assert (np.linalg.norm(features - transform.centre, axis=1) > 0.55).mean() > 0.5
    assert furthest(sampled(fitted(1.0, transform, mean_noise_std=1e-4)), table()) < 0.05


def test_nothing_but_noise_is_taken_for_nothing() -> None:
    rows = sampled(fitted(3000.0))
    for first, second in [(1, 0), (2, 0), (2, 1)]:
        seen = pair_shares(rows, first, second)
        assert np.abs(seen - np.outer(seen.sum(axis=1), seen.sum(axis=0))).sum() / 2 < 0.15


def test_the_same_seed_gives_the_same_rows(usual: TableModel) -> None:
    first, second = (model.sample(100, np.random.default_rng(3)) for model in (usual, fitted(15.0)))
    assert np.array_equal(first, second)


def test_halves_have_independent_noise_of_the_size_they_say() -> None:
    """False alarms: z of 7 on correlation and variances, below 1e-10."""
    big = [ColumnStates(f"c{j}", np.eye(10) * 0.1, np.full(10, 0.1)) for j in range(30)]
    zero = SecondMoments(
        np.zeros((300, 300), np.float32), np.zeros((300, 2), np.float32), np.zeros(2, np.float32), 1000, 7.0, 7.0, 7.0
    )
    released = Mixture(zero, 0.5, RecordTransform(1.0), big, 0.0, False, 0).released
    rng = np.random.default_rng(5)
    noise = np.tril(rng.normal(size=(300, 300)) * 7.0 / 1000 / 2**0.5, -1)
    noisy = replace(released, second=(noise + noise.T)[None].astype(np.float32))
    halves = _halves(noisy, 0)
    values = [half.second[0][np.tril_indices(300, -1)] for half in halves]
    assert abs(np.corrcoef(*values)[0, 1]) < 7 / len(values[0]) ** 0.5
    for value, half in zip(values, halves, strict=True):
        assert abs((value**2).mean() * 2 * half.weights[0] ** 2 - 1) < 7 * (2 / len(value)) ** 0.5


def in_float64(value: object) -> object:
    if isinstance(value, list | tuple):
        return type(value)(map(in_float64, value))
    return value.astype(np.float64) if isinstance(value, np.ndarray | np.float32) else value


@pytest.mark.parametrize("by_class", [False, True])
@pytest.mark.parametrize("centred", [False, True])
def test_slopes_are_those_of_the_loss(centred: bool, by_class: bool) -> None:
    """Differences of the loss along random directions, in float64, with clipping, loose columns and a free total."""
    numeric = ColumnStates("n", np.array([[0.1, 0.3], [0.2, 0.7], [0.6, 0.2]]), np.array([0.2, 0.5, 0.3]))
    every = [*columns(), numeric]
    rng = np.random.default_rng(0)
    width = sum(column.features.shape[1] for column in every)
    half = rng.normal(size=(width, width))
    found = SecondMoments(half + half.T, rng.normal(size=(width, 2)), rng.random(2), 9, 3.0, 2.0, 1.0)
    if by_class:
        found = ClassSecondMoments(**vars(found), class_second=np.stack([half @ half.T, half + half.T]))
    centre = rng.random(width).astype(np.float32) / 5 if centred else None
    transform = RecordTransform(0.95, centre=centre, residual_clip_norm=0.6 if centred else None)
    fit = Mixture(found, 0.5, transform, every, 0.1, True, 0)
    for name, value in vars(fit).items():
        setattr(fit, name, in_float64(value))
    target = replace(fit.released, **{name: in_float64(getattr(fit.released, name)) for name in ("second", "cross")})
    fit.parts, fit.total = rng.normal(size=len(fit.parts)), 0.3
    fit.take_clipping(0, 500)
    _, (logits, parts, total) = fit.loss(target, 3.0)
    where = fit.logits, fit.parts, fit.total
    for _ in range(5):
        step = [1e-5 * rng.normal(size=np.shape(part)) for part in where]
        losses = []
        for sign in (1, -1):
            fit.logits, fit.parts, fit.total = (part + sign * one for part, one in zip(where, step, strict=True))
            losses.append(fit.loss(target, 3.0)[0])
        slope = 2 * ((logits * step[0]).sum() + parts @ step[1] + total * step[2])
        assert losses[0] - losses[1] == pytest.approx(slope, rel=1e-5)


def test_moments_of_each_class_show_three_columns() -> None:
    """A label that is the XOR of two columns: no pair shows it."""
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 2, (RECORDS, 4))
    rows[:, 3] = rows[:, 0] ^ rows[:, 1]
    found, transform = moments(rows, 10.0)
    own = [features_of(rows[rows[:, 3] == label]).astype(np.float32) for label in (0, 1)]
    by_class = ClassSecondMoments(**vars(found), class_second=np.stack([part.T @ part for part in own]))
    for release, least, most in ((found, 0.3, 0.7), (by_class, 0.97, 1.0)):
        drawn = fit_table(release, 0.5, transform, columns(), label="label").sample(RECORDS, rng)
        assert least < (drawn[:, 3] == drawn[:, 0] ^ drawn[:, 1]).mean() <= most


def test_rows_have_the_mixtures_shares() -> None:
    weights, states = np.array([0.25, 0.75]), [np.array([[1.0, 0.0], [0.2, 0.8]]), np.array([[0.5, 0.5], [0.5, 0.5]])]
    rows = draw(weights, states, 4000, np.random.default_rng(0))
    assert abs((rows[:, 0] == 0).mean() - 0.4) < 0.002
    assert abs((rows[:, 1] == 0).mean() - 0.5) < 0.002
    assert draw(np.full(50, 0.02), [np.tile([[0.5, 0.5]], (50, 1))], 3, np.random.default_rng(0)).shape == (3, 1)


def test_a_declared_count_that_is_no_count_changes_no_share() -> None:
    found, transform = moments(table(), 15.0)
    declared = replace(found, records=5 * RECORDS // 4)
    model = fit_table(declared, 0.5, transform, columns(), label="label", free_total=True)
    assert furthest(sampled(model), table()) < 0.06
    with refuses("columns"):
        fit_table(found, 0.5, transform, columns((3, 4)), label="label")


def test_without_a_label_columns_are_fitted_alone() -> None:
    """The zeros that stand for labels weigh nothing: the fit is the same with other numbers there."""
    found, transform = moments(table(), 5.0)
    alone = {"cross": np.zeros((9, 1), np.float32), "label_sums": np.zeros(1, np.float32)}
    bare = replace(found, **alone, noise_std_cross=0.0, noise_std_counts=0.0)
    fitted = [
        fit_table(replace(bare, cross=bare.cross + shift, label_sums=bare.label_sums + shift), 0.0, transform,
                  columns(), label="")
        for shift in (0, 5)
    ]  # fmt: skip
    assert all((one == other).all() for one, other in zip(fitted[0].states, fitted[1].states, strict=True))
    assert [pair.columns for pair in fitted[0].pairs] == [("c0", "c1"), ("c0", "c2"), ("c1", "c2")]
    drawn = sampled(fitted[0])
    assert drawn.shape == (RECORDS, 3)
    assert np.abs(pair_shares(drawn, 0, 1) - pair_shares(table(), 0, 1)).sum() / 2 < 0.03
