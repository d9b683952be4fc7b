"""``privmix inspect``: show a release to a person."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from privmix.accounting import tradeoff_curve
from privmix.cli.app import app, out, plain
from privmix.cli.release import design_facts
from privmix.release.certificate import read_certificate
from privmix.release.plan import Plan, plan_from_dict


@app.command()
def inspect(release: Annotated[Path, typer.Argument(help="Folder that privmix release wrote.")]) -> None:
    """Show what a release is and what it guarantees, in words and numbers.

    Example: privmix inspect REL
    """
    certificate = read_certificate(release)
    plan = plan_from_dict(certificate["plan"])
    guarantee = certificate["guarantee"]
    epsilon = "infinite" if guarantee["epsilon"] is None else f"{guarantee['epsilon']:.6g}"
    out.print("as the certificate states it; privmix verify recomputes it")
    out.print(f"[bold]release {plain(certificate['release_id'])}[/]")
    out.print(
        f"epsilon {epsilon}, delta {guarantee['delta']:g}, adjacency {plain(guarantee['adjacency'])}, "
        f"accountant {plain(guarantee['accountant'])}, upper bound: {'yes' if guarantee['is_upper_bound'] else 'NO'}",
        soft_wrap=True,
    )
    if guarantee["accountant"] == "pld" and plan.records_noise_multiplier is None:
        caught = 1 - float(tradeoff_curve(plan.event, [0.05], adjacency=plan.adjacency)[0])
        out.print(
            f"in words: whoever accuses 5% of those absent catches at most {100 * caught:.1f}% of those present",
            soft_wrap=True,
        )
    for text in certificate["warnings"]:
        out.print(f"[yellow]warning:[/] {plain(text)}", soft_wrap=True)
    _constants(plan, certificate["extractor"].get("name", "?"))
    curve = Table(title="epsilon-delta curve", title_justify="left")
    curve.add_column("epsilon", justify="right")
    curve.add_column("delta", justify="right")
    for one, other in certificate["epsilon_delta_curve"]:
        curve.add_row(f"{one:.4g}", f"{other:.3g}")
    out.print(curve)
    for text in [*certificate["statements"], *(certificate.get("choice") or {}).get("reasons", [])]:
        out.print(f"- {plain(text)}", soft_wrap=True)


def _constants(plan: Plan, extractor: str) -> None:
    table = Table(title="public constants", title_justify="left", show_header=False)
    rows = {
        "design": plan.design,
        "features": f"{extractor}, {plan.dim} a record, clipped to {plan.clip_norm:g}",
        "centring": f"released mean, rest clipped to {plan.residual_clip_norm:g}" if plan.centred else "none",
        "classes": ", ".join(plan.classes) if plan.num_classes <= 20 else f"{plan.num_classes} classes",
        "record count": f"{plan.records} ({'private estimate' if plan.records_noise_multiplier else 'public'})",
        **design_facts(plan),
    }
    for name, value in rows.items():
        table.add_row(name, plain(value))
    out.print(table)
