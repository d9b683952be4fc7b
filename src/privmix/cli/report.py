"""``privmix report``: one page that anyone can read, from what was released or trained and what was measured of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final

import typer

from privmix.cli.app import app, err, out, plain
from privmix.cli.guarantee import model_guarantee, release_guarantee
from privmix.cli.options import check_writable
from privmix.errors import InvalidInput, check_choice
from privmix.learning import load_model
from privmix.reports.context import AUDIENCES, OWNER, PUBLIC
from privmix.reports.page import check_target, render_page, write_page
from privmix.reports.records import RECORDS_FOLDER, RunRecord, public_records, read_records
from privmix.training import is_trained_model

_CERTIFICATE: Final = "certificate.json"
_MODEL: Final = "model.json"
# A run folder may hold these beside its records.
_PARTS: Final = ("release", "model")


@app.command()
def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN",
            help="Release, trained model, or run folder that --record filled (it may hold release/ and model/).",
        ),
    ],
    audience: Annotated[
        str, typer.Option("--for", help="public: no private figure gets in; owner: everything, keep it to yourself.")
    ] = PUBLIC,
    page: Annotated[Path, typer.Option("--out", help="HTML file to write.")] = Path("report.html"),
    overwrite: Annotated[bool, typer.Option(help="Replace an existing page.")] = False,
) -> None:
    """Write one self-contained HTML page: what was guaranteed, what it is good for, and what attacks could do.

    The guarantee is recomputed from the certificate. Everything else comes from records that verbs keep with --record.
    A page for the public is made without private records; their figures can't get into it.

    Example: privmix report RUN RELEASE --for public --out report.html
    """
    check_choice("--for", audience, AUDIENCES)
    check_target(page, overwrite=overwrite)
    check_writable("--out", page.parent)
    inside = next((run for run in _releases(runs) if run.resolve() in page.resolve().parents), None)
    if inside is not None:
        raise InvalidInput("--out", str(page), "a place outside of the release, which must not hold other files")
    found = _gathered(runs, audience)
    write_page(found.page(audience), page, private=audience == OWNER, overwrite=overwrite)
    out.print(f"report for the {audience}: {plain(page)}", soft_wrap=True)
    if audience == OWNER:
        err.print("[yellow]warning:[/] this page holds private evaluation: do not publish it")
    elif found.refuted_in_private:
        err.print(
            "[yellow]warning:[/] a private record refutes a claim; this page can't say so. See --for owner before you "
            "publish anything",
            soft_wrap=True,
        )


def build_report(runs: Sequence[Path], audience: str) -> str:
    """The page on what ``runs`` hold.

    Raises:
        InvalidInput: a folder holds nothing to report on, something was edited, or records and folders are about
            different releases or models.
        StorageError: something can't be read.
    """
    return _gathered(runs, audience).page(audience)


def _gathered(runs: Sequence[Path], audience: str) -> _Found:
    found = _Found()
    for run in runs:
        found.add(run, audience)
    found.check()
    return found


@dataclass
class _Found:
    """What the folders hold: guarantees by the id of their subject, records, and fitted models by their release.

    ``refuted_in_private`` is for the owner's eyes, and no part of a page.
    """

    guarantees: dict[str, RunRecord] = field(default_factory=dict)
    records: list[RunRecord] = field(default_factory=list)
    fitted: list[tuple[Path, str]] = field(default_factory=list)
    refuted_in_private: bool = False

    def add(self, run: Path, audience: str) -> None:
        """Take in a folder and its parts."""
        if not run.is_dir():
            raise InvalidInput("RUN", str(run), "a folder that privmix wrote")
        parts = [run, *(run / name for name in _PARTS if (run / name).is_dir())]
        known = [self._add_subject(part, required=part != run) for part in parts]
        records = read_records(run)
        if forged := [record for record in records if record.kind == "guarantee"]:
            # It is recomputed from certificates, never taken from a file that says so.
            raise InvalidInput(
                f"record guarantee {forged[0].record_id[:12]}", str(run), "guarantees in certificates alone"
            )
        if not any(known) and not records:
            raise InvalidInput("RUN", str(run), f"a folder with {_CERTIFICATE} or {RECORDS_FOLDER}/")
        if any(record.private and record.content.get("violated") is True for record in records):
            self.refuted_in_private = True
        # From here on a page for the public knows nothing of private records.
        self.records += records if audience == OWNER else public_records(records)

    def _add_subject(self, folder: Path, *, required: bool) -> bool:
        """Take in a release or model; whether there was one."""
        if is_trained_model(folder):
            if not (folder / _CERTIFICATE).is_file():
                raise InvalidInput(str(folder), "a trained model without certificate", f"one with its {_CERTIFICATE}")
            record = model_guarantee(folder)
        elif (folder / _CERTIFICATE).is_file():
            record = release_guarantee(folder)
        elif (folder / _MODEL).is_file():
            self.fitted.append((folder, load_model(folder).facts_.release_id))
            return True
        elif required or any((folder / "data").glob("train-*.parquet")):
            raise InvalidInput(str(folder), "no certificate", f"a release or model with its {_CERTIFICATE}")
        else:
            return False
        self.guarantees[str(record.subject["id"])] = record
        return True

    def page(self, audience: str) -> str:
        """All of it as HTML."""
        return render_page([*self.guarantees.values(), *self.records], audience)

    def check(self) -> None:
        """Everything must be about what was given: figures of one release say nothing of another."""
        given = ", ".join(f"{one.subject['kind']} {one.subject['id']}" for one in self.guarantees.values())
        allowed = (
            f"records and models of what was given ({given or 'no release or model'}); give the other's folder too"
        )
        for folder, release_id in self.fitted:
            if release_id not in self.guarantees:
                raise InvalidInput(str(folder), f"a model of release {release_id}", allowed)
        for record in self.records:
            about = record.subject["id"]
            if about is not None and about not in self.guarantees:
                kind = record.subject["kind"]
                raise InvalidInput(f"record {record.kind} {record.record_id[:12]}", f"about {kind} {about}", allowed)


def _releases(runs: Sequence[Path]) -> list[Path]:
    """Folders that must hold the certified files and no others."""
    return [
        part
        for run in runs
        for part in (run, *(run / name for name in _PARTS))
        if (part / _CERTIFICATE).is_file() and not is_trained_model(part)
    ]
