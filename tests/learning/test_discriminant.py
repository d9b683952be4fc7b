"""The discriminant learner, on Gaussian classes whose means and covariance are known."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

import privmix as pm
from privmix.designs.moments.learner import SecondMomentsClassifier
from privmix.learning.base import ReleaseLearner
from privmix.learning.class_statistics import class_statistics
from privmix.learning.discriminant import DiscriminantClassifier
from privmix.learning.ridge import NoiseAwareRidgeClassifier
from privmix.publication.dataset import RecordTransform, ReleasedDataset
from privmix.publication.second_moments import SecondMoments
from tests.refusals import refuses

from .mixing import mix

Records = tuple[NDArray[np.float64], NDArray[np.int64]]


def mixture(classes: int, dim: int, records: int, *, sizes: float = 1e6, seed: int = 0) -> tuple[Records, Records]:
    """Training and test records: means and scatter fall along the axes, classes are Dirichlet(``sizes``) large."""
    rng = np.random.default_rng(seed)
    within = (np.arange(dim) + 2.0) ** -1.3
    means = rng.normal(size=(classes, dim)) * np.sqrt(within / 2)
    shares = rng.dirichlet(np.full(classes, sizes))

    def draw(count: int) -> Records:
        labels = rng.choice(classes, count, p=shares)
        return means[labels] + np.sqrt(within) * rng.normal(size=(count, dim)), labels

    return draw(records), draw(2000)


def moments(
    x: NDArray[np.float64], y: NDArray[np.int64], noise: float, *, centred: bool = True, off: float = 0.0
) -> ReleasedDataset:
    """Second moments released with noise of ``noise`` times a typical record's share in them."""
    # off: error in each number of the released mean; labels are then as they are.
    rng = np.random.default_rng(7)
    classes, size = int(y.max()) + 1, float(np.linalg.norm(x, axis=1).mean())
    centre = (x.mean(axis=0) + off).astype(np.float32) if centred else None
    offset = 1 / classes if centred and not off else 0.0
    x = x - (0 if centre is None else centre)
    targets = np.eye(classes)[y] - offset
    symmetric = rng.normal(0, noise * size**2, (x.shape[1], x.shape[1]))
    found = SecondMoments(
        (x.T @ x + (symmetric + symmetric.T) / 2).astype(np.float32),
        (x.T @ targets + rng.normal(0, noise * size, (x.shape[1], classes))).astype(np.float32),
        (targets.sum(axis=0) + rng.normal(0, noise, classes)).astype(np.float32),
        records=len(x),
        noise_std_second=noise * size**2,
        noise_std_cross=noise * size,
        noise_std_counts=noise,
    )
    transform = RecordTransform(1e9, centre=centre, residual_clip_norm=1e9 if centred else None)
    release = mix(np.zeros((classes, x.shape[1])), np.arange(classes), rows=1, degree=1, noise=0.0)
    return replace(release, design="moments", label_offset=offset, transform=transform, beside=found)


def accuracy(release: ReleasedDataset, test: Records, model: ReleaseLearner | None = None) -> float:
    return float(((model or DiscriminantClassifier()).fit(release).predict(test[0]) == test[1]).mean())


@pytest.mark.parametrize(("centred", "off"), [(True, 0.0), (True, 0.5), (False, 0.0)])
@pytest.mark.parametrize("classes", [2, 5])
def test_without_noise_it_is_linear_discriminant_analysis(classes: int, centred: bool, off: float) -> None:
    (x, y), (test_x, _) = mixture(classes, 12, 20_000, sizes=3.0)
    x += 0.3  # a mean to take off
    model = DiscriminantClassifier().fit(moments(x, y, 0.0, centred=centred, off=off))
    reference = LinearDiscriminantAnalysis().fit(x, y)
    own = model.decision_function(test_x + 0.3)
    expected = reference.decision_function(test_x + 0.3)
    apart = own[:, 1:] - own[:, :1]
    expected = expected[:, None] if classes == 2 else expected[:, 1:] - expected[:, :1]
    # What is left is the sampling error that the learner allows for: 12 directions against thousands of records.
    assert np.abs(apart - expected).max() < 0.03 * np.abs(expected).max()
    assert (own.argmax(axis=1) == reference.predict(test_x + 0.3)).mean() > 0.99


def test_class_sizes_that_noise_hides_show_in_how_far_the_mean_is_off() -> None:
    (x, y), _ = mixture(5, 12, 20_000, sizes=0.5)
    release = moments(x, y, 0.0, off=3.0)
    hidden = replace(release.moments, label_sums=np.full(5, 4000, np.float32), noise_std_counts=10_000.0)
    found = class_statistics(replace(release, beside=hidden)).shares
    true = np.bincount(y, minlength=5) / len(y)
    assert np.abs(found - true).max() < 0.25 * np.abs(hidden.class_shares(0.0) - true).max()


def test_under_noise_it_beats_regression_on_the_same_moments() -> None:
    train, test = mixture(40, 120, 6000)
    release = moments(*train, 20.0)
    regression = accuracy(release, test, SecondMomentsClassifier())
    assert accuracy(release, test) > regression + 0.05  # 0.42 against 0.34


def scores_of(release: ReleasedDataset, x: NDArray[np.float64]) -> NDArray[np.float64]:
    return DiscriminantClassifier().fit(release).decision_function(x)


def test_turned_and_scaled_features_give_the_same_scores() -> None:
    (x, y), (test_x, _) = mixture(6, 30, 3000)
    release = moments(x, y, 2.0)
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(30, 30)))[0]
    turned = replace(
        release,
        transform=replace(release.transform, centre=(release.transform.centre @ turn).astype(np.float32)),
        beside=replace(
            release.moments,
            second=(turn.T @ release.moments.second @ turn).astype(np.float32),
            cross=(turn.T @ release.moments.cross).astype(np.float32),
        ),
    )
    expected, found = scores_of(release, test_x), [scores_of(turned, test_x @ turn)]
    found += [scores_of(moments(factor * x, y, 2.0), factor * test_x) for factor in (1e-3, 1e3)]
    for scores in found:
        np.testing.assert_allclose(scores, expected, atol=0.01 * np.abs(expected).max())


def test_of_rows_no_wide_spread_in_few_directions_is_weighed() -> None:
    """There it would be found where there is none: benchmarks/results/ended.md, on held-out records."""
    x, y = mixture(3, 6, 3000)[0]
    powers = [class_statistics(of).powers[-1] for of in (mix(x, y, rows=200), moments(x, y, 0.1))]
    assert powers[0] <= 1.25 < powers[1]


def test_mixed_rows_say_what_moments_say() -> None:
    train, test = mixture(5, 20, 4000)
    rows = mix(*train, rows=10_000, degree=8, noise=0.05, centred=True, clip_norm=8.0)
    assert accuracy(rows, test) > accuracy(moments(*train, 0.0), test) - 0.03


@pytest.mark.parametrize("design", ["poisson", "fixed"])
@pytest.mark.parametrize("centred", [True, False])
def test_noisy_rows_beat_ridge_regression(design: str, centred: bool) -> None:
    train, test = mixture(20, 40, 4000)
    release = mix(*train, rows=4000, degree=16, noise=0.2, design=design, centred=centred, clip_norm=4.0)
    assert accuracy(release, test) > accuracy(release, test, NoiseAwareRidgeClassifier())


def test_rows_without_noise_may_lie_in_a_plane() -> None:
    (x, y), (test_x, test_y) = mixture(5, 20, 4000)
    # Rounding gives directions in which nothing differs eigenvalues of either sign.
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(60, 60)))[0][:20]
    found, expected = (
        accuracy(mix(x @ by, y, rows=1500, degree=8, noise=1e-6, centred=True, clip_norm=8.0), (test_x @ by, test_y))
        for by in (turn, np.eye(20))
    )
    assert found > expected - 0.02


def test_class_sums_allow_for_the_sizes_of_classes() -> None:
    train, test = mixture(30, 100, 6000, sizes=1.0)
    release = mix(*train, rows=30, degree=200, noise=1.0, label_noise=0.0, design="classwise", centred=True)
    release = replace(release, y=(np.eye(30) - release.label_offset).astype(np.float32))
    # 0.80 against 0.72.
    assert accuracy(release, test) > accuracy(release, test, NoiseAwareRidgeClassifier()) + 0.04


@pytest.mark.parametrize("noise", [0.0, 1.0, 1e6])
@pytest.mark.parametrize(("classes", "dim", "records"), [(2, 3, 40), (2, 60, 20), (30, 4, 50)])
@pytest.mark.parametrize("kind", ["moments", "poisson", "classwise", "few rows"])
def test_it_always_answers(kind: str, noise: float, classes: int, dim: int, records: int) -> None:
    (x, y), (test_x, _) = mixture(classes, dim, records)
    y[0] = classes - 1
    if kind == "moments":
        release = moments(x, y, noise)
    else:
        rows = {"poisson": 60, "classwise": classes, "few rows": 2}[kind]
        release = mix(x, y, rows=rows, degree=4, noise=noise, design="poisson" if kind == "few rows" else kind)
    model = DiscriminantClassifier().fit(release)
    assert np.isfinite(model.decision_function(test_x)).all()
    assert 0 <= model.between_share_ <= 1


def test_noise_alone_tells_no_records_apart() -> None:
    (x, y), (test_x, _) = mixture(4, 30, 200)
    assert np.ptp(scores_of(moments(x, y, 1e4), test_x), axis=0).max() < 0.5


def test_what_is_no_number_or_says_nothing_is_refused() -> None:
    train, _ = mixture(3, 5, 100)
    release, rows = moments(*train, 1.0), mix(*train, rows=10, noise=1.0)
    broken = replace(release.moments, cross=np.where(np.eye(5, 3) > 0, np.float32(np.nan), release.moments.cross))
    with refuses("released moments"):
        DiscriminantClassifier().fit(replace(release, beside=broken))
    with refuses("released rows"):
        DiscriminantClassifier().fit(replace(rows, x=np.zeros_like(rows.x)))


def test_a_count_that_is_mostly_noise_does_not_decide() -> None:
    """Counts of 20 releases with noise of seven tenths of a class lose little to exact counts."""
    train, test = mixture(10, 40, 1200)
    release = moments(*train, 1.5)
    exact = np.bincount(train[1], minlength=10) - len(train[1]) * release.label_offset

    def reached(told: NDArray[np.float64], **noise: float) -> float:
        beside = replace(release.moments, label_sums=told.astype(np.float32), **noise)
        return accuracy(replace(release, beside=beside), test)

    deviation, rng = 0.7 * 120, np.random.default_rng(3)
    found = [reached(exact + deviation * rng.standard_normal(10), noise_std_counts=deviation) for _ in range(20)]
    assert np.mean(found) > reached(exact) - 0.02
    assert min(found) > reached(exact) - 0.25


@pytest.mark.filterwarnings("ignore:`seed`")
def test_class_sums_may_have_more_classes_than_features() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 6, 3000)
    x = rng.normal(size=(6, 3))[y] / 4 + 0.02 * rng.normal(size=(3000, 3))
    given: dict[str, Any] = {"classes": 6, "features": "identity", "epsilon": 8, "delta": 1e-5, "seed": 0}
    model = pm.fit(pm.release((x, y), design="classwise:full_batch=True", **given), learner="discriminant")
    assert np.isfinite(model.predict_proba(x)).all()
    assert (np.asarray(model.predict(x)) == y).mean() > 0.5
