"""Data at addresses, read in place: the bytes of what is asked for, of the versions that were listed."""

import os
import pickle
from collections.abc import Callable, Iterator
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
from tests.data.helpers import columns, write

fsspec = pytest.importorskip("fsspec", reason="addresses need privmix[remote]")
from fsspec.implementations.local import LocalFileSystem  # noqa: E402

from tests.refusals import refuses  # noqa: E402

N, SECRET = 4000, "hush-hush-hush"
X = 50 * np.abs(np.random.default_rng(0).normal(size=(N, 6)))
Y = np.random.default_rng(1).integers(0, 3, N)
every_format = pytest.mark.parametrize("name", ["d.parquet", "d.csv", "d.jsonl", "x.npy", "train-images-idx2-ubyte"])


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


@pytest.fixture(autouse=True)
def counted(monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec.register_implementation("counted", Counted, clobber=True)
    for name, value in (("remote_files.LEAST_PIECE", 2**10), ("files.PIECE", 2**13), ("csv.BLOCK_BYTES", 2**13)):
        monkeypatch.setattr(f"privmix.data.{name}", value)
    monkeypatch.setattr("privmix.data.remote_files.PAUSE", 0.0)
    _hashes.clear()
    Counted.ranges.clear()
    Counted.fails = 0


def table(first: int = 0, stop: int = N) -> Any:
    return pa.table(columns(X[first:stop], Y[first:stop]))


def made(folder: Path, name: str) -> Path:
    if not name.endswith("parquet"):
        return write(folder / name, X, Y)
    pq.write_table(table(), folder / name, row_group_size=200)
    return folder / name


def opened(place: Any) -> Any:
    return open_dataset(place, classes=3, number_columns=list("abcdef") if str(place).endswith("jsonl") else None)


def check_tiles_are_read_in_place(path: Path, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ScratchFolder, "__init__", lambda *_: pytest.fail("a copy was made"))
    here, there = opened(path), opened(address)
    assert isinstance(there, RemoteSource)
    assert there.travels
    assert there.schema == here.schema
    assert (there.manifest().parts == here.manifest().parts).all()
    assert content_hashes(there) == content_hashes(here)
    whole, total = here.read(), sum(file.stat().st_size for file in path.parent.iterdir())
    for first in (0, 1400, N - 200):
        worker = pickle.loads(cloudpickle.dumps(there))
        Counted.ranges.clear()
        tile = list(worker.batches(64, first, first + 200))
        # A twentieth each, headers and what one has to pass over beside it.
        assert 0 < asked() < 0.2 * total
        assert np.concatenate([one.x for one in tile]).tobytes() == whole.x[first : first + 200].tobytes()
        assert np.concatenate([one.y for one in tile]).tolist() == whole.y[first : first + 200].tolist()


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


@every_format
def test_a_worker_reads_the_bytes_of_its_tile_and_the_records_of_a_copy(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = made(tmp_path, name)
    check_tiles_are_read_in_place(path, f"counted://{path}", monkeypatch)


def test_counting_lines_hashes_them_too(tmp_path: Path) -> None:
    for name in ("d.csv", "d.jsonl"):
        path = made(tmp_path, name)
        source = opened(f"counted://{path}")
        Counted.ranges.clear()
        assert content_hashes(source) == content_hashes(opened(path))
        assert asked() == 0


@every_format
def test_files_that_changed_since_they_were_listed_give_no_last_record(name: str, tmp_path: Path) -> None:
    place = made(tmp_path, name)
    source = pickle.loads(cloudpickle.dumps(opened(f"counted://{place}")))
    check_ends_at_a_change(source, place, place.write_bytes)


def test_a_file_that_shrank_or_went_is_said_to_have_changed(tmp_path: Path) -> None:
    place = made(tmp_path, "x.npy")
    source = opened(f"counted://{place}")
    place.write_bytes(place.read_bytes()[:5000])
    with refuses("data"):
        source.read()
    place.unlink()
    with pytest.raises((InvalidInput, StorageError), match=r"do not change while|no such file"):
        source.read()


def test_shards_are_read_in_place(tmp_path: Path) -> None:
    for part in range(4):
        pq.write_table(table(part * 1000, part * 1000 + 1000), tmp_path / f"train-{part}.parquet", row_group_size=100)
    pq.write_table(table(0, 10), tmp_path / "test.parquet")
    for url in (f"counted://{tmp_path}", f"counted://{tmp_path}/train-*.parquet"):
        source = opened(url)
        assert source.read().x.tobytes() == opened(tmp_path).read().x.tobytes()
        Counted.ranges.clear()
        list(pickle.loads(cloudpickle.dumps(source)).batches(64, 1950, 2050))
        assert {name for name, _, _ in Counted.ranges} == {"train-1.parquet", "train-2.parquet"}


def test_what_a_network_does_for_a_moment_is_tried_again_and_says_no_secret(tmp_path: Path) -> None:
    source = opened(f"counted://{made(tmp_path, 'x.npy')}")
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
    source = opened(f"counted://{made(tmp_path, 'x.npy')}")
    Counted.ranges.clear()
    with source.files[0].open("rb", 0) as stream:
        assert isinstance(stream, RangeStream)
        stream.seek(100)
        assert len(stream.read(7)) == 7
    assert Counted.ranges == [("x.npy", 100, 7)]


def test_secrets_of_an_address_are_in_no_name(tmp_path: Path) -> None:
    source = opened(f"counted://{made(tmp_path, 'd.parquet')}")
    source._tree.url = "s3://ann:pa55w0rd@host/d?token=t0ken"
    for shown in (repr(source._tree), *map(str, source.files), *map(repr, source.files), repr(source.manifest())):
        assert "pa55w0rd" not in shown
        assert "t0ken" not in shown


# The same in an object store: a server of Amazon's S3 protocol on this machine, reached as a user would by s3fs.


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    servers = pytest.importorskip("moto.server", reason="the object store is moto's")
    one = servers.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    one.start()
    host, port = one.get_host_and_port()
    yield f"http://{host}:{port}"
    one.stop()


@pytest.fixture
def bucket(server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The file system, with an empty bucket named ``private``; ranges that were read are in ``Counted.ranges``."""
    s3fs = pytest.importorskip("s3fs", reason="addresses of an object store need its file system")
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name in ("CONFIG_FILE", "SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(f"AWS_{name}", os.devnull)
    names = {"ACCESS_KEY_ID": "somebody", "SECRET_ACCESS_KEY": SECRET, "DEFAULT_REGION": "us-east-1"}
    for name, value in {**names, "ENDPOINT_URL": server}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    fetched = s3fs.S3FileSystem._cat_file

    async def noted(self: Any, path: str, version_id: Any = None, start: Any = None, end: Any = None) -> bytes:
        content: bytes = await fetched(self, path, version_id=version_id, start=start, end=end)
        Counted.ranges.append((path, start, len(content)))
        return content

    monkeypatch.setattr(s3fs.S3FileSystem, "_cat_file", noted)
    s3fs.S3FileSystem.clear_instance_cache()
    system = s3fs.S3FileSystem()
    system.mkdir("private")
    yield system
    system.rm("private", recursive=True)
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.mark.parametrize("name", ["d.parquet", "x.npy", "d.csv"])
def test_a_tile_is_read_in_place(name: str, bucket: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = made(tmp_path, name)
    bucket.put(f"{tmp_path}/", "private/d/", recursive=True)
    for way in ("_open", "_get_file", "_fetch_range"):
        monkeypatch.setattr(type(bucket), way, lambda *_, **__: pytest.fail("no range"), raising=False)
    check_tiles_are_read_in_place(path, f"s3://private/d/{name}", monkeypatch)


@pytest.mark.parametrize("versions", [False, True])
def test_what_is_written_over_gives_no_last_record(versions: bool, bucket: Any, tmp_path: Path) -> None:
    path = made(tmp_path, "x.npy")
    if versions:
        bucket.call_s3("put_bucket_versioning", Bucket="private", VersioningConfiguration={"Status": "Enabled"})
    bucket.put(f"{tmp_path}/", "private/d/", recursive=True)
    source = pickle.loads(cloudpickle.dumps(opened("s3://private/d/x.npy")))
    # By somebody else, of whom this file system does not know.
    other = type(bucket)(skip_instance_cache=True)
    check_ends_at_a_change(source, path, lambda changed: other.pipe("private/d/x.npy", changed))


def test_errors_name_the_address_and_no_secret(bucket: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for url in ("s3://private/nothing.parquet", "s3://nobodys/d.parquet"):
        with pytest.raises(StorageError, match="no such file or folder"):
            opened(url)
    bucket.put(str(made(tmp_path, "d.jsonl")), "private/d.jsonl")
    source = opened("s3://private/d.jsonl")
    assert len(source.read()) == N
    # The server is gone.
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setattr(type(bucket), "retries", 1)
    type(bucket).clear_instance_cache()
    with pytest.raises(StorageError, match=r"s3://private/d\.jsonl: cannot be read") as caught:
        opened("s3://private/d.jsonl")
    assert SECRET not in str(caught.value)
    assert "127.0.0.1" not in str(caught.value)
