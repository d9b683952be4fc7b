"""A specification is drafted from the header and the owner's word; of records only where that is asked for."""

import copy
import json
from pathlib import Path
from typing import Any

import datasets
import pandas
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import privmix as pm
from privmix.features.tabular import DRAFTED, Tabular
from tests.cli.helpers import privmix, refused
from tests.cli.training import certificate
from tests.refusals import refuses

pytestmark = pytest.mark.usefixtures("own_folder")
FEW = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
NAMES = ["id", "age", "sex", "stage", "admitted", "smoker", "ill"]
SAID = [
    "--label-column", "ill", "--number", "age=0:120", "--category", "sex=F,M", "--ordinal", "stage=I,II,III",
    "--date", "admitted=2015-01-01:2025-12-31", "--boolean", "smoker", "--ignore", "id", "--missing", "age=NA,-999",
]  # fmt: skip
WORD: dict[str, Any] = {
    "label": "ill", "number": {"age": (0, 120)}, "category": {"sex": ["F", "M"]},
    "ordinal": {"stage": ["I", "II", "III"]}, "date": {"admitted": ("2015-01-01", "2025-12-31")}, "boolean": ["smoker"],
    "ignore": ["id"], "missing": {"age": ["NA", "-999"]},
}  # fmt: skip
EXPECTED = {
    "id": {"ignore": True},
    "age": {"range": [0, 120], "missing": "indicator", "missing_tokens": ["NA", "-999"]},
    "sex": {"categories": ["F", "M"]},
    "stage": {"ordinal": ["I", "II", "III"]},
    "admitted": {"date": ["2015-01-01", "2025-12-31"]},
    "smoker": {"boolean": True},
}
# How a check and a release take a draft.
LINE = ["--features", "tabular:spec.json", "--label-column", "ill", "--classes", "yes,no"]
LOOKED = "drafted by looking at the private records"


def visits(records: int = 120) -> pandas.DataFrame:
    rows = [
        [f"P{number}", ["NA", "-999", ""][number % 3] if number % 10 == 0 else str(20 + number % 50), "FM"[number % 2],
         ["I", "II", "III"][number % 3], f"20{15 + number % 10}-05-{1 + number % 28:02}", ["yes", "no"][number % 2],
         ["yes", "no"][number % 2]]
        for number in range(records)
    ]  # fmt: skip
    return pandas.DataFrame(rows, columns=NAMES)


def test_the_command_and_the_function_say_the_same() -> None:
    visits().to_csv("d.csv", index=False)
    outcome = privmix("spec", "d.csv", "--out", "spec.json", *SAID).passed()
    same = repr(pm.spec("d.csv", **WORD, out="spec.json", overwrite=True))
    assert outcome.out.splitlines() == same.replace("`number`", "--number").splitlines()
    assert ("intervals" in outcome.out, "stage" in outcome.out, outcome.err) == (True, True, "")
    assert json.loads(Path("spec.json").read_text()) == EXPECTED
    made = pm.spec("d.csv", **WORD)
    assert (made.columns, made.undeclared, made.mark) == (EXPECTED, (), None)
    assert made.to_json() == Path("spec.json").read_text()
    assert made.extractor().fingerprint() == pm.spec(visits(), **WORD).extractor().fingerprint()
    # It is what a release takes, from the check on.
    privmix("check", "d.csv", *LINE).passed()
    paid = ["--design", "moments", "--epsilon", "5", "--delta", "1e-3"]
    privmix("release", "--data", "d.csv", *LINE, *paid, "--out", "REL").passed()
    names = certificate("REL")["feature_names"]
    assert names == ["age", "age missing", "sex=F", "sex=M", "stage", "admitted", "smoker"]
    privmix("verify", "REL").passed()


@FEW
@given(records=st.lists(st.lists(st.text(max_size=5), min_size=3, max_size=3), max_size=5), declared=st.booleans())
def test_a_draft_without_a_look_is_the_same_bytes_whatever_the_records_are(
    records: list[list[str]], declared: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """In every format; and not one byte beyond the header is decided by a record."""
    import csv

    folder = tmp_path_factory.mktemp("d")
    with (folder / "d.csv").open("w", newline="", encoding="utf-8", errors="replace") as stream:
        csv.writer(stream).writerows([["a", "b", "label"], *records])
    (folder / "e.csv").write_bytes(b"a,b,label\n\xff\xfe broken," + b'"' * len(records))
    columns = {name: pa.array([row[place] for row in records], pa.string()) for place, name in enumerate("abc")}
    table = pa.table(columns).rename_columns(["a", "b", "label"])
    pq.write_table(table, folder / "d.parquet")
    said: dict[str, Any] = {"number": ["a=0:1"]} if declared else {}
    whole = {**said, "category": {"b": ["x"]}}
    (folder / "d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in records))
    frames = [table.to_pandas(), polars.from_arrow(table), datasets.Dataset(table)]
    untyped = {pm.spec(data, **said).to_json() for data in (folder / "d.csv", folder / "e.csv", *frames)}
    typed = {pm.spec(folder / "d.parquet", **said).to_json()}
    first = '  "a": {"range": [0, 1]}' if declared else '  "a": {"declare": "%s"}'
    any_kind = "range, bins, categories, ordinal, boolean or date; or ignore"
    text = "a text: categories, ordinal, boolean or date; or ignore"
    for found, hint in ((untyped, any_kind), (typed, text)):
        line = first if declared else first % hint
        assert found == {"{\n" + line + ',\n  "b": {"declare": "' + hint + '"}\n}\n'}
    if declared:
        assert pm.spec(folder / "d.jsonl", **whole).columns == {"a": {"range": [0, 1]}, "b": {"categories": ["x"]}}


def test_columns_of_which_nothing_is_said_are_refused_by_name() -> None:
    visits().to_csv("d.csv", index=False)
    outcome = privmix("spec", "d.csv", "--out", "spec.json", "--label-column", "ill", "--ignore", "id,sex,stage")
    assert "still to be declared: age, admitted, smoker" in outcome.out
    words = "specification of column age: got 'nothing declared yet'"
    refused(privmix("check", "d.csv", *LINE), words, '{"range": [0, 120]}')


def test_looking_says_so_wherever_the_draft_goes() -> None:
    visits().to_csv("d.csv", index=False)
    line = ["spec", "d.csv", "--out", "spec.json", "--label-column", "ill", "--look", "--number", "age=0:99"]
    outcome = privmix(*line).passed()
    assert "no guarantee covers it" in outcome.err
    written = json.loads(Path("spec.json").read_text())
    assert written == {
        "drafted": DRAFTED,
        "id": {"ignore": True},
        "age": {"range": [0, 99]},
        "sex": {"categories": ["F", "M"]},
        "stage": {"categories": ["I", "II", "III"]},
        "admitted": {"date": ["2015-01-01", "2024-12-31"]},
        "smoker": {"boolean": {"true": ["yes"], "false": ["no"]}},
    }
    # A line a column, of what it is taken for and what does not fit.
    assert "(left out: nearly every record has a different value)" in outcome.out
    assert "(2 categories)" in outcome.out
    assert Path("spec.json").stat().st_mode & 0o077 == 0
    written["age"] |= {"missing": "indicator", "missing_tokens": ["NA", -999]}
    Path("spec.json").write_text(json.dumps(written))
    paid = ["--design", "moments", "--epsilon", "5", "--delta", "1e-3"]
    privmix("release", "--data", "d.csv", *LINE, *paid, "--out", "REL").passed()
    assert certificate("REL")["extractor"]["options"]["drafted"] == DRAFTED
    privmix("verify", "REL").passed()
    # A model of the release has no certificate, and says so itself.
    privmix("fit", "REL", "--out", "MODEL").passed()
    texts = [Path("REL", name).read_text() for name in ("certificate.json", "README.md")]
    texts += [privmix("inspect", place, "--full").out for place in ("REL", "MODEL")]
    assert all(LOOKED in " ".join(text.split()) for text in texts)
    # All is declared: there is nothing to look for, and nothing is looked at.
    assert not pm.spec("d.csv", **WORD, look=True).mark


def test_every_format_can_be_looked_at() -> None:
    frame = visits()
    frame.to_csv("d.csv", index=False)
    frame.to_csv("d.csv.gz", index=False)
    table = pa.Table.from_pandas(frame, preserve_index=False)
    pq.write_table(table, "d.parquet")
    lines = [{**row, "deep": [1, 2]} for row in frame.to_dict("records")]
    Path("d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
    Path("shards").mkdir()
    for name, part in (("train-a", frame[:60]), ("train-b", frame[60:]), ("test", frame[:30].drop(columns=["age"]))):
        part.to_csv(f"shards/{name}.csv", index=False)
    places = ["d.csv", "d.parquet", "d.jsonl", "d.csv.gz", "shards", "shards/train-*.csv"]
    held = [frame, polars.from_pandas(frame), datasets.Dataset(table)]
    found = [pm.spec(one, label="ill", look=True) for one in (*places, *held)]
    assert len({one.to_json() for one in found}) == 1
    age = {"range": [20, 70], "integer": True, "missing": "indicator", "missing_tokens": ["NA", -999]}
    assert found[0].columns["age"] == age


def test_a_header_line_among_the_records_decides_no_column() -> None:
    frame = visits()
    again = pandas.DataFrame([frame.columns], columns=frame.columns)
    pandas.concat([frame, again, frame]).to_csv("joined.csv", index=False)
    pandas.concat([frame, frame]).to_csv("clean.csv", index=False)
    joined, clean = (pm.spec(name, label="ill", look=True) for name in ("joined.csv", "clean.csv"))
    assert joined.to_json() == clean.to_json()
    assert [one.headers for one in (joined, clean)] == [1, 0]
    outcome = privmix("spec", "joined.csv", "--out", "spec.json", "--label-column", "ill", "--look")
    assert "header line" in outcome.err


def test_numbers_for_rows_are_declared_in_intervals() -> None:
    visits().to_csv("d.csv", index=False)
    said = ["--number", "age=0:120:6", "--integer", "age,id", "--bins", "id=0:5,10:99", "--ignore", "ill,sex,stage"]
    line = ["spec", "d.csv", "--out", "spec.json", "--label-column", "ill", *said, "--ignore", "admitted,smoker"]
    assert "intervals" not in privmix(*line).passed().out
    found = json.loads(Path("spec.json").read_text())
    assert found["age"] == {"bins": [20, 40, 60, 80, 100], "range": [0, 120], "integer": True}
    assert found["id"] == {"bins": [5, 10], "range": [0, 99], "integer": True}
    # The labels' column and the persons' are no inputs, and may be ignored.
    assert "ill" not in found


def test_whole_numbers_follow_from_a_schema_and_have_whole_intervals() -> None:
    frame = pandas.DataFrame({"age": [1, 2], "dose": [1.5, 2], "day": ["2024-01-01"] * 2, "ill": ["a", "b"]})
    frame.to_parquet("d.parquet")
    frame.to_csv("d.csv", index=False)
    said: dict[str, Any] = {"label": "ill", "date": {"day": ("2024-01-01", "2024-12-31")}}
    number = {"age": (0, 110, 12), "dose": (0, 80)}
    typed, untyped = (pm.spec(f"d.{ending}", **said, number=number) for ending in ("parquet", "csv"))
    whole = {"bins": [9, 18, 28, 37, 46, 55, 64, 73, 82, 92, 101], "range": [0, 110], "integer": True}
    assert typed.columns == {**untyped.columns, "age": whole}
    assert "integer" not in untyped.columns["age"]
    assert pm.spec("d.csv", **said, number=number, integer="age").columns == typed.columns
    # Bounds that are not whole say that numbers need not be.
    assert pm.spec("d.parquet", **said, number={"age": (0, 1.5), "dose": (0, 1)}).columns["age"] == {"range": [0, 1.5]}
    assert pm.spec("d.parquet", label="ill", ignore="age,dose,day").columns["age"] == {"ignore": True}
    # Options that would bring rows closer, to be copied.
    assert "dose=0:80:10" in repr(typed)
    assert "day" in typed.hints[1]


def test_files_that_are_there_and_places_that_are_handed_on() -> None:
    visits().to_csv("d.csv", index=False)
    line = ["spec", "d.csv", "--label-column", "ill", "--out"]
    privmix(*line, "spec.json").passed()
    assert "--overwrite" in privmix(*line, "spec.json").err
    privmix(*line, "spec.json", "--overwrite").passed()
    assert "ends in .json" in privmix(*line, "spec.txt").err
    Path("REL").mkdir()
    Path("REL/certificate.json").write_text("{}")
    assert privmix(*line, "REL/spec.json").code == 2
    assert not Path("REL/spec.json").exists()
    privmix(*line, "none/spec.json").passed()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--number agee=0:1", ["--number", "header"]),
        ("--number age=0", ["--number", "LOW:HIGH"]),
        ("--number age", ["--number", "--epsilon"]),
        ("--number age=9:1", ["column age"]),
        ("--date admitted=2015-01-01", ["--date", "FIRST:LAST"]),
        ("--boolean smoker=ja", ["--boolean", "TRUE:FALSE"]),
        ("--ignore age --number age=0:1", ["once"]),
        ("--number ill=0:1", ["except the columns of labels and persons"]),
        ("--number age=0:120:1", ["--number", "INTERVALS"]),
        ("--bins age=0:5,9", ["--bins", "LOW:EDGE"]),
        ("--integer sex --category sex=F,M", ["--integer", "bins"]),
        ("--missing age=NA", ["--missing"]),
        ("--label-column label", ["label", "header"]),
    ],
)
def test_words_that_make_no_sense(flags: str, words: list[str]) -> None:
    visits().to_csv("d.csv", index=False)
    label = [] if "--label-column" in flags else ["--label-column", "ill"]
    refused(privmix("spec", "d.csv", "--out", "spec.json", *label, *flags.split()), *words)
    assert not Path("spec.json").exists()


def test_names_with_commas_and_equals_signs() -> None:
    Path("d.csv").write_text('"a=b","c,d",e,label\n')
    made = pm.spec("d.csv", number=["a=b=0:1"], ignore=["c,d"], boolean="e=J:N")
    assert made.columns == {
        "a=b": {"range": [0, 1]}, "c,d": {"ignore": True}, "e": {"boolean": {"true": ["J"], "false": ["N"]}}
    }  # fmt: skip


def test_what_is_no_table() -> None:
    for data in ([[1, 2]], Path("none.csv"), "s3://bucket/d.csv"):
        with pytest.raises(pm.PrivmixError):
            pm.spec(data)
    Path("d.npz").write_bytes(b"")
    Path("d.jsonl").write_text("{}\n")
    for data, field in (("d.npz", "data"), ("d.jsonl", "number, category, ...")):
        with refuses(field):
            pm.spec(data)
    with refuses("label"):
        pm.spec(visits(), label=["ill", "sex"])


def test_a_trained_model_says_it_too() -> None:
    said: dict[str, Any] = {"label": "ill", "classes": ["yes", "no"], "model": "linear", "epochs": 1, "batch_size": 20}
    for look in (False, True):
        spec = pm.spec(visits(), label="ill", ignore=["id", "age"], boolean=[] if look else ["smoker"], look=look)
        columns = {name: one for name, one in spec.to_dict().items() if look or "declare" not in one}
        pm.train(visits(), features=Tabular(columns), epsilon=9, delta=1e-3, out=f"MODEL-{look}", **said)
        statements = " ".join(certificate(f"MODEL-{look}")["statements"])
        assert (LOOKED in statements) is look
        assert ("the feature extractor and the initial weights" in statements) is not look
        pm.verify(f"MODEL-{look}")


def test_columns_of_a_draft_that_looked_say_so_by_themselves() -> None:
    """Who takes them in place of the extractor, or changes one, does not lose the word."""
    looked = pm.spec(visits(), label="ill", look=True).columns
    changed = copy.deepcopy(looked)
    changed["age"] = {"range": [0, 99]}
    for columns in (looked, changed, looked | {"age": {"bins": [30]}}, copy.copy(looked)):
        assert Tabular(columns).options()["drafted"] == DRAFTED
    assert "drafted" not in Tabular(pm.spec(visits(), **WORD).columns).options()
