"""CSV files run nothing in a spreadsheet, and every cell can be had back."""

import csv
import io
import re
from pathlib import Path

import pyarrow as pa

from privmix.jobs.private_tables import write_table

CELLS = ["=1+1", "+cmd", "@a", "\tx", "-inf", "＝1", "'=x", "''-y", "'ok", "ok", "-5", "+2e3", "", None]


class Table:
    """A table with texts and numbers, whose header is a formula, too."""

    arrow = pa.table({"=n": range(-len(CELLS), 0), "-text": CELLS})

    def __len__(self) -> int:
        return len(CELLS)

    def table(self, start: int = 0, stop: int | None = None) -> pa.Table:
        return self.arrow.slice(start, None if stop is None else stop - start)


def test_no_text_of_a_csv_is_a_formula_and_all_come_back(tmp_path: Path) -> None:
    write_table(Table(), tmp_path / "t.csv")
    content = (tmp_path / "t.csv").read_text()
    rows = list(csv.reader(io.StringIO(content, newline="")))
    texts = [*rows[0], *(row[1] for row in rows[1:])]
    number = re.compile(r"[+-]?\d+(e\d+)?")
    assert not [text for text in texts if text[:1] in "=+-@\t\r＝" and text and not number.fullmatch(text)]
    assert [row[0] for row in rows[1:]] == [str(value) for value in range(-len(CELLS), 0)]
    undone = [re.sub(r"^'('*[=+\-@\t\r\n＝＋－＠])", r"\1", text) for text in texts]
    assert undone == ["=n", "-text", *(cell or "" for cell in CELLS)]


def test_other_files_hold_texts_as_they_are(tmp_path: Path) -> None:
    for suffix in ("parquet", "jsonl"):
        write_table(Table(), tmp_path / f"t.{suffix}")
    assert pa.parquet.read_table(tmp_path / "t.parquet").equals(Table.arrow)
    assert "\"'=1" not in (tmp_path / "t.jsonl").read_text()
