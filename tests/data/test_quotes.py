"""Quotes stand around whole cells: no record takes others for a part of its own, and none is lost without a word."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import privmix as pm
from privmix.data import csv as reader
from privmix.data import open_dataset
from privmix.data.dialect import BrokenQuotes, Quotes
from privmix.errors import InvalidInput

CLASSES = ["yes", "no"]
FEW = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
CELL = r'(?:"(?:[^"]|"")*"|[^",\r\n]*)'
NAIVE = re.compile(rf"{CELL}(?:[,\r\n]{CELL})*")
# The last column is not used, and takes in whatever stands behind an open quote.
ODD = ('yes,3,"open', 'yes,3,"', 'yes,"3,n', '"yes,3,n', 'yes,3,5" pipe', 'yes,3,"a"b"', 'yes,3,"""')
EVEN = ('yes,3,a "b" c', 'yes,3,"a"b', 'yes,3,"a" ', 'yes,3, "a"', 'yes,"3,"n')


@FEW
@given(text=st.text(alphabet='a,"\n\r', max_size=30), cuts=st.lists(st.integers(1, 5), max_size=30))
def test_pieces_are_judged_as_the_whole_is_by_the_grammar(text: str, cuts: list[int]) -> None:
    quotes, rest, fits = Quotes(","), text.encode(), True
    try:
        for cut in [*cuts, len(rest) + 1]:
            quotes.add(rest[:cut])
            rest = rest[cut:]
        quotes.end()
    except BrokenQuotes:
        fits = False
    assert fits == (NAIVE.fullmatch(text) is not None)


def test_a_record_takes_in_no_other(tmp_path: Path) -> None:
    """Wherever it stands: opening counts it as one, reading refuses the file, in the same words."""
    path, said = tmp_path / "d.csv", set()
    for note in ("n", '"n, ""m"""'):
        good = [f"{CLASSES[row % 2]},{row % 7},{note}" for row in range(40)]
        for evil in (*ODD, *EVEN):
            for place in (0, 20, 39, 40):
                path.write_text("label,size,note\n" + "\n".join([*good[:place], evil, *good[place:]]) + "\n")
                source = open_dataset(path, classes=CLASSES, number_columns=["size"])
                assert source.schema.records == 41
                with pytest.raises(InvalidInput) as caught:
                    source.read()
                said.add(str(caught.value))
    assert len(said) == 1
    assert "quotes around whole cells" in said.pop()


def test_a_check_names_the_record(tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    for evil in (*ODD, *EVEN):
        path.write_text(f'label,size,note\nno,1,"a\n""b"""\n\n{evil}\nyes,2,c\n')
        found = pm.check(path, features="identity", columns=["size"], classes=CLASSES)
        assert [(one.record, one.column, one.refused) for one in found.misfits] == [(2, None, True)]
        assert "quotes" in found.misfits[0].why


def test_cells_are_told_apart_as_the_parser_does(tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    path.write_text('note,size,label\n"a\n,""b""",,yes\n"",x,no\nc,"","no"\nlong' + "g" * 200_000 + ",1,\n")
    with path.open("rb") as stream:
        rows = list(reader.rows_of(path, stream))
    assert rows[1:4] == [['a\n,"b"', "", "yes"], ["", "x", "no"], ["c", "", "no"]]
    assert rows[4] is not None
    assert len(rows[4][0]) == 200_004
    found = pm.check(path, features="identity", columns=["size"], classes=CLASSES)
    assert sorted(one.record for one in found.misfits) == [1, 2, 3, 4]


def test_a_record_longer_than_the_parser_takes_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "BLOCK_BYTES", 2**10)
    path = tmp_path / "d.csv"
    for place in (0, 5, 10):
        lines = [f"n,{row},{CLASSES[row % 2]}" for row in range(10)]
        lines.insert(place, "n" * 10_000 + ",1,yes")
        path.write_text("note,size,label\n" + "\n".join(lines) + "\n")
        source = open_dataset(path, classes=CLASSES, number_columns=["size"])
        assert source.schema.records == 11
        with pytest.raises(InvalidInput, match=r"private value \(hidden\)"):
            source.read()


def test_a_header_that_never_closes_its_quote_shows_no_record(tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    path.write_text('id,"note,label\n1,Zq7Secret,yes\n2,"b",no\n')
    with pytest.raises(InvalidInput) as caught:
        pm.spec(path)
    assert "Zq7Secret" not in str(caught.value)
