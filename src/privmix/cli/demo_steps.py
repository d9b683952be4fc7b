"""The steps of ``privmix demo``: release, fit, evaluate, accuracy against epsilon; each keeps a record."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from scipy.stats import binomtest
from sklearn.linear_model import LogisticRegression

from privmix.certificate import Verification
from privmix.cli.recording import keep_record
from privmix.data import embedded_digits
from privmix.engine import PrivateRecords
from privmix.features import Extractor, get_extractor
from privmix.jobs.features import features_in_memory
from privmix.jobs.quality import Quality, evaluation_content
from privmix.learning import NoiseAwareRidgeClassifier, save_model
from privmix.planning import ReleaseConfig
from privmix.plans import ReleasePlan
from privmix.progress import Progress
from privmix.releases import SecretStreams, load_release, release_to_folder, release_to_memory, verify_release
from privmix.reports.pictures import draw_confusion

EPSILON, DELTA, DEGREE, ROWS = 8.0, 1e-4, 32, 5_000
# Of the curve; the released one is part of it and is not released again.
EPSILONS: Final = (1.0, 2.0, 4.0, 8.0)
_CONFIDENCE: Final = 0.95
PUBLIC: Final = "The digits are public data, taken as private here to show how it is done: every figure may be shown."


@dataclass(frozen=True)
class Digits:
    """scikit-learn's digits as features: what is treated as private, and held-out records."""

    train: PrivateRecords
    test: PrivateRecords
    extractor: Extractor
    classes: tuple[str, ...]
    input_shape: tuple[int, ...]

    @classmethod
    def read(cls, progress: Progress) -> Digits:
        """Read both splits."""
        train, test, extractor = embedded_digits("train"), embedded_digits("test"), get_extractor("pixels")
        schema = train.schema
        return cls(
            features_in_memory(train, extractor, progress),
            features_in_memory(test, extractor, progress),
            extractor,
            tuple(schema.classes),
            tuple(schema.input_shape),
        )

    def plan(self, epsilon: float) -> ReleasePlan:
        """The demo's design at a budget."""
        plan = ReleaseConfig(
            records=len(self.train.labels),
            dim=self.extractor.output_dim(self.input_shape),
            classes=self.classes,
            mixup_degree=DEGREE,
            rows=ROWS,
            residual_clip_norm=0.45,
        ).calibrate(epsilon, DELTA)
        assert isinstance(plan, ReleasePlan)
        return plan


@dataclass(frozen=True)
class DemoResult:
    """What the demo tells on the terminal."""

    plan: ReleasePlan
    verified: Verification
    test_records: int
    accuracy: float
    reference_accuracy: float
    utility: tuple[tuple[float, float], ...]


def run_demo(digits: Digits, folder: Path, progress: Progress) -> DemoResult:
    """Release, fit and measure; files and records go to ``folder``."""
    plan = digits.plan(EPSILON)
    release_to_folder(
        plan,
        digits.train,
        SecretStreams.from_entropy(),
        folder / "release",
        extractor=digits.extractor.spec(),
        input_shape=digits.input_shape,
        progress=progress,
    )
    verified = verify_release(folder / "release")
    classifier = NoiseAwareRidgeClassifier().fit(load_release(folder / "release"))
    save_model(classifier, folder / "model")
    reference = _reference(digits)
    features = digits.test.features
    scores, told = classifier.decision_function(features), classifier.predict_proba(features)
    quality = Quality.of(scores, digits.test.labels, digits.classes, told)
    draw_confusion(quality.confusion, digits.classes, quality.accuracy, folder / "confusion.png")
    subject = {"kind": "release", "id": verified.id}
    keep_record(
        folder,
        "evaluation",
        subject,
        evaluation_content(quality, "test", reference),
        private=False,
        settings=_settings(learner=classifier.name),
        title="Accuracy on held-out digits",
        statements=["Without privacy: logistic regression on the same features.", PUBLIC],
    )
    utility = _utility(digits, quality.accuracy, progress)
    keep_record(
        folder,
        "utility",
        subject,
        {"points": utility, "reference_accuracy": reference.accuracy, "metric": "test accuracy"},
        private=False,
        settings=_settings(learner=classifier.name, epsilons=list(EPSILONS), confidence=_CONFIDENCE),
        title="Accuracy against ε",
        statements=[
            "Each point is a release of its own, fitted and measured in the same way. On private data each would cost "
            "budget of its own.",
            f"Intervals: {100 * _CONFIDENCE:g}%, for the number of test records alone (Clopper and Pearson).",
            PUBLIC,
        ],
    )
    points = tuple((point["epsilon"], point["accuracy"]) for point in utility)
    return DemoResult(plan, verified, quality.n, quality.accuracy, reference.accuracy, points)


def _utility(digits: Digits, released: float, progress: Progress) -> list[dict[str, Any]]:
    """Accuracy at each epsilon; ``released`` is that of the release already made."""
    points = []
    for number, epsilon in enumerate(EPSILONS):
        progress("accuracy by epsilon", number, len(EPSILONS))
        accuracy = released if epsilon == EPSILON else _accuracy_at(digits, epsilon)
        count = len(digits.test.labels)
        interval = binomtest(round(accuracy * count), count).proportion_ci(_CONFIDENCE)
        points.append({"epsilon": epsilon, "accuracy": accuracy, "low": interval.low, "high": interval.high})
    progress("accuracy by epsilon", len(EPSILONS), len(EPSILONS))
    return points


def _accuracy_at(digits: Digits, epsilon: float) -> float:
    dataset = release_to_memory(
        digits.plan(epsilon),
        digits.train,
        SecretStreams.from_entropy(),
        extractor=digits.extractor.spec(),
        input_shape=digits.input_shape,
    )
    predicted = NoiseAwareRidgeClassifier().fit(dataset).predict(digits.test.features)
    return float((predicted == digits.test.labels).mean())


def _reference(digits: Digits) -> Quality:
    model = LogisticRegression(max_iter=2000).fit(digits.train.features, digits.train.labels)
    told = model.predict_proba(digits.test.features)
    return Quality.of(told, digits.test.labels, digits.classes, told)


def _settings(**more: Any) -> dict[str, Any]:
    return {
        "data": "scikit-learn's digits",
        "split": "test",
        "features": "pixels",
        "delta": DELTA,
        "mixup_degree": DEGREE,
        "rows": ROWS,
        **more,
    }
