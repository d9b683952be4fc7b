"""Drafting the specification of a table from its header and its owner's word, or by looking at the records."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import KW_ONLY, MISSING, dataclass
from pathlib import Path
from typing import IO, Any, Final

from privmix.commands.base import Command, function
from privmix.errors import InvalidInput, Unquoted
from privmix.features.tabular import DRAFTED, PLACEHOLDER, DraftedColumns, Tabular
from privmix.jobs.columns import TableColumns
from privmix.jobs.options import EstimateOptions, NewFile, SpecOptions
from privmix.options import option
from privmix.progress import Progress
from privmix.shown import Shown

# Columns whose entries a summary shows.
_MOST_SHOWN: Final = 40
# Columns that a hint has an option for.
_MOST_HINTS: Final = 8


@dataclass(frozen=True, eq=False, repr=False)
class TableSpec(Shown):
    """A draft of the specification of a table, for ``tabular:``.

    Attributes:
        columns: column -> its entry; see docs/tables.md. ``Tabular(columns)`` records that records were read; a plain
            dict made of it does not.
        mark: how records were used for it, as the file states; None if none were read.
        out: the file that was written, if any.
        seen: column -> what it is taken for, or why it is left out, where records were looked at. Private.
        headers: header lines that stand among the records. Private.
        warnings: what its owner should know; what is about the records is private.
        nameless: columns without a name of their own, which are left out.
    """

    columns: Mapping[str, Mapping[str, Any]]
    mark: str | None
    out: Path | None
    seen: Mapping[str, str]
    headers: int
    warnings: tuple[str, ...]
    nameless: tuple[str, ...]

    def shown(self) -> tuple[str, Mapping[str, object]]:
        """Entries of the columns, and what is left to do."""
        seen = {name: f"  ({words})" for name, words in self.seen.items()}
        listed = {name: _json(entry) + seen.get(name, "") for name, entry in [*self.columns.items()][:_MOST_SHOWN]}
        more = {
            "further columns": len(self.columns) - len(listed),
            "to sample rows": "; ".join(self.hints),
            "left out, since they have no unique name": ", ".join(self.nameless),
            "still to be declared": ", ".join(self.undeclared),
            "warnings": "; ".join(self.warnings),
            "file": self.out,
        }
        title = f"Specification of {len(self.columns)} columns"
        return title, {**listed, **{name: value for name, value in more.items() if value}}

    @property
    def hints(self) -> tuple[str, ...]:
        """Return options that bring rows of a release closer to the table, by the entries alone."""
        ranges = [(name, *one["range"]) for name, one in self.columns.items() if "range" in one and "bins" not in one]
        shown = (f"{name}={low}:{high}:{_intervals(low, high)}" for name, low, high in ranges[:_MOST_HINTS])
        options = " ".join(f"`number` {shlex.quote(text)}" for text in shown)
        days = [name for name, entry in self.columns.items() if "date" in entry and "parts" not in entry]
        found = [f"intervals keep more than mean and spread, as {options}"] if ranges else []
        return (*found, *([f'"parts": ["year", "month"] keep more of {", ".join(days)}'] if days else []))

    @property
    def undeclared(self) -> tuple[str, ...]:
        """Columns without a declaration: ``tabular:`` refuses them."""
        return tuple(name for name, entry in self.columns.items() if PLACEHOLDER in entry)

    def to_dict(self) -> dict[str, Any]:
        """JSON values, as the file has them."""
        columns: dict[str, Any] = {name: dict(one) for name, one in self.columns.items()}
        return columns if self.mark is None else {"drafted": self.mark, **columns}

    def to_json(self) -> str:
        """Return the file's text: a line a column."""
        lines = (f"  {_json(name)}: {_json(entry)}" for name, entry in self.to_dict().items())
        return "{\n" + ",\n".join(lines) + "\n}\n"

    def extractor(self) -> Tabular:
        """Return what ``features=`` takes.

        Raises:
            InvalidInput: a column is undeclared.
        """
        return Tabular(self.to_dict())


@dataclass(frozen=True, eq=False, repr=False)
class Spec(TableColumns, SpecOptions, EstimateOptions, NewFile, Command[TableSpec]):
    """Draft the specification of a table from its header.

    Reads no record without `look` or `epsilon`. Fill in the columns that it marks, then use the file as features
    tabular:SPEC.json. The file is published: take bounds, categories and days from public knowledge. With `epsilon`,
    bounds and bins of numbers and the categories of columns that are named alone are private estimates, at this cost.
    The file and the certificates state whether records were read.

    Formal guarantees:
        - Unread: without ``look`` and ``epsilon``, no record is read. The draft follows from the header (of Parquet
          files from the schema) and the arguments: it is the same, byte for byte, for all records.
        - Declared: a draft for which records were read states that, as do certificates that depend on it.
        - Paid for: with ``epsilon`` all that follows from records is as in
          :func:`privmix.jobs.column_estimates.estimated_columns`.

    Raises:
        InvalidInput: a declared column does not exist, is declared twice or contradicts itself; the file is there
            already.
        BudgetExceeded: the estimates cost more than is left in the ledger.
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

    example = "privmix spec adult --out spec.json --label-column income --number age=17:90 --category sex=Female,Male"

    data: Any = option(
        MISSING, "Table file, folder or pattern: CSV, JSON lines or Parquet.", in_python="Also a frame.", argument=True
    )
    _: KW_ONLY
    out: str | Path | None = option(None, "File to write: .json.", needed=True)
    split: str = option("train", "Split of the dataset.")
    schema: Any = option(None, "Table Schema (Frictionless) of the table, for other columns: .json.", read=str)

    def run(self, progress: Progress) -> TableSpec:
        from privmix.data.columns import is_usable, no_column, place_of
        from privmix.data.header import WHOLE, columns_of
        from privmix.features.table_cells import INDICATOR, token_of
        from privmix.jobs import table_words as words
        from privmix.jobs.column_estimates import estimated_columns, with_tokens
        from privmix.jobs.private_tables import check_out, write_table
        from privmix.jobs.table_words import schema_entries

        place = check_out(self.out, self.overwrite, [".json"])
        if self.look and self.epsilon is not None:
            raise InvalidInput("look", True, "either `look`, without a guarantee, or private estimates with `epsilon`")
        for field in ("delta", "ledger", "dataset"):
            if self.epsilon is None and getattr(self, field) is not None:
                raise InvalidInput(field, Unquoted("given alone"), "only with `epsilon`, which pays for estimates")
        declared = self.as_columns()
        told = [
            (field, name, what)
            for field in ("category", "ordinal")
            for name, what in words.pairs(field, getattr(self, field), None)
            if what is not None
        ]
        apart = (*filter(None, [declared.label]), *declared.person_names)
        # A declared category among the names shows that the first line is a record and no header.
        values = {value for field, _, what in told for value in map(token_of, words.values(field, what))}
        named = sorted(values - {*apart, *(name for _, name, _ in told)})
        header = columns_of(self.data, declared.dialect(), self.split, named)
        for name in apart:
            if header is not None and name not in header:
                field = "label column" if name == declared.label else "person"
                raise no_column(field, name, list(header), "a column of the header")
        known = None if header is None else [name for name in header if name not in apart and is_usable(name)]
        whole = [name for name, kind in (header or {}).items() if kind == WHOLE]
        wanted = words.to_estimate(self, known, apart)
        if wanted and self.epsilon is None:
            allowed = "its content, as number age=0:120 or category sex=F,M; or `epsilon`, which pays for an estimate"
            raise InvalidInput(next(iter(wanted.values())), next(iter(wanted)), allowed)
        if self.epsilon is not None and not wanted:
            raise InvalidInput(
                "epsilon", self.epsilon, "a column to estimate: number AGE or category WARD, named alone"
            )
        entries = words.entries_of(self, known, apart, whole, wanted)
        if self.schema is not None:
            said = {name: one for name, one in schema_entries(self.schema).items() if name not in (*apart, *wanted)}
            # An option goes before the schema.
            entries = {**{name: said[name] for name in said if known is None or name in known}, **entries}
        if known is None and self.look:
            keys = [name for name in words.keys_of(self.data, declared, self.split) if name not in apart]
            known = [*entries, *(name for name in keys if name not in entries)]
        if known is None and not entries and not wanted:
            allowed = "the content of each column: JSON lines have no header (or `look`, which reads the records)"
            raise InvalidInput("number, category, ...", "nothing", allowed)
        known = [*entries, *wanted] if known is None else known
        if not known:
            raise InvalidInput("data", "no column besides the label", "a table")
        others = [name for name in known if name not in entries and name not in wanted]
        if "drafted" in known and (wanted or (self.look and others)):
            allowed = "no column called drafted in a table whose records are read: the word marks drafts"
            raise InvalidInput("data", "drafted", allowed)
        gone = words.missing_texts(self.missing, known)
        # Wrong declarations cost nothing: they are refused before records are read.
        shapes: dict[str, Any] = {"number": {"range": [0, 1], "missing": INDICATOR}}
        shapes["category"] = {"categories": ["?" * 65]}
        _check({**entries, **{name: shapes[field] | with_tokens(name, gone) for name, field in wanted.items()}})
        hints = header or {}
        looks: dict[str, tuple[dict[str, Any], str]] = {}
        again = 0
        if self.look and others:
            looks, again = words.looked_at(self.data, others, hints, declared, self.split, gone, progress)

        def written(seen: Mapping[str, Any], mark: str | None) -> TableSpec:
            found = {
                name: entries.get(name) or seen.get(name) or {PLACEHOLDER: words.HINTS[hints.get(name, "")]}
                for name in known
            }
            made = TableSpec(
                found if mark is None else DraftedColumns(found, mark),
                mark,
                place,
                {name: one[1] for name, one in looks.items()},
                again,
                _warnings(again, mark),
                tuple(place_of(name) for name in header or () if not is_usable(name)),
            )
            _check(found)
            # A draft from a look at records is as private as they are until its owner publishes it.
            write_table(made, place, {".json": _write}, private=mark == DRAFTED)
            return made

        if not wanted:
            return written({name: one[0] for name, one in looks.items()}, DRAFTED if looks else None)
        integers = [*whole, *(name for name, _ in words.pairs("integer", self.integer, known))]
        return estimated_columns(
            self.data,
            declared,
            self.split,
            self,
            wanted,
            integers,
            gone,
            lambda found: written(found, found.mark),
            progress,
        )


spec: Final = function(Spec)


def _check(entries: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise where a declaration is none: now, not when data are released."""
    used = {name: entry for name, entry in entries.items() if not {PLACEHOLDER, "ignore"} & set(entry)}
    if used:
        Tabular(used)


def _intervals(low: float, high: float) -> int:
    """How many intervals to propose: the most up to 12 that have whole edges, or 12."""
    return next((count for count in range(12, 7, -1) if ((high - low) / count).is_integer()), 12)


def _warnings(headers: int, mark: str | None) -> tuple[str, ...]:
    again = f"the header line is repeated among the records, {headers:,} times: remove it from the data"
    published = (
        "the specification describes records that were read. Each release made with it publishes it, and no "
        "guarantee covers it. Replace it with public knowledge where you can"
    )
    if mark is not None and mark != DRAFTED:
        return ("releases with this specification cost its epsilon in addition to their own",)
    return (*([again] if headers else []), *([published] if mark else []))


def _write(made: TableSpec, stream: IO[bytes]) -> None:
    stream.write(made.to_json().encode())


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
