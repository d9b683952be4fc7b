"""Data in an object store: a server of Amazon's S3 protocol on this machine, reached as a user would by s3fs."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest

from privmix.data import content_hashes
from privmix.data.remote import RemoteSource
from privmix.errors import StorageError
from privmix.scratch import ScratchFolder
from tests.data.test_remote_files import N, _csv, _jsonl, _npy, _parquet, check_ends_at_a_change, opened, small_pieces

s3fs = pytest.importorskip("s3fs", reason="addresses of an object store need its file system")
servers = pytest.importorskip("moto.server", reason="the object store is moto's")

Write = Callable[[Path], str]
SECRET = "hush-hush-hush"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    one = servers.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    one.start()
    host, port = one.get_host_and_port()
    yield f"http://{host}:{port}"
    one.stop()


@pytest.fixture
def bucket(server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The file system, with an empty bucket named ``private``; sizes of ranges that were read are in ``asked``."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name in ("CONFIG_FILE", "SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(f"AWS_{name}", os.devnull)
    names = {"ACCESS_KEY_ID": "somebody", "SECRET_ACCESS_KEY": SECRET, "DEFAULT_REGION": "us-east-1"}
    for name, value in {**names, "ENDPOINT_URL": server}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    small_pieces(monkeypatch)
    asked, fetched = list[int](), s3fs.S3FileSystem._cat_file

    async def noted(self: Any, path: str, version_id: Any = None, start: Any = None, end: Any = None) -> bytes:
        content: bytes = await fetched(self, path, version_id=version_id, start=start, end=end)
        asked.append(len(content))
        return content

    monkeypatch.setattr(s3fs.S3FileSystem, "_cat_file", noted)
    s3fs.S3FileSystem.clear_instance_cache()
    system = s3fs.S3FileSystem()
    system.asked = asked
    system.mkdir("private")
    yield system
    system.rm("private", recursive=True)
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.mark.parametrize("write", [_parquet, _npy, _csv], ids=lambda one: one.__name__.strip("_"))
def test_a_tile_is_read_in_place(write: Write, bucket: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = write(tmp_path)
    bucket.put(f"{tmp_path}/", "private/d/", recursive=True)
    monkeypatch.setattr(ScratchFolder, "__init__", lambda *_: pytest.fail("a copy was made"))
    for way in ("_open", "_get_file", "_fetch_range"):
        monkeypatch.setattr(s3fs.S3FileSystem, way, lambda *_, **__: pytest.fail("no range"), raising=False)
    here, there = opened(tmp_path / name), opened(f"s3://private/d/{name}")
    assert isinstance(there, RemoteSource)
    assert there.travels
    assert there.schema == here.schema
    assert content_hashes(there) == content_hashes(here)
    whole, total = here.read(), sum(file.stat().st_size for file in tmp_path.iterdir())
    worker = pickle.loads(cloudpickle.dumps(there))
    bucket.asked.clear()
    tile = list(worker.batches(64, 1400, 1600))
    assert np.concatenate([one.x for one in tile]).tobytes() == whole.x[1400:1600].tobytes()
    # A twentieth, headers and what one has to pass over beside it.
    assert 0 < sum(bucket.asked) < 0.2 * total


@pytest.mark.parametrize("versions", [False, True])
def test_what_is_written_over_gives_no_last_record(versions: bool, bucket: Any, tmp_path: Path) -> None:
    name = _npy(tmp_path)
    if versions:
        bucket.call_s3("put_bucket_versioning", Bucket="private", VersioningConfiguration={"Status": "Enabled"})
    bucket.put(f"{tmp_path}/", "private/d/", recursive=True)
    source = pickle.loads(cloudpickle.dumps(opened(f"s3://private/d/{name}")))
    # By somebody else, of whom this file system does not know.
    other = s3fs.S3FileSystem(skip_instance_cache=True)
    check_ends_at_a_change(source, tmp_path / name, lambda changed: other.pipe(f"private/d/{name}", changed))


def test_errors_name_the_address_and_no_secret(bucket: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for url in ("s3://private/nothing.parquet", "s3://nobodys/d.parquet"):
        with pytest.raises(StorageError, match="no such file or folder"):
            opened(url)
    bucket.put(str(tmp_path / _jsonl(tmp_path)), "private/d.jsonl")
    source = opened("s3://private/d.jsonl")
    assert len(source.read()) == N
    # The server is gone.
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setattr(s3fs.S3FileSystem, "retries", 1)
    s3fs.S3FileSystem.clear_instance_cache()
    with pytest.raises(StorageError, match=r"s3://private/d\.jsonl: cannot be read") as caught:
        opened("s3://private/d.jsonl")
    assert SECRET not in str(caught.value)
    assert "127.0.0.1" not in str(caught.value)
