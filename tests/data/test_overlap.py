"""Sketches of public records: what a sample of hashes finds, as all of them would."""

from __future__ import annotations

import base64
import hashlib

import numpy as np
import pytest

from privmix.data import ArraySource
from privmix.data.overlap import Contents, Sketch
from privmix.errors import InvalidInput


def records(numbers: range, telling: bool = True) -> Contents:
    return Contents({hashlib.blake2b(bytes(str(one), "ascii"), digest_size=16).digest(): 1 for one in numbers}, telling)


@pytest.mark.parametrize("telling", [True, False])
@pytest.mark.parametrize("count", [1, 20, 1024])
def test_all_are_kept_of_few_records(count: int, telling: bool) -> None:
    public = records(range(count), telling)
    sketch = Sketch.of(public)
    assert set(sketch.digests) == set(public.counts)
    for shared in range(0, count + 1, max(1, count // 20)):
        private = records(range(count - shared, 3 * count), telling)
        assert sketch.overlaps(private) == public.overlaps(private), shared


def test_a_sample_of_many_finds_what_all_would() -> None:
    """Of 1,024 of 20,000 records 256 are shared in one case, where 102 are the limit, and 51 in another.

    The hashes are fixed; of random ones either would fall on the other side with a probability below 1e-6.
    """
    public = records(range(20_000))
    sketch = Sketch.of(public)
    assert len(sketch.digests) == 1024
    assert sketch.overlaps(records(range(15_000, 60_000)))
    assert not sketch.overlaps(records(range(19_000, 60_000)))
    assert not sketch.overlaps(records(range(20_000, 60_000)))
    # A small private dataset, whole in the public one.
    assert sketch.overlaps(records(range(500)))


@pytest.mark.parametrize("shared", [0, 1, 2])
def test_one_or_two_of_a_sample_tell_nothing(shared: int) -> None:
    sketch = Sketch.of(records(range(20_000)))
    private = Contents(dict.fromkeys(sketch.digests[:shared], 1), telling=True)
    assert not sketch.overlaps(private)
    assert Sketch.of(Contents(dict.fromkeys(sketch.digests[:2], 1), True)).overlaps(private) == (shared > 0)


def test_what_many_people_share_tells_nothing() -> None:
    public = records(range(10))
    private = Contents(dict.fromkeys(public.counts, 4), telling=True)
    assert not Sketch.of(public).overlaps(private)


def test_it_knows_records_in_another_format_and_order() -> None:
    images = np.random.default_rng(0).integers(0, 256, (50, 5, 5), dtype=np.uint8)
    kept = Sketch.of(Contents.of(ArraySource(images, np.arange(50) % 2, ("0", "1"))))
    again = (images[::-1] / 255).astype(np.float32)
    assert kept.overlaps(Contents.of(ArraySource(again, np.zeros(50, np.int64), ("0", "1"))))
    assert Sketch.from_dict(kept.to_dict()) == kept


def encoded(*digests: bytes) -> str:
    return base64.b64encode(b"".join(digests)).decode()


LOW, HIGH = b"\0" * 16, b"\1" * 16


@pytest.mark.parametrize(
    "wrong",
    [
        *({"records": one} for one in (0, 3, True, 2.0, "2", 10**400, 1e400, None)),
        {"telling": 1},
        *({"digests": one} for one in ({}, [], "", "%%", "\u00e9", encoded(LOW), encoded(LOW, HIGH, b"\2" * 16))),
        {"digests": encoded(LOW, LOW)},
        {"digests": encoded(HIGH, LOW)},
        {"digests": encoded(LOW, HIGH)[:-4]},
        {"more": 1},
    ],
)
def test_what_no_sketch_says_is_refused(wrong: dict[str, object]) -> None:
    told = Sketch.of(records(range(2))).to_dict()
    assert Sketch.from_dict(told).records == 2
    with pytest.raises(InvalidInput):
        Sketch.from_dict(told | wrong)
    with pytest.raises(InvalidInput):
        Sketch.from_dict(list(wrong))


@pytest.mark.parametrize("records_told", [1025, 10_000, 30_000, 2**53, 10**39])
def test_hashes_that_so_many_records_do_not_have_are_refused(records_told: int) -> None:
    """One hash that somebody wants to ask about would count for many records."""
    told = Sketch.of(records(range(20_000))).to_dict()
    assert Sketch.from_dict(told).records == 20_000
    with pytest.raises(InvalidInput, match="digests"):
        Sketch.from_dict(told | {"records": records_told})
