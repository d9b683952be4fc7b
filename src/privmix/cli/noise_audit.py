"""``privmix audit --noise``: measure the noise itself on empty records."""

from __future__ import annotations

from rich.markup import escape
from rich.table import Table

from privmix.attacks.noise_scale import AS_CERTIFIED, FALSE_ALARM, NoiseAudit
from privmix.cli.app import out


def show_noise(found: NoiseAudit) -> None:
    """Each noise beside what the certificate says of it."""
    out.print(_table(found))
    verdict = "[bold red]not as certified[/]" if found.violated else "[green]as certified[/]"
    out.print(f"noise: {verdict}; right noise is called wrong with chance at most {FALSE_ALARM:g}")


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
