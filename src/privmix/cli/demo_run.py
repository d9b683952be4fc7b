"""The whole path on data that ships with scikit-learn, as ``privmix demo`` takes it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.panel import Panel
from threadpoolctl import threadpool_limits

from privmix.attacks.membership import MembershipResult
from privmix.audits.verdict import Audit
from privmix.cli.console import out, plain
from privmix.cli.demo_attacks import attack_demo
from privmix.cli.demo_steps import DemoResult, Digits, run_demo
from privmix.cli.progress import progress_bars
from privmix.commands.report import report
from privmix.reports.context import PUBLIC
from privmix.reports.records import RECORDS_FOLDER
from privmix.rounding import exact, rounded_down, rounded_up


def run(out_folder: Path) -> None:
    """Do all of it into a new folder, and print what came of it."""
    with _light(), progress_bars() as progress:
        digits = Digits.read(progress)
        result = run_demo(digits, out_folder, progress)
        attacks = attack_demo(digits, result, out_folder, progress)
    page = out_folder / "report.html"
    report(out_folder, out=page, audience=PUBLIC)
    _show(result, *attacks, out_folder, page)


@contextmanager
def _light() -> Iterator[None]:
    """One thread for each sum: digits are so small that several would spend their time waiting for each other.

    What is imported stays, and the collector of garbage need not look through it again and again.
    """
    gc.freeze()
    try:
        with threadpool_limits(1):
            yield
    finally:
        gc.unfreeze()


def _show(result: DemoResult, audit: Audit, membership: MembershipResult, out_folder: Path, page: Path) -> None:
    plan, verified = result.plan, result.verified
    areas = ", ".join(f"{attempt.auc:.3f} by {attempt.name}" for attempt in membership.attacks)
    curve = ", ".join(f"{100 * accuracy:.1f}% at {exact(epsilon)}" for epsilon, accuracy in result.utility)
    out.print(
        Panel(
            f"[bold]What was guaranteed[/]\n"
            f"  ({rounded_up(verified.epsilon)}, {exact(verified.delta)})-differential privacy "
            "for adding or removing one record:\n"
            f"  {plan.rows} noisy rows, each a mix of about {plan.mixup_degree} of {plan.records} images "
            f"(design {plan.design});\n"
            f"  epsilon recomputed by verify: {rounded_up(verified.recomputed_epsilon, 4)}\n\n"
            f"[bold]Accuracy on {result.test_records:,} test images[/]\n"
            f"  learned from the release: {100 * result.accuracy:.1f}%\n"
            f"  logistic regression without privacy: {100 * result.reference_accuracy:.1f}%\n"
            f"  from releases at other epsilons: {curve}\n\n"
            f"[bold]Attacks[/]\n"
            f"  {audit.runs} runs of the worst case prove epsilon >= {rounded_down(audit.proven_epsilon)}; "
            f"claimed: <= {rounded_up(audit.claimed_epsilon)}\n"
            f"  membership AUC: {areas} (0.5 is guessing)\n\n"
            f"[bold]Files[/] in {out_folder}\n"
            f"  release/        hand this to anyone: rows (Parquet), certificate.json, README.md\n"
            f"  model/          the classifier\n"
            f"  confusion.png   which digits are mistaken for which\n"
            f"  {RECORDS_FOLDER}/        every figure with its settings\n"
            f"  report.html     all of it on one page, for a browser",
            title="privmix demo: scikit-learn's digits",
            expand=False,
        ),
        width=100,
    )
    out.print(f"open: {plain(page)}", soft_wrap=True)
