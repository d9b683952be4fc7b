"""Verification accepts what was certified and nothing else, and sees noise that is missing. Forgers know the format."""

import json
import os
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file

from privmix.engine.rows import PrivateRecords
from privmix.errors import InvalidInput, PrivmixError
from privmix.planning import ReleaseConfig
from privmix.plans.plan import Plan
from privmix.plans.registry import plan_from_dict
from privmix.releases import folder as release_folder
from privmix.releases.certificate import read_certificate
from privmix.releases.folder import CENTRE_FILE, file_hash, load_release
from privmix.releases.shards import arrays_bytes, write_shard
from privmix.releases.verify import verify_release
from tests.refusals import refuses, refuses_any_change
from tests.releases.helpers import ALL_DESIGNS, CLASSES, design_name, make_plan, make_records, replant, write_release

Arrays = NDArray[np.float32]
Forge = Callable[[Plan, Arrays, Arrays], object]

HONEST: list[dict[str, Any]] = [
    *ALL_DESIGNS,
    {"design": "moments"},
    {"design": "moments", "centre": "none"},
    {"design": "fixed", "centre": "none"},
    {"design": "poisson", "rows": 1},
    {"design": "poisson", "dim": 1, "lattice_bits": 8},
]
# Calibrating Laplace noise takes its time.
SILENT = [choices for choices in HONEST if choices.get("noise") != "laplace"]


def make(out: Path, records: PrivateRecords | None = None, dim: int = 7, **choices: Any) -> Path:
    """A release of 600 records; with ``records`` all zero it is noise alone."""
    write_release(out, make_plan(dim=dim, **choices), records or make_records(dim=dim))
    return out


def silent(dim: int = 7) -> PrivateRecords:
    """Records whose features say nothing: what is released of them is noise."""
    return PrivateRecords(np.zeros((600, dim), np.float32), np.arange(600) % len(CLASSES))


def rehash(folder: Path, change: Callable[[dict[str, Any]], object] = lambda _: None) -> None:
    """Change the certificate, and make its hashes those of the files that are there."""
    certificate = json.loads((folder / "certificate.json").read_text())
    for item in certificate["files"]:
        item["sha256"] = file_hash(folder / item["file"])
    change(certificate)
    replant(folder, certificate)


def forge_rows(folder: Path, forge: Forge) -> None:
    """Change released rows in place and make all hashes fit."""
    found = load_release(folder)
    plan, x, y = plan_from_dict(read_certificate(folder)["plan"]), found.x.copy(), found.y.copy()
    forge(plan, x, y)
    for number, path in enumerate(sorted((folder / "data").iterdir())):
        part = slice(number * release_folder.SHARD_ROWS, (number + 1) * release_folder.SHARD_ROWS)
        with path.open("wb") as stream:
            write_shard(stream, x[part], y[part])
    rehash(folder)


def on_grid(values: NDArray[Any], unit: float) -> Arrays:
    return (np.rint(values.astype(np.float64) / unit) * unit).astype(np.float32)


@pytest.mark.parametrize(
    ("choices", "kind"),
    [*((choices, "varied") for choices in HONEST), *((choices, "silent") for choices in SILENT)],
    ids=lambda given: given if isinstance(given, str) else design_name(given),
)
def test_honest_releases_hold(tmp_path: Path, choices: dict[str, Any], kind: str) -> None:
    records = silent(choices.get("dim", 7)) if kind == "silent" else None
    found = verify_release(make(tmp_path / "rel", records, **choices))
    assert 0 < found.false_alarm < 1e-9
    assert len(found.unchecked) >= 6
    names = {test.name for test in found.tests}
    assert {"noise of each row", "noise of each column of x", "equal rows"} <= names
    assert ("noise of y" in names) == (choices["design"] not in ("classwise", "moments"))
    assert ("noise of the mean" in names) == (choices.get("centre") != "none" and choices.get("noise") != "laplace")
    json.dumps(found.to_dict(), allow_nan=False)


def test_label_sums_over_classes_measure_the_noise_whatever_the_data(tmp_path: Path) -> None:
    """With centred labels nothing but noise is left of them: 2,000 rows give its size to 11% at seven deviations."""
    found = verify_release(make(tmp_path / "rel", rows=2000))
    (test,) = [test for test in found.tests if test.name == "noise of label sums over classes"]
    assert test.lowest == pytest.approx(1.0, abs=0.11)
    assert test.caught > 0.85


def half(plan: Plan, x: Arrays, y: Arrays) -> None:
    x[:] = on_grid(0.5 * x, plan.unit_x)


def raw_row(plan: Plan, x: Arrays, y: Arrays) -> None:
    """One row is a record, on the grid, without noise."""
    x[77] = on_grid(0.1 * np.arange(x.shape[1]) * plan.clip_norm / plan.mixup_degree / 60, plan.unit_x)
    y[77] = 0


def value(number: float) -> Forge:
    return lambda plan, x, y: x.__setitem__((11, 0), number)


NOISE_OF_X = "noise of each row|noise of each column of x|noise of x"
FORGED: dict[str, tuple[dict[str, Any], Forge, str]] = {
    "no noise": ({}, lambda plan, x, y: x.fill(0), "noise of each row|equal rows"),
    "half the noise": ({"dim": 60}, half, NOISE_OF_X),
    "half of laplace noise": ({"design": "fixed", "noise": "laplace", "dim": 20}, half, NOISE_OF_X),
    "one column without noise": (
        {"rows": 2000},
        lambda plan, x, y: x.__setitem__((slice(None), 3), 0),
        "noise of each column of x",
    ),
    "one row without noise": ({"dim": 60}, raw_row, "noise of each row"),
    "labels without noise": ({"rows": 2000}, lambda plan, x, y: y.fill(0), "noise of each column of y"),
    "a value off the grid": (
        {},
        lambda plan, x, y: x.__setitem__((5, 2), np.nextafter(x[5, 2], np.float32(np.inf))),
        "off the public grid",
    ),
    "a row twice": ({}, lambda plan, x, y: x.__setitem__(400, x[3]), "row 3 again as row 400"),
    "not a number": ({}, value(np.nan), "rows: x"),
    "infinity": ({}, value(np.inf), "rows: x"),
    "an absurd number": ({}, value(3e38), "rows: x"),
    "a label that is no number": ({}, lambda plan, x, y: y.__setitem__((11, 0), np.nan), "rows: y"),
    "other public labels": ({"design": "classwise"}, lambda plan, x, y: y.__setitem__(0, y[1]), "public labels"),
    "sampled labels that are none": ({"design": "moments"}, lambda plan, x, y: y.fill(0.5), "public labels"),
    "records for samples": ({"design": "moments"}, lambda plan, x, y: x.fill(0), "equal rows|noise of each row"),
    "samples that are no numbers": ({"design": "moments"}, value(np.nan), "finite|noise"),
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_rows_are_refused(tmp_path: Path, name: str) -> None:
    choices, forge, message = FORGED[name]
    folder = make(tmp_path / "rel", silent(choices.get("dim", 7)), **choices)
    verify_release(folder)
    if name == "a value off the grid":
        # Some neighbour of some value is on the grid: this one is not.
        before = load_release(folder).x[5, 2]
        assert abs(before) < 2**20 * plan_from_dict(read_certificate(folder)["plan"]).unit_x  # type: ignore[union-attr]
    forge_rows(folder, forge)
    with pytest.raises(InvalidInput, match=message) as caught:
        verify_release(folder)
    assert "\n" not in str(caught.value)


def test_strong_signals_do_not_hide_missing_noise_where_they_are_weak(tmp_path: Path) -> None:
    """Features lie in 4 of 48 directions: each column varies far more than its noise, other directions don't."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(600, 4)) @ rng.choice([-1.0, 1.0], size=(4, 48))
    records = PrivateRecords((features * 0.07).astype(np.float32), rng.integers(0, 3, 600))
    config = ReleaseConfig(records=600, dim=48, classes=CLASSES, mixup_degree=20, rows=4000, centre="none")
    plan, folder = replace(config.with_noise(0.3), epsilon=1e9, delta=1e-5), tmp_path / "rel"
    write_release(folder, plan, records, seed=0)
    by_name = {test.name: test for test in verify_release(folder).tests}
    weak, columns = by_name["noise of x where it varies least"], by_name["noise of each column of x"]
    assert weak.lowest == pytest.approx(1.0, abs=0.03)
    assert weak.caught > 0.9
    assert columns.lowest > 1.5
    # All of the signal stays, in the 4 directions it has; of the noise elsewhere, 0.8.
    x = load_release(folder).x
    _, _, directions = np.linalg.svd(x, full_matrices=False)
    inside = x @ directions[:4].T @ directions[:4]
    less = on_grid(inside + 0.8 * (x - inside), plan.unit_x)
    forge_rows(folder, lambda plan, x, y: x.__setitem__(slice(None), less))
    with refuses("noise of x where it varies least"):
        verify_release(folder)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (CENTRE_FILE, lambda a: a["centre"].fill(0), "the mean"),
        (CENTRE_FILE, lambda a: a["centre"].__setitem__(0, np.nan), "finite"),
        (CENTRE_FILE, lambda a: a["centre"].__setitem__(0, 3e38), "centre"),
        ("moments.safetensors", lambda a: a["second"].fill(0), "second moments"),
        ("moments.safetensors", lambda a: a["second"].__setitem__(slice(100, None), 0), "second moments"),
        ("moments.safetensors", lambda a: a["cross"].fill(0), "cross moments"),
        ("moments.safetensors", lambda a: a["second"].__setitem__(3, np.inf), "finite"),
        # Labels sum to a constant: where X'Y is exact, so are its sums, which centring makes all but 0.
        (
            "moments.safetensors",
            lambda a: a["cross"].__setitem__((slice(None), 2), -a["cross"][:, :2].sum(axis=1)),
            "over class",
        ),
    ],
)
def test_forged_arrays_are_refused(
    tmp_path: Path, name: str, change: Callable[[dict[str, NDArray[Any]]], object], message: str
) -> None:
    folder = make(tmp_path / "rel", silent(40), design="moments", dim=40)
    arrays = load_file(folder / name)
    change(arrays)
    (folder / name).write_bytes(arrays_bytes(arrays))
    rehash(folder)
    with pytest.raises(InvalidInput, match=message):
        verify_release(folder)


def other_shard(folder: Path) -> None:
    shard = next((folder / "data").iterdir())
    pq.write_table(pq.read_table(shard), shard)
    rehash(folder)


FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a hidden file": (lambda folder: (folder / "data" / ".raw").write_text("1"), r"\.raw"),
    "another folder": (lambda folder: (folder / "more").mkdir(), "more"),
    "a pipe": (lambda folder: os.mkfifo(folder / "pipe"), "pipe"),
    "a shard of pyarrow": (other_shard, "a file of"),
    "rows of a side file": (lambda f: rehash(f, lambda c: c["files"][-1].update(rows=10**30)), "files"),
    "rows of a shard": (lambda f: rehash(f, lambda c: c["files"][0].update(rows=599)), "files"),
    "records beyond number": (lambda f: rehash(f, lambda c: c["plan"].update(records=10**300)), "record"),
    "no hash": (lambda f: rehash(f, lambda c: c["files"][0].update(sha256="")), "sha256"),
    "a rising curve": (lambda f: rehash(f, lambda c: c["epsilon_delta_curve"].reverse()), "curve"),
    "a delta above 1": (lambda f: rehash(f, lambda c: c["epsilon_delta_curve"][0].__setitem__(1, 1e308)), "curve"),
    "versions of more": (lambda f: rehash(f, lambda c: c["versions"].update(secret="1.0")), "versions"),
    "shapes beyond number": (lambda f: rehash(f, lambda c: c.update(input_shape=[10**300])), "input_shape"),
    "shapes without end": (lambda f: rehash(f, lambda c: c.update(input_shape=[1] * 100)), "input_shape"),
    "another layout": (
        lambda f: (f / "certificate.json").write_text((f / "certificate.json").read_text().replace("\n  ", "\n   ")),
        "layout",
    ),
    "long numbers": (lambda f: (f / "certificate.json").write_text("9" * 6000), "certificate"),
    "not a number": (lambda f: (f / "certificate.json").write_text('{"a": NaN}'), "certificate"),
}


@pytest.mark.parametrize("name", FILES)
def test_other_files_and_figures_are_refused(tmp_path: Path, name: str) -> None:
    forge, message = FILES[name]
    folder = make(tmp_path / "rel")
    forge(folder)
    with pytest.raises(PrivmixError, match=message) as caught:
        verify_release(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("design", ["poisson", "moments", "merf", "two-stage"])
def test_classes_are_texts(tmp_path: Path, design: str) -> None:
    folder = make(tmp_path / "rel", design=design, rows=20)
    for odd in (None, 0, True, 1e308, [], {}, ["x"], "x" * 201, "ant"):
        rehash(folder, lambda c, odd=odd: c["plan"]["classes"].__setitem__(1, odd))
        with refuses("plan classes"):
            verify_release(folder)


def test_a_bomb_takes_no_memory(tmp_path: Path) -> None:
    """A 0.1 MB shard of a gigabyte unpacked; what verification and loading take is bounded by the file."""
    folder = make(tmp_path / "rel")
    shard = next((folder / "data").iterdir())
    table = pq.read_table(shard)
    text = pa.array(["x" * 2**21])
    bomb = pa.DictionaryArray.from_arrays(pa.array([0] * len(table), pa.int32()), text)
    pq.write_table(table.append_column("note", bomb), shard, compression="ZSTD")
    rehash(folder)
    assert shard.stat().st_size < 200_000
    for use in (verify_release, load_release):
        tracemalloc.start()
        with refuses("data/train-00000-of-00001.parquet"):
            use(folder)
        assert tracemalloc.get_traced_memory()[1] < 20e6
        tracemalloc.stop()


def test_any_byte_changed_added_or_taken_in_any_file_is_refused(tmp_path: Path) -> None:
    refuses_any_change(make(tmp_path / "rel", design="moments", rows=40), verify_release, files=6)
