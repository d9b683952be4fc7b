"""One page that anyone can read, from what was released or trained and what was measured of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, MISSING, dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from privmix.commands.base import Command, function
from privmix.errors import InvalidInput, check_choice
from privmix.jobs.options import NewFile
from privmix.jobs.places import check_writable
from privmix.jobs.recording import Measured
from privmix.options import option
from privmix.progress import Progress
from privmix.reports.panel import AUDIENCES, OWNER, PUBLIC
from privmix.reports.records import RECORDS_FOLDER, RunRecord, public_records, read_records
from privmix.shown import Shown

if TYPE_CHECKING:
    from privmix.ledger.ledger import Ledger

_CERTIFICATE: Final = "certificate.json"
_MODEL: Final = "model.json"
# A run folder may hold these next to its records.
_PARTS: Final = ("release", "model")
# These are made here, from what was checked, and never taken from a file.
_MADE: Final = {"guarantee": "only guarantees in certificates", "ledger": "only totals in ledgers and statements"}

Part = str | PathLike[str] | RunRecord | Measured
"""Sources of a report: a folder, a release, a record, or a measured result."""


@dataclass(frozen=True, repr=False)
class ReportPage(Shown):
    """One self-contained HTML page, and the file that holds it, if any."""

    # refuted_in_private: a private record refutes a claim; only the owner may know that.
    page: str = field(repr=False)
    audience: str
    refuted_in_private: bool
    out: Path | None = None

    def shown(self) -> tuple[str, Mapping[str, object]]:
        where = "not written yet: see `page`" if self.out is None else self.out
        facts = {"page": f"{len(self.page):,} characters", "file": where}
        return f"Report for {self.audience}", {**facts, **({"warnings": self.warnings[0]} if self.warnings else {})}

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings for its owner, before anyone gets it."""
        if self.audience == OWNER:
            return ("this page holds private evaluation: do not publish it",)
        refuted = (
            "a private record refutes a claim, which this public page omits. Read the owner's page before you "
            "publish anything"
        )
        return (refuted,) if self.refuted_in_private else ()

    def to_dict(self) -> dict[str, Any]:
        """JSON values, without the page."""
        out = None if self.out is None else str(self.out)
        return {"audience": self.audience, "refuted_in_private": self.refuted_in_private, "out": out}


@dataclass(frozen=True, eq=False, repr=False)
class Report(NewFile, Command[ReportPage]):
    """Write an HTML report with guarantee, accuracy and attacks.

    Recomputes the guarantee from the certificate; other figures come from run folders. `ledger` or `statement` adds
    the total cost of the dataset. The owner's page also shows the outcomes of charges.

    Formal guarantees:
        * a page for the public is made without private records: their figures can't get into it.

    Raises:
        InvalidInput: a folder holds nothing to report on, something was edited, or records and folders are about
            different releases or models.
        StorageError: something can't be read or written.

    Example:
        >>> report("no-such-folder")
        Traceback (most recent call last):
        ...
        privmix.errors.InvalidInput: runs: got 'no-such-folder'; allowed: a folder that privmix wrote
    """

    example = "privmix report RUN RELEASE --for public --out report.html"

    runs: Part | Sequence[Part] = option(
        MISSING,
        "Release, model, or run folder from `record`.",
        in_python="Also results and records.",
        argument=True,
        several="RUN",
    )
    _: KW_ONLY
    out: str | Path | None = option(
        None,
        "HTML file to write, outside releases. Default: report.html.",
        in_python="In Python, no file by default.",
        shown="report.html",
    )
    audience: str = option(
        PUBLIC, "Readers: public (no private figure) or owner (all figures; keep private).", flag="for"
    )
    ledger: str | Ledger | None = option(None, "Ledger of `dataset`, for the total cost.")
    dataset: str | None = option(None, "Name of the dataset in `ledger`.")
    statement: str | Path | None = option(None, "File from privmix ledger statement, instead of `ledger`.")
    key: str | Path | None = option(None, "Public key (PEM) that must have signed `statement`.")

    def run(self, progress: Progress) -> ReportPage:
        from privmix.reports.page import check_target, render_page, write_page

        audience, runs = check_choice("audience", self.audience, AUDIENCES), self.runs
        parts = [runs] if isinstance(runs, str | PathLike | RunRecord | Measured) else list(runs)
        place = None if self.out is None else Path(self.out)
        if place is not None:
            # Before the folders are verified, which may take minutes.
            check_target(place, overwrite=self.overwrite)
            _check_outside(place, parts)
        found = _Found()
        for part in parts:
            found.add(part, audience)
        found.check()
        page = render_page([*found.guarantees.values(), *self._total(), *found.records], audience)
        if place is not None:
            write_page(page, place, private=audience == OWNER, overwrite=self.overwrite)
        return ReportPage(page, audience, found.refuted_in_private, place)

    def _total(self) -> list[RunRecord]:
        from privmix.commands.ledger import ledger_total
        from privmix.jobs.ledger_total import read_ledger_total, total_record

        ledger, dataset, statement, key = self.ledger, self.dataset, self.statement, self.key
        if (ledger is None) != (dataset is None):
            raise InvalidInput("ledger, dataset", "one of them", "both options, or neither")
        if ledger is not None and statement is not None:
            raise InvalidInput("statement", str(statement), "no statement with `ledger`, which has the total")
        if key is not None and statement is None:
            raise InvalidInput("key", str(key), "only with `statement`")
        if ledger is not None and dataset is not None:
            return [total_record(ledger_total(ledger, dataset, outcomes=self.audience == OWNER))]
        return [] if statement is None else [total_record(read_ledger_total(statement, key))]


report: Final = function(Report)


def _check_outside(out: Path, parts: Sequence[Part]) -> None:
    from privmix.certificate.certificate import RELEASE
    from privmix.jobs.kinds import kind_of

    check_writable("out", out.parent)
    folders = [Path(part) for part in parts if isinstance(part, str | PathLike)]
    inner = [folder / name for folder in folders for name in ("", *_PARTS)]
    if any(kind_of(one) == RELEASE and one.resolve() in out.resolve().parents for one in inner):
        raise InvalidInput("out", str(out), "a place outside of the release folder, which must not hold other files")


@dataclass
class _Found:
    """Contents of the parts: guarantees by the id of their subject, records, and fitted models by their release."""

    guarantees: dict[str, RunRecord] = field(default_factory=dict)
    records: list[RunRecord] = field(default_factory=list)
    fitted: list[tuple[Path, str]] = field(default_factory=list)
    refuted_in_private: bool = False

    def add(self, part: Part, audience: str) -> None:
        if isinstance(part, str | PathLike):
            records = self._of_folder(Path(part))
        else:
            records = [part.measurement.record() if isinstance(part, Measured) else part]
        if forged := [record for record in records if record.kind in _MADE]:
            kind = forged[0].kind
            place = str(Path(part)) if isinstance(part, str | PathLike) else "a record"
            raise InvalidInput(f"record {kind} {forged[0].record_id[:12]}", place, _MADE[kind])
        # Noted before private records are dropped: a page for the public may not hide that a claim failed.
        if any(record.private and record.content.get("violated") is True for record in records):
            self.refuted_in_private = True
        # From here on a page for the public knows nothing of private records.
        self.records += records if audience == OWNER else public_records(records)

    def _of_folder(self, run: Path) -> list[RunRecord]:
        if not run.is_dir():
            raise InvalidInput("runs", str(run), "a folder that privmix wrote")
        parts = [run, *(run / name for name in _PARTS if (run / name).is_dir())]
        known = [self._add_subject(part, required=part != run) for part in parts]
        records = read_records(run)
        if not any(known) and not records:
            raise InvalidInput("runs", str(run), f"a folder with {_CERTIFICATE} or {RECORDS_FOLDER}/")
        return records

    def _add_subject(self, folder: Path, *, required: bool) -> bool:
        """Take in a release or model; whether there was one."""
        from privmix.certificate.certificate import MODEL, RELEASE
        from privmix.jobs.inspection import folder_guarantee
        from privmix.jobs.kinds import FITTED, kind_of
        from privmix.learning.model_io import load_model

        kind = kind_of(folder)
        if kind in (MODEL, RELEASE):
            record = folder_guarantee(folder)
        elif kind == FITTED:
            self.fitted.append((folder, load_model(folder).facts_.release_id))
            return True
        # A folder that lost its certificate must not pass for one that holds records alone.
        elif required or (folder / _MODEL).is_file() or any((folder / "data").glob("train-*.parquet")):
            raise InvalidInput(str(folder), "no certificate", f"a release or model with its {_CERTIFICATE}")
        else:
            return False
        self.guarantees[str(record.subject["id"])] = record
        return True

    def check(self) -> None:
        """Check that all records are about the given folders: figures of one release do not apply to another."""
        given = ", ".join(f"{one.subject['kind']} {one.subject['id']}" for one in self.guarantees.values())
        allowed = (
            f"records and models of the given folders ({given or 'no release or model'}); give this record's folder, "
            f"too"
        )
        # A fitted model has the guarantee of its release, which the page must then show.
        for folder, release_id in self.fitted:
            if release_id not in self.guarantees:
                raise InvalidInput(str(folder), f"a model of release {release_id}", allowed)
        for record in self.records:
            about = record.subject["id"]
            if about is not None and about not in self.guarantees:
                kind = record.subject["kind"]
                raise InvalidInput(f"record {record.kind} {record.record_id[:12]}", f"about {kind} {about}", allowed)
