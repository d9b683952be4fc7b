"""``privmix attack membership``: how well attackers tell who was in the data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from privmix import jobs
from privmix.attacks.defaults import ATTACKS
from privmix.cli.app import err, out, plain, print_json
from privmix.cli.attack import attack
from privmix.cli.options import Classes, FeaturesModel, Json, TrustFeaturesModel
from privmix.cli.progress import progress_bars
from privmix.cli.recording import Record, keep
from privmix.cli.verb import verb
from privmix.jobs.columns import Columns, class_list
from privmix.jobs.places import check_writable

if TYPE_CHECKING:
    from privmix.attacks.membership import MembershipResult


@verb(attack)
def membership(
    *,
    model: Annotated[Path, typer.Argument(help="Folder that privmix fit or privmix train wrote.")],
    data: Annotated[str, typer.Option(help="Dataset with labels: file, folder, pattern or address.")],
    members: Annotated[str, typer.Option(help="Split that the model was made of.")] = "train",
    nonmembers: Annotated[str, typer.Option(help="Split of the same kind that it was not made of.")] = "test",
    attacks: Annotated[
        str, typer.Option("--attack", help=f"Which, with commas: {', '.join(ATTACKS)}. All but loss need references.")
    ] = "loss",
    references: Annotated[
        int, typer.Option(help="Reference models to make; each is a release and a fit, or a training run.")
    ] = 16,
    release: Annotated[
        Path | None, typer.Option(help="Release that the model was fitted on; references are made by its plan.")
    ] = None,
    work: Annotated[
        Path | None,
        typer.Option(help="Private folder for finished references: the same command goes on with what is there."),
    ] = None,
    confidence: Annotated[float, typer.Option(help="Of all intervals.")] = 0.95,
    highest: Annotated[int, typer.Option(help="Members at the highest risk to list, for the owner.")] = 10,
    public_data: Annotated[
        bool, typer.Option("--public-data", help="The data are public: single records are not listed.")
    ] = False,
    record: Record = None,
    classes: Classes = None,
    columns: Columns,
    features_model: FeaturesModel = None,
    trust_features_model: TrustFeaturesModel = False,
    json_output: Json = False,
) -> None:
    """Ask of each record whether the model was made of it, and measure how often that is right.

    loss: members have a lower loss (Yeom et al. 2018). lira, rmia: each record's confidence beside that of reference
    models, which are made from other draws of the same records, as the model was (Carlini et al. 2022; Zarifzadeh et
    al. 2024). The figures are for the owner, unless the data are public.

    Example: privmix attack membership MODEL --data mnist --attack loss,lira,rmia --release REL
    """
    if record is not None:
        check_writable("record", record)
    with progress_bars() as progress:
        found = jobs.membership.membership(
            model,
            data,
            members=members,
            nonmembers=nonmembers,
            attacks=attacks,
            references=references,
            release=release,
            work=work,
            confidence=confidence,
            highest=highest,
            public_data=public_data,
            classes=class_list(classes),
            columns=columns,
            features_model=features_model,
            trust_features_model=trust_features_model,
            progress=progress,
        )
    keep(found, record)
    if json_output:
        print_json(found.to_dict())
    else:
        _show(found.result, listed=not public_data)


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
