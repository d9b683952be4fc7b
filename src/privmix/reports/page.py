"""One self-contained HTML page from run records: no scripts, no network, light and dark, for screen and print."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from privmix.errors import InvalidInput, StorageError, check_choice
from privmix.held_folders import write_durably
from privmix.private_files import file_mode
from privmix.reports.closing import closing_sections, glance, refutations
from privmix.reports.context import AUDIENCES, OWNER, Context
from privmix.reports.panel import panel_sections
from privmix.reports.panels import guarantee_section, headline, owners_words
from privmix.reports.panels_budget import budget_section
from privmix.reports.panels_utility import usefulness_section
from privmix.reports.records import RunRecord

_MARK: Final = "<!doctype html>"


def render_page(records: Iterable[RunRecord], audience: str) -> str:
    """The report on ``records`` as HTML.

    Formal guarantees:
        * Public pages hold no private figure: for the public, private records are dropped before anything else is done,
          and the page has the same bytes whatever they hold, however many there are.
        * Nobody is singled out in public: lists of single records are left out of public pages.
        * The same records give the same bytes, in whatever order they come.
        * Texts of records are shown as texts: nothing in them becomes markup, and the page forbids scripts and loads.

    Args:
        records: of one or several runs.
        audience: one of :data:`~privmix.reports.context.AUDIENCES`.

    Raises:
        InvalidInput: the audience is another one, or there is nothing to show.

    Example:
        >>> record = RunRecord("evaluation", {"kind": "design", "id": None}, False, {"accuracy": 0.9}, {})
        >>> "90.0%" in render_page([record], "public")
        True
    """
    check_choice("audience", audience, AUDIENCES)
    context = Context.of(records, audience)
    if not context.shown:
        raise InvalidInput(
            "records", "none to show", "at least one record, or one that is public with `audience` public"
        )
    first = glance(context)
    sections = [
        section
        for section in (
            guarantee_section(context),
            budget_section(context),
            usefulness_section(context),
            *panel_sections(context),
        )
        if section is not None
    ]
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            title=_title(context),
            about=_about(context),
            owner=audience == OWNER,
            style=Markup(files("privmix.reports").joinpath("templates", "page.css").read_text(encoding="utf-8")),
            refutations=refutations(context),
            hero=[*headline(context), *([] if first is None else [first])],
            sections=[*sections, *closing_sections(context)],
        )
    )


def write_page(page: str, path: Path, *, private: bool, overwrite: bool = False) -> None:
    """Store a page, whole or not at all; private pages are readable by their owner only.

    Raises:
        InvalidInput: ``path`` is a folder, or exists and may not be replaced.
        StorageError: it can't be written.
    """
    check_target(path, overwrite=overwrite)
    try:
        with file_mode(private=private):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_durably(path, page.encode())
    except OSError as error:
        raise StorageError(f"out: can't write {path}: {error.strerror or type(error).__name__}") from None


def check_target(path: Path, *, overwrite: bool) -> None:
    """Raise :class:`InvalidInput` unless a page may be written to ``path``: other files are never replaced."""
    if not path.exists() and not path.is_symlink():
        return
    if not overwrite:
        raise InvalidInput("out", str(path), "a file that does not exist yet (or `overwrite`)")
    try:
        with path.open("rb") as stream:
            is_page = stream.read(len(_MARK)) == _MARK.encode()
    except OSError:
        is_page = False
    if path.is_symlink() or not is_page:
        raise InvalidInput("out", str(path), "a page that privmix report made, to overwrite it")


def _title(context: Context) -> str:
    subjects = [
        owners_words(one.content).get("title") or f"{one.record.subject['kind']} {str(one.record.subject['id'])[:8]}"
        for one in context.of_kind("guarantee")
    ]
    return "Privacy report" + (": " + ", ".join(subjects) if subjects else "")


def _about(context: Context) -> list[str]:
    """Whose it is, of which day, and its id: by which a page is filed. The words are the owner's."""
    found = []
    for one in context.of_kind("guarantee"):
        said = owners_words(one.content)
        kind, name = one.record.subject["kind"], str(one.record.subject["id"])
        words = [said[part] for part in ("owner", "date") if part in said]
        found.append(
            " · ".join([*words, *([f"licence {said['licence']}"] if "licence" in said else []), f"{kind} {name}"])
        )
    return found


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("privmix.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_printable,
    )


def _printable(value: Any) -> Any:
    """Texts without control characters, which HTML may not hold and readers may be misled by."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return "".join(mark if mark.isprintable() else "?" for mark in value)
