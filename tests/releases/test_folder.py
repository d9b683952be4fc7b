"""A release on disk: readable by others, atomic, verifiable, and silent about the records."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privmix.certificate.certificate import Certificate, content_hash
from privmix.engine.rows import PrivateRecords
from privmix.errors import PrivmixError, StorageError
from privmix.releases.folder import load_release
from privmix.releases.run import ReleaseRun
from privmix.releases.verify import verify_release
from tests.refusals import refuses
from tests.releases.helpers import ALL_DESIGNS, TARGET, design_name, make_plan, make_records, release, write_release


def write(out: Path, records: PrivateRecords | None = None, seed: int | None = 1, **choices: Any) -> Certificate:
    return write_release(out, make_plan(**choices), records, seed)


@pytest.mark.parametrize("choices", ALL_DESIGNS, ids=design_name)
def test_folder_holds_the_rows_of_memory(tmp_path: Path, choices: dict[str, Any]) -> None:
    write(tmp_path / "rel", **choices)
    loaded, direct = load_release(tmp_path / "rel"), release(make_plan(**choices), make_records())
    np.testing.assert_array_equal(loaded.x, direct.x)
    np.testing.assert_array_equal(loaded.y, direct.y)
    one, other = (found.transform(make_records().features) for found in (loaded, direct))
    np.testing.assert_array_equal(one, other)
    result = verify_release(tmp_path / "rel")
    assert result.recomputed_epsilon <= result.epsilon * (1 + 1e-9) <= TARGET[0] * (1 + 1e-9)


def test_pandas_polars_and_datasets_read_it_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    import datasets
    import pandas as pd
    import polars as pl

    write(tmp_path / "rel", rows=9_000)
    x = load_release(tmp_path / "rel").x
    shards = str(tmp_path / "rel" / "data" / "*.parquet")
    np.testing.assert_array_equal(np.stack(pd.read_parquet(tmp_path / "rel" / "data")["x"].tolist()), x)
    np.testing.assert_array_equal(pl.read_parquet(shards)["x"].to_numpy(), x)
    hub = datasets.load_dataset("parquet", data_files=shards, split="train", cache_dir=str(tmp_path / "cache"))
    np.testing.assert_array_equal(np.asarray(hub.with_format("numpy")["x"][:], np.float32), x)
    whole = datasets.load_dataset(str(tmp_path / "rel"), split="train", cache_dir=str(tmp_path / "cache"))
    assert whole.num_rows == 9_000  # the data card's front matter points at the shards


def test_certificate_does_not_depend_on_the_records(tmp_path: Path) -> None:
    """Two datasets with nothing in common but the public facts give the same certificate and card."""
    loud = PrivateRecords(1e3 * make_records(seed=2).features, np.zeros(600, np.int64))
    told = [write(tmp_path / name, data).to_dict() for name, data in (("one", make_records(seed=1)), ("other", loud))]
    for certificate in told:
        del certificate["id"], certificate["content_sha256"]
        for item in certificate["files"]:
            item.pop("sha256")
    assert told[0] == told[1]
    assert (tmp_path / "one" / "README.md").read_text() == (tmp_path / "other" / "README.md").read_text()


def test_certificate_says_what_matters(tmp_path: Path) -> None:
    certificate = write(tmp_path / "rel")
    assert (certificate["insecure_seed"], certificate["in_ledger"]) == (True, "none")
    assert any("insecure_seed" in text for text in certificate["warnings"])
    assert any("record count 600 is taken as public" in text for text in certificate["statements"])
    # The assessment speaks of keys; it is made from public facts alone.
    assert "key" not in json.dumps({**certificate, "assessment": None})
    assert write(tmp_path / "secure", seed=None)["insecure_seed"] is False
    deltas = [delta for _, delta in certificate["epsilon_delta_curve"]]
    assert deltas == sorted(deltas, reverse=True)


def edit(change: Callable[[dict[str, Any]], None], *, rehash: bool = True) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        path = folder / "certificate.json"
        content = json.loads(path.read_text())
        change(content)
        if rehash:
            content["content_sha256"] = content_hash(content)
        path.write_text(json.dumps(content))

    return apply


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release that holds, for tests that copy it."""
    out = tmp_path_factory.mktemp("honest") / "rel"
    write(out)
    verify_release(out)
    return out


@pytest.mark.parametrize(
    ("tamper", "message"),
    [
        (edit(lambda c: c["guarantee"].update(epsilon=0.5), rehash=False), "content_sha256"),
        (edit(lambda c: c["guarantee"].update(epsilon=0.5)), "epsilon"),
        (edit(lambda c: c["guarantee"].update(delta=1e-9)), "delta: got 1e-09; allowed: 1e-05, as in the plan"),
        (edit(lambda c: (c["guarantee"].update(delta=1e-9), c["plan"].update(delta=1e-9))), "epsilon"),
        (edit(lambda c: c["plan"].update(epsilon=1.0)), "certificate epsilon: .*which was asked for"),
        (edit(lambda c: c["plan"].update(epsilon=None, delta=None)), "plan epsilon"),
        (edit(lambda c: c["plan"].update(epsilon=5.0)), "assessment"),
        (edit(lambda c: c["plan"].update(records_declared=True)), "statements"),
        (edit(lambda c: c["plan"].update(records_declared=1)), "records_declared"),
        (edit(lambda c: c["guarantee"].update(adjacency="replace_one")), "adjacency"),
        (edit(lambda c: c["plan"].update(noise_multiplier=9.0)), "event"),
        (edit(lambda c: c["plan"].update(record_rate=1e-6)), "record_rate"),
        (edit(lambda c: c["event"].update(kind="gaussian")), "gaussian event"),
        (edit(lambda c: c["noise_std"].update(x=1e-9)), "noise_std"),
        (edit(lambda c: c["plan"].pop("rows")), "plan"),
        (edit(lambda c: c.update(schema_version=2)), "schema_version.*privmix that wrote them"),
        (edit(lambda c: c["assessment"][1].update(holds="Epsilon is at most 0.1")), "certificate assessment"),
        (edit(lambda c: c.update(assessment=c["assessment"][:-1])), "certificate assessment"),
        (edit(lambda c: c.pop("event")), "event"),
        (edit(lambda c: c["files"].pop()), "centre"),
        (edit(lambda c: c["files"][0].update(file="../../etc/passwd")), "files"),
        (edit(lambda c: c["guarantee"].pop("delta")), "guarantee"),
        (lambda folder: (folder / "data" / "train-extra.parquet").write_bytes(b""), "train-extra"),
        (edit(lambda c: c["plan"].update(max_weight=1e-6)), "max_weight"),
        (edit(lambda c: c["plan"].update(mixup_degree=16_000_000)), "record_rate"),
        (edit(lambda c: c["plan"].update(rows=600.0)), "rows"),
        (edit(lambda c: c["plan"].update(dim=-6)), "dim"),
        (edit(lambda c: c["plan"].update(noise_multiplier=1e300)), "noise_multiplier"),
        (edit(lambda c: c["guarantee"].update(accountant="magic")), "accountant"),
        (edit(lambda c: c.update(epsilon_delta_curve=[[0.001, 1e-30]])), "curve"),
        (edit(lambda c: c["statements"].append("Protects groups of 1000 people.")), "statements"),
        (edit(lambda c: c.update(warnings=[])), "warnings"),
        (edit(lambda c: c.update(insecure_seed=False)), "warnings"),
        (lambda folder: (folder / "certificate.json").write_text("{"), "JSON"),
        (lambda folder: (folder / "certificate.json").write_bytes(b"\xff\xfe"), "JSON"),
        (lambda folder: (folder / "certificate.json").unlink(), "certificate"),
        (lambda folder: next((folder / "data").iterdir()).unlink(), "missing"),
    ],
)
def test_tampering_is_found(honest: Path, tmp_path: Path, tamper: Callable[[Path], None], message: str) -> None:
    shutil.copytree(honest, tmp_path / "rel")
    tamper(tmp_path / "rel")
    with pytest.raises(PrivmixError, match=message) as caught:
        verify_release(tmp_path / "rel")
    assert "\n" not in str(caught.value)


def test_only_a_release_is_ever_overwritten(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.txt").write_text("years of work")
    with refuses("out"):
        write_release(precious, make_plan(), overwrite=True)
    assert (precious / "thesis.txt").read_text() == "years of work"
    first = write(tmp_path / "rel")
    second = write_release(tmp_path / "rel", make_plan(), seed=0, overwrite=True)
    assert verify_release(tmp_path / "rel").id == second.id != first.id
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["precious", "rel"]


SCRIPT = """
import resource, sys
from pathlib import Path
import numpy as np
from privmix.errors import PrivmixError
from privmix.engine.rows import PrivateRecords
from privmix.planning import ReleaseConfig
from privmix.mechanisms.streams import SecretStreams
from privmix.releases.run import release_to_folder
out = Path(sys.argv[1])
plan = ReleaseConfig(records=200, dim=50, classes=("a", "b"), mixup_degree=4, rows=200_000)
plan = plan.with_noise(3.0).priced(1e-5)
records = PrivateRecords(np.zeros((200, 50), np.float32), np.zeros(200, np.int64))
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
try:
    release_to_folder(plan, records, SecretStreams.from_seed(0), out,
                      extractor={"name": "identity"}, input_shape=(50,))
except PrivmixError as error:
    print(error)
    sys.exit(error.exit_code)
"""


def test_a_full_disk_is_one_line_and_leaves_a_run_to_resume(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "rel")]
    process = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=120, check=False)
    assert process.returncode == StorageError.exit_code
    assert process.stdout.startswith("out: cannot write")
    assert process.stdout.count("\n") == 1
    # It may have been paid for, and a disk can be made room on.
    assert [path.name for path in tmp_path.iterdir()] == [".rel.run"]
    assert ReleaseRun.interrupted(tmp_path / "rel") is not None
