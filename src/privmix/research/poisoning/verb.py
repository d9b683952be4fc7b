"""``privmix attack poisoning``: what an attacker who controls some records reaches against a defence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.table import Table

from privmix.cli.attack import attack
from privmix.cli.console import err, out, plain
from privmix.cli.options import Json
from privmix.cli.progress import progress_bars
from privmix.cli.recording import Record, keep_and_show
from privmix.cli.verb import verb
from privmix.plugins import literals_of
from privmix.research import poisoning as study
from privmix.research.poisoning.options import PoisoningOptions
from privmix.rounding import rounded_up

if TYPE_CHECKING:
    from privmix.research.poisoning import PoisoningResult
    from privmix.research.poisoning.job import Poisoning

_KNOWN: Final = {"attack": "privmix.research.poisoning.poisons", "defence": "privmix.research.poisoning.defences"}


def _list(asked: bool) -> None:
    """What there is, in the registries' own words."""
    if not asked:
        return
    for kind, package in _KNOWN.items():
        table = Table(title=f"{kind}s", title_justify="left")
        for name in (kind, "what it does"):
            table.add_column(name)
        for said in literals_of(package):
            table.add_row(plain(said["name"]), plain(said["about"]))
        out.print(table)
    out.print("Settings stand behind a colon (mixup:4); changes of batches are joined by + (mixup:4+noise:16).")
    raise typer.Exit


List = Annotated[
    bool, typer.Option("--list", is_eager=True, callback=_list, help="List attacks and defences, and stop.")
]


@verb(attack, panel="Research")
def poisoning(
    *,
    data: Annotated[str, typer.Option(help="Images with labels: file, folder, pattern or address.")],
    how: PoisoningOptions,
    record: Record = None,
    known: List = False,
    json_output: Json = False,
) -> None:
    """Poison some records, train with a defence in place, and count how often the attacker gets what it wants.

    All defences meet the same trials: each has its own two classes, an image that is to be taken for the other class,
    and poisoned records. Beside each rate stands the most that the defence's guarantee allows to any attack of as many
    records. The figures are for the owner, unless the data are public.

    Example: privmix attack poisoning --data mnist --attack patch-backdoor --defence none,mixup:4 --records 2000

    A release: privmix attack poisoning --data mnist --records 2000 --design poisson --epsilon 1 --delta 1e-5
    """
    job = study.PoisoningJob(data=data, **vars(how))
    with progress_bars() as progress:
        found = job.run(progress)
    keep_and_show(found, record, json_output, lambda told: _show(told, public=how.public_data))


def _show(found: Poisoning, *, public: bool) -> None:
    first, content = found.results[0], found.measurement.content
    out.print(f"{plain(first.attack)}: {plain(str(content['about']))}", soft_wrap=True)
    out.print(f"threat: {plain(first.threat)}; success: {plain(first.success_means)}", soft_wrap=True)
    level = f"{100 * content['confidence']:g}%"
    table = Table(title=f"{first.trials} trials, {content['records']:,} records", title_justify="left")
    for name in ("defence", f"success ({level} interval)", "share of goal inputs", "accuracy", "certified: at most"):
        table.add_column(name)
    filters = any(one.removed for one in found.results)
    if filters:
        table.add_column("dropped (poisoned)")
    for one in found.results:
        dropped = [f"{one.removed:.1f} ({one.removed_poisoned:.1f})"] if filters else []
        table.add_row(*_cells(one), *dropped)
    out.print(table)
    for one in found.results:
        if one.guarantee is not None:
            out.print(f"{plain(one.defence)} guarantees {plain(one.guarantee)}", soft_wrap=True)
        if one.above_bound:
            err.print(f"[red]{plain(one.defence)} allows more than it guarantees[/], or it was chance", soft_wrap=True)
    for sentence in study.STATEMENTS:
        err.print(sentence, soft_wrap=True)
    if not public:
        err.print(f"[yellow]private:[/] {study.OWN_ONLY}", soft_wrap=True)


def _cells(one: PoisoningResult) -> list[str]:
    low, high = one.interval
    return [
        plain(one.defence),
        f"{one.successes} of {one.trials} ({100 * low:.0f}% to {100 * high:.0f}%)",
        f"{100 * one.share:.1f}%",
        f"{100 * one.accuracy:.2f}%",
        "nothing" if one.guarantee is None else f"{rounded_up(100 * one.certified_bound, 3)}%",
    ]
