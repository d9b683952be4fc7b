"""The steps of ``privmix demo``: release, fit, evaluate, attack; each keeps a record for the report."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from sklearn.linear_model import LogisticRegression

from privmix.attacks.membership.attack import MembershipConfig, MembershipResult, infer_membership
from privmix.attacks.membership.references import ReleaseTrainer
from privmix.audits.audit import audit_plan
from privmix.audits.verdict import AuditVerdict
from privmix.certificate.verification import Verification
from privmix.data.memory import embedded_digits
from privmix.engine.rows import PrivateRecords
from privmix.features.base import Extractor, get_extractor
from privmix.jobs.features import features_in_memory
from privmix.jobs.membership import STATEMENTS
from privmix.jobs.quality import Quality, evaluation_content
from privmix.jobs.recording import Measurement
from privmix.learning.discriminant import DiscriminantClassifier
from privmix.learning.model_io import load_model, save_model
from privmix.mechanisms.streams import SecretStreams
from privmix.planning.config import ReleaseConfig
from privmix.plans.plan import Plan
from privmix.progress import Progress
from privmix.releases.api import release_to_folder, release_to_memory
from privmix.releases.certificate import read_certificate
from privmix.releases.folder import load_release
from privmix.releases.verify import verify_release
from privmix.reports.pictures import draw_confusion

DESIGN, EPSILON, DELTA, ROWS = "moments", 2.0, 1e-5, 1_000
EPSILONS: Final = (0.5, 1.0, 2.0, 4.0, 8.0)
# Releases at each of them: noise alone moves one by more than twice the epsilon does.
RELEASES: Final = 10
PUBLIC: Final = "The digits are public data that the demo treats as private: every figure may be published."


@dataclass(frozen=True)
class DemoDigits:
    """scikit-learn's digits as features: what is treated as private, and held-out records."""

    train: PrivateRecords
    test: PrivateRecords
    extractor: Extractor
    classes: tuple[str, ...]
    input_shape: tuple[int, ...]

    @classmethod
    def read(cls, progress: Progress) -> DemoDigits:
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

    def plan(self, epsilon: float) -> Plan:
        """Return the demo's design at a budget."""
        dim = self.extractor.output_dim(self.input_shape)
        return ReleaseConfig(len(self.train.labels), dim, self.classes, DESIGN, rows=ROWS).calibrate(epsilon, DELTA)


@dataclass(frozen=True)
class Learned:
    """The model of the release and its accuracy."""

    plan: Plan
    verified: Verification
    test_records: int
    accuracy: float
    reference_accuracy: float
    utility: tuple[tuple[float, float], ...]


def run_demo(digits: DemoDigits, folder: Path, progress: Progress) -> Learned:
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
    classifier = DiscriminantClassifier().fit(load_release(folder / "release"))
    save_model(classifier, folder / "model")
    reference = _reference(digits)
    features = digits.test.features
    scores, told = classifier.decision_function(features), classifier.predict_proba(features)
    quality = Quality.of(scores, digits.test.labels, digits.classes, told)
    draw_confusion(quality.confusion, digits.classes, quality.accuracy, folder / "confusion.png")
    subject = {"kind": "release", "id": verified.id}
    keep(
        folder,
        "evaluation",
        subject,
        evaluation_content(quality, "test", reference),
        settings=_settings(learner=classifier.name),
        title="Accuracy on held-out digits",
        statements=["Without privacy: logistic regression on the same features.", PUBLIC],
    )
    utility = _utility(digits, quality.accuracy, progress)
    keep(
        folder,
        "utility",
        subject,
        {"points": utility, "reference_accuracy": reference.accuracy, "metric": "test accuracy"},
        settings=_settings(learner=classifier.name, epsilons=list(EPSILONS), releases=RELEASES),
        title="Accuracy against ε",
        statements=[
            f"Each point is the mean of {RELEASES} releases, fitted and measured in the same way. On private data "
            f"each release would be charged separately.",
            f"Intervals: lowest and highest accuracy of the {RELEASES} releases.",
            PUBLIC,
        ],
    )
    points = tuple((point["epsilon"], point["accuracy"]) for point in utility)
    return Learned(plan, verified, quality.n, quality.accuracy, reference.accuracy, points)


def keep(folder: Path, kind: str, subject: dict[str, Any], content: dict[str, Any], **words: Any) -> None:
    """Store a :class:`Measurement` of these fields; all of them are public."""
    found = Measurement(kind, subject, content, False, **words)
    found.keep(folder, f"privmix demo --out {shlex.quote(folder.name)}")


def _utility(digits: DemoDigits, released: float, progress: Progress) -> list[dict[str, Any]]:
    """Accuracy at each epsilon; ``released`` is that of the release already made, one of those at its epsilon."""
    points = []
    for number, epsilon in enumerate(EPSILONS):
        progress("accuracy by epsilon", number, len(EPSILONS))
        found = [released] if epsilon == EPSILON else []
        found += [_accuracy_at(digits, epsilon) for _ in range(RELEASES - len(found))]
        mean = float(np.mean(found))
        points.append({"epsilon": epsilon, "accuracy": mean, "low": min(found), "high": max(found)})
    progress("accuracy by epsilon", len(EPSILONS), len(EPSILONS))
    return points


def _accuracy_at(digits: DemoDigits, epsilon: float) -> float:
    dataset = release_to_memory(
        digits.plan(epsilon),
        digits.train,
        SecretStreams.from_entropy(),
        extractor=digits.extractor.spec(),
        input_shape=digits.input_shape,
    )
    predicted = DiscriminantClassifier().fit(dataset).predict(digits.test.features)
    return float((predicted == digits.test.labels).mean())


def _reference(digits: DemoDigits) -> Quality:
    model = LogisticRegression(max_iter=2000).fit(digits.train.features, digits.train.labels)
    told = model.predict_proba(digits.test.features)
    return Quality.of(told, digits.test.labels, digits.classes, told)


def _settings(**more: Any) -> dict[str, Any]:
    return {
        "data": "scikit-learn's digits",
        "split": "test",
        "features": "pixels",
        "delta": DELTA,
        "design": DESIGN,
        "rows": ROWS,
        **more,
    }


# Enough to prove a good part of the budget in a few seconds.
_RUNS: Final = 4_000
_MEMBERSHIP: Final = MembershipConfig(attacks=("loss", "lira", "rmia"), references=16)


def attack_demo(
    digits: DemoDigits, result: Learned, folder: Path, progress: Progress
) -> tuple[AuditVerdict, MembershipResult]:
    """Attack what :func:`privmix.commands.demo.steps.run_demo` left in ``folder``; records go there as well."""
    subject = {"kind": "release", "id": result.verified.id}
    audit = audit_plan(result.plan, EPSILON, DELTA, runs=_RUNS, progress=progress)
    keep(
        folder,
        "audit",
        subject,
        audit.to_dict(),
        settings={"plan": result.plan.to_dict()},
        title=f"Worst-case audit of design {audit.design}",
        statements=audit.statements,
    )
    membership = _membership(digits, folder, progress)
    keep(
        folder,
        "membership",
        subject,
        membership.to_dict(owner=False),
        settings={**vars(_MEMBERSHIP), "members": "train", "nonmembers": "test", "with_release": True},
        title="Membership inference",
        statements=[*STATEMENTS, PUBLIC],
    )
    return audit, membership


def _membership(digits: DemoDigits, folder: Path, progress: Progress) -> MembershipResult:
    train, test = digits.train, digits.test
    records = PrivateRecords(
        np.concatenate([train.features, test.features]), np.concatenate([train.labels, test.labels])
    )
    certificate = read_certificate(folder / "release")
    model = load_model(folder / "model")
    return infer_membership(
        model,
        records,
        np.arange(len(records.labels)) < len(train.labels),
        classes=len(digits.classes),
        config=_MEMBERSHIP,
        trainer=ReleaseTrainer.of(model, certificate),
        certificate=certificate,
        progress=progress,
    )
