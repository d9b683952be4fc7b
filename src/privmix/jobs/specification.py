"""Drafting the specification of a table from its header and its owner's word, or by looking at the records."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from privmix import data as readers
from privmix.bars import Asked, callback, shows_bars
from privmix.data.columns import is_usable, no_column, place_of
from privmix.data.header import BOOLEAN, DATE, NUMBER, TEXT, columns_of
from privmix.data.jsonl import JsonlSource
from privmix.errors import InvalidInput, StorageError
from privmix.features.table_kinds import INDICATOR, token_of
from privmix.features.table_look import Look
from privmix.features.tabular import DRAFTED, PLACEHOLDER, DraftedColumns, Tabular
from privmix.held_folders import new_file
from privmix.jobs.columns import Columns
from privmix.jobs.options import Said, SpecOptions
from privmix.jobs.places import check_unpublished, check_writable
from privmix.private_files import file_mode
from privmix.progress import Progress
from privmix.shown import Shown

_STEP: Final = 4096
_MOST_INTERVALS: Final = 100
# What stands in a draft where nothing was said, by what a schema declares.
_HINTS: Final = {
    NUMBER: "a number: range or bins; or ignore",
    BOOLEAN: "boolean; or ignore",
    DATE: "date; or ignore",
    TEXT: "a text: categories, ordinal, boolean or date; or ignore",
    "": "range, bins, categories, ordinal, boolean or date; or ignore",
}


@dataclass(frozen=True, eq=False, repr=False)
class TableSpec(Shown):
    """A draft of the specification of a table, for ``tabular:``.

    Attributes:
        columns: column -> its entry; see docs/tables.md. Where records were looked at, ``Tabular(columns)`` says so.
        looked: whether records were looked at for it.
        out: the file that was written, if any.
        seen: column -> what it is taken for, or why it is left out, where records were looked at. Private.
        warnings: about the records. Private.
        nameless: columns without a name of their own, which are left out.
    """

    columns: Mapping[str, Mapping[str, Any]]
    looked: bool
    out: Path | None
    seen: Mapping[str, str]
    warnings: tuple[str, ...]
    nameless: tuple[str, ...]

    def shown(self) -> tuple[str, Mapping[str, object]]:
        """Entries of the columns."""
        seen = {name: f"  ({words})" for name, words in self.seen.items()}
        return f"Specification of {len(self.columns)} columns", {
            **{name: _json(entry) + seen.get(name, "") for name, entry in self.columns.items()},
            **({"warnings": "; ".join(self.warnings)} if self.warnings else {}),
        }

    @property
    def undeclared(self) -> tuple[str, ...]:
        """Columns of which nothing is said yet: ``tabular:`` refuses them."""
        return tuple(name for name, entry in self.columns.items() if PLACEHOLDER in entry)

    def to_dict(self) -> dict[str, Any]:
        """JSON values, as the file has them."""
        columns: dict[str, Any] = {name: dict(one) for name, one in self.columns.items()}
        return {"drafted": DRAFTED, **columns} if self.looked else columns

    def to_json(self) -> str:
        """The file's text: a line a column."""
        lines = (f"  {_json(name)}: {_json(entry)}" for name, entry in self.to_dict().items())
        return "{\n" + ",\n".join(lines) + "\n}\n"

    def extractor(self) -> Tabular:
        """What ``features=`` takes.

        Raises:
            InvalidInput: a column is undeclared.
        """
        return Tabular(self.to_dict())


@shows_bars
def spec(
    data: Any,
    *,
    out: str | Path | None = None,
    label: str | None = None,
    number: Said = None,
    bins: Said = None,
    integer: Said = None,
    category: Said = None,
    ordinal: Said = None,
    date: Said = None,
    boolean: Said = None,
    ignore: Said = None,
    missing: Said = None,
    look: bool = False,
    split: str = "train",
    columns: Columns | None = None,
    overwrite: bool = False,
    progress: Asked = None,
) -> TableSpec:
    """Draft the specification of a table, which is public: bounds and categories come from what is public knowledge.

    Formal guarantees:
        - Unread: unless ``look``, no record is read. The draft follows from the header (of Parquet and Arrow files from
          the schema) and the arguments: it is the same, byte for byte, whatever the records are.
        - Said: a draft for which records were looked at says so, and so do certificates of what is made with it.

    Args:
        data: a CSV, JSON lines, Parquet or Arrow file, a folder or pattern of such, or a frame in memory.
        out: a JSON file to write.
        label: the labels' column, which is not specified; default ``label``.
        number, bins, integer, category, ordinal, date, boolean, ignore, missing, look: see
            :class:`privmix.jobs.options.SpecOptions`.
        split: which part of a folder.
        columns: how CSV files are written, and the labels' column; see :class:`privmix.Columns`.
        overwrite: replace the file that is there.
        progress: called with (stage, done, total); True: bars; None: bars where somebody looks on.

    Raises:
        InvalidInput: something is said of a column that is not there, or twice, or it makes no sense; the file is there
            already.
        StorageError: something can't be read or written.

    Example:
        >>> import pandas
        >>> visits = pandas.DataFrame({"age": [31], "ward": ["A"], "ill": ["no"]})
        >>> print(spec(visits, label="ill", number={"age": (0, 120)}, category=["ward=A,B"]).to_json())
        {
          "age": {"range": [0, 120]},
          "ward": {"categories": ["A", "B"]}
        }
        <BLANKLINE>
    """
    place = None if out is None else Path(out)
    if place is not None:
        _check_out(place, overwrite)
    declared = Columns.declared(columns, label)
    asked = SpecOptions(
        number=number,
        bins=bins,
        integer=integer,
        category=category,
        ordinal=ordinal,
        date=date,
        boolean=boolean,
        ignore=ignore,
        missing=missing,
        look=look,
    )
    told = [
        (field, name, what)
        for field in ("category", "ordinal")
        for name, what in _pairs(field, vars(asked)[field], None)
    ]
    apart = (declared.label_column, *declared.person_names)
    values = {value for field, _, what in told for value in map(token_of, _values(field, what))}
    header = columns_of(data, declared.dialect(), split, sorted(values - {*apart, *(name for _, name, _ in told)}))
    for field, name in zip(("label column", *["person"] * len(apart)), apart, strict=False):
        if header is not None and name not in header:
            raise no_column(field, name, list(header), "a column that the header names")
    known = None if header is None else [name for name in header if name not in apart and is_usable(name)]
    entries = _said(asked, known, apart)
    if known is None and look:
        keys = [name for name in _keys(data, declared, split) if name not in apart]
        known = [*entries, *(name for name in keys if name not in entries)]
    if known is None and not entries:
        allowed = "what each column holds: JSON lines have no header (or `look`, which reads the records)"
        raise InvalidInput("number, category, ...", "nothing", allowed)
    known = list(entries) if known is None else known
    if not known:
        raise InvalidInput("data", "no column beside the labels'", "a table")
    wanted = [name for name in known if name not in entries]
    hints = header or {}
    looks: dict[str, tuple[dict[str, Any], str]] = {}
    again = 0
    if look and wanted:
        looks, again = _looked(data, wanted, hints, declared, split, _gone(missing, known), callback(progress))
    seen = {name: one[0] for name, one in looks.items()}
    found = {name: entries.get(name) or seen.get(name) or {PLACEHOLDER: _HINTS[hints.get(name, "")]} for name in known}
    if seen and "drafted" in found:
        raise InvalidInput("look", True, "False where a column is called drafted, by which the file says what it is")
    made = TableSpec(
        DraftedColumns(found) if seen else found,
        bool(seen),
        place,
        {name: one[1] for name, one in looks.items()},
        (f"a header line stands among the records, {again:,} times: take it out of the data",) if again else (),
        tuple(place_of(name) for name in header or () if not is_usable(name)),
    )
    # What was said must make sense now, and not when data are released.
    used = {name: entry for name, entry in found.items() if not {PLACEHOLDER, "ignore"} & set(entry)}
    if used:
        Tabular(used)
    if place is not None:
        _write(made, place)
    return made


def declared_table(names: Sequence[str], asked: SpecOptions, *, apart: Sequence[str] = ()) -> Tabular:
    """The features of a table by word alone, without a file: what :func:`spec` would write of these columns.

    Args:
        names: of the columns.
        asked: what is said of them.
        apart: the labels' column and the persons', which are not specified.

    Raises:
        InvalidInput: something is said of another column, or twice, or makes no sense; or a column is undeclared.

    Example:
        >>> declared_table(["age"], SpecOptions(number=["age=0:120"])).columns
        ('age',)
    """
    entries = _said(asked, list(names), tuple(apart))
    return Tabular({name: entries.get(name, {PLACEHOLDER: _HINTS[""]}) for name in names})


def _check_out(out: Path, overwrite: bool) -> None:
    if out.suffix.lower() != ".json":
        raise InvalidInput("out", str(out), "a file name that ends in .json")
    check_unpublished("out", out)
    if out.is_dir() or out.is_symlink() or (out.exists() and not overwrite):
        raise InvalidInput("out", str(out), "a file that does not exist yet (or `overwrite`, for a file)")
    check_writable("out", out.parent)


def _write(made: TableSpec, out: Path) -> None:
    try:
        # A draft from records is as private as they are until its owner publishes it.
        with file_mode(private=made.looked):
            out.parent.mkdir(parents=True, exist_ok=True)
            with new_file(out) as stream:
                stream.write(made.to_json().encode())
    except OSError as error:
        raise StorageError(f"out: can't write {out}: {error.strerror or type(error).__name__}") from None


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _texts(given: Any) -> list[str]:
    if isinstance(given, str):
        given = [text for text in given.split(",") if text.strip()]
    return [str(one).strip() for one in given or ()]


def _said(asked: SpecOptions, known: list[str] | None, apart: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """The entries that the owner gives."""
    gone = _gone(asked.missing, known)

    def absent(name: str, single: bool) -> dict[str, Any]:
        tokens = gone.get(name, gone.get(None))
        said = {} if tokens is None else {"missing_tokens": tokens}
        return {"missing": INDICATOR, **(said if tokens else {})} if single and said else said

    kinds: list[tuple[str, Said, Callable[[str, Any], dict[str, Any]]]] = [
        ("number", asked.number, lambda field, what: _number(field, what)),
        ("bins", asked.bins, lambda field, what: _bins(field, what)),
        ("category", asked.category, lambda field, what: {"categories": _values(field, what)}),
        ("ordinal", asked.ordinal, lambda field, what: {"ordinal": _values(field, what)}),
        ("date", asked.date, lambda field, what: _days(field, what)),
        ("boolean", asked.boolean, lambda field, what: {"boolean": _truth(field, what)}),
        ("ignore", asked.ignore, lambda field, what: {"ignore": True}),
    ]
    found: dict[str, dict[str, Any]] = {}
    for field, given, entry in kinds:
        for name, what in _pairs(field, given, known):
            if field == "ignore" and name in apart:
                # They are no inputs.
                continue
            if name in found or name in apart:
                raise InvalidInput(field, name, "each column once, and not the labels' or the persons'")
            if known is not None and name not in known:
                raise no_column(field, name, known, "a column that the header of the data names")
            found[name] = entry(field, what) | (absent(name, field != "category") if field != "ignore" else {})
    for name, _ in _pairs("integer", asked.integer, known):
        if not {"range", "bins"} & set(found.get(name, ())):
            raise InvalidInput("integer", name, "columns that number or bins declares")
        found[name]["integer"] = True
    for column in () if asked.look else gone:
        if column is not None and "ignore" in found.get(column, {"ignore": True}):
            raise InvalidInput("missing", column, "columns whose content is declared")
    return found if known is None else {name: found[name] for name in known if name in found}


def _gone(given: Any, known: list[str] | None) -> dict[str | None, list[str]]:
    """Column -> the texts that mean a missing value in it; None -> those of all others."""
    if given is None:
        return {}
    if isinstance(given, Mapping):
        return {str(name): _texts(what) for name, what in given.items()}
    texts = [given] if isinstance(given, str) else list(given)
    named = [text for text in texts if "=" in text]
    found: dict[str | None, list[str]] = {name: _texts(what) for name, what in _pairs("missing", named, known)}
    whole = [token for text in texts if "=" not in text for token in _texts(text)]
    return {**found, **({None: whole} if whole else {})}


def _pairs(field: str, given: Said, known: list[str] | None) -> Iterable[tuple[str, Any]]:
    """(column, what is said of it) of an option."""
    if given is None:
        return []
    if isinstance(given, Mapping):
        return [(str(name), what) for name, what in given.items()]
    texts = [given] if isinstance(given, str) else list(given)
    found: list[tuple[str, Any]] = []
    for text in texts:
        if field in ("ignore", "integer") or (field == "boolean" and ("=" not in text or text in (known or ()))):
            # A name may have a comma in it.
            found += [(name, None) for name in ([text] if text in (known or ()) else _texts(text))]
            continue
        names = [name for name in known or () if text.startswith(f"{name}=")]
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
    edges = [low + (high - low) * place / count[0] for place in range(1, int(count[0]))]
    return {"bins": [_plain(float(f"{edge:.12g}")) for edge in edges], "range": [low, high]}


def _bins(field: str, what: Any) -> dict[str, Any]:
    ends = isinstance(what, str) and ":" in what
    numbers = _numbers(what.replace(":", ",") if ends else what, ",")
    marks = [":", *("," * (len(numbers) - 3)), ":"] if ends else []
    if not numbers or (ends and [mark for mark in what if mark in ":,"] != marks):
        raise InvalidInput(field, what, "COLUMN=EDGE,EDGE,..., rising, or COLUMN=LOW:EDGE,...,EDGE:HIGH")
    return {"bins": numbers[1:-1], "range": [numbers[0], numbers[-1]]} if ends else {"bins": numbers}


def _numbers(what: Any, mark: str) -> list[float]:
    """The numbers that a text or a list holds; none where it holds anything else."""
    try:
        return [_plain(float(part)) for part in (what.split(mark) if isinstance(what, str) else what)]
    except (TypeError, ValueError):
        return []


def _plain(number: float) -> float:
    return int(number) if number.is_integer() else number


def _values(field: str, what: Any) -> list[Any]:
    values = _texts(what) if isinstance(what, str) else list(what)
    if not all(isinstance(value, str | int | float) and value != "" for value in values):
        raise InvalidInput(field, what, "COLUMN=VALUE,VALUE,..., none of them empty")
    return values


def _days(field: str, what: Any) -> dict[str, Any]:
    parts = what.split(":", 2) if isinstance(what, str) else [str(part) for part in what]
    if len(parts) not in (2, 3):
        raise InvalidInput(field, what, "COLUMN=FIRST:LAST with days as 2015-01-31, or FIRST:LAST:%d.%m.%Y")
    return {"date": [day.strip() for day in parts[:2]], **({"format": parts[2]} if len(parts) > 2 else {})}


def _truth(field: str, what: Any) -> Any:
    if what in (None, True) or isinstance(what, Mapping):
        return what or True
    words = what.split(":") if isinstance(what, str) else [str(word) for word in what]
    if len(words) != 2:
        raise InvalidInput(field, what, "COLUMN, or COLUMN=TRUE:FALSE with the texts of both")
    return {"true": words[:1], "false": words[1:]}


def _opened(data: Any, names: Sequence[str], declared: Columns, split: str) -> Any:
    return readers.open_dataset(
        data,
        split=split,
        # Labels are not read: any list does.
        classes=1,
        label_column=declared.label_column,
        columns=names,
        labelled=False,
        # Which columns hold numbers is not known yet: cells come as they are.
        dialect=declared.dialect(),
    )


def _keys(data: Any, declared: Columns, split: str) -> list[str]:
    """Keys of JSON lines with values that a table can hold, in the order in which they come."""
    source = _opened(data, ["any"], declared, split)
    keys: dict[str, bool] = {}
    if isinstance(source, JsonlSource):
        for row, _ in source._rows():
            for key, value in row.items():
                keys[key] = keys.get(key, True) and not isinstance(value, list | dict)
    return [key for key, plain in keys.items() if plain and key != declared.label_column]


def _looked(
    data: Any,
    names: Sequence[str],
    hints: Mapping[str, str],
    declared: Columns,
    split: str,
    tokens: Mapping[str | None, list[str]],
    report: Progress,
) -> tuple[dict[str, tuple[dict[str, Any], str]], int]:
    """Drafts of the columns from all records, and how many of these are no records but header lines."""
    source = _opened(data, names, declared, split)
    mark, other = declared.decimal or ".", tokens.get(None, [])
    looks = {name: Look(name, tokens.get(name, other), mark, number=hints.get(name) == NUMBER) for name in names}
    done = again = 0
    for part in source.inputs(_STEP):
        header = (part == np.array(names, dtype=object)).all(axis=1)
        for place, one in enumerate(looks.values()):
            one.add(part[~header, place].tolist())
        done, again = done + len(part), again + int(header.sum())
        report("look", done, source.schema.records)
    return {name: one.draft() for name, one in looks.items()}, again
