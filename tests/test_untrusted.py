"""What strangers hand over is read strictly, in bounded memory, and never through a link."""

import json
import math
import os
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

from privmix.errors import InvalidInput, StorageError
from privmix.untrusted import all_finite, array_shapes, check_listing, open_plain, parse_json, read_json, read_plain
from tests.refusals import refuses

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(JSON)
def test_what_json_can_say_is_read_as_it_is(value: Any) -> None:
    assert parse_json(json.dumps(value), "file") == value
    assert parse_json(json.dumps(value, ensure_ascii=False).encode("utf-8", "ignore"), "file") is not ...


@pytest.mark.parametrize(
    "text",
    [
        "[" * 200_000 + "]" * 200_000,
        '{"a":' * 50 + "1" + "}" * 50,
        "[" * 10**6,
        "9" * 6_000,
        "-" + "9" * 401,
        "1" * 500 + ".5",
        "1e999",
        "NaN",
        "[Infinity]",
        '{"a": 1, "a": 2}',
        "",
        "{",
        "'a'",
        b"\xff\xfe",
        b'"\xed\xa0\x80"',
        '"\\ud800"',
        b'{"\\uDFFF": 1}',
        '["\ud800"]',
    ],
)
def test_what_no_file_of_ours_says_is_refused_in_one_line(text: str | bytes) -> None:
    tracemalloc.start()
    with pytest.raises(InvalidInput) as error:
        parse_json(text, "certificate")
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 200
    assert most < 20 * len(text) + 2**16


def test_links_pipes_folders_and_large_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"1234")
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    assert read_plain(tmp_path / "real", "file", 4) == b"1234"
    for name, most in (("link", 4), ("folder", 4), ("pipe", 4), ("real", 3)):
        with pytest.raises(InvalidInput):
            read_plain(tmp_path / name, "file", most)
    with pytest.raises(StorageError):
        open_plain(tmp_path / "absent", "file")
    assert read_json(tmp_path / "real", "file") == 1234


def test_pairs_of_surrogates_are_one_character_and_brackets_in_texts_nest_nothing() -> None:
    assert parse_json(r'["\ud83d\ude00", "\\ud800"]', "file") == ["\U0001f600", r"\ud800"]
    text = json.dumps({"a": "[" * 100 + '\\"' + "{" * 100})
    assert parse_json(text, "file") == json.loads(text)


def test_array_shapes_are_those_of_the_arrays(tmp_path: Path) -> None:
    arrays = {"a": np.zeros((3, 4), np.float32), "b": np.zeros(5, np.int64), "c": np.zeros((0, 2), np.float16)}
    path = tmp_path / "w.safetensors"
    path.write_bytes(save(arrays))
    assert array_shapes(path, "w") == {"a": ("F32", (3, 4)), "b": ("I64", (5,)), "c": ("F16", (0, 2))}


def with_header(header: Any, content: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + content


def entry(shape: list[Any], offsets: list[Any], kind: str = "F32") -> dict[str, Any]:
    return {"dtype": kind, "shape": shape, "data_offsets": offsets}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff" * 8,
        with_header({"a": entry([10**9], [0, 4 * 10**9])}),
        with_header({"a": entry([1], [0, 4])}, b"12345678"),
        with_header({"a": entry([1], [0, 4]), "b": entry([1], [0, 4])}, b"1234"),
        with_header({"a": entry([2], [0, 4])}, b"1234"),
        with_header({"a": entry([-1], [0, 4])}, b"1234"),
        with_header({"a": entry([True], [0, 4])}, b"1234"),
        with_header({"a": entry([1], [0, 4]), "__metadata__": {"raw": "record"}}, b"1234"),
        with_header({"a": entry([1], [0, 4], "PICKLE")}, b"1234"),
        with_header([1]),
        with_header(b"[" * 10_000),
    ],
)
def test_headers_that_say_more_than_there_is_are_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    path.write_bytes(content)
    with pytest.raises(InvalidInput):
        array_shapes(path, "w")


def test_a_listing_is_exact(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for name in ("a", "data/b"):
        (tmp_path / name).write_text("x")
    check_listing(tmp_path, "files", ["a", "data/b"], ["data"])
    with pytest.raises(StorageError):
        check_listing(tmp_path, "files", ["a", "data/b", "c"], ["data"])
    for place, make in {
        "more": lambda path: path.write_text("x"),
        ".hidden": lambda path: path.write_text("x"),
        "data/more": lambda path: path.symlink_to("/"),
        "link": lambda path: path.symlink_to("a"),
        "folder": lambda path: path.mkdir(),
        "pipe": os.mkfifo,
    }.items():
        path = tmp_path / place
        make(path)
        with pytest.raises(InvalidInput):
            check_listing(tmp_path, "files", ["a", "data/b"], ["data"])
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    (tmp_path / "a").unlink()
    (tmp_path / "a").symlink_to("data/b")
    with pytest.raises(InvalidInput):
        check_listing(tmp_path, "files", ["a", "data/b"], ["data"])


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_values_are_finite(value: float) -> None:
    all_finite({"x": np.ones(3), "n": np.arange(3)}, "file")
    with refuses("file"):
        all_finite({"x": np.array([1.0, value])}, "file")
