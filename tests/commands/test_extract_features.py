"""Features of a private dataset, made once: kept by their owner, taken by releases, told to be private."""

import hashlib
import os
import stat
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import privmix as pm
from privmix.data import files
from privmix.data.source import Source
from privmix.features.identity import Identity
from tests.cli.helpers import privmix
from tests.refusals import refuses

N = 300
WISHES: dict[str, Any] = {"classes": 2, "features": "identity"}
BUDGET: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-4, "design": "moments", "clip_norm": 2.0}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    columns = {name: rng.normal(0, 0.3, N).astype(np.float32) for name in "abc"}
    pq.write_table(pa.table(columns | {"label": rng.integers(0, 2, N)}), tmp_path / "d.parquet", row_group_size=64)
    return tmp_path / "d.parquet"


def test_a_release_takes_what_was_made(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = pm.release(data, **WISHES, **BUDGET, seed=3, out=tmp_path / "A")
    line = ["extract-features", data, "--features", "identity", "--classes", "2", "--out", tmp_path / "STORE"]
    assert "as private as the records" in privmix(*line).passed().out
    assert privmix(*line, "--engine", "local:address=h:1").code == 2
    assert stat.S_IMODE((tmp_path / "STORE").stat().st_mode) == 0o700
    monkeypatch.setattr(Source, "_silent_chunks", lambda *_: pytest.fail("records were read again"))
    kept = pm.release(data, **WISHES, **BUDGET, seed=3, store=tmp_path / "STORE", out=tmp_path / "B")
    assert np.array_equal(kept.x, fresh.x)
    found = pm.extract_features(data, **WISHES, out=tmp_path / "STORE")
    assert (found.records, found.dim, found.features) == (N, 3, "identity")
    # A store is not made in what others get.
    with refuses("out"):
        pm.extract_features(data, **WISHES, out=tmp_path / "A" / "STORE")


def test_it_goes_on_with_what_is_lacking(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the input, the row groups alone that the lacking records are in."""
    monkeypatch.setattr("privmix.data.partial.CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr("privmix.data.fingerprint.SETTLED", -1)
    monkeypatch.setattr(Identity, "step", 50)
    original, digest, batches = Identity.transform, hashlib.file_digest, pq.ParquetFile.iter_batches
    seen, hashed, read = list[int](), list[str](), list[int]()

    def cut_off(self: Identity, x: Any) -> Any:
        if len(seen) == 5:
            raise KeyboardInterrupt
        seen.append(len(x))
        return original(self, x)

    def digested(stream: Any, name: str) -> Any:
        hashed.append(str(stream.name))
        return digest(stream, name)

    def noted(self: Any, *given: Any, row_groups: list[int], **options: Any) -> Any:
        read.extend(row_groups)
        return batches(self, *given, row_groups=row_groups, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Identity, "transform", cut_off)
        with pytest.raises(KeyboardInterrupt):
            pm.extract_features(data, **WISHES, out=tmp_path / "STORE")
    notes = tmp_path / ".STORE.hashes"
    assert stat.S_IMODE(notes.stat().st_mode) == 0o600
    # Another process: it hashes the data again only where nobody kept the hash.
    files._hashes.clear()
    monkeypatch.setattr(hashlib, "file_digest", digested)
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", noted)
    pm.extract_features(data, **WISHES, out=tmp_path / "STORE")
    assert (read[0], read[-1]) == (sum(seen) // 64, 4)
    assert str(data) not in hashed
    assert not notes.exists()


def test_a_store_is_of_the_columns_that_it_was_made_of(tmp_path: Path) -> None:
    """Of the same files, with other labels or inputs, it is another one."""
    table = {"a": [0.0, 1.0], "b": [1.0, 0.0], "label": [0, 1], "other": [1, 0]}
    pq.write_table(pa.table({**table, "v": [[1.0], [2.0]], "w": [[3.0], [4.0]]}), tmp_path / "d.parquet")
    wishes = {**WISHES, "out": tmp_path / "STORE"}
    usual = {"columns": "v", "feature_length": 1}
    pm.extract_features(tmp_path / "d.parquet", **wishes, columns=pm.Columns(**usual))
    for other in ({"label": "other"}, {"columns": "w"}):
        with refuses("feature store"):
            pm.extract_features(tmp_path / "d.parquet", **wishes, columns=pm.Columns(**{**usual, **other}))
    assert pm.extract_features(tmp_path / "d.parquet", **wishes, columns=pm.Columns(**usual)).records == 2


def test_data_that_change_while_they_are_read_make_no_store(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = Source.batches

    def changed(self: Source, *given: Any) -> Any:
        yield from batches(self, *given)
        data.write_bytes(data.read_bytes() + b" ")

    monkeypatch.setattr(Source, "batches", changed)
    with refuses("data"):
        pm.extract_features(data, **WISHES, out=tmp_path / "STORE")
    assert set(os.listdir(tmp_path)) == {"d.parquet"}


@pytest.mark.thorough
def test_a_cluster_makes_the_same_release(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From raw records, once with a store of its own and once with the run's."""
    ray = pytest.importorskip("ray", reason="the Ray engine needs privmix[ray]")
    import cloudpickle

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    put: list[Any] = []
    original = ray.put
    monkeypatch.setattr(ray, "put", lambda value: (put.append(value), original(value))[1])
    started, start = [], ray.init
    monkeypatch.setattr(ray, "init", lambda **given: (started.append(given), start(**given))[1])
    fresh = pm.release(data, **WISHES, **BUDGET, seed=3, out=tmp_path / "A")
    made = pm.release(data, **WISHES, **BUDGET, seed=3, engine="ray:workers=1", out=tmp_path / "B")
    assert np.array_equal(made.x, fresh.x)
    # For features and sums together.
    assert len(started) == 1
    assert not ray.is_initialized()
    values = pq.read_table(data)["a"].to_numpy()
    assert put
    assert all(values[:4].tobytes() not in cloudpickle.dumps(one) for one in put)
    assert set(os.listdir(tmp_path)) == {"d.parquet", "A", "B"}
    assert made.certificate["files"] == fresh.certificate["files"]


def test_an_object_that_changes_while_it_is_read_publishes_nothing(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsspec = pytest.importorskip("fsspec", reason="addresses need privmix[remote]")
    memory, original, seen = fsspec.filesystem("memory"), Identity.transform, list[int]()
    memory.pipe("/changing/d.parquet", data.read_bytes())

    def changed(self: Identity, x: Any) -> Any:
        if not seen:
            memory.pipe("/changing/d.parquet", data.read_bytes())
        seen.append(len(x))
        return original(self, x)

    monkeypatch.setattr(Identity, "transform", changed)
    monkeypatch.setattr(Identity, "step", 50)
    with refuses("data"):
        pm.release("memory://changing/d.parquet", **WISHES, **BUDGET, out=tmp_path / "A")
    assert 0 < sum(seen) < N
    assert not (tmp_path / "A").exists()
    memory.rm("/changing", recursive=True)


@pytest.mark.parametrize("said", ["folder", "data"])
def test_a_cluster_whose_machines_share_no_files_is_found_before_the_charge(
    data: Path, tmp_path: Path, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray", reason="the Ray engine needs privmix[ray]")
    monkeypatch.setattr("privmix.engine.ray.connected", lambda _: nullcontext())
    monkeypatch.setattr("privmix.engine.cluster._asked", lambda *_: ["", said])
    monkeypatch.setattr("privmix.jobs.job.Job.charge", lambda *_: pytest.fail("charged"))
    monkeypatch.setattr(Source, "_silent_chunks", lambda *_: pytest.fail("read"))
    given = {**WISHES, "engine": "ray:address=h:1", "out": tmp_path / "A"}
    for make, more in ((pm.release, BUDGET), (pm.extract_features, {})):
        with pytest.raises(pm.InvalidInput, match="all machines of the cluster"):
            make(data, **given, **more)
    assert [file.name for file in tmp_path.iterdir()] == ["d.parquet"]
