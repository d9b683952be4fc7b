"""``privmix audit TARGET --data DIR --canaries N``: the plan once more, on the owner's data with canaries in it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from privmix.cli.app import REFUTED
from privmix.cli.assumed import apart_in_words, means_in_words
from privmix.cli.console import err, out, plain, print_json
from privmix.cli.progress import progress_bars
from privmix.cli.recording import keep
from privmix.rounding import exact, rounded_down, rounded_up

if TYPE_CHECKING:
    from privmix.jobs.canaries import CanaryJob


def audit_with_canaries(job: CanaryJob, record: Path | None, json_output: bool) -> None:
    """Run the job, keep the figures and show them; a refuted claim is an exit code."""
    planned = job.plan()
    with progress_bars(quiet=json_output, percent=planned.count_is_private) as progress:
        done = job.carry_out(planned, progress)
    for text in done.warnings:
        err.print(f"[yellow]warning:[/] {plain(text)}", soft_wrap=True)
    found = done.result
    keep(found, record)
    proof = found.audit.proof
    if json_output:
        print_json(found.to_dict())
    else:
        claimed = "nothing" if math.isinf(proof.claimed_epsilon) else f"epsilon {rounded_up(proof.claimed_epsilon, 4)}"
        verdict = "[bold red]refuted[/]" if found.violated else "[green]not refuted[/]"
        out.print(f"claim: {claimed} at delta {exact(proof.delta)}: {verdict} at confidence {proof.confidence:g}")
        out.print(
            f"guessed {proof.run.correct} of {proof.run.guesses} coins right, of {proof.run.canaries} "
            f"{found.audit.canaries} ({found.audit.method})",
            soft_wrap=True,
        )
        out.print(
            f"proven: epsilon is at least {rounded_down(proof.proven_epsilon, 4)} "
            f"(Steinke et al. {rounded_down(proof.steinke, 4)}, "
            f"Mahloujifar et al. {rounded_down(proof.mahloujifar, 4)}); "
            f"so many perfect guesses would prove {rounded_up(proof.provable_epsilon, 4)}",
            soft_wrap=True,
        )
        if (assumed := found.audit.assumed) is not None:
            out.print("under assumptions, which decide nothing (canaries do not influence one another):")
            for text in [*means_in_words(assumed), *apart_in_words(found.audit.apart)]:
                out.print(f"  {text}", soft_wrap=True)
    for text in found.measurement.statements:
        err.print(text, soft_wrap=True)
    if found.violated:
        raise typer.Exit(REFUTED)
