"""The whole path on data that ships with scikit-learn, by the public commands."""

from __future__ import annotations

import gc
import shlex
import shutil
import warnings
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from privmix.commands.base import Command, Facts
from privmix.errors import InvalidInput
from privmix.jobs.options import NewFile
from privmix.options import option
from privmix.progress import Progress
from privmix.rounding import exact, rounded_down, rounded_up

EPSILON, EPSILONS = 2.0, (0.5, 1.0, 2.0, 4.0, 8.0)
# Releases at each of them: noise alone moves one by more than twice the epsilon does.
RELEASES: Final = 10
_FILES: Final = (
    "release/: may be published: moments, rows (Parquet), certificate.json, README.md",
    "model/: the classifier",
    "confusion.png: confusion matrix of the digits",
    "records/: all figures with their settings",
    "report.html: all results on one page; open it in a browser",
)
_STATEMENTS: Final = (
    f"Each point is the mean of {RELEASES} releases. On private data each release would be charged separately.",
    f"Intervals: lowest and highest accuracy of the {RELEASES} releases.",
    "Without privacy: logistic regression on the same features.",
    "The digits are public data that the demo treats as private: every figure may be published.",
)


@dataclass(frozen=True, eq=False, repr=False)
class Demo(NewFile, Command[Facts]):
    """Release, fit, attack and report on scikit-learn's digits.

    Releases the digits at epsilon 2, fits a classifier to the release, attacks both, and writes a report.
    """

    example = "privmix demo --out demo-output"

    out: Path = option(Path("demo-output"), "Folder to create.")

    def run(self, progress: Progress) -> Facts:
        if self.out.exists():
            if not self.overwrite:
                raise InvalidInput("out", str(self.out), "a folder that does not exist yet (or `overwrite`)")
            # Only what a demo made is removed: `out` may name any folder.
            if not (self.out / "release" / "certificate.json").is_file():
                raise InvalidInput("out", str(self.out), "the folder of an earlier demo to overwrite, or a new folder")
            shutil.rmtree(self.out)
        from threadpoolctl import threadpool_limits

        # Digits are so small that several threads would wait for each other. Imports stay and need no collection.
        gc.freeze()
        try:
            with threadpool_limits(1), warnings.catch_warnings(), TemporaryDirectory() as above:
                warnings.simplefilter("ignore")
                return demonstrated(self.out, Path(above, "digits"), progress)
        finally:
            gc.unfreeze()

    def then(self, found: Any) -> str:
        return f"open {self.out / 'report.html'} in a browser"


def demonstrated(folder: Path, digits: Path, progress: Progress) -> Facts:
    import numpy as np
    from sklearn.linear_model import LogisticRegression

    from privmix.commands.audit import audit
    from privmix.commands.evaluate import evaluate
    from privmix.commands.fit import fit
    from privmix.commands.membership import attack
    from privmix.commands.release import plan, release
    from privmix.commands.report import report
    from privmix.commands.verify import verify
    from privmix.data.memory import embedded_digits
    from privmix.jobs.recording import Measurement

    train, test = embedded_digits("train").read(), embedded_digits("test").read()
    digits.mkdir()
    for name, part in {"train": train, "test": test}.items():
        np.savez(digits / f"{name}.npz", x=part.x, y=part.y)
    made, model = folder / "release", folder / "model"
    told: dict[str, Any] = {"public_data": True, "record": folder}
    options: dict[str, Any] = {"features": "pixels", "design": "moments", "rows": 1_000, "delta": 1e-5}
    plans = {epsilon: plan(digits, epsilon=epsilon, classes=10, **options) for epsilon in EPSILONS}
    release(digits, plans[EPSILON], out=made, progress=progress)
    held: Any = verify(made).held
    fit(made, out=model)
    quality = evaluate(model, digits, figure=folder / "confusion.png", **told).quality
    audited = audit(made, runs=4_000, record=folder, progress=progress).audit
    attacks = ("loss", "lira", "rmia")
    risk = attack(model, digits, attacks=attacks, release=made, progress=progress, **told).result
    x, unseen = (part.x.reshape(len(part.x), -1) / 255 for part in (train, test))
    reference = float(LogisticRegression(max_iter=2000).fit(x, train.y).score(unseen, test.y))
    points = []
    for number, (epsilon, planned) in enumerate(plans.items()):
        progress("accuracy by epsilon", number, len(plans))
        found = [fit(release(digits, planned)).score(test.x, test.y) for _ in range(RELEASES)]
        points.append({"epsilon": epsilon, "accuracy": float(np.mean(found)), "low": min(found), "high": max(found)})
    progress("accuracy by epsilon", len(plans), len(plans))
    content = {"points": points, "reference_accuracy": reference, "metric": "test accuracy"}
    settings = {"data": "scikit-learn's digits", "split": "test", **options, "releases": RELEASES}
    subject = {"kind": "release", "id": held.id}
    kept = Measurement("utility", subject, content, False, settings, "Accuracy against ε", _STATEMENTS)
    kept.keep(folder, f"privmix demo --out {shlex.quote(folder.name)}")
    report(folder, out=folder / "report.html")
    facts = {
        "guarantee": f"({rounded_up(held.epsilon)}, {exact(held.delta)})-differential privacy for adding or removing "
        "one record",
        "the release": f"noisy second moments of {len(train.y):,} images (design moments)",
        "epsilon recomputed by verify": rounded_up(held.recomputed_epsilon, 4),
        f"accuracy on {quality.n:,} test images": f"{100 * quality.accuracy:.1f}%, learned from the release",
        "logistic regression without privacy": f"{100 * reference:.1f}%",
        f"from {RELEASES} releases at each epsilon": ", ".join(
            f"{100 * point['accuracy']:.1f}% at {exact(point['epsilon'])}" for point in points
        ),
        "attack on the worst case": f"{audited.runs} runs prove epsilon >= {rounded_down(audited.proven_epsilon)}; "
        f"claimed: <= {rounded_up(audited.claimed_epsilon)}",
        "membership inference": f"AUC {', '.join(f'{one.auc:.3f} by {one.name}' for one in risk.attacks)} "
        "(0.5 is guessing)",
        "files": f"in {folder}",
    }
    figures = {"accuracy": quality.accuracy, "reference_accuracy": reference, "proven_epsilon": audited.proven_epsilon}
    values = {"release": held.id, "epsilon": held.epsilon, **figures, "out": str(folder)}
    return Facts("privmix demo: scikit-learn's digits", facts, _FILES, values)
