import gc
import gzip
import io
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from privmix.data import open_dataset
from privmix.data.fingerprint import fingerprint
from privmix.data.overlap import same_files
from privmix.data.remote import public_name
from privmix.errors import InvalidInput, MissingExtra, StorageError
from tests.data.helpers import png, write_mnist
from tests.refusals import refuses

fsspec = pytest.importorskip("fsspec", reason="addresses need privmix[remote]")
CSV = "a,label\n1,0\n2,1\n"


@pytest.fixture
def memory() -> Iterator[Any]:
    system = fsspec.filesystem("memory")
    yield system
    if system.exists("/privmix"):
        system.rm("/privmix", recursive=True)


@pytest.fixture
def copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "copies"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def upload(memory: Any, folder: Path) -> None:
    memory.put(str(folder), "/privmix", recursive=True)


def test_a_file_is_read_from_a_private_copy_that_goes_with_the_source(memory: Any, copies: Path) -> None:
    """And stays where a forked worker's source goes."""
    memory.pipe("/privmix/d.csv.gz", gzip.compress(CSV.encode()))
    source = open_dataset("memory://privmix/d.csv.gz", classes=2)
    (copy,) = copies.iterdir()
    assert stat.S_IMODE(copy.stat().st_mode) == 0o700
    worker = os.fork()
    if worker == 0:
        del source
        gc.collect()
        os._exit(0)
    os.waitpid(worker, 0)
    assert source.read().x.tolist() == [[1.0], [2.0]]
    del source
    gc.collect()
    assert not list(copies.iterdir())


def test_the_copy_is_removed_when_python_exits(tmp_path: Path) -> None:
    code = (
        "import fsspec; from privmix.data import open_dataset\n"
        f"fsspec.filesystem('memory').pipe('/d.csv.gz', {gzip.compress(CSV.encode())!r})\n"
        "keep = open_dataset('memory://d.csv.gz', classes=2)\n"
        "import os, tempfile; assert os.listdir(tempfile.gettempdir())"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | {"TMPDIR": str(tmp_path)})
    assert not list(tmp_path.iterdir())


def test_folders_patterns_and_splits(memory: Any, copies: Path, tmp_path: Path) -> None:
    folder = tmp_path / "d"
    folder.mkdir()
    for name in ("train-1", "train-0", "test-0"):
        pq.write_table(pa.table({"x": [float(name[-1])], "label": [0]}), folder / f"{name}.parquet")
    upload(memory, folder)
    for url in ("memory://privmix", "memory://privmix/", "memory://privmix/train-*.parquet", "memory://privmix/*"):
        source = open_dataset(url, classes=2)
        assert source.read().x.tolist() == [[0.0], [1.0]], url
    assert open_dataset("memory://privmix", classes=2, split="test").schema.records == 1
    del source
    gc.collect()
    assert not list(copies.iterdir())
    with refuses("split"):
        open_dataset("memory://privmix", classes=2, split="val")


def test_images_idx_and_npy_find_what_belongs_to_them(memory: Any, copies: Path, tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, size=(2, 3, 3), dtype=np.uint8)
    labels = np.array([0, 1], dtype=np.uint8)
    folder = tmp_path / "d"
    for name, image in zip(("cat", "dog"), images, strict=True):
        (folder / "images" / "train" / name).mkdir(parents=True)
        (folder / "images" / "train" / name / "a.png").write_bytes(png(image))
    write_mnist(folder, "train", images, labels)
    np.save(folder / "x.npy", images)
    np.save(folder / "y.npy", labels)
    upload(memory, folder)
    for url in ("images", "train-images-idx3-ubyte.gz", "x.npy"):
        declared: Any = {"image_size": 3, "colour": "grey"} if url == "images" else {}
        data = open_dataset(f"memory://privmix/{url}", classes=["cat", "dog"], **declared).read()
        assert np.array_equal(data.x, images), url
        assert data.y.tolist() == [0, 1]


def test_file_addresses_are_local_paths(copies: Path, tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text(CSV)
    for name in ("d.csv", "*.csv"):
        assert open_dataset(f"file://{tmp_path}/{name}", classes=2).schema.records == 2
        assert fingerprint(f"file://{tmp_path}/{name}") == fingerprint(tmp_path / "d.csv")
    assert not list(copies.iterdir())
    with pytest.raises(StorageError, match="no such file or folder"):
        open_dataset(f"file://{tmp_path}/e.csv", classes=2)


def test_fingerprints_do_not_depend_on_where_the_data_lie(memory: Any, tmp_path: Path) -> None:
    folder = tmp_path / "d"
    (folder / "sub").mkdir(parents=True)
    for name, text in {"a.csv": CSV, "b.csv": CSV + "3,0\n", "sub/c.csv": "c", ".hidden": "h"}.items():
        (folder / name).write_text(text)
    upload(memory, folder)
    assert fingerprint("memory://privmix") == fingerprint(folder) != fingerprint(folder / "sub")
    assert fingerprint("memory://privmix/*.csv") == fingerprint(str(folder / "*.csv")) == fingerprint(folder / "?.csv")
    assert fingerprint("memory://privmix/a.csv") == fingerprint(folder / "a.csv") == fingerprint(folder / "a*")
    for missing in ("memory://privmix/nothing", "memory://privmix/*.npz", str(folder / "*.npz")):
        with pytest.raises(StorageError, match="no such file"):
            fingerprint(missing)


@pytest.mark.parametrize(
    ("content", "name"),
    [(b"", "d.csv"), (b"a,label\nSmith,0\n", "d.csv"), (b"Smith", "d.parquet"), (b"Smith", "d.jsonl")],
)
def test_errors_show_the_address_and_leave_no_copy(memory: Any, copies: Path, content: bytes, name: str) -> None:
    memory.pipe(f"/privmix/{name}", content)
    with pytest.raises(InvalidInput) as caught:
        open_dataset(f"memory://privmix/{name}", classes=2, number_columns=["a"]).read()
    assert str(copies) not in f"{caught.value} {caught.value.field} {caught.value.allowed}"
    assert "Smith" not in str(caught.value)
    if name != "d.csv":
        assert f"memory://privmix/{name}" in str(caught.value)
    del caught
    gc.collect()
    assert not list(copies.iterdir())


def test_nothing_there(memory: Any, copies: Path) -> None:
    for url in ("memory://privmix/d.csv", "memory://privmix", "memory://privmix/*.csv"):
        with pytest.raises(StorageError, match=r"memory://privmix.*no such file or folder"):
            open_dataset(url, classes=2)
    assert not list(copies.iterdir())


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://bucket/d.csv", "s3://bucket/d.csv"),
        ("https://ann:pa@ss/w:rd@host/d.csv?sig=secret#part", "https://host/d.csv"),
        ("https://token@host/d.csv", "https://host/d.csv"),
        ("hf://datasets/org/name@main/d.csv", "hf://datasets/org/name@main/d.csv"),
        ("simplecache::ftp://ann:secret@host/d", "simplecache::ftp://host/d"),
    ],
)
def test_credentials_are_not_public(url: str, shown: str) -> None:
    """Formal guarantee: no secrets in messages."""
    assert public_name(url) == shown


class Talkative(fsspec.AbstractFileSystem):  # type: ignore[misc]
    protocol = "talkative"

    def _fail(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("refused ann:secret, token=abc")

    info = exists = isfile = find = glob = _fail


@pytest.mark.parametrize("use", [open_dataset, fingerprint])
def test_what_remote_libraries_say_is_dropped(use: Any, copies: Path) -> None:
    """Formal guarantee: no secrets in messages."""
    fsspec.register_implementation("talkative", Talkative, clobber=True)
    with pytest.raises(StorageError, match=r"^talkative://host/d.csv: cannot be read$") as caught:
        use("talkative://ann:secret@host/d.csv?token=abc")
    assert caught.value.__suppress_context__
    assert not list(copies.iterdir())


@pytest.mark.parametrize("use", [open_dataset, fingerprint])
def test_unknown_schemes_and_a_missing_library(use: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with refuses("data"):
        use("nosuch://ann:secret@host/d.csv")
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(MissingExtra, match=r"\.\[remote\]"):
        use("memory://privmix/d.csv")


class Web(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """One file behind a signed address, as fsspec's own file system for the web shows it: paths are addresses."""

    protocol = "https"
    address = "https://host/train.csv?sig=a*b"

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path

    def isfile(self, path: str) -> bool:
        return path == self.address

    def find(self, path: str, *_: Any, **__: Any) -> dict[str, Any]:
        return {}

    def _open(self, path: str, *_: Any, **__: Any) -> Any:
        return io.BytesIO(CSV.encode())


def test_signed_web_addresses(copies: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fsspec, "url_to_fs", lambda url: (Web(), url))
    source = open_dataset(Web.address, classes=2)
    assert [path.name for path in copies.rglob("*.csv")] == ["train.csv"]
    assert source.read().x.tolist() == [[1.0], [2.0]]
    (tmp_path / "d.csv").write_text(CSV)
    assert fingerprint(Web.address) == fingerprint(tmp_path / "d.csv")
    with pytest.raises(StorageError, match=r"^https://host/test.csv: no such file"):
        open_dataset("https://host/test.csv?sig=a*b", classes=2)


def test_the_same_bytes_are_known_at_an_address_and_of_a_split(tmp_path: Path) -> None:
    """What is called public is read as a training split; the private data may be any split, here or there."""
    memory = fsspec.filesystem("memory")
    for name, rows in (("train.csv", "1,0\n" * 3), ("test.csv", "2,1\n" * 3)):
        memory.pipe(f"/both/{name}", b"x,label\n" + rows.encode())
    (tmp_path / "copy.csv").write_bytes(memory.cat("/both/test.csv"))
    (tmp_path / "other.csv").write_bytes(b"x,label\n9,0\n")
    copy, other = str(tmp_path / "copy.csv"), str(tmp_path / "other.csv")
    assert same_files(copy, "memory://both", "test")
    assert same_files("memory://both/test.csv", copy, "test")
    assert not same_files(other, "memory://both", "test")
    # The training split of one place may be public where its test split is private, and is no copy of it.
    assert not same_files("memory://both", "memory://both", "test")
    assert same_files("memory://both", "memory://both")
    assert not same_files(copy, "memory://both")
    # Arrays of several splits in one file: not known before it is fetched.
    memory.pipe("/one/d.npz", b"arrays")
    assert not same_files("memory://one/d.npz", "memory://one/d.npz", "test")
    assert not same_files(other, "memory://one", "test")
