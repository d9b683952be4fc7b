"""Names of columns: published, so no record may be taken for them; what is wrong with one is said of that one."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pyarrow as pa
import pytest

from privmix.data import open_dataset
from privmix.data.columns import check_header
from privmix.data.dialect import Dialect
from privmix.data.header import columns_of
from privmix.errors import InvalidInput
from tests.data.helpers import held
from tests.refusals import refuses

SECRET = "5.137"
RECORDS = [[SECRET, "3.5", "setosa"], ["4.9", "3.0", "virginica"], ["6.1", "2.8", "setosa"]]
CLASSES = ["setosa", "virginica"]


def headerless(path: Path, separator: str = ",") -> Path:
    path.write_text("".join(separator.join(row) + "\n" for row in RECORDS))
    return path


def read(path: Path, header: tuple[str, ...], label: str, **options: Any) -> tuple[list[Any], list[int]]:
    dialect = Dialect(options.pop("separator", ","), header=header)
    found = open_dataset(path, classes=CLASSES, label_column=label, dialect=dialect, **options).read()
    return found.x.tolist(), found.y.tolist()


@pytest.mark.parametrize("kind", ["csv", "parquet", "pandas", "polars", "table", "datasets"])
def test_a_record_is_not_taken_for_names(tmp_path: Path, kind: str) -> None:
    """Formal guarantee: declared. A frame that was read with a record for its header is one, too."""
    data = headerless(tmp_path / "d.csv")
    if kind != "csv":
        data = held(kind, pa.table(pandas.read_csv(data)), tmp_path)
    for label in ("setosa", "label"):
        with pytest.raises(InvalidInput) as refused:
            open_dataset(data, classes=CLASSES, label_column=label)
        assert SECRET not in str(refused.value)
        assert "column 1" in refused.value.shown
    with pytest.raises(InvalidInput) as refused:
        columns_of(data)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    "cell",
    [
        *("5", "-0.5", "1e3", "1,234.5", "$12.34", "43%", "(12)", "2020-01-31", "31.12.1999", "1/2/21"),
        *("2020-01-31T10:00", "5 May 2020", "10:30", "nan", "True", "?", "setosa", " setosa "),
    ],
)
def test_cells_that_no_header_holds(cell: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_header("header", ["age", cell], CLASSES, "")
    assert "column 2" in refused.value.shown
    assert cell.strip() not in refused.value.shown


def test_names_that_headers_do_hold() -> None:
    names = ["age", "Na", "x1", "2nd", "1st flr", "q1 2020", "b-12", "name", "SibSp", "v1.1", "co2", "%"]
    check_header("header", names, CLASSES, "")
    check_header("header", [*map(str, range(8)), "label"], list(map(str, range(10))), "")
    check_header("header", ["0", "1"], [], "", numbered=True)
    for names in (["0", "1"], ["1", "0", *map(str, range(2, 9))]):
        with pytest.raises(InvalidInput):
            check_header("header", names, [], "")


def test_places_are_names_of_a_frame() -> None:
    frame = pandas.DataFrame([[0.5, 1.0], [2.0, 3.0]]).assign(label=[0, 1])
    assert open_dataset(frame, classes=2).number_names == ("0", "1")


@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("zipped", [False, True])
def test_declared_names_of_a_file_without_a_header(tmp_path: Path, bom: bytes, zipped: bool) -> None:
    content = bom + headerless(tmp_path / "d.csv").read_bytes()
    path = tmp_path / ("d.csv.gz" if zipped else "d.csv")
    path.write_bytes(gzip.compress(content) if zipped else content)
    names = ("length", "width", "kind")
    x, y = read(path, names, "kind")
    assert np.allclose(x, [[5.137, 3.5], [4.9, 3.0], [6.1, 2.8]], atol=1e-6)
    assert y == [0, 1, 0]
    assert read(path, names, "kind", columns=["width"])[0] == [["3.5"], ["3.0"], ["2.8"]]


def test_a_first_line_of_the_declared_names_is_the_header(tmp_path: Path) -> None:
    """So years may be names, and other data that have a header line may stand beside those that have none."""
    path = tmp_path / "d.csv"
    path.write_text('2019,2020,"kind"\n1,2,setosa\n3,4,virginica\n')
    with pytest.raises(InvalidInput, match="header of"):
        open_dataset(path, classes=CLASSES, label_column="kind")
    assert read(path, ("2019", "2020", "kind"), "kind") == ([[1, 2], [3, 4]], [0, 1])


@pytest.mark.parametrize("first", ['"open,1,2\n', "a,b\n", "x" * 2**20 + ",1,2\n", "\udcff,1,2\n"])
def test_the_first_record_decides_nothing(tmp_path: Path, first: str) -> None:
    """Formal guarantee: unread. Opening is the same whatever the first record is."""
    path = tmp_path / "d.csv"
    path.write_bytes(first.encode(errors="surrogateescape") + b"1,2,setosa\n" * 3)
    dialect = Dialect(header=("a", "b", "kind"))
    source = open_dataset(path, classes=CLASSES, label_column="kind", dialect=dialect)
    assert source.number_names == ("a", "b")
    with pytest.raises(InvalidInput, match="private"):
        source.read()


def test_the_header_is_for_csv_files(tmp_path: Path) -> None:
    pandas.DataFrame({"a": [1.0], "label": [0]}).to_parquet(tmp_path / "d.parquet")
    with refuses("csv"):
        open_dataset(tmp_path / "d.parquet", classes=2, dialect=Dialect(header=("a", "label")))
    for header in (("a", ""), ("a", "a")):
        with refuses("header"):
            Dialect(header=header)


def test_columns_without_a_name_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    path.write_text(",age,dose,dose,ill\n0,41,1.5,2,no\n1,57,0.5,1,yes\n")
    frame = pandas.read_csv(path, header=None, skiprows=1)
    frame.columns = ["", "age", "dose", "dose", "ill"]
    options: dict[str, Any] = {"classes": ["no", "yes"], "label_column": "ill"}
    for data in (path, frame):
        found = open_dataset(data, number_columns=["age"], **options).read()
        assert (found.x.tolist(), found.y.tolist()) == ([[41], [57]], [0, 1])
        assert open_dataset(data, columns=["age"], **options).read().y.tolist() == [0, 1]
        assert [name for name in columns_of(data) or () if name in ("age", "ill", "dose")] == ["age", "ill"]
        with refuses("columns"):
            open_dataset(data, **options)
        with refuses("columns"):
            open_dataset(data, number_columns=["dose"], **options)
