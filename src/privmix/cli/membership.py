"""``privmix attack membership``: how well attackers tell who was in the data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from privmix import jobs
from privmix.cli.attack import attack
from privmix.cli.console import err, out, plain
from privmix.cli.options import Json
from privmix.cli.progress import progress_bars
from privmix.cli.recording import Record, keep_and_show
from privmix.cli.verb import verb
from privmix.jobs.options import MembershipOptions, ModelInputs

if TYPE_CHECKING:
    from privmix.attacks.membership import MembershipResult


@verb(attack)
def membership(
    *,
    model: Annotated[Path, typer.Argument(help="Folder that privmix fit or privmix train wrote.")],
    data: Annotated[str, typer.Option(help="Dataset with labels: file, folder, pattern or address.")],
    how: MembershipOptions,
    record: Record = None,
    inputs: ModelInputs,
    json_output: Json = False,
) -> None:
    """Ask of each record whether the model was made of it, and measure how often that is right.

    loss: members have a lower loss (Yeom et al. 2018). lira, rmia: each record's confidence beside that of reference
    models, which are made from other draws of the same records, as the model was (Carlini et al. 2022; Zarifzadeh et
    al. 2024). The figures are for the owner, unless the data are public.

    Example: privmix attack membership MODEL --data mnist --attack loss,lira,rmia --release REL
    """
    job = jobs.membership.MembershipJob(model=model, data=data, **vars(how), **vars(inputs))
    with progress_bars() as progress:
        found = job.run(progress)
    keep_and_show(found, record, json_output, lambda told: _show(told.result, listed=not how.public_data))


def _show(found: MembershipResult, *, listed: bool) -> None:
    level = f"{100 * found.confidence:g}%"
    out.print(
        f"accuracy on members {100 * found.train_accuracy:.2f}%, on non-members {100 * found.test_accuracy:.2f}%; "
        f"gap {100 * found.gap:.2f} points ({level}: {100 * found.gap_low:.2f} to {100 * found.gap_high:.2f})",
        soft_wrap=True,
    )
    table = Table(title=f"attacks ({level} intervals)", title_justify="left")
    table.add_column("attack")
    table.add_column("AUC")
    for point in found.attacks[0].tpr_at:
        table.add_column(f"found at {100 * point.fpr:g}% false alarms")
        if found.attacks[0].bounds is not None:
            table.add_column("bound")
    for attempt in found.attacks:
        cells = [f"{attempt.auc:.4f} ({attempt.auc_low:.4f} to {attempt.auc_high:.4f})"]
        for number, point in enumerate(attempt.tpr_at):
            cells.append(f"{100 * point.tpr:.2f}% ({100 * point.low:.2f} to {100 * point.high:.2f})")
            if attempt.bounds is not None:
                cells.append(f"{100 * attempt.bounds[0][number]:.3g}%")
        table.add_row(attempt.name, *cells)
    out.print(table)
    for sentence in jobs.membership.STATEMENTS:
        err.print(sentence, soft_wrap=True)
    if listed and found.highest_risk:
        places = ", ".join(str(place) for place, _ in found.highest_risk)
        out.print(f"members at the highest risk (places in their split, from 0): {plain(places)}", soft_wrap=True)
        err.print(f"[yellow]private:[/] {jobs.membership.OWN_ONLY}", soft_wrap=True)
