"""Numbers for hashes: the same in memory and from files, which are closed to others and gone when the work ends."""

import gc
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privmix.data import persons as numbering
from privmix.data.persons import DIGEST, Numbering, numbered
from privmix.errors import StorageError
from tests.refusals import refuses

COUNT = 3000


def digests(count: int, kinds: int, seed: int = 0) -> list[bytes]:
    rng = np.random.default_rng(seed)
    known = [rng.bytes(DIGEST) for _ in range(kinds)]
    return [known[kind] for kind in rng.integers(0, kinds, count)]


def numbers(found: list[bytes]) -> np.ndarray:
    made = Numbering()
    for one in found:
        made.add(one)
    return made.numbers()


@pytest.fixture
def few_fit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(numbering, "MOST_HELD", 100)
    monkeypatch.setattr(numbering, "AT_ONCE", 17)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("kinds", [1, 40, COUNT])
@pytest.mark.parametrize("count", [99, 100, 101, COUNT])
def test_files_number_as_memory_does(few_fit: Path, kinds: int, count: int) -> None:
    found, known = digests(count, kinds), dict[bytes, int]()
    assert numbers(found).tolist() == [known.setdefault(one, len(known)) for one in found]
    assert list(few_fit.iterdir()) == []


def test_files_are_closed_to_others_and_hold_hashes_of_a_secret_key(
    few_fit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[np.ndarray] = []
    honest = numbering.write_parts

    def noted(files: list[Any], digests: np.ndarray, ended: int) -> None:
        honest(files, digests, ended)
        assert next(few_fit.iterdir()).stat().st_mode & 0o777 == 0o700
        seen.append(digests.copy())

    monkeypatch.setattr(numbering, "write_parts", noted)
    names = [f"anna-{number}" for number in range(150)]
    for _ in range(2):
        assert numbered(names).tolist() == list(range(150))
    digests = np.concatenate(seen)
    assert len(digests) == 300
    # Each time by another key: nobody who sees a file can guess at a name.
    assert len(np.unique(digests)) == 300
    assert list(few_fit.iterdir()) == []


def test_what_is_given_up_leaves_nothing(few_fit: Path) -> None:
    """Even while a notebook keeps the error, and all that its frames hold."""
    with refuses("person") as kept:
        numbered([*(f"p{number}" for number in range(500)), ""])
    assert kept.tb is not None
    assert list(few_fit.rglob("*")) == []


def test_a_full_disk_is_an_error(few_fit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(numbering, "first_places", full)
    with pytest.raises(StorageError, match="No space"):
        numbers(digests(500, 40))
    gc.collect()
    assert list(few_fit.iterdir()) == []


def test_memory_does_not_grow_with_the_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """40,000 hashes and their numbers take 960,000 bytes in memory; with 1,000 held, less than a third of that."""
    monkeypatch.setattr(numbering, "MOST_HELD", 1000)
    monkeypatch.setattr(numbering, "AT_ONCE", 1000)
    made, rng = Numbering(), np.random.default_rng(0)
    for _ in range(1000):
        made.add(rng.bytes(DIGEST))
    # The buffers of open files are there from now on, whatever comes.
    tracemalloc.start()
    try:
        for _ in range(39_000):
            made.add(rng.bytes(DIGEST))
        found = made.numbers()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.tolist() == list(range(40_000))
    assert peak < 320_000
