"""``privmix release``: turn a private dataset into a differentially private release."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from privmix import jobs
from privmix.cli.app import app
from privmix.cli.console import err, out, plain, print_json
from privmix.cli.design_options import DesignOptions, GivenDesign
from privmix.cli.flags import with_flags
from privmix.cli.progress import progress_bars
from privmix.cli.verb import Take, verb
from privmix.errors import InvalidInput
from privmix.jobs.options import TABLE
from privmix.jobs.release_options import ReleaseOptions
from privmix.plans import made_by
from privmix.rounding import exact, rounded_up

if TYPE_CHECKING:
    from privmix.certificate import Certificate
    from privmix.jobs.release import Planned, ReleaseJob


@verb(app)
def release(
    asked: Annotated[ReleaseOptions, Take(without=["design", "options"])],
    design: Annotated[GivenDesign, DesignOptions("auto", more="; auto: chosen by public facts alone. Or ")],
    json_output: Annotated[bool, typer.Option("--json", help="Print the plan or certificate as JSON.")] = False,
) -> None:
    """Turn a private dataset into a differentially private release.

    The plan (design, noise, guarantee) is made from public facts before any private row is read. The result is a
    folder with Parquet shards, certificate.json and a data card; hand it to anyone. An interrupted run is finished by
    the same command with --resume, and is not charged twice.

    Example: privmix release --data mnist --features scattering --design auto --epsilon 1 --delta 1e-5 --out REL

    Texts: privmix release --data train.csv.gz --text-column text --classes 77 --features minilm --design auto ...

    Tables: privmix release --data adult --label-column income --features tabular:adult.json ...
    """
    if asked.out is None:
        raise InvalidInput("out", None, "the folder to create")
    make(jobs.release.ReleaseJob(**{**vars(asked), "design": design.name, "options": design.options}), json_output)


def make(job: ReleaseJob, json_output: bool, series: Path | None = None) -> None:
    """Plan and carry out a job, and print what comes of it; ``series`` is the folder, of a step of one."""
    with progress_bars() as progress:
        planned = job.plan(progress)
    for text in planned.warnings:
        err.print(f"[yellow]warning:[/] {plain(with_flags(text))}", soft_wrap=True)
    if job.dry_run:
        _show_plan(planned, json_output)
        return
    if not json_output:
        err.print(
            f"{jobs.dataset.PUBLISHED_NAMES}: {plain(planned.facts()[jobs.dataset.PUBLISHED_NAMES])}", soft_wrap=True
        )
    with progress_bars(percent=planned.count_is_private) as progress:
        done = job.carry_out(planned, progress)
    for text in done.warnings:
        err.print(f"[yellow]warning:[/] {plain(text)}", soft_wrap=True)
    assert job.out is not None
    _show_result(planned, done.result, job.out, json_output, series)


def _show_result(
    planned: Planned, certificate: Certificate, folder: Path, json_output: bool, series: Path | None
) -> None:
    if json_output:
        print_json(certificate.to_dict())
        return
    plan, guarantee = planned.plan, certificate["guarantee"]
    beside = made_by(plan).released
    if planned.reasons:
        out.print(f"design: {plain(planned.reasons[0])}", soft_wrap=True)
    if (auditor := planned.job.auditor) is not None:
        place = plain(planned.job.sealed_key)
        told = f"for {auditor.terms.whom} until {auditor.until}: hand it to nobody else"
        out.print(f"sealed key: {place}, {told}", soft_wrap=True)
    if series is not None:
        words = made_by(plan).shown(plan)["step"]
        out.print(
            f"series {plain(series)}: step {words}; its key is kept beside it, in a folder for you only, until the last"
        )
    out.print(
        f"released: {f'{beside} and ' if beside else ''}{plan.rows:,} rows of {plan.dim:,} features to "
        f"{plain(folder)}\n"
        f"guarantee: epsilon {rounded_up(guarantee['epsilon'], 4)}, delta {exact(guarantee['delta'])}, "
        f"adjacency {certificate.relation} (accountant {guarantee['accountant']})\n"
        # A series is learnt from as a whole.
        f"next: {_next(planned, plain(shlex.quote(str(series or folder))), series is not None)}",
        soft_wrap=True,
    )


def _next(planned: Planned, folder: str, in_series: bool) -> str:
    learn, rows = f"privmix fit {folder} --out MODEL", f"privmix sample {folder} --out rows.csv"
    if planned.job.goal == TABLE:
        return rows
    # Rows are made of one release, not of a series.
    of_table = planned.forecast is not None and not in_series
    return f"{learn}, or {rows} for rows of the table" if of_table else learn


def _show_plan(planned: Planned, json_output: bool) -> None:
    if json_output:
        print_json(planned.to_dict())
        return
    table = Table(title="plan (public; made before any private row is used)", title_justify="left", show_header=False)
    for name, value in planned.facts().items():
        table.add_row(name, plain(value))
    out.print(table)
    for text in planned.reasons:
        out.print(f"- {plain(text)}", soft_wrap=True)
