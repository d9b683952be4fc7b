"""Sketches of public records: what a sample of hashes finds, as all of them would."""

import base64
import hashlib
from collections import Counter

import numpy as np
import pandas
import pytest

from privmix.data import ArraySource, open_dataset
from privmix.data.overlap import FLOOR, SKETCH_FLOOR, InputHashes, PersonsContents, Sketch
from privmix.errors import InvalidInput


def records(numbers: range, telling: bool = True) -> InputHashes:
    return InputHashes(
        {hashlib.blake2b(bytes(str(one), "ascii"), digest_size=16).digest(): 1 for one in numbers}, telling
    )


@pytest.mark.parametrize("telling", [True, False])
@pytest.mark.parametrize("count", [1, 20, 300, 1024])
def test_all_are_kept_of_few_records(count: int, telling: bool) -> None:
    """As all would, but for the higher floor of what is a stranger's word."""
    public = records(range(count), telling)
    sketch = Sketch.of(public)
    assert set(sketch.digests) == set(public.counts)
    for shared in range(0, count + 1, max(1, count // 20)):
        private = records(range(count - shared, 3 * count), telling)
        assert sketch.overlaps(private) == (shared >= SKETCH_FLOOR and public.overlaps(private)), shared


def test_a_sample_of_many_finds_what_all_would() -> None:
    """Of 1,024 of 20,000 records 256 are shared in one case, where 102 are the limit, and 51 in another.

    The hashes are fixed; of random ones either would fall on the other side with a probability below 1e-9.
    """
    public = records(range(20_000))
    sketch = Sketch.of(public)
    assert len(sketch.digests) == 1024
    assert sketch.overlaps(records(range(15_000, 60_000)))
    assert not sketch.overlaps(records(range(19_000, 60_000)))
    assert not sketch.overlaps(records(range(20_000, 60_000)))
    # A seventh of it is the private dataset, whole.
    assert sketch.overlaps(records(range(2_860)))


@pytest.mark.parametrize("told", [1, 99, 100])
@pytest.mark.parametrize("private_records", [99, 100, 5_000])
def test_a_card_of_few_hashes_says_nothing(told: int, private_records: int) -> None:
    """Formal guarantee: floor. Whatever a stranger writes down, and however small the private dataset is."""
    card = Sketch.of(records(range(told)))
    assert card.overlaps(records(range(private_records))) == (min(told, private_records) >= SKETCH_FLOOR == 100)
    large = Sketch.of(records(range(20_000)))
    for asked in (1, 2, 99):
        private = InputHashes(dict.fromkeys(large.digests[:asked], 1), telling=True)
        assert not large.overlaps(private)
        assert not Sketch(10**9, large.digests, telling=True).overlaps(private)


@pytest.mark.parametrize("others", [0, 1, 1_000])
@pytest.mark.parametrize("telling", [True, False])
def test_neighbours_are_told_apart_at_the_floor_alone(others: int, telling: bool) -> None:
    """Formal guarantee: floor. Without and with Alice, for public sets of her record and those of up to 28 others."""
    for count in range(1, FLOOR):
        public = records(range(count), telling)
        everybody = InputHashes(
            {**records(range(1, count)).counts, **records(range(5_000, 5_000 + others)).counts}, telling
        )
        with_alice = InputHashes({**everybody.counts, **records(range(1)).counts}, telling)
        assert not public.overlaps(everybody)
        assert not public.overlaps(with_alice)
    assert records(range(FLOOR), telling).overlaps(records(range(FLOOR), telling))


def persons(*held: range, telling: bool = True) -> PersonsContents:
    """One person each, with these records."""
    return PersonsContents(tuple(frozenset(records(one).counts) for one in held), telling)


@pytest.mark.parametrize("alice", [range(1), range(50), range(10_000)])
@pytest.mark.parametrize("others", [0, 1, 1_000])
@pytest.mark.parametrize("telling", [True, False])
def test_a_person_counts_with_one_record(alice: range, others: int, telling: bool) -> None:
    """Formal guarantee: floor, of persons. All records of Alice are public, and one each of up to 28 others."""
    alone = [range(one, one + 1) for one in range(20_000, 20_000 + FLOOR)]
    strangers = [range(50_000 + 9 * one, 50_000 + 9 * one + 9) for one in range(others)]
    for count in (0, 1, FLOOR // 2, FLOOR - 3, FLOOR - 2):
        public = InputHashes({**records(alice).counts, **records(range(20_000, 20_000 + count)).counts}, telling)
        everybody = persons(*alone[:count], *strangers, telling=telling)
        with_alice = persons(alice, *alone[:count], *strangers, telling=telling)
        card = Sketch.of(public)
        assert not public.overlaps(everybody.beside(public.counts))
        assert not public.overlaps(with_alice.beside(public.counts))
        assert not card.overlaps(with_alice.beside(set(card.digests)))


@pytest.mark.parametrize("telling", [True, False])
def test_a_person_more_is_a_record_more_to_the_rule(telling: bool) -> None:
    """Formal guarantee: one. Beside any public data, whatever they hold."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        held = [range(start, start + int(rng.integers(1, 40))) for start in rng.integers(0, 500, 30).tolist()]
        public = records(range(*sorted(rng.integers(0, 540, 2).tolist())), telling).counts
        less, more = (Counter(persons(*part, telling=telling).beside(public).counts) for part in (held[1:], held))
        assert sum((more - less).values()) == 1
        assert not less - more


def test_rows_of_tables_that_are_alike_by_chance_are_no_private_ones() -> None:
    """Each of 100 persons has 50 rows, of which two stand in public data, too."""
    held = [range(50 * one, 50 * one + 50) for one in range(100)]
    rows = [number for one in held for number in one[:2]]
    for telling in (True, False):
        private = persons(*held, telling=telling)
        public = InputHashes({key: 1 for one in rows for key in records(range(one, one + 1)).counts}, telling)
        assert public.overlaps(private.beside(public.counts)) == telling
        whole = records(range(5_000), telling)
        assert whole.overlaps(private.beside(whole.counts))


@pytest.mark.parametrize("times", [1, 3, 4, 10])
@pytest.mark.parametrize("telling", [True, False])
def test_oversampled_private_data_are_recognised(times: int, telling: bool) -> None:
    public = records(range(100), telling)
    private = InputHashes(dict.fromkeys(public.counts, times), telling)
    assert public.overlaps(private)
    assert Sketch.of(public).overlaps(private)
    # However often the public ones stand.
    assert InputHashes(dict.fromkeys(public.counts, 7), telling).overlaps(private)


def test_rare_classes_that_were_oversampled_are_recognised() -> None:
    rare, usual = records(range(40)), records(range(40, 300))
    private = InputHashes(dict.fromkeys(rare.counts, 10) | usual.counts, telling=True)
    assert rare.overlaps(private)
    assert usual.overlaps(private)
    # Rows of a table that stand often stand in other tables, too.
    table = InputHashes(private.counts, telling=False)
    assert not InputHashes(rare.counts, telling=False).overlaps(table)


def test_what_many_people_share_tells_nothing() -> None:
    """A few records that stand often in both are usual, and so are rows of a coarse table."""
    often = records(range(20)).counts
    public = InputHashes({**often, **records(range(1_000, 1_100)).counts}, telling=True)
    private = InputHashes(dict.fromkeys(often, 40) | records(range(2_000, 2_300)).counts, telling=True)
    assert not public.overlaps(private)
    rows = list(records(range(200)).counts)
    coarse = InputHashes({row: 1 + place for place, row in enumerate(rows)}, telling=False)
    assert not InputHashes(dict.fromkeys(rows[3:], 1), telling=False).overlaps(coarse)


def test_blank_records_tell_nothing() -> None:
    """Of 256 shades, often in both: a scanner's empty pages, say."""
    shades = np.broadcast_to(np.arange(256, dtype=np.uint8)[:, None, None], (256, 5, 5))
    noise = np.random.default_rng(0).integers(0, 256, (300, 5, 5), dtype=np.uint8)
    labels = np.zeros(400, np.int64)

    def contents(*parts: np.ndarray) -> InputHashes:
        x = np.concatenate(parts)
        return InputHashes.of(ArraySource(x, np.resize(labels, len(x)), ("0",)))

    public, private = contents(shades, noise[:100]), contents(np.repeat(shades, 5, axis=0), noise[100:])
    assert not public.overlaps(private)
    assert len(public.counts) == 100
    assert contents(shades).counts == {}
    assert not contents(shades).overlaps(contents(shades))
    nothing = Sketch.of(contents(shades))
    assert Sketch.from_dict(nothing.to_dict()) == nothing
    assert not nothing.overlaps(private)


def test_it_knows_records_in_another_format_and_order() -> None:
    images = np.random.default_rng(0).integers(0, 256, (120, 5, 5), dtype=np.uint8)
    kept = Sketch.of(InputHashes.of(ArraySource(images, np.arange(120) % 2, ("0", "1"))))
    again = (images[::-1] / 255).astype(np.float32)
    assert kept.overlaps(InputHashes.of(ArraySource(again, np.zeros(120, np.int64), ("0", "1"))))
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
    with pytest.raises(InvalidInput, match=r"digests|sketch records"):
        Sketch.from_dict(told | {"records": records_told})


def test_half_characters_have_a_hash() -> None:
    """An encoder that refuses one quotes the record, after the charge."""
    frame = pandas.DataFrame({"text": ["\ud800", "\udc80 and more", "plain"], "y": [0, 0, 0]}, dtype=object)
    found = InputHashes.of(open_dataset(frame, label_column="y", classes=1, columns=["text"]))
    assert sorted(found.counts.values()) == [1, 1, 1]
