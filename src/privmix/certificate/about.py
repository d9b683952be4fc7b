"""What an owner says of a release: title, owner, contact, licence, purpose and date, in the owner's own words."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, Any, Final

from privmix.errors import InvalidInput
from privmix.fields import By, Checked, Line, is_printable
from privmix.mechanisms.plan import Unit
from privmix.options import option
from privmix.rounding import exact, rounded_up
from privmix.untrusted import read_plain

LICENCE_FILE: Final = "LICENSE.txt"
MOST_LICENCE_BYTES: Final = 2**17
LONGEST: Final = {"title": 200, "owner": 200, "contact": 200, "licence": 200, "purpose": 1000}
"""The texts, in the order in which they are shown, and their greatest lengths in characters."""

_PANEL: Final = "The owner's words"
# Those that a line of Markdown gives a meaning to.
_MARKUP: Final = re.compile(r"([\\`*_{}\[\]<>()#+!|~&$^=:-])")
# Names of licences that dataset hubs know.
_KNOWN: Final = ("cc0-1.0", "cc-by-4.0", "cc-by-sa-4.0", "cc-by-nc-4.0", "cc-by-nc-sa-4.0", "mit", "apache-2.0", "odbl")


def check_date(name: str, text: Any) -> None:
    """Raise :class:`InvalidInput` unless a text is a day, in the one way that ISO 8601 writes it with hyphens."""
    try:
        known = isinstance(text, str) and date.fromisoformat(text).isoformat() == text
    except ValueError:
        known = False
    if not known:
        raise InvalidInput(name, text, "a day as YYYY-MM-DD")


Day = Annotated[str, By(check_date, "", "1/2/26", 1)]
"""A day, as a field."""


@dataclass(frozen=True)
class About(Checked):
    """What the owner says of a release. It stands in certificate, card and report, is hashed and signed, never checked.

    Formal guarantees:
        * Only what the owner gave and the day's date: nothing follows from a record.
        * A text is one line of printable characters of bounded length, so that it can look like nothing else in a
          terminal; :func:`in_markdown` escapes it where it reaches a card.

    Example:
        >>> About(title="Hospital visits", owner="St. Elsewhere", date="2026-01-31").to_dict()
        {'title': 'Hospital visits', 'owner': 'St. Elsewhere', 'date': '2026-01-31'}
    """

    title: Annotated[str, Line(LONGEST["title"])] | None = option(None, "What this is, in a line.", _PANEL)
    owner: Annotated[str, Line(LONGEST["owner"])] | None = option(None, "Who publishes it.", _PANEL)
    contact: Annotated[str, Line(LONGEST["contact"])] | None = option(None, "Where questions go.", _PANEL)
    licence: Annotated[str, Line(LONGEST["licence"])] | None = option(
        None, "Licence of what is published, such as CC-BY-4.0.", _PANEL
    )
    licence_file: Path | None = option(None, "The licence's text, a file; it goes along as LICENSE.txt.", _PANEL)
    purpose: Annotated[str, Line(LONGEST["purpose"])] | None = option(None, "What it is published for.", _PANEL)
    date: Day | None = option(None, "YYYY-MM-DD. Default: today (UTC), where another of these is given.", _PANEL)

    @property
    def given(self) -> bool:
        """Whether anything is said."""
        return any(getattr(self, name) is not None for name in self.__dataclass_fields__)

    def dated(self, before: Mapping[str, Any] | None = None) -> About:
        """The same with a date: its own, else that of an interrupted run, else today's."""
        if self.date is not None or not self.given:
            return self
        return replace(self, date=(before or {}).get("date") or datetime.now(UTC).date().isoformat())

    def licence_text(self) -> bytes | None:
        """The bytes of the licence's file."""
        if self.licence_file is None:
            return None
        content = read_plain(Path(self.licence_file), "licence_file", MOST_LICENCE_BYTES)
        check_licence(content, "licence_file")
        return content

    def to_dict(self) -> dict[str, str]:
        """What is said, as JSON values."""
        said = {name: getattr(self, name) for name in (*LONGEST, "date")}
        if self.licence_file is not None:
            said["licence_file"] = LICENCE_FILE
        return {name: text for name, text in said.items() if text is not None}


def check_about(field: str, found: Any) -> None:
    """Raise :class:`InvalidInput` where a certificate's ``about`` is not what :meth:`About.to_dict` writes."""
    if not isinstance(found, dict) or not found or not set(found) <= {*LONGEST, "date", "licence_file"}:
        raise InvalidInput(field, "another value", "the owner's words and a date")
    for name, text in found.items():
        if name == "licence_file":
            if text != LICENCE_FILE:
                raise InvalidInput(f"{field} licence_file", text, LICENCE_FILE)
        elif name == "date":
            check_date(f"{field} date", text)
        else:
            Line(LONGEST[name]).check(f"{field} {name}", text)


def about_of(certificate: Mapping[str, Any]) -> Mapping[str, str]:
    """The owner's words in a certificate; older ones, and those of models, have none."""
    found: Mapping[str, str] = certificate.get("about", {})
    return found


def licence_metadata(licence: str) -> str:
    """Lines of YAML with a licence, as hubs read them; quoted as in JSON, which is YAML."""
    known = hub_licence(licence)
    named = "" if known else f"license_name: {json.dumps(licence, ensure_ascii=False)}\n"
    return f"license: {known or 'other'}\n{named}"


def privacy_metadata(guarantee: Mapping[str, Any], unit: Unit) -> str:
    """Lines of YAML with what is guaranteed, for programs that read cards: epsilon, delta, adjacency, unit.

    Example:
        >>> from privmix.mechanisms.plan import RECORD
        >>> print(privacy_metadata({"epsilon": 0.99991, "delta": 1e-5, "adjacency": "add_remove"}, RECORD), end="")
        differential_privacy:
          epsilon: 1
          delta: 1.0e-05
          adjacency: add_remove
          unit: record
    """
    epsilon = ".inf" if guarantee["epsilon"] is None else _yaml(rounded_up(guarantee["epsilon"], 4))
    return (
        f"differential_privacy:\n  epsilon: {epsilon}\n  delta: {_yaml(exact(guarantee['delta']))}\n"
        f"  adjacency: {guarantee['adjacency']}\n  unit: {unit.one}\n"
    )


def _yaml(number: str) -> str:
    """A number that YAML reads as one: with a point, where it has an exponent."""
    mantissa, mark, exponent = number.partition("e")
    return number if not mark or "." in mantissa else f"{mantissa}.0e{exponent}"


def has_licence_file(certificate: Mapping[str, Any]) -> bool:
    """Whether the licence's text goes along."""
    return "licence_file" in about_of(certificate)


def check_licence(content: bytes, name: str) -> None:
    """Raise :class:`InvalidInput` where bytes are no text of printable lines."""
    try:
        lines = content.decode().splitlines()
    except UnicodeDecodeError:
        lines = ["\0"]
    if not content or not all(is_printable(line.replace("\t", " ")) for line in lines):
        raise InvalidInput(name, "other bytes", "a text of printable lines in UTF-8")


def in_markdown(text: str) -> str:
    """A text as it is, in Markdown."""
    return _MARKUP.sub(r"\\\1", text)


def hub_licence(name: str) -> str | None:
    """A licence's name as dataset hubs write it, if they know it."""
    return name.lower() if name.lower() in _KNOWN else None
