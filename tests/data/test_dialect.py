"""How CSV files are written is declared; a record is what the parser takes for one, wherever records are counted."""

import csv
import gc
import gzip
import io
import re
import warnings
from pathlib import Path

import numpy as np
import pandas
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import privmix as pm
from privmix.data import csv as reader
from privmix.data import open_dataset
from privmix.data.dialect import BrokenQuotes, Dialect, Quotes
from privmix.data.header import columns_of
from privmix.errors import InvalidInput
from tests.data.helpers import put
from tests.refusals import refuses

CLASSES = ["yes", "no"]
SECRET = "Zq7Secret"
FEW = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
CELL = st.text(alphabet='ab ,;|"\n\r\té', max_size=6)
MARKS = {",": ",", ";": ";", "|": "|", "tab": "\t"}


@FEW
@given(
    notes=st.lists(CELL, min_size=1, max_size=30),
    mark=st.sampled_from(list(MARKS)),
    ends=st.sampled_from(["\n", "\r\n"]),
    block=st.sampled_from([64, 100, 4096]),
    quoting=st.sampled_from([csv.QUOTE_NONNUMERIC, csv.QUOTE_ALL]),
    zipped=st.booleans(),
)
def test_a_record_is_one_whatever_is_in_its_quotes(
    notes: list[str], mark: str, ends: str, block: int, quoting: int, zipped: bool, tmp_path: Path
) -> None:
    """Line breaks, separators and doubled quotes in cells, at the edges of blocks, too; numbers beside them."""
    stream = io.StringIO()
    writer = csv.writer(stream, delimiter=MARKS[mark], lineterminator=ends, quoting=quoting)
    writer.writerows([["note", "size", "label"], *([note, row, CLASSES[row % 2]] for row, note in enumerate(notes))])
    content = stream.getvalue().encode("cp1252")
    path = tmp_path / ("d.csv.gz" if zipped else "d.csv")
    path.write_bytes(gzip.compress(content) if zipped else content)
    dialect = Dialect(mark, encoding="cp1252")
    before = reader.BLOCK_BYTES
    reader.BLOCK_BYTES = block  # type: ignore[misc]
    try:
        for wanted in ({"columns": ["note", "size"]}, {"number_columns": ["size"]}):
            source = open_dataset(path, classes=CLASSES, dialect=dialect, **wanted)  # type: ignore[arg-type]
            assert source.schema.records == len(notes)
            read = source.read()
            assert read.y.tolist() == [row % 2 for row in range(len(notes))]
            assert [float(row[-1]) for row in read.x.tolist()] == list(range(len(notes)))
            if "columns" in wanted:
                assert read.x[:, 0].tolist() == notes
    finally:
        reader.BLOCK_BYTES = before  # type: ignore[misc]


def test_a_row_of_another_length_is_a_record_and_is_refused_when_read(tmp_path: Path) -> None:
    """Opening does not tell that there is one: it counts one record more."""
    good = ['"a\nb",1,yes', "c,2,no", '"d\n\ne",3,yes']
    for wrong in ("x", "1,2,3,4", '"p\nq"', ",,,,,"):
        for place in range(4):
            lines = [*good[:place], wrong, *good[place:]]
            path = put(tmp_path, "note,size,label\n" + "\n".join(lines) + "\n")
            for wanted in ({"columns": ["note", "size"]}, {"number_columns": ["size"]}):
                source = open_dataset(path, classes=CLASSES, **wanted)  # type: ignore[arg-type]
                assert source.schema.records == 4
                with pytest.raises(InvalidInput, match="as many cells in each row"):
                    source.read()


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "cp1252", "cp1250", "iso-8859-15"])
def test_encodings(tmp_path: Path, encoding: str) -> None:
    path = put(tmp_path, "Größe;Ort;label\n1,5;Köln;yes\n-2e1;Łódź;no\n".replace("Łódź", "Ulm"), encoding=encoding)
    dialect = Dialect(";", ",", encoding.removesuffix("-sig"), numbers=("Größe",))
    source = open_dataset(path, columns=["Größe", "Ort"], classes=CLASSES, dialect=dialect)
    assert source.read().x.tolist() == [["1.5", "Köln"], ["-2e1", "Ulm"]]
    numbers = open_dataset(path, number_columns=["Größe"], classes=CLASSES, dialect=dialect)
    assert numbers.read().x.tolist() == [[1.5], [-20]]
    if not encoding.startswith("utf"):
        with pytest.raises(InvalidInput, match=r"complete, undamaged.*in utf-8 .*`csv` encoding"):
            open_dataset(path, columns=["Ort"], classes=CLASSES, dialect=Dialect(";"))


def test_the_decimal_mark_is_declared(tmp_path: Path) -> None:
    """A point that parts thousands is refused, not read as a thousandth; days and texts stay what they are."""
    cells = ["3,5", "1.234", "1.234,5", "31.12.1999", "n.a.", " -1,0 ", ",5", "1e3"]
    path = put(tmp_path, "a;b;label\n" + "".join(f"{cell};{cell};yes\n" for cell in cells))
    dialect = Dialect(";", ",", numbers=("a",))
    x = open_dataset(path, columns=["a", "b"], classes=CLASSES, dialect=dialect).read().x
    assert x[:, 0].tolist() == ["3.5", "1,234", "1.234,5", "31.12.1999", "n.a.", " -1.0 ", ".5", "1e3"]
    assert x[:, 1].tolist() == cells
    assert [dialect.point(cell) for cell in cells] == x[:, 0].tolist()
    # Without a declaration nothing is taken for a decimal comma.
    assert open_dataset(path, columns=["a"], classes=CLASSES, dialect=Dialect(";")).read().x[0, 0] == "3,5"


def test_numbers_of_a_table_are_those_of_its_specification(tmp_path: Path) -> None:
    path = put(tmp_path, "dose;code;label\n" + '"2,5";1,5;yes\n"x";"1,5";no\n' * 2)
    spec = pm.spec(path, number={"dose": (0, 5)}, category={"code": ["1,5"]}, csv={"separator": ";"})
    columns = pm.Columns(csv="separator=;,decimal=comma")
    found = pm.check(path, features=spec.extractor(), classes=CLASSES, columns=columns)
    assert dict(found.counts) == {("dose", "not a number", True): 2}
    wide = put(tmp_path, "dose,code,label\n2.5,1,yes\n1,2,3,no\n")
    with pytest.raises(InvalidInput, match="separator"):
        pm.check(wide, features="identity", classes=CLASSES, columns=columns)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_a_header_in_utf_16_is_refused(tmp_path: Path, encoding: str) -> None:
    path = put(tmp_path, "age,y\n1,yes\n", encoding=encoding)
    with pytest.raises(InvalidInput) as caught:
        columns_of(path, Dialect(encoding="latin-1"))
    assert "\0" not in str(caught.value)


@pytest.mark.parametrize("text", [f"{SECRET};31\nx;20\n", f'id,"note,label\n1,{SECRET},yes\n2,"b",no\n'])
def test_a_header_that_may_be_a_record_is_not_shown(tmp_path: Path, text: str) -> None:
    path = put(tmp_path, text)
    for call in (lambda: open_dataset(path, classes=CLASSES), lambda: columns_of(path), lambda: pm.spec(path)):
        with pytest.raises(InvalidInput) as caught:
            call()
        assert SECRET not in str(caught.value)


def test_words_say_what_a_mapping_says() -> None:
    said = {"separator": ";", "decimal": ","}
    for text in ("separator=;,decimal=comma", "separator=semicolon,decimal=,", "decimal=,,separator=;"):
        assert pm.Columns(csv=text).dialect() == pm.Columns(csv=said).dialect()
    assert pm.Columns(csv="separator=,").dialect() == pm.Columns(csv={"separator": ","}).dialect()
    for header in ("header=3", {"header": 3}):
        assert pm.Columns(csv=header).to_dict()["no_header"] == 3
    for named in ('separator=|,header=age|"dose, mg"|a b,encoding=cp1252', {"header": ["age", "dose, mg", "a b"]}):
        assert pm.Columns(csv=named).to_dict()["header"] == ["age", "dose, mg", "a b"]
    assert pm.Columns(csv='separator=|,header=age|"dose, mg"').csv_said["separator"] == "|"
    for wrong in ("mark=;", {"mark": ";"}, 3, "separator"):
        with refuses("csv"):
            pm.Columns(csv=wrong).dialect()  # type: ignore[arg-type]


@pytest.mark.parametrize("said", [{"separator": ":"}, {"decimal": ";"}, {"encoding": "utf-16"}, {"encoding": "rot13"}])
def test_dialects_that_make_no_sense(said: dict[str, str]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(said))):
        pm.Columns(csv=said).dialect()


def test_dialects_are_for_csv(tmp_path: Path) -> None:
    frame = pandas.DataFrame({"a": [1.0, 2.0], "label": ["yes", "no"]})
    pq.write_table(pa.Table.from_pandas(frame), tmp_path / "d.parquet")
    for data in (frame, tmp_path / "d.parquet", (np.eye(2), ["yes", "no"])):
        with refuses("csv"):
            pm.check(data, features="identity", classes=CLASSES, columns=pm.Columns(csv="separator=;"))
    # Data beside the private ones may be in another format.
    lenient = pm.Columns(csv="separator=;").elsewhere().dialect()
    assert open_dataset(tmp_path / "d.parquet", classes=CLASSES, dialect=lenient).schema.records == 2


def test_pixels_are_not_assumed_of_columns_of_numbers(tmp_path: Path) -> None:
    path = put(tmp_path, "age,job,label\n30,clerk,yes\n40,judge,no\n")
    for data in (path, pandas.read_csv(path)):
        with refuses("features"):
            pm.plan(data, classes=CLASSES, epsilon=1, delta=1e-3)


def test_a_run_that_was_begun_without_dialects_goes_on(tmp_path: Path) -> None:
    from privmix.features.identity import Identity
    from privmix.jobs.dataset import open_dataset as opened

    path = put(tmp_path, "a,label\n1,yes\n2,no\n")
    names = set(opened(path, Identity(), classes=CLASSES).identity()["columns"])
    assert not names & {"separator", "decimal", "encoding"}
    columns = pm.Columns(csv={"separator": ","})
    assert "separator" in opened(path, Identity(), classes=CLASSES, columns=columns).identity()["columns"]


@pytest.mark.parametrize("encoding", ["utf-8", "cp1252"])
@pytest.mark.parametrize("line", [b"\x81\xff,1", b'"\x81\xff\n",1,yes,4', b"\x81\xff,1,yes"])
def test_bytes_of_another_encoding_are_printed_by_nobody(
    tmp_path: Path, encoding: str, line: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither by an error nor by a library that can't raise one."""
    path = tmp_path / "d.csv"
    path.write_bytes(b"note,size,label\nx,1,no\n" + line + b"\ny,2,yes\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        source = open_dataset(path, columns=["note"], classes=CLASSES, dialect=Dialect(encoding=encoding))
        assert source.schema.records == 3
        with pytest.raises(InvalidInput, match=r"private value \(hidden\)"):
            source.read()
    gc.collect()
    assert capfd.readouterr() == ("", "")


QUOTED_CELL = r'(?:"(?:[^"]|"")*"|[^",\r\n]*)'
NAIVE = re.compile(rf"{QUOTED_CELL}(?:[,\r\n]{QUOTED_CELL})*")
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
    for evil in (*ODD, *EVEN):
        path = put(tmp_path, f'label,size,note\nno,1,"a\n""b"""\n\n{evil}\nyes,2,c\n')
        found = pm.check(path, features="identity", columns=["size"], classes=CLASSES)
        assert [(one.record, one.column, one.refused) for one in found.misfits] == [(2, None, True)]
        assert "quotes" in found.misfits[0].why


def test_cells_are_told_apart_as_the_parser_does(tmp_path: Path) -> None:
    path = put(tmp_path, 'note,size,label\n"a\n,""b""",,yes\n"",x,no\nc,"","no"\nlong' + "g" * 200_000 + ",1,\n")
    with path.open("rb") as stream:
        rows = list(reader.rows_of(path, stream))
    assert rows[1:4] == [['a\n,"b"', "", "yes"], ["", "x", "no"], ["c", "", "no"]]
    assert rows[4] is not None
    assert len(rows[4][0]) == 200_004
    found = pm.check(path, features="identity", columns=["size"], classes=CLASSES)
    assert sorted(one.record for one in found.misfits) == [1, 2, 3, 4]


def test_a_record_longer_than_the_parser_takes_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "BLOCK_BYTES", 2**10)
    for place in (0, 5, 10):
        lines = [f"n,{row},{CLASSES[row % 2]}" for row in range(10)]
        lines.insert(place, "n" * 10_000 + ",1,yes")
        path = put(tmp_path, "note,size,label\n" + "\n".join(lines) + "\n")
        source = open_dataset(path, classes=CLASSES, number_columns=["size"])
        assert source.schema.records == 11
        with pytest.raises(InvalidInput, match=r"private value \(hidden\)"):
            source.read()
