"""Entries of a table's specification, from options for its columns, its records or its Table Schema (Frictionless)."""

import codecs
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from privmix import data as readers
from privmix.data.columns import no_column
from privmix.data.header import BOOLEAN, DATE, NUMBER, TEXT, WHOLE
from privmix.data.jsonl import JsonlSource
from privmix.data.source import Source
from privmix.errors import InvalidInput, StorageError
from privmix.features.table_cells import INDICATOR
from privmix.features.table_look import Look
from privmix.features.tabular import PLACEHOLDER, Tabular
from privmix.jobs.columns import Columns
from privmix.jobs.options import Said, SpecOptions
from privmix.progress import Progress
from privmix.untrusted import parse_json

_STEP: Final = 4096
# Each interval is a feature, and its noise does not shrink with its share.
_MOST_INTERVALS: Final = 100
# Placeholders in a draft for columns without an option, by what a schema declares.
HINTS: Final = {
    NUMBER: "a number: range or bins; or ignore",
    WHOLE: "a whole number: range or bins; or ignore",
    BOOLEAN: "boolean; or ignore",
    DATE: "date; or ignore",
    TEXT: "a text: categories, ordinal, boolean or date; or ignore",
    "": "range, bins, categories, ordinal, boolean or date; or ignore",
}
# Options that may name a column alone, for its content to be estimated.
ESTIMATED: Final = ("number", "category")
_NUMBERS: Final = ("integer", "number", "year")
_DAYS: Final = ("date", "datetime")


def declared_table(names: Sequence[str], asked: SpecOptions, *, apart: Sequence[str] = ()) -> Tabular:
    """Return the features of a table by option alone: what :func:`spec` would write for these columns."""
    # `apart`: the labels' column and the persons', which are not specified.
    entries = entries_of(asked, list(names), tuple(apart))
    return Tabular({name: entries.get(name, {PLACEHOLDER: HINTS[""]}) for name in names})


def _texts(given: Any) -> list[str]:
    if isinstance(given, str):
        given = [text for text in given.split(",") if text.strip()]
    return [str(one).strip() for one in given or ()]


def to_estimate(asked: SpecOptions, known: list[str] | None, apart: Sequence[str]) -> dict[str, str]:
    """Return column -> option, for columns that an option names without their content."""
    found: dict[str, str] = {}
    for field in ESTIMATED:
        for name, what in pairs(field, getattr(asked, field), known):
            if what is None and (name in found or name in apart):
                raise InvalidInput(field, name, "each column once, except the columns of labels and persons")
            if what is None and known is not None and name not in known:
                raise no_column(field, name, known, "a column of the data's header")
            found |= {name: field} if what is None else {}
    return found


def entries_of(
    asked: SpecOptions,
    known: list[str] | None,
    apart: tuple[str, ...],
    whole: Sequence[str] = (),
    estimated: Mapping[str, str] = {},
) -> dict[str, dict[str, Any]]:
    """Return the entries that the owner gives; `whole`: columns of whole numbers by the table's schema."""
    gone = missing_texts(asked.missing, known)

    def absent(name: str, single: bool) -> dict[str, Any]:
        tokens = gone.get(name, gone.get(None))
        said = {} if tokens is None else {"missing_tokens": tokens}
        return {"missing": INDICATOR, **(said if tokens else {})} if single and said else said

    kinds: list[tuple[str, Said, Callable[[str, Any], dict[str, Any]]]] = [
        ("number", asked.number, lambda field, what: _number(field, what)),
        ("bins", asked.bins, lambda field, what: _bins(field, what)),
        ("category", asked.category, lambda field, what: {"categories": values(field, what)}),
        ("ordinal", asked.ordinal, lambda field, what: {"ordinal": values(field, what)}),
        ("date", asked.date, lambda field, what: _days(field, what)),
        ("boolean", asked.boolean, lambda field, what: {"boolean": _truth(field, what)}),
        ("ignore", asked.ignore, lambda field, what: {"ignore": True}),
    ]
    found: dict[str, dict[str, Any]] = {}
    for field, given, entry in kinds:
        for name, what in pairs(field, given, known):
            if field == "ignore" and name in apart:
                # They are no inputs.
                continue
            if what is None and estimated.get(name) == field:
                continue
            if name in found or name in apart or name in estimated:
                raise InvalidInput(field, name, "each column once, except the columns of labels and persons")
            if known is not None and name not in known:
                raise no_column(field, name, known, "a column of the data's header")
            found[name] = entry(field, what) | (absent(name, field != "category") if field != "ignore" else {})
    spaced = {name for name, _ in pairs("number", asked.number, known)}
    said = [name for name, _ in pairs("integer", asked.integer, known) if estimated.get(name) != "number"]
    for name in (*said, *(name for name in whole if name not in said)):
        made = found.get(name, {})
        if name in said and not {"range", "bins"} & set(made):
            raise InvalidInput("integer", name, "a column declared with number or bins")
        if name in spaced and "bins" in made:
            low, high = made["range"]
            made["bins"] = sorted({edge for edge in map(round, made["bins"]) if low < edge <= high})
        # A schema of integers adds to entries with whole bounds alone.
        bounds = (*made.get("range", ()), *made.get("bins", ()))
        if name in said or (bounds and all(float(bound).is_integer() for bound in bounds)):
            made["integer"] = True
    for column in () if asked.look else gone:
        if column is not None and column not in estimated and "ignore" in found.get(column, {"ignore": True}):
            raise InvalidInput("missing", column, "a declared column")
    return found if known is None else {name: found[name] for name in known if name in found}


def missing_texts(given: Any, known: list[str] | None) -> dict[str | None, list[str]]:
    """Column -> the texts that mean a missing value in it; None -> those of all others."""
    if given is None:
        return {}
    if isinstance(given, Mapping):
        return {str(name): _texts(what) for name, what in given.items()}
    texts = [given] if isinstance(given, str) else list(given)
    named = [text for text in texts if "=" in text]
    found: dict[str | None, list[str]] = {name: _texts(what) for name, what in pairs("missing", named, known)}
    whole = [token for text in texts if "=" not in text for token in _texts(text)]
    return {**found, **({None: whole} if whole else {})}


def pairs(field: str, given: Said, known: list[str] | None) -> Iterable[tuple[str, Any]]:
    if given is None:
        return []
    if isinstance(given, Mapping):
        return [(str(name), what) for name, what in given.items()]
    texts = [given] if isinstance(given, str) else list(given)
    found: list[tuple[str, Any]] = []
    for text in texts:
        if text in (known or ()) and any(text.startswith(f"{name}=") for name in known or ()):
            raise InvalidInput(field, text, "a mapping in Python: this is a column, and a declaration of another one")
        bare = field in ("boolean", *ESTIMATED) and ("=" not in text or text in (known or ()))
        if bare or field in ("ignore", "integer"):
            # A name may have a comma in it.
            found += [(name, None) for name in ([text] if text in (known or ()) else _texts(text))]
            continue
        names = [name for name in known or () if text.startswith(f"{name}=")]
        # A name may hold an equals sign: the longest one that fits is meant.
        name = max(names, key=len) if names else text.partition("=")[0].strip()
        if not name or not text[len(name) :].lstrip().startswith("="):
            raise InvalidInput(field, text, "COLUMN=WHAT, as the help shows")
        found.append((name, text[len(name) :].lstrip()[1:]))
    return found


def _number(field: str, what: Any) -> dict[str, Any]:
    numbers = _numbers(what, ":")
    if len(numbers) not in (2, 3) or (len(numbers) == 3 and numbers[2] not in range(2, _MOST_INTERVALS + 1)):
        allowed = f"COLUMN=LOW:HIGH, or COLUMN=LOW:HIGH:INTERVALS, 2 to {_MOST_INTERVALS} of them"
        raise InvalidInput(field, what, allowed)
    low, high, *count = numbers
    if not count:
        return {"range": [low, high]}
    # Twelve digits make 0.3 of 0.30000000000000004.
    edges = [low + (high - low) * place / count[0] for place in range(1, int(count[0]))]
    return {"bins": [_plain(float(f"{edge:.12g}")) for edge in edges], "range": [low, high]}


def _bins(field: str, what: Any) -> dict[str, Any]:
    ends = isinstance(what, str) and ":" in what
    numbers = _numbers(what.replace(":", ",") if ends else what, ",")
    marks = [":", *("," * (len(numbers) - 3)), ":"] if ends else []
    if not numbers or (ends and [mark for mark in what if mark in ":,"] != marks):
        raise InvalidInput(field, what, "COLUMN=EDGE,EDGE,... in rising order, or COLUMN=LOW:EDGE,...,EDGE:HIGH")
    return {"bins": numbers[1:-1], "range": [numbers[0], numbers[-1]]} if ends else {"bins": numbers}


def _numbers(what: Any, mark: str) -> list[float]:
    try:
        return [_plain(float(part)) for part in (what.split(mark) if isinstance(what, str) else what)]
    except (TypeError, ValueError):
        return []


def _plain(number: float) -> float:
    # A specification is edited by hand: 18 reads better than 18.0.
    return int(number) if number.is_integer() else number


def values(field: str, what: Any) -> list[Any]:
    found = _texts(what) if isinstance(what, str) else list(what or ())
    if not all(isinstance(value, str | int | float) and value != "" for value in found):
        raise InvalidInput(field, what, "COLUMN=VALUE,VALUE,... without empty values")
    return found


def _days(field: str, what: Any) -> dict[str, Any]:
    parts = what.split(":", 2) if isinstance(what, str) else [str(part) for part in what]
    if len(parts) not in (2, 3):
        raise InvalidInput(field, what, "COLUMN=FIRST:LAST with dates as 2015-01-31, or FIRST:LAST:%d.%m.%Y")
    return {"date": [day.strip() for day in parts[:2]], **({"format": parts[2]} if len(parts) > 2 else {})}


def _truth(field: str, what: Any) -> Any:
    if what in (None, True) or isinstance(what, Mapping):
        return what or True
    words = what.split(":") if isinstance(what, str) else [str(word) for word in what]
    if len(words) != 2:
        raise InvalidInput(field, what, "COLUMN, or COLUMN=TRUE:FALSE with the texts of both")
    return {"true": words[:1], "false": words[1:]}


def opened_table(data: Any, names: Sequence[str], declared: Columns, split: str, numbers: Sequence[str] = ()) -> Source:
    """Open a table's columns, of which ``numbers`` are known to hold numbers."""
    return readers.open_dataset(
        data,
        split=split,
        # Labels are not read: any list does.
        classes=1,
        label_column=declared.label or "",
        columns=names,
        labelled=False,
        # Cells of other columns come as they are.
        dialect=declared.dialect(numbers),
    )


def keys_of(data: Any, declared: Columns, split: str) -> list[str]:
    """Keys of JSON lines with values that a table can hold, in the order in which they come."""
    source = opened_table(data, ["any"], declared, split)
    keys: dict[str, bool] = {}
    if isinstance(source, JsonlSource):
        for row, _ in source._rows():
            for key, value in row.items():
                keys[key] = keys.get(key, True) and not isinstance(value, list | dict)
    return [key for key, plain in keys.items() if plain and key != declared.label]


def looked_at(
    data: Any,
    names: Sequence[str],
    hints: Mapping[str, str],
    declared: Columns,
    split: str,
    tokens: Mapping[str | None, list[str]],
    report: Progress,
) -> tuple[dict[str, tuple[dict[str, Any], str]], int]:
    """Drafts of the columns from all records, and how many of these are no records but header lines."""
    source = opened_table(data, names, declared, split)
    mark, other = declared.csv_said["decimal"] or ".", tokens.get(None, [])
    looks = {
        name: Look(name, tokens.get(name, other), mark, number=hints.get(name) in (NUMBER, WHOLE)) for name in names
    }
    done = again = 0
    for part in source.inputs(_STEP):
        header = (part == np.array(names, dtype=object)).all(axis=1)
        for place, one in enumerate(looks.values()):
            one.add(part[~header, place].tolist())
        done, again = done + len(part), again + int(header.sum())
        report("look", done, source.schema.records)
    return {name: one.draft() for name, one in looks.items()}, again


def schema_entries(given: str | Path | Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return column -> entry, for fields with enough constraints: bounds, values, or a kind that needs neither."""
    schema = _read(given)
    found: dict[str, dict[str, Any]] = {}
    for one in schema["fields"]:
        if not isinstance(one, Mapping) or not isinstance(one.get("name"), str):
            raise InvalidInput("schema", "a field without a name", "a Table Schema: fields, each with a name")
        try:
            entry, required = _entry(one), bool((one.get("constraints") or {}).get("required"))
            gone = one.get("missingValues", schema.get("missingValues", []))
            if isinstance(gone, str):
                raise TypeError("a text, not a list")
            # But for the empty text; version 2 has texts as objects, too.
            tokens = [str(text) for text in map(_value, gone) if text != ""]
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
    # A value of one record alone identifies it: no share of such values is released.
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
    # One bound is no range, and the other one may not come from the records.
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
