"""The steps of ``privmix demo``, and its result."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from privmix.attacks.membership.attack import MembershipResult
from privmix.audits.verdict import AuditVerdict
from privmix.commands.demo.steps import RELEASES, DemoDigits, Learned, attack_demo, run_demo
from privmix.commands.report import report
from privmix.progress import Progress
from privmix.reports.panel import PUBLIC
from privmix.reports.records import RECORDS_FOLDER
from privmix.rounding import exact, rounded_down, rounded_up
from privmix.shown import Shown


@dataclass(frozen=True, repr=False)
class Demonstration(Shown):
    """Guarantee, accuracy, attacks and files of the demo."""

    learned: Learned
    audit: AuditVerdict
    membership: MembershipResult
    folder: Path

    def shown(self) -> tuple[str, Mapping[str, object]]:
        plan, verified, audit = self.learned.plan, self.learned.verified, self.audit
        areas = ", ".join(f"{attempt.auc:.3f} by {attempt.name}" for attempt in self.membership.attacks)
        curve = ", ".join(f"{100 * accuracy:.1f}% at {exact(epsilon)}" for epsilon, accuracy in self.learned.utility)
        return "privmix demo: scikit-learn's digits", {
            "guarantee": f"({rounded_up(verified.epsilon)}, {exact(verified.delta)})-differential privacy "
            "for adding or removing one record",
            "the release": f"noisy second moments of {plan.records:,} images (design {plan.design})",
            "epsilon recomputed by verify": rounded_up(verified.recomputed_epsilon, 4),
            f"accuracy on {self.learned.test_records:,} test images": f"{100 * self.learned.accuracy:.1f}%, learned "
            "from the release",
            "logistic regression without privacy": f"{100 * self.learned.reference_accuracy:.1f}%",
            f"from {RELEASES} releases at each epsilon": curve,
            "attack on the worst case": f"{audit.runs} runs prove epsilon >= {rounded_down(audit.proven_epsilon)}; "
            f"claimed: <= {rounded_up(audit.claimed_epsilon)}",
            "membership inference": f"AUC {areas} (0.5 is guessing)",
            "files": f"in {self.folder}",
        }

    @property
    def details(self) -> tuple[str, ...]:
        return (
            "release/: may be published: moments, rows (Parquet), certificate.json, README.md",
            "model/: the classifier",
            "confusion.png: confusion matrix of the digits",
            f"{RECORDS_FOLDER}/: all figures with their settings",
            "report.html: all results on one page; open it in a browser",
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "release": self.learned.verified.id,
            "epsilon": self.learned.verified.epsilon,
            "accuracy": self.learned.accuracy,
            "reference_accuracy": self.learned.reference_accuracy,
            "proven_epsilon": self.audit.proven_epsilon,
            "out": str(self.folder),
        }


def demonstrated(folder: Path, progress: Progress) -> Demonstration:
    """Do all of it into a new folder."""
    with _light():
        digits = DemoDigits.read(progress)
        learned = run_demo(digits, folder, progress)
        audit, membership = attack_demo(digits, learned, folder, progress)
    report(folder, out=folder / "report.html", audience=PUBLIC)
    return Demonstration(learned, audit, membership, folder)


@contextmanager
def _light() -> Iterator[None]:
    """One thread for each sum: digits are so small that several would spend their time waiting for each other.

    Imports stay, and the garbage collector need not search them again and again.
    """
    gc.freeze()
    try:
        with threadpool_limits(1):
            yield
    finally:
        gc.unfreeze()
