"""Storing run records from the command line: one option and one function that every measuring verb shares."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from privmix import jobs
from privmix.cli.console import err, plain, print_json
from privmix.jobs.places import check_unpublished, check_writable

Found = TypeVar("Found", bound="jobs.recording.Measured")


def _outside(run: Path | None) -> Path | None:
    """Records may be private, and what is in a release or a model is handed to others; asked before the work."""
    if run is not None:
        check_unpublished("record", run)
        check_writable("record", run)
    return run


Record = Annotated[
    Path | None,
    typer.Option(
        "--record",
        help="Run folder to keep the figures in; privmix report makes a page of them.",
        callback=_outside,
    ),
]


def keep(found: jobs.recording.Measured | jobs.recording.Measurement, run: Path | None) -> None:
    """Store what was measured where ``run``, the value of ``--record``, is given."""
    if run is None:
        return
    measurement = found.measurement if isinstance(found, jobs.recording.Measured) else found
    path = measurement.keep(run, command_line(sys.argv[1:], private=measurement.private))
    err.print(f"record: {plain(path)}", soft_wrap=True)


def keep_and_show(found: Found, run: Path | None, json_output: bool, show: Callable[[Found], None]) -> None:
    """How a measuring verb ends: the record is kept where asked for, and ``show`` prints where JSON is not."""
    keep(found, run)
    if json_output:
        print_json(found.to_dict())
    else:
        show(found)


def keep_record(
    run: Path,
    kind: str,
    subject: Mapping[str, Any],
    content: Mapping[str, Any],
    *,
    private: bool,
    settings: Mapping[str, Any],
    title: str,
    statements: Sequence[str] = (),
) -> None:
    """:func:`keep` of a :class:`Measurement` of these fields."""
    keep(jobs.recording.Measurement(kind, subject, content, private, settings, title, statements), run)


def command_line(arguments: Sequence[str], *, private: bool) -> str:
    """The command of these arguments, as text to copy; see :func:`place` for what it says of places.

    Example:
        >>> command_line(["audit", "REL", "--ledger", "postgresql://ann:secret@host/books"], private=True)
        'privmix audit REL --ledger postgresql://host/books'
    """
    words = ["privmix"]
    for word in arguments:
        option, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
        words.append(option + equals + jobs.recording.place(value, private=private))
    return shlex.join(words)
