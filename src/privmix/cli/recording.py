"""Storing run records from the command line: one option and one function that every measuring verb shares."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from privmix.cli.app import err, plain
from privmix.cli.options import check_unpublished
from privmix.data.remote import public_name
from privmix.reports.places import last_name
from privmix.reports.records import RunRecord, write_record

_PACKAGES: Final = ("privmix", "dp-accounting", "numpy", "scipy", "scikit-learn", "torch")


def _outside(run: Path | None) -> Path | None:
    """Records may be private, and what is in a release or a model is handed to others."""
    if run is not None:
        check_unpublished("--record", run)
    return run


Record = Annotated[
    Path | None,
    typer.Option(
        "--record",
        help="Run folder to keep the figures in; privmix report makes a page of them.",
        callback=_outside,
    ),
]


def keep_record(
    run: Path | None,
    kind: str,
    subject: Mapping[str, Any],
    content: Mapping[str, Any],
    *,
    private: bool,
    settings: Mapping[str, Any],
    title: str,
    statements: Sequence[str] = (),
) -> RunRecord:
    """Make the record of a measurement, and store it where ``run`` is given.

    Args:
        run: the value of ``--record``.
        kind: see :data:`privmix.reports.records.KINDS`.
        subject: what it is about.
        content: figures, JSON values.
        private: whether any of them was computed from private rows other than through a private release or model.
        settings: what decided them, JSON values.
        title: a line for people.
        statements: sentences that must stand beside the figures.
    """
    record = RunRecord(
        kind,
        dict(subject),
        private,
        dict(content),
        dict(settings),
        title=title,
        command=command_line(sys.argv[1:], private=private),
        statements=list(statements),
        versions={name: found for name in _PACKAGES if (found := _version(name))},
    )
    if run is not None:
        path = write_record(record, run)
        err.print(f"record: {plain(path)}", soft_wrap=True)
    return record


def place(text: str, *, private: bool) -> str:
    """A file, folder or address as a record names it: no user, password or key, and, for the public, no way to it.

    Example:
        >>> place("https://ann:secret@host/x?token=1", private=True), place("/home/ann/REL", private=False)
        ('https://host/x', 'REL')
    """
    if not private:
        return last_name(text)
    return public_name(text) if "://" in text else text


def command_line(arguments: Sequence[str], *, private: bool) -> str:
    """The command of these arguments, as text to copy; see :func:`place` for what it says of places.

    Example:
        >>> command_line(["audit", "REL", "--ledger", "postgresql://ann:secret@host/books"], private=True)
        'privmix audit REL --ledger postgresql://host/books'
    """
    words = ["privmix"]
    for word in arguments:
        option, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
        words.append(option + equals + place(value, private=private))
    return shlex.join(words)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
