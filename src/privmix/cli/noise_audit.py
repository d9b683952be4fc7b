"""``privmix audit --noise``: measure the noise itself on empty records."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from privmix.attacks.noise_scale import AS_CERTIFIED, FALSE_ALARM, NoiseAudit, audit_noise
from privmix.cli.app import err, out, print_json
from privmix.cli.progress import progress_bars
from privmix.cli.recording import keep_record
from privmix.designs import Plan
from privmix.training.plan import TrainingPlan


def audit_the_noise(
    plan: Plan | TrainingPlan,
    subject: Mapping[str, Any],
    *,
    confidence: float,
    seed: int | None,
    record: Path | None,
    json_output: bool,
) -> None:
    """Measure every noise of a plan, keep the figures and show them.

    Args:
        plan: from a certificate, or made for a design.
        subject: what it is of, for the record.
        confidence: of each interval.
        seed: for tests.
        record: run folder, or None.
        json_output: for machines.
    """
    with progress_bars(quiet=json_output) as progress:
        found = audit_noise(plan, confidence=confidence, seed=seed, progress=progress)
    keep_record(
        record,
        "noise-audit",
        subject,
        found.to_dict(),
        private=False,
        settings={"plan": plan.to_dict(), "seed": seed},
        title=f"Audit of the noise of design {found.design}",
        statements=found.statements,
    )
    if json_output:
        print_json(found.to_dict())
        return
    out.print(_table(found))
    verdict = "[bold red]not as certified[/]" if found.violated else "[green]as certified[/]"
    out.print(f"noise: {verdict}; right noise is called wrong with chance at most {FALSE_ALARM:g}")
    for text in found.statements:
        err.print(text, soft_wrap=True)


def _table(found: NoiseAudit) -> Table:
    table = Table(box=None, header_style="bold")
    for name in ("noise", "certified", "measured", f"{100 * found.confidence:g}% interval", "draws", "verdict"):
        table.add_column(name, justify="left" if name in ("noise", "verdict") else "right", no_wrap=True)
    for noise in found.noises:
        # In shares of the certified standard deviation.
        measured, low, high = (value / noise.certified for value in (noise.measured, noise.low, noise.high))
        table.add_row(
            escape(noise.name),
            f"{noise.certified:.4g}",
            f"x {measured:.4f}",
            f"{low:.4f}-{high:.4f}",
            str(noise.samples),
            noise.verdict if noise.verdict == AS_CERTIFIED else f"[bold red]{noise.verdict}[/]",
        )
    return table
