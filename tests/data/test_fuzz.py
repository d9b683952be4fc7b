"""Whatever bytes a file holds, reading it gives data or a privmix error of one line."""

import gzip
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from privmix.data import open_dataset
from privmix.errors import InvalidInput, StorageError
from tests.data.helpers import idx_bytes, png, write

FORMATS = ["idx", "idx.gz", "npz", "npy", "csv", "csv.gz", "parquet", "images.parquet", "png"]
FORMATS += ["jsonl", "jsonl.gz", "safetensors"]
# Tables of texts.
TABLES = ["text.csv", "text.csv.gz", "text.jsonl", "text.parquet"]
SECRET = "Smith"
FUZZ = settings(max_examples=60)


TEXT_CSV = 'text,label\n"Smith\n, ""A""",0\nü,1\n,1\nSmith,0\n'
LABELS = [0, 1, 1, 0]
TEXT_CELLS = {"text": ["Smith", "ü", None, ""], "label": ["0", "1", "1", "0"]}


@cache
def valid(kind: str) -> bytes:
    x = np.random.default_rng(0).integers(0, 256, size=(4, 3, 3), dtype=np.uint8)
    plain = kind.removesuffix(".gz")
    if plain in ("idx", "png"):
        content = idx_bytes(x) if plain == "idx" else png(x[0])
    elif plain == "text.csv":
        content = TEXT_CSV.encode()
    elif plain == "text.jsonl":
        content = b"".join(b'{"text": "Smith", "label": %d}\n' % label for label in LABELS)
    else:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"d.{plain}"
            if plain in ("csv", "jsonl"):
                write(path, x[:, 0, :2], LABELS)
            elif plain == "npz":
                np.savez_compressed(path, x=x, y=LABELS)
            elif plain == "npy":
                np.save(path, x)
            elif plain == "safetensors":
                save_file({"x": x.astype(np.float32), "y": np.array(LABELS)}, path)
            else:
                column = (
                    {"image": [png(image) for image in x]} if "images" in plain else {"x": x.reshape(4, -1).tolist()}
                )
                cells = TEXT_CELLS if plain.startswith("text") else {**column, "label": LABELS}
                pq.write_table(pa.table(cells), path)
            content = path.read_bytes()
    return gzip.compress(content, mtime=0) if kind.endswith(".gz") else content


def place(folder: Path, kind: str, content: bytes) -> Path:
    """Write ``content`` as a dataset's file of the kind, beside valid companions."""
    if kind.startswith("idx"):
        (folder / "train-labels-idx1-ubyte").write_bytes(idx_bytes(np.array([0, 1, 1, 0], dtype=np.uint8)))
        path = folder / "train-images-idx3-ubyte"
    elif kind == "npy":
        np.save(folder / "y.npy", np.arange(4) % 2)
        path = folder / "x.npy"
    elif kind == "png":
        (folder / "1").mkdir()
        (folder / "1" / "a.png").write_bytes(content)
        return folder
    else:
        path = folder / f"d.{kind}"
    path.write_bytes(content)
    return path


def options(kind: str) -> dict[str, Any]:
    """What the caller declares of a dataset of the kind."""
    if kind in TABLES:
        return {"columns": ["text"]}
    if "jsonl" in kind:
        return {"number_columns": ["a"]}
    if "images" in kind or kind == "png":
        return {"image_size": 3, "colour": "grey"}
    return {"feature_length": 9} if kind == "parquet" else {}


def read(kind: str, content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        try:
            data = open_dataset(place(Path(folder), kind, content), classes=2, **options(kind)).read()
        except (InvalidInput, StorageError) as error:
            problem = error
        else:
            assert len(data.x) == len(data.y) == data.schema.records
            assert data.x.shape[1:] == data.schema.input_shape
            assert ((data.y >= 0) & (data.y < 2)).all()
            assert kind in TABLES or np.isfinite(data.x).all()
            return
    assert "\n" not in str(problem)
    assert SECRET not in str(problem) or ("csv" in kind and SECRET.encode() in header_of(kind, content))
    assert problem.__suppress_context__ or problem.__context__ is None
    assert problem.exit_code == (1 if isinstance(problem, StorageError) else 2)


def header_of(kind: str, content: bytes) -> bytes:
    """The first line of a CSV file, quoted line ends in it: errors list its names, which are public."""
    header = b""
    for line in (gzip.decompress(content) if kind.endswith(".gz") else content).split(b"\n"):
        header += line
        if header.count(b'"') % 2 == 0:
            break
    return header


@pytest.mark.parametrize("kind", FORMATS + TABLES)
def test_valid_files_are_read(kind: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        data = open_dataset(place(Path(folder), kind, valid(kind)), classes=2, **options(kind)).read()
        assert data.schema.records == len(data.x) >= 1


@pytest.mark.parametrize("kind", FORMATS + TABLES)
@FUZZ
@given(content=st.binary(max_size=300))
@example(content=b"")
@example(content=b"\x1f\x8b")
@example(content=b"\0\0\x08\3" + b"\xff" * 12)
@example(content=b"PAR1PAR1")
@example(content=b"\x93NUMPY\x01\x00\xff\xff")
def test_random_bytes(kind: str, content: bytes) -> None:
    read(kind, content)


@pytest.mark.parametrize("kind", FORMATS + TABLES)
@FUZZ
@given(data=st.data())
def test_mutated_files(kind: str, data: st.DataObject) -> None:
    content = bytearray(valid(kind))
    # Headers lie at the start (idx, npy, PNG) or the end (zip, Parquet): hit those more often than the middle.
    places = st.one_of(st.integers(0, min(63, len(content) - 1)), st.integers(0, len(content) - 1))
    for _ in range(data.draw(st.integers(1, 4))):
        where = data.draw(st.one_of(places, places.map(lambda place: len(content) - 1 - place)))
        content[where % len(content)] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content))) :]
    read(kind, bytes(content))


@pytest.mark.parametrize("kind", ["idx", "csv", "jsonl", "text.csv"])
@FUZZ
@given(data=st.data())
def test_mutated_content_inside_gzip(kind: str, data: st.DataObject) -> None:
    content = bytearray(valid(kind))
    content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    read(f"{kind}.gz", gzip.compress(bytes(content), mtime=0))


@pytest.mark.parametrize(("kind", "name"), [("csv", "a"), ("text.csv", "text")])
@FUZZ
@given(text=st.text(alphabet='01.,"\n\r;-eNanü\ufeff\0 ', max_size=200))
def test_csv_of_awkward_characters(kind: str, name: str, text: str) -> None:
    read(kind, f"{name},label\n{text}".encode())
    read(kind, text.encode() + b"\n" + b"1,0\n")


@FUZZ
@given(text=st.text(alphabet='01.,"\n{}[]:xlabe\\ud8-+N', max_size=200))
def test_json_of_awkward_characters(text: str) -> None:
    for kind in ("jsonl", "text.jsonl"):
        read(kind, text.encode())
        read(kind, b'{"text": "a", "label": 0}\n{"text": ' + text.encode() + b', "label": 0}\n')
        read(kind, b'{"a": 1, "label": 0}\n{"a": ' + text.encode() + b', "label": 0}\n')
