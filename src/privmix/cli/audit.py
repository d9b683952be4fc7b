"""``privmix audit``: attack a release, a model or a design, and say which epsilon that proves."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from privmix import jobs
from privmix.cli.app import REFUTED, app
from privmix.cli.canary_audit import audit_with_canaries
from privmix.cli.console import err
from privmix.cli.design_options import DesignOptions, GivenDesign
from privmix.cli.options import Json
from privmix.cli.progress import progress_bars
from privmix.cli.recording import Record, keep_and_show
from privmix.cli.verb import verb
from privmix.errors import InvalidInput
from privmix.jobs.options import AuditOptions, CanaryOptions, DesignClaim

if TYPE_CHECKING:
    from privmix.jobs.audited import Audited


@verb(app)
def audit(
    *,
    target: Annotated[
        Path | None, typer.Argument(help="Folder of a release or of a trained model; or give --design.")
    ] = None,
    design: Annotated[GivenDesign, DesignOptions(None, noise="noise_law")],
    said: DesignClaim,
    noise: Annotated[
        bool, typer.Option("--noise", help="Measure the noise itself, on empty records, in place of an attack.")
    ] = False,
    how: AuditOptions,
    record: Record = None,
    json_output: Json = False,
    canaries: CanaryOptions,
) -> None:
    """Attack the worst pair of datasets: a proven lower bound.

    The attack is on neighbouring datasets, with the real engine; the bound stands beside the claim.

    Reads no private data: what decides is the plan, from the folder's certificate or from the options.

    With --canaries, the owner's records are read. Each canary is put among them by the toss of a coin, the plan is run
    once more, and the attacker's right guesses at the coins are counted. What that shows is for the owner.

    With --noise, every noise that the plan adds is drawn by the real code on empty records. Its scale, shape and
    independence are compared with the certificate: a hundredth too little shows. Reads no private data.

    Exit code 4 if a claim is refuted, or a noise is not as certified.

    Examples:
    privmix audit REL --record RUN
    privmix audit REL --seconds 60 --enough 0.5
    privmix audit REL --noise
    privmix audit --design hierarchical --classes 100 --expected-classes 3 --records 50000 --epsilon 1 --as-published
    privmix audit REL --data mnist --canaries 1000
    """
    planted = canaries.data is not None or canaries.canaries is not None
    of_runs = any(value is not None for value in (how.runs, how.seconds, how.enough))
    if noise and (planted or said.as_published or of_runs):
        allowed = "no `data`, `canaries`, `as_published`, `runs`, `seconds` or `enough` with it"
        raise InvalidInput("noise", "given with one of these", allowed)
    if planted:
        if of_runs:
            raise InvalidInput("runs, seconds, enough", "given with canaries", "options of the worst case")
        if target is None or canaries.data is None or canaries.canaries is None:
            given = (target and str(target), canaries.data, canaries.canaries)
            raise InvalidInput("target, data, canaries", given, "all three of them")
        job = jobs.canaries.CanaryJob(target=target, confidence=how.confidence, seed=how.seed, **vars(canaries))
        audit_with_canaries(job, record, json_output)
        return
    claim = jobs.audited.Claim.of_either(target, design.name, design.options, said)
    with progress_bars(quiet=json_output) as progress:
        found = jobs.audit.audit(claim, "noise" if noise else "worst-case", **vars(how), progress=progress)
    keep_and_show(found, record, json_output, _show)
    if found.violated:
        raise typer.Exit(REFUTED)


def _show(found: Audited[Any]) -> None:
    # It knows what attacks are, which help need not.
    from privmix.cli.audit_results import show_audit

    show_audit(found.audit)
    for text in found.measurement.statements:
        err.print(text, soft_wrap=True)
