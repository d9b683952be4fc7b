"""Streams in parts on the disk: each record once, and little read again after a kill."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privmix as pm
from privmix.data.spool import Spool
from privmix.errors import InvalidInput, StorageError
from tests.refusals import refuses

datasets = pytest.importorskip("datasets", reason="streams are Hugging Face's")

SHARDS, EACH = 40, 128
N = SHARDS * EACH
READ: list[int] = []
STOP: list[int] = []
SHIFT: list[float] = []


def rows(shards: list[int]) -> Iterator[dict[str, Any]]:
    for shard in shards:
        for place in range(shard * EACH, (shard + 1) * EACH):
            if STOP and len(READ) >= STOP[0]:
                raise KeyboardInterrupt
            READ.append(place)
            yield {"a": float(place) + sum(SHIFT), "b": 0.5 * place, "label": place % 2}


def stream() -> Any:
    features = datasets.Features(
        {"a": datasets.Value("float32"), "b": datasets.Value("float32"), "label": datasets.Value("int64")}
    )
    return datasets.IterableDataset.from_generator(rows, features=features, gen_kwargs={"shards": list(range(SHARDS))})


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for noted in (READ, STOP, SHIFT):
        noted.clear()
    monkeypatch.setattr("privmix.data.spool.BATCH", 64)
    monkeypatch.setattr("privmix.data.spool.PART_RECORDS", 128)


def numbers(dataset: Any) -> list[float]:
    return dataset.with_format("numpy")[:]["a"].tolist()


def kill(folder: Path, records: int) -> None:
    STOP.append(records)
    with pytest.raises(KeyboardInterrupt), Spool(stream(), folder / "S") as spool:
        spool.dataset()
    STOP.clear()


def test_records_are_there_once_each_and_gone_at_the_end(tmp_path: Path) -> None:
    with Spool(stream(), tmp_path / "S") as spool:
        folder = tmp_path / ".S.records"
        assert numbers(spool.dataset()) == list(range(N))
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in folder.iterdir())
    assert not folder.exists()
    assert len(READ) == N


@pytest.mark.parametrize("stopped", [3, 700, 2900, N - 1])
def test_after_a_kill_it_goes_on_where_it_stood(tmp_path: Path, stopped: int) -> None:
    kill(tmp_path, stopped)
    before = len(READ)
    with Spool(stream(), tmp_path / "S") as spool:
        assert numbers(spool.dataset()) == list(range(N))
    # The first batch, two shards at most that it stood in, and what was read and not yet kept.
    assert len(READ) - before <= N - stopped + 64 + 2 * EACH + 128 + 64
    assert len(READ) - N <= 0.11 * N


def test_another_stream_is_read_from_its_beginning(tmp_path: Path) -> None:
    kill(tmp_path, 700)
    SHIFT.append(0.25)
    with Spool(stream(), tmp_path / "S") as spool:
        assert numbers(spool.dataset()) == [place + 0.25 for place in range(N)]


def test_a_stream_that_changed_where_it_stood_is_read_from_its_beginning(tmp_path: Path) -> None:
    kill(tmp_path, 1500)
    with Spool(stream(), tmp_path / "S") as spool:
        spool._notes["last"] = "another"
        assert numbers(spool.dataset()) == list(range(N))


def test_what_a_stream_raises_is_not_shown_and_nothing_is_left(tmp_path: Path) -> None:
    def broken(shards: list[int]) -> Iterator[dict[str, Any]]:
        yield from rows(shards[:3])
        raise ValueError("Smith")

    features = stream().features
    wrong = datasets.IterableDataset.from_generator(
        broken, features=features, gen_kwargs={"shards": list(range(SHARDS))}
    )
    with pytest.raises(InvalidInput) as refused, Spool(wrong, tmp_path / "S") as spool:
        spool.dataset()
    assert "Smith" not in str(refused.value)
    assert not list(tmp_path.iterdir())
    with refuses("data"):
        Spool(datasets.IterableDataset.from_generator(rows, gen_kwargs={"shards": [0]}), tmp_path / "S")


def test_one_process_at_a_time(tmp_path: Path) -> None:
    with Spool(stream(), tmp_path / "S"), pytest.raises(StorageError, match="another process"):
        Spool(stream(), tmp_path / "S")
    with Spool(stream(), tmp_path / "S") as spool:
        assert len(numbers(spool.dataset())) == N


def test_a_folder_of_others_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / ".S.records").mkdir(mode=0o700)
    (tmp_path / ".S.records" / "mine").write_text("x")
    with pytest.raises(InvalidInput):
        Spool(stream(), tmp_path / "S")
    assert (tmp_path / ".S.records" / "mine").read_text() == "x"


def test_features_of_a_stream_are_those_of_its_records_and_a_kill_reads_none_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from privmix.features.identity import Identity

    wishes: dict[str, Any] = {"classes": 2, "features": "identity"}
    monkeypatch.setattr("privmix.data.partial.CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(Identity, "step", 256)
    original, seen = Identity.transform, list[int]()

    def cut_off(self: Identity, x: Any) -> Any:
        seen.append(len(x))
        if len(seen) == 9:
            raise KeyboardInterrupt
        return original(self, x)

    monkeypatch.setattr(Identity, "transform", cut_off)
    with pytest.raises(KeyboardInterrupt):
        pm.extract_features(stream(), **wishes, out=tmp_path / "S")
    monkeypatch.setattr(Identity, "transform", original)
    assert (tmp_path / ".S.records").exists()
    READ.clear()
    monkeypatch.setattr("privmix.jobs.dataset.records_hash", lambda *_: pytest.fail("records were hashed again"))
    made = pm.extract_features(stream(), **wishes, out=tmp_path / "S")
    monkeypatch.undo()
    assert len(READ) <= 0.11 * N
    assert made.records == N
    assert [file.name for file in tmp_path.iterdir()] == ["S"]
    features = np.load(tmp_path / "S" / "features.npy")
    assert features.tolist() == [[float(place), 0.5 * place] for place in range(N)]
    # The store is the stream's for a release, too.
    release = pm.release(
        stream(),
        **wishes,
        epsilon=4.0,
        delta=1e-5,
        design="moments",
        clip_norm=2.0,
        store=tmp_path / "S",
        out=tmp_path / "R",
    )
    assert release is not None
