from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from privmix.learning import ridge
from privmix.learning import rows as rows_of
from privmix.learning.ridge import NoiseAwareRidgeClassifier
from privmix.learning.rows import CentredRows
from privmix.publication.dataset import ReleasedDataset
from tests.refusals import refuses

from .mixing import digits, mix, mixed_digits


def naive_coef(release: ReleasedDataset, r: float) -> NDArray[np.float64]:
    """The class docstring's formula, written down in float64."""
    x = release.x - release.x.mean(axis=0, dtype=np.float64)
    y = release.y - release.y.mean(axis=0, dtype=np.float64)
    gram = x.T @ x - (release.rows - 1) * release.noise_std_x**2 * np.eye(release.dim)
    values, vectors = np.linalg.eigh(gram)
    values = np.maximum(values, 0)
    return vectors @ np.diag(1 / (values + r * values.max())) @ vectors.T @ x.T @ y


@pytest.mark.parametrize("rows", [1000, 40])  # more rows than features, and fewer
@pytest.mark.parametrize("r", [1e-3, 1e-1])
def test_matches_the_naive_formula(rows: int, r: float) -> None:
    release = mixed_digits(rows)
    model = NoiseAwareRidgeClassifier(r).fit(release)
    expected = naive_coef(release, r)
    assert model.regularisation_ == r
    assert np.abs(model.coef_ - expected).max() < 1e-3 * np.abs(expected).max()


def test_small_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    release = mixed_digits(500)
    whole = NoiseAwareRidgeClassifier().fit(release)
    monkeypatch.setattr(rows_of, "ROW_BLOCK", 7)
    blocks = NoiseAwareRidgeClassifier().fit(release)
    assert blocks.regularisation_ == pytest.approx(whole.regularisation_, rel=1e-4)
    np.testing.assert_allclose(blocks.coef_, whole.coef_, rtol=1e-3, atol=1e-4)


def test_gram_is_accurate_enough_for_the_smallest_regularisation() -> None:
    # The smallest r is 1e-5 of the largest eigenvalue: the sums' error must stay far below that.
    x = (1 + 0.01 * np.random.default_rng(0).normal(size=(30_000, 50))).astype(np.float32)
    rows = CentredRows(x, x[:, :2], np.zeros(50, np.float32), np.zeros(2, np.float32), 0.0, 0.0)
    gram, _ = rows.sums(slice(0, len(x)))
    exact = np.tril(x.astype(np.float64).T @ x.astype(np.float64))
    assert np.abs(gram - exact).max() < 1e-6 * np.linalg.norm(exact, 2)


def test_noise_correction_recovers_the_regression_on_single_records() -> None:
    # Poisson rows have the records' second moments, so without noise and regularisation W would be the records'
    # own least squares. Noise of this size, uncorrected, shrinks it by more than a third.
    rng = np.random.default_rng(1)
    x = rng.normal(size=(400, 4)) / 4
    y = (x @ [3.0, -1.0, 0.0, 1.0] + 0.3 * rng.normal(size=400) > 0).astype(np.int64)
    # The rows can only know the moments of the 64,000 records drawn: 8 standard errors of W are about 0.25.
    release = mix(x, y, rows=8000, degree=8, noise=0.5, clip_norm=1.0)
    records = release.transform(x)
    expected = np.linalg.lstsq(records, np.eye(2)[y], rcond=None)[0]
    corrected = NoiseAwareRidgeClassifier(1e-9).fit(release).coef_
    plain = NoiseAwareRidgeClassifier(1e-9).fit(replace(release, noise_std_x=0.0)).coef_
    assert np.linalg.norm(corrected - expected) < 0.15 * np.linalg.norm(expected)
    assert np.linalg.norm(plain - expected) > 0.3 * np.linalg.norm(expected)


@pytest.mark.parametrize("centred", [False, True])
def test_the_mean_record_scores_the_mean_label(centred: bool) -> None:
    x, y = digits()[0]
    release = mix(x, y, rows=1000, noise=0.2, centred=centred)
    model = NoiseAwareRidgeClassifier(0.01).fit(release)
    records = release.transform(x)
    # The scores of all records average to the class frequencies up to the rows' own sampling error, below 0.03.
    mean_scores = (records @ model.coef_ + model.intercept_).mean(axis=0)
    np.testing.assert_allclose(mean_scores, np.bincount(y) / len(y), atol=0.05)


def test_held_out_loss_is_unbiased() -> None:
    # 400 draws of the rows' noise against the loss without noise; 7 standard errors: false alarm below 1e-10.
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(30, 5)), rng.normal(size=(30, 3))
    coef = rng.normal(size=(5, 3)).astype(np.float32)
    clean = np.square(y - x @ coef).sum(axis=1).mean()
    estimates = []
    for _ in range(400):
        noisy_x = (x + rng.normal(0, 0.7, x.shape)).astype(np.float32)
        noisy_y = (y + rng.normal(0, 1.5, y.shape)).astype(np.float32)
        rows = CentredRows(noisy_x, noisy_y, np.zeros(5, np.float32), np.zeros(3, np.float32), 0.7**2, 1.5**2)
        estimates.append(ridge._corrected_losses(noisy_x @ coef, noisy_y, coef, rows).mean())
    assert abs(np.mean(estimates) - clean) < 7 * np.std(estimates) / np.sqrt(len(estimates))


def test_held_out_rows_are_outside_the_fit() -> None:
    x, y = digits()[0]
    for rows in (400, 50):
        release = mix(x[:, :60], y, rows=rows, clip_norm=2.0)
        parts = CentredRows.of(release)
        fold = slice(rows - rows // 10, rows)
        spectrum = ridge._Moments(parts, [fold]).spectrum(without=fold)
        x_fit, y_fit = parts.centred(slice(0, fold.start))
        values, vectors = np.linalg.eigh(x_fit.T @ x_fit - len(x_fit) * parts.noise_variance * np.eye(60))
        values = np.maximum(values, 0)
        expected = vectors @ np.diag(1 / (values + 0.1 * values.max())) @ vectors.T @ x_fit.T @ y_fit
        np.testing.assert_allclose(spectrum.solve(0.1), expected, atol=2e-3 * np.abs(expected).max())


def zero_rows(rows: int, columns: int = 3) -> CentredRows:
    return CentredRows(np.zeros((rows, columns), np.float32), *(np.zeros(3, np.float32),) * 3, 0.0, 0.0)


@pytest.mark.parametrize(("rows", "classes", "folds"), [(40, 2, 0), (50, 2, 10), (90, 10, 0), (105, 10, 10)])
def test_folds_are_large_enough_disjoint_and_last(rows: int, classes: int, folds: int) -> None:
    found = ridge._folds(zero_rows(rows), classes)
    assert len(found) == folds
    taken = sorted(row for fold in found for row in range(fold.start, fold.stop))
    assert taken == list(range(rows - len(taken), rows))
    assert ridge._folds(zero_rows(3000, 1100), 10) == [slice(1500, 3000)], "of large releases one half"


def test_too_few_rows_take_the_documented_default() -> None:
    few: dict[str, Any] = {"noise": 0.001, "label_noise": 0.0, "degree": 144}
    assert NoiseAwareRidgeClassifier().fit(mixed_digits(40, **few)).regularisation_ == 0.1
    assert NoiseAwareRidgeClassifier().fit(mixed_digits(10, design="classwise", **few)).regularisation_ == 0.3


# Each with the accuracy that the rule may lose against the best fixed r; the slack covers three seeds.
SETTINGS: list[tuple[dict[str, Any], float]] = [
    ({"rows": 1437, "noise": 1.5}, 0.03),
    ({"rows": 1437, "noise": 1.5, "centred": True}, 0.03),
    ({"rows": 1437, "noise": 1.5, "label_noise": 0.0}, 0.03),
    ({"rows": 1437, "noise": 0.0}, 0.03),
    ({"rows": 1437, "noise": 0.3, "design": "fixed"}, 0.03),
    ({"rows": 200, "noise": 1.5}, 0.05),
    ({"rows": 60, "noise": 0.7}, 0.08),
    ({"rows": 10, "noise": 5.0, "label_noise": 0.0, "degree": 144, "design": "classwise"}, 0.04),
    ({"rows": 1000, "noise": 30.0, "label_noise": 0.0, "degree": 144, "design": "classwise"}, 0.04),
]


@pytest.mark.parametrize(("setting", "slack"), SETTINGS)
def test_auto_is_close_to_the_best_fixed_regularisation(setting: dict[str, Any], slack: float) -> None:
    test = digits()[1]
    lost = []
    for seed in range(3):
        release = mixed_digits(seed=seed, **setting)
        fixed = [NoiseAwareRidgeClassifier(r).fit(release).score(*test) for r in np.logspace(-5, 0, 11)]
        lost.append(max(fixed) - NoiseAwareRidgeClassifier().fit(release).score(*test))
    assert np.mean(lost) < slack


def test_only_noise_or_one_row_gives_finite_scores() -> None:
    rng = np.random.default_rng(3)
    release = mix(rng.normal(size=(20, 6)), np.arange(20) % 2, rows=100, noise=1.0)
    too_much = replace(release, noise_std_x=100 * release.noise_std_x)  # every eigenvalue is cut to 0
    for few in (too_much, mix(np.ones((4, 6)), np.arange(4) % 2, rows=1)):
        model = NoiseAwareRidgeClassifier().fit(few)
        assert np.isfinite(model.decision_function(rng.normal(size=(5, 6)))).all()


def test_is_deterministic_and_leaves_the_release_alone() -> None:
    release, (test_x, _) = mixed_digits(), digits()[1]
    before = release.x.copy(), release.y.copy()
    release.x.flags.writeable = release.y.flags.writeable = False
    first, second = (NoiseAwareRidgeClassifier().fit(release).decision_function(test_x) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(release.x, before[0])
    np.testing.assert_array_equal(release.y, before[1])


@pytest.mark.parametrize("value", ["best", 0, -1.0, float("nan"), None, True])
def test_bad_regularisation(value: Any) -> None:
    with refuses("regularisation"):
        NoiseAwareRidgeClassifier(value).fit(mixed_digits(20))
