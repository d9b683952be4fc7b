"""Sketches of public records: what a sample of hashes finds, as all of them would."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from privmix.data import ArraySource
from privmix.data.overlap import Contents, Sketch
from privmix.errors import InvalidInput


def records(numbers: range, telling: bool = True) -> Contents:
    return Contents({hashlib.blake2b(bytes(str(one), "ascii"), digest_size=16).digest(): 1 for one in numbers}, telling)


@pytest.mark.parametrize("telling", [True, False])
@pytest.mark.parametrize("count", [1, 20, 256])
def test_all_are_kept_of_few_records(count: int, telling: bool) -> None:
    public = records(range(count), telling)
    sketch = Sketch.of(public)
    assert sketch.digests == set(public.counts)
    for shared in range(0, count + 1, max(1, count // 20)):
        private = records(range(count - shared, 3 * count), telling)
        assert sketch.overlaps(private) == public.overlaps(private), shared


def test_a_sample_of_many_finds_what_all_would() -> None:
    """Shares far from a tenth, of 256 of 20,000 records: 64 of them on average in one case, 5 in the other.

    Both errors are binomial tails below 1e-6; the hashes are fixed, so that nothing is left to chance.
    """
    public = records(range(20_000))
    sketch = Sketch.of(public)
    assert len(sketch.digests) == 256
    assert sketch.overlaps(records(range(15_000, 60_000)))
    assert not sketch.overlaps(records(range(19_600, 60_000)))
    assert not sketch.overlaps(records(range(20_000, 60_000)))
    # A small private dataset, whole in the public one.
    assert sketch.overlaps(records(range(1000)))


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


@pytest.mark.parametrize(
    "wrong",
    [
        {"records": 0},
        {"records": 3},
        {"records": 10**400},
        {"records": 1e400},
        {"records": True},
        {"telling": 1},
        {"digests": {}},
        {"digests": ["0" * 32] * 300},
        {"digests": ["0" * 31, "0" * 32]},
        {"digests": ["G" * 32, "0" * 32]},
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
