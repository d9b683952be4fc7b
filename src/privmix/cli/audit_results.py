"""What ``privmix audit`` shows of what it found: a lower bound beside a claim, or noises beside the certificate."""

from __future__ import annotations

import math
from functools import singledispatch

from rich.markup import escape
from rich.table import Table

from privmix.attacks.noise_scale import AS_CERTIFIED, FALSE_ALARM, NoiseAudit
from privmix.audits.verdict import Audit
from privmix.cli.assumed import means_in_words
from privmix.cli.console import out
from privmix.rounding import exact, rounded_down, rounded_up


@singledispatch
def show_audit(found: object) -> None:
    """Print an audit's figures."""
    raise TypeError(type(found).__name__)


@show_audit.register
def _worst_case(found: Audit) -> None:
    claimed = "nothing" if math.isinf(found.claimed_epsilon) else f"epsilon {rounded_up(found.claimed_epsilon, 4)}"
    verdict = "[bold red]refuted[/]" if found.violated else "[green]not refuted[/]"
    out.print(f"claim: {claimed} at delta {exact(found.delta)}: {verdict} at confidence {found.confidence:g}")
    out.print(
        f"proven: epsilon is at least {rounded_down(found.proven_epsilon, 4)} "
        f"(Clopper-Pearson, {found.runs} runs; for every mechanism)"
    )
    if assumed := _assumed(found):
        out.print("under an assumption, which decides nothing:")
        for text in assumed:
            out.print(f"  {text}")
    out.print(f"price of what ran: epsilon {rounded_up(found.priced_epsilon, 4)}, an upper bound")
    if found.published_epsilon is not None:
        out.print(f"the papers' formula for it: epsilon {rounded_up(found.published_epsilon, 4)}, no bound")


def _assumed(found: Audit) -> list[str]:
    lines = []
    if found.gdp_epsilon is not None:
        mu, epsilon = rounded_down(found.proven_mu, 4), rounded_down(found.gdp_epsilon, 4)
        lines.append(f"as Gaussian DP, by one threshold: mu at least {mu}, epsilon {epsilon}")
    return [*lines, *means_in_words(found.assumed)]


@show_audit.register
def _noises(found: NoiseAudit) -> None:
    out.print(_table(found))
    verdict = "[bold red]not as certified[/]" if found.violated else "[green]as certified[/]"
    out.print(f"noise: {verdict}; right noise is called wrong with chance at most {FALSE_ALARM:g}")


def _table(found: NoiseAudit) -> Table:
    table = Table(box=None, header_style="bold")
    left = ("noise", "in the certificate", "verdict")
    interval = f"{100 * found.confidence:g}% interval"
    for name in ("noise", "in the certificate", "certified", "measured", interval, "draws", "verdict"):
        # In a narrow terminal names fold; figures stay whole.
        folds = name in left[:2]
        table.add_column(name, justify="left" if name in left else "right", no_wrap=not folds, overflow="fold")
    for noise in found.noises:
        # In shares of the certified standard deviation.
        measured, low, high = (value / noise.certified for value in (noise.measured, noise.low, noise.high))
        table.add_row(
            escape(noise.name),
            escape(noise.source),
            f"{noise.certified:.4g}",
            f"x {measured:.4f}",
            f"{low:.4f}-{high:.4f}",
            str(noise.samples),
            noise.verdict if noise.verdict == AS_CERTIFIED else f"[bold red]{noise.verdict}[/]",
        )
    return table
