"""The owner's description of a release: title, owner, contact, licence, purpose and date, in the owner's own words."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, Any, Final

from privmix.errors import InvalidInput, in_terms_of
from privmix.fields import By, Checked, Line, is_printable
from privmix.mechanisms.plan import Unit
from privmix.options import option
from privmix.rounding import exact, rounded_up
from privmix.untrusted import read_plain

LICENCE_FILE: Final = "LICENSE.txt"
MOST_LICENCE_BYTES: Final = 2**17
_LONGEST: Final = {"title": 200, "owner": 200, "contact": 200, "licence": 200, "purpose": 1000}
"""The texts, in the order in which they are shown, and their greatest lengths in characters."""

_PANEL: Final = "The owner's words"
# Characters that a line of Markdown gives a meaning to.
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
    """The owner's words about a release: in certificate, card and report; hashed and signed, never checked.

    Formal guarantees:
        * Only what the owner gave and the day's date: nothing follows from a record.
        * A text is one line of printable characters of bounded length, so that it can look like nothing else in a
          terminal. :func:`in_markdown` escapes it where it reaches a card.
    """

    title: Annotated[str, Line(_LONGEST["title"])] | None = option(None, "Title in one line.", _PANEL)
    owner: Annotated[str, Line(_LONGEST["owner"])] | None = option(None, "Name of the publisher.", _PANEL)
    contact: Annotated[str, Line(_LONGEST["contact"])] | None = option(None, "Contact for questions.", _PANEL)
    licence: Annotated[str, Line(_LONGEST["licence"])] | None = option(
        None, "Licence of the release, such as CC-BY-4.0.", _PANEL
    )
    licence_file: Path | None = option(None, "Text file of the licence, added as LICENSE.txt.", _PANEL)
    purpose: Annotated[str, Line(_LONGEST["purpose"])] | None = option(None, "Purpose of the release.", _PANEL)
    date: Day | None = option(None, "Date, YYYY-MM-DD. Default: today (UTC) if another field is given.", _PANEL)

    @classmethod
    def of(cls, said: Any) -> About:
        """Read the words of an object, a mapping, or a TOML file, next to which a licence's file is looked for."""
        if said is None or isinstance(said, About):
            return said or cls()
        given, place = said, Path()
        if isinstance(said, str | Path):
            place = Path(said).parent
            try:
                given = tomllib.loads(read_plain(Path(said), "metadata", MOST_LICENCE_BYTES).decode())
            except ValueError as error:
                raise InvalidInput("metadata", str(said), f"a TOML file in UTF-8: {error}") from None
        if not isinstance(given, Mapping):
            raise InvalidInput("metadata", type(said).__name__, "a TOML file, or texts by name")
        known = cls.__dataclass_fields__
        if unknown := [str(name) for name in given if name not in known]:
            raise InvalidInput("metadata", unknown[0], f"{', '.join(known)}")
        # TOML reads a day without quotes as a date.
        given = {name: one.isoformat() if isinstance(one, date) else one for name, one in given.items()}
        if given.get("licence_file") is not None:
            given["licence_file"] = place / given["licence_file"]
        with in_terms_of(part="metadata"):
            return cls(**given)

    @property
    def given(self) -> bool:
        return any(getattr(self, name) is not None for name in self.__dataclass_fields__)

    def dated(self, before: Mapping[str, Any] | None = None) -> About:
        """Return the same with a date: its own, else that of an interrupted run, else today's."""
        if self.date is not None or not self.given:
            return self
        return replace(self, date=(before or {}).get("date") or datetime.now(UTC).date().isoformat())

    def licence_text(self) -> bytes | None:
        if self.licence_file is None:
            return None
        content = read_plain(Path(self.licence_file), "licence_file", MOST_LICENCE_BYTES)
        check_licence(content, "licence_file")
        return content

    def to_dict(self) -> dict[str, str]:
        said = {name: getattr(self, name) for name in (*_LONGEST, "date")}
        if self.licence_file is not None:
            said["licence_file"] = LICENCE_FILE
        return {name: text for name, text in said.items() if text is not None}


def check_about(field: str, found: Any) -> None:
    """Raise :class:`InvalidInput` where a certificate's ``about`` is not what :meth:`About.to_dict` writes."""
    if not isinstance(found, dict) or not found or not set(found) <= {*_LONGEST, "date", "licence_file"}:
        raise InvalidInput(field, "another value", "the owner's words and a date")
    for name, text in found.items():
        if name == "licence_file":
            if text != LICENCE_FILE:
                raise InvalidInput(f"{field} licence_file", text, LICENCE_FILE)
        elif name == "date":
            check_date(f"{field} date", text)
        else:
            Line(_LONGEST[name]).check(f"{field} {name}", text)


def about_of(certificate: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the owner's words in a certificate; older ones, and those of models, have none."""
    found: Mapping[str, str] = certificate.get("about", {})
    return found


def licence_metadata(licence: str) -> str:
    """Lines of YAML with a licence, as hubs read them; quoted as in JSON, which is YAML."""
    known = licence.lower() if licence.lower() in _KNOWN else None
    named = "" if known else f"license_name: {json.dumps(licence, ensure_ascii=False)}\n"
    return f"license: {known or 'other'}\n{named}"


def privacy_metadata(guarantee: Mapping[str, Any], unit: Unit) -> str:
    """Return YAML lines with the guarantee, for programs that read cards: epsilon, delta, adjacency, unit."""
    epsilon = ".inf" if guarantee["epsilon"] is None else yaml_number(rounded_up(guarantee["epsilon"], 4))
    return (
        f"differential_privacy:\n  epsilon: {epsilon}\n  delta: {yaml_number(exact(guarantee['delta']))}\n"
        f"  adjacency: {guarantee['adjacency']}\n  unit: {unit.one}\n"
    )


def yaml_number(number: str) -> str:
    """Return a number as YAML reads it: with a point, where it has an exponent."""
    # YAML 1.1 takes 1e-05 for a text.
    mantissa, mark, exponent = number.partition("e")
    return number if not mark or "." in mantissa else f"{mantissa}.0e{exponent}"


def has_licence_file(certificate: Mapping[str, Any]) -> bool:
    return "licence_file" in about_of(certificate)


def check_licence(content: bytes, name: str) -> None:
    """Raise :class:`InvalidInput` where bytes are no text of printable lines."""
    try:
        lines = content.decode().splitlines()
    except UnicodeDecodeError:
        # Not printable: refused below.
        lines = ["\0"]
    if not content or not all(is_printable(line.replace("\t", " ")) for line in lines):
        raise InvalidInput(name, "other bytes", "a text of printable lines in UTF-8")


def in_markdown(text: str) -> str:
    return _MARKUP.sub(r"\\\1", text)
