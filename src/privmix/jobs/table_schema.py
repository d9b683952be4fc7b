"""Entries of a table's specification from a Table Schema (Frictionless), as data portals publish it next to a table."""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from privmix.errors import InvalidInput, StorageError
from privmix.features.table_cells import INDICATOR
from privmix.untrusted import parse_json

_NUMBERS: Final = ("integer", "number", "year")
_DAYS: Final = ("date", "datetime")


def schema_entries(given: str | Path | Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return column -> entry, for fields with enough constraints: bounds, values, or a kind that needs neither.

    Args:
        given: a schema, a data package or resource that contains one; or its JSON file.
    """
    schema = _read(given)
    found: dict[str, dict[str, Any]] = {}
    for one in schema["fields"]:
        if not isinstance(one, Mapping) or not isinstance(one.get("name"), str):
            raise InvalidInput("schema", "a field without a name", "a Table Schema: fields, each with a name")
        try:
            entry, required = _entry(one), bool((one.get("constraints") or {}).get("required"))
            tokens = _texts(one.get("missingValues", schema.get("missingValues", [])))
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
            raise InvalidInput(f"schema of column {one['name']}", "another form", "a field of a Table Schema") from None
        if entry:
            absent = "ignore" not in entry and not required
            said = {"missing_tokens": tokens} if tokens and absent else {}
            single = {"missing": INDICATOR} if absent and "categories" not in entry else {}
            found[one["name"]] = {**entry, **single, **said}
    return found


def _read(given: str | Path | Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(given, str | Path):
        try:
            given = parse_json(Path(given).expanduser().read_bytes().removeprefix(codecs.BOM_UTF8), "schema")
        except OSError as error:
            raise StorageError(f"schema: {error.strerror or 'cannot be read'}") from None
    found: Any = given
    if isinstance(found, Mapping) and isinstance(found.get("resources"), list) and len(found["resources"]) == 1:
        found = found["resources"][0]
    if isinstance(found, Mapping) and isinstance(found.get("schema"), Mapping):
        found = found["schema"]
    if not isinstance(found, Mapping) or not isinstance(found.get("fields"), list):
        raise InvalidInput("schema", "no list of fields", "a Table Schema, or a data package of one table")
    return found


def _entry(one: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a field declares; nothing where bounds or values are missing."""
    kind, limits = one.get("type", "string"), one.get("constraints") or {}
    bounds: list[Any] = [limits.get("minimum"), limits.get("maximum")]
    if limits.get("unique"):
        return {"ignore": True}
    if values := limits.get("enum", one.get("categories")):
        listed = [_value(value) for value in values]
        return {"ordinal" if one.get("categoriesOrdered") else "categories": listed}
    if kind == "boolean":
        texts = {name: one[f"{name}Values"] for name in ("true", "false") if f"{name}Values" in one}
        if len(texts) == 1:
            raise ValueError("texts of one truth value alone")
        return {"boolean": texts or True}
    if None in bounds:
        return {}
    if kind in _NUMBERS:
        whole = {} if kind == "number" else {"integer": True}
        mark = {"thousands": one["groupChar"]} if one.get("groupChar") else {}
        return {"range": [float(value) if kind == "number" else int(value) for value in bounds], **whole, **mark}
    if kind in _DAYS:
        written = {} if one.get("format", "default") in ("default", "any") else {"format": one["format"]}
        return {"date": [str(value)[: len("2015-01-31")] for value in bounds], **written}
    return {}


def _value(one: Any) -> Any:
    return one["value"] if isinstance(one, Mapping) else one


def _texts(given: Any) -> list[str]:
    """Return texts of missing values, but for the empty one; version 2 has them as objects, too."""
    if isinstance(given, str):
        raise TypeError("a text, not a list")
    return [str(text) for text in map(_value, given) if text != ""]
