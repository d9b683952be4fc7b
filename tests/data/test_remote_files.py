"""Data at addresses, read in place: the bytes of what is asked for, of the versions that were listed."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import cloudpickle
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from privmix.data import content_hashes, open_dataset
from privmix.data.files import _hashes
from privmix.data.remote import RemoteSource
from privmix.data.remote_files import RangeStream
from privmix.errors import InvalidInput, StorageError
from privmix.scratch import ScratchFolder
from tests.data.helpers import write_mnist

fsspec = pytest.importorskip("fsspec", reason="addresses need privmix[remote]")
from fsspec.implementations.local import LocalFileSystem  # noqa: E402

from tests.refusals import refuses  # noqa: E402

N = 4000
WISHES: dict[str, Any] = {"classes": 3}


class Counted(LocalFileSystem):  # type: ignore[misc]
    """The local file system, which notes the ranges that it is asked for."""

    protocol = "counted"
    ranges: ClassVar[list[tuple[str, int, int]]] = []
    fails: ClassVar[int] = 0

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        if Counted.fails:
            Counted.fails -= 1
            raise ConnectionError("user:password@host")
        assert start is not None
        assert end is not None
        found: bytes = super().cat_file(path, start=start, end=end)
        Counted.ranges.append((Path(path).name, start, len(found)))
        return found

    def _open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        # Of its own, for `cat_file`.
        return open(path, mode)


def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("remote_files.LEAST_PIECE", 2**10), ("files.PIECE", 2**13), ("csv.BLOCK_BYTES", 2**13)):
        monkeypatch.setattr(f"privmix.data.{name}", value)
    monkeypatch.setattr("privmix.data.remote_files.PAUSE", 0.0)
    _hashes.clear()


@pytest.fixture(autouse=True)
def counted(monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec.register_implementation("counted", Counted, clobber=True)
    small_pieces(monkeypatch)
    Counted.ranges.clear()
    Counted.fails = 0


def table() -> Any:
    rng = np.random.default_rng(0)
    numbers = {f"x{place}": rng.normal(size=N) for place in range(6)}
    return pa.table({**numbers, "label": pa.array(rng.integers(0, 3, N).astype(str)).dictionary_encode()})


def _parquet(folder: Path) -> str:
    pq.write_table(table(), folder / "d.parquet", row_group_size=200)
    return "d.parquet"


def _csv(folder: Path) -> str:
    table().to_pandas().to_csv(folder / "d.csv", index=False)
    return "d.csv"


def _jsonl(folder: Path) -> str:
    table().to_pandas().to_json(folder / "d.jsonl", orient="records", lines=True)
    return "d.jsonl"


def _npy(folder: Path) -> str:
    rng = np.random.default_rng(0)
    np.save(folder / "x.npy", rng.normal(size=(N, 6)))
    np.save(folder / "y.npy", rng.integers(0, 3, (N, 1)))
    return "x.npy"


def _idx(folder: Path) -> str:
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (N, 5, 5), np.uint8), rng.integers(0, 3, N).astype(np.uint8)
    write_mnist(folder, "train", x, y, zipped=False)
    return "train-images-idx3-ubyte"


FORMATS = [_parquet, _csv, _jsonl, _npy, _idx]


def opened(place: Any) -> Any:
    more = {"number_columns": [f"x{one}" for one in range(6)]} if str(place).endswith("jsonl") else {}
    return open_dataset(place, **WISHES, **more)


def check_ends_at_a_change(source: Any, path: Path, change: Callable[[bytes], Any]) -> None:
    """What is read after the change is refused."""
    content, seen = bytearray(path.read_bytes()), list[int]()
    content[len(content) // 2] ^= 1

    def read() -> None:
        for batch in source.batches(64, 0, 400):
            if not seen:
                change(bytes(content))
            seen.append(len(batch))

    with refuses("data"):
        read()
    assert 0 < sum(seen) < 400


def asked() -> int:
    return sum(size for _, _, size in Counted.ranges)


@pytest.mark.parametrize("write", FORMATS, ids=lambda one: one.__name__.strip("_"))
def test_a_worker_reads_the_bytes_of_its_tile_and_the_records_of_a_copy(
    write: Callable[[Path], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = write(tmp_path)
    monkeypatch.setattr(ScratchFolder, "__init__", lambda *_: pytest.fail("a copy was made"))
    here, there = opened(tmp_path / name), opened(f"counted://{tmp_path / name}")
    assert isinstance(there, RemoteSource)
    assert there.travels
    assert there.schema == here.schema
    assert (there.manifest().parts == here.manifest().parts).all()
    total = sum(file.stat().st_size for file in tmp_path.iterdir())
    assert content_hashes(there) == content_hashes(here)
    whole = here.read()
    shares = []
    for first in (0, 1400, N - 200):
        worker = pickle.loads(cloudpickle.dumps(there))
        Counted.ranges.clear()
        tile = list(worker.batches(64, first, first + 200))
        shares.append(asked() / total)
        assert np.concatenate([one.x for one in tile]).tobytes() == whole.x[first : first + 200].tobytes()
        assert np.concatenate([one.y for one in tile]).tolist() == whole.y[first : first + 200].tolist()
    # A twentieth each, headers and what one has to pass over beside it.
    assert max(shares) < 0.2, shares


def test_counting_lines_hashes_them_too(tmp_path: Path) -> None:
    for write in (_csv, _jsonl):
        path = tmp_path / write(tmp_path)
        source = opened(f"counted://{path}")
        Counted.ranges.clear()
        assert content_hashes(source) == content_hashes(opened(path))
        assert asked() == 0


@pytest.mark.parametrize("write", FORMATS, ids=lambda one: one.__name__.strip("_"))
def test_files_that_changed_since_they_were_listed_give_no_last_record(
    write: Callable[[Path], str], tmp_path: Path
) -> None:
    place = tmp_path / write(tmp_path)
    source = pickle.loads(cloudpickle.dumps(opened(f"counted://{place}")))
    check_ends_at_a_change(source, place, place.write_bytes)


def test_a_file_that_shrank_or_went_is_said_to_have_changed(tmp_path: Path) -> None:
    place = tmp_path / _npy(tmp_path)
    source = opened(f"counted://{place}")
    place.write_bytes(place.read_bytes()[:5000])
    with refuses("data"):
        source.read()
    place.unlink()
    with pytest.raises((InvalidInput, StorageError), match=r"do not change while|no such file"):
        source.read()


def test_shards_are_read_in_place(tmp_path: Path) -> None:
    for part in range(4):
        pq.write_table(table().slice(part * 1000, 1000), tmp_path / f"train-{part}.parquet", row_group_size=100)
    pq.write_table(table().slice(0, 10), tmp_path / "test.parquet")
    for url in (f"counted://{tmp_path}", f"counted://{tmp_path}/train-*.parquet"):
        source = opened(url)
        assert source.read().x.tobytes() == opened(tmp_path).read().x.tobytes()
        Counted.ranges.clear()
        list(pickle.loads(cloudpickle.dumps(source)).batches(64, 1950, 2050))
        assert {name for name, _, _ in Counted.ranges} == {"train-1.parquet", "train-2.parquet"}


def test_what_a_network_does_for_a_moment_is_tried_again_and_says_no_secret(tmp_path: Path) -> None:
    source = opened(f"counted://{tmp_path / _npy(tmp_path)}")
    Counted.fails = 2
    assert len(source.read()) == N
    Counted.fails = 10
    with pytest.raises(StorageError, match="cannot be read") as caught:
        source.read()
    assert "password" not in str(caught.value)


@pytest.mark.parametrize("scheme", ["simplecache", "filecache", "blockcache"])
def test_file_systems_that_keep_copies_on_the_disk_are_refused(scheme: str) -> None:
    with refuses("data"):
        open_dataset(f"{scheme}::memory://d.csv", classes=2)


def test_a_stream_without_a_buffer_asks_for_what_it_is_asked_for(tmp_path: Path) -> None:
    source = opened(f"counted://{tmp_path / _npy(tmp_path)}")
    Counted.ranges.clear()
    with source.files[0].open("rb", 0) as stream:
        assert isinstance(stream, RangeStream)
        stream.seek(100)
        assert len(stream.read(7)) == 7
    assert Counted.ranges == [("x.npy", 100, 7)]


def test_secrets_of_an_address_are_in_no_name(tmp_path: Path) -> None:
    source = opened(f"counted://{tmp_path / _parquet(tmp_path)}")
    source._tree.url = "s3://ann:pa55w0rd@host/d?token=t0ken"
    for shown in (repr(source._tree), *map(str, source.files), *map(repr, source.files), repr(source.manifest())):
        assert "pa55w0rd" not in shown
        assert "t0ken" not in shown
