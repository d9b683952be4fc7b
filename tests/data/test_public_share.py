"""A public share parted off a private dataset: who is drawn, what is written, and what the public file betrays."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

from privmix.data import ArraySource, Source, open_dataset
from privmix.data.public_share import PublicShare, draw_persons, split_off
from privmix.errors import InvalidInput
from tests.refusals import refuses

RNG = np.random.default_rng(3)
# Every record can be told from every other by its first value.
X = RNG.integers(0, 256, size=(3000, 2, 3)).astype(np.float32)
X[:, 0, 0] = np.arange(3000)
Y = np.repeat([0, 1, 2], [2000, 900, 100])
NAMES = ("ape", "bee", "cod")


def parted(folder: Path, source: Source, share: PublicShare) -> tuple[Source, Source]:
    folder.mkdir()
    split_off(source, share, folder / "public.npz", folder / "private.npz")
    return open_dataset(folder / "public.npz"), open_dataset(folder / "private.npz")


@pytest.mark.parametrize("per_class", [True, False])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_every_record_is_in_exactly_one_file(tmp_path: Path, per_class: bool, dtype: Any) -> None:
    x = (X % 251).astype(dtype)
    public, private = parted(tmp_path / "a", ArraySource(x, Y, NAMES), PublicShare(share=0.04, per_class=per_class))
    assert public.schema.classes == private.schema.classes == NAMES
    assert (public.schema.records, private.schema.records) == (120, 2880)
    found, left = public.read(), private.read()
    assert found.x.dtype == left.x.dtype == dtype
    both = np.concatenate([found.x, left.x]).reshape(3000, -1), np.concatenate([found.y, left.y])
    order = np.lexsort((*both[0].T, both[1]))
    wanted = np.lexsort((*x.reshape(3000, -1).T, Y))
    assert np.array_equal(both[0][order], x.reshape(3000, -1)[wanted])
    assert np.array_equal(both[1][order], Y[wanted])
    if per_class:
        assert np.bincount(found.y).tolist() == [40, 40, 40]


def test_sources_keep_their_order(tmp_path: Path) -> None:
    for source in parted(tmp_path / "a", ArraySource(X, Y, NAMES), PublicShare(count=50)):
        assert (np.diff(source.read().x[:, 0, 0]) > 0).all()


@pytest.mark.parametrize("per_class", [True, False])
def test_every_record_of_a_class_is_as_likely(per_class: bool) -> None:
    labels = np.repeat([0, 1], [30, 10])
    times = sum(
        PublicShare(count=4, per_class=per_class, seed=seed).draw(labels, 2).astype(int) for seed in range(1500)
    )
    expected = np.where(labels == 0, 4 / 30, 4 / 10) if per_class else np.full(40, 4 / 40)
    least = min(binomtest(int(k), 1500, p).pvalue for k, p in zip(times, expected, strict=True))
    assert least > 1e-11, "a false alarm of 40 tests is below 1e-9"


@pytest.mark.parametrize("per_class", [True, False])
def test_the_public_file_says_nothing_of_records_that_stay(tmp_path: Path, per_class: bool) -> None:
    """Other inputs of private records, and where classes play no part other labels, leave its bytes as they are."""
    share = PublicShare(share=0.04, per_class=per_class, seed=7)
    stays = ~share.draw(Y, 3)
    other, labels = X.copy(), Y.copy()
    other[stays] = 255 - other[stays] / 2
    if not per_class:
        labels[stays] = 2 - labels[stays]
    parted(tmp_path / "a", ArraySource(X, Y, NAMES), share)
    parted(tmp_path / "b", ArraySource(other, labels, NAMES), share)
    first, second = ((tmp_path / name / "public.npz").read_bytes() for name in "ab")
    assert first == second
    third, fourth = ((tmp_path / name / "private.npz").read_bytes() for name in "ab")
    assert third != fourth


@pytest.mark.parametrize("per_class", [True, False])
def test_whole_persons_are_drawn_each_as_likely(per_class: bool) -> None:
    """However many records they have. Per class they are of the class of their first record."""
    rng = np.random.default_rng(0)
    whose = np.concatenate([np.arange(20), np.zeros(300, np.int64), rng.integers(0, 20, 80)])
    labels = np.concatenate([np.repeat([0, 1], [15, 5]), rng.integers(0, 2, 380)])
    times = np.zeros(20, np.int64)
    for seed in range(1500):
        chosen = draw_persons(PublicShare(count=2, per_class=per_class, seed=seed), whose, labels, 2)
        drawn = np.unique(whose[chosen])
        assert not set(drawn) & set(whose[~chosen])
        assert len(drawn) == (4 if per_class else 2)
        times[drawn] += 1
    expected = np.repeat([2 / 15, 2 / 5], [15, 5]) if per_class else np.full(20, 2 / 20)
    least = min(binomtest(int(k), 1500, p).pvalue for k, p in zip(times, expected, strict=True))
    assert least > 1e-11, "a false alarm of 40 tests is below 1e-9"


@pytest.mark.parametrize("per_class", [True, False])
def test_the_public_file_says_nothing_of_persons_who_stay(tmp_path: Path, per_class: bool) -> None:
    """Other inputs and numbers of records of private persons leave its bytes as they are."""
    share = PublicShare(count=5, per_class=per_class, seed=7)
    whose = np.arange(3000) // 5
    stays = ~draw_persons(share, whose, Y, 3)
    kept = np.flatnonzero(~stays | (np.arange(3000) % 5 < 2))
    other = X.copy()
    other[stays] = 255 - other[stays] / 2
    found = []
    for name, x, part in (("a", X, np.arange(3000)), ("b", other, kept)):
        (tmp_path / name).mkdir()
        places = tmp_path / name / "public.npz", tmp_path / name / "private.npz"
        split_off(ArraySource(x[part], Y[part], NAMES), share, *places, persons=("who", whose[part]))
        found.append([path.read_bytes() for path in places])
    assert found[0][0] == found[1][0]
    assert found[0][1] != found[1][1]


def test_a_draw_is_its_own_unless_it_is_seeded() -> None:
    draws = [PublicShare(share=0.1, seed=seed).draw(Y, 3).tobytes() for seed in (1, 1, 2, None, None)]
    assert draws[0] == draws[1]
    assert len(set(draws)) == 4


def test_the_private_file_is_its_owner_s_alone(tmp_path: Path) -> None:
    parted(tmp_path / "a", ArraySource(X, Y, NAMES), PublicShare(count=1))
    assert stat.S_IMODE((tmp_path / "a" / "private.npz").stat().st_mode) == 0o600
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["private.npz", "public.npz"]


def test_texts_and_tables_stay_what_they_are(tmp_path: Path) -> None:
    rows = [{"age": 30.5 + i, "job": None if i % 7 == 0 else f"é{i}\n", "pay": NAMES[i % 3]} for i in range(60)]
    (tmp_path / "all.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    how: dict[str, Any] = {"columns": ["age", "job"], "label_column": "pay", "classes": list(NAMES)}
    source = open_dataset(tmp_path / "all.jsonl", **how)
    files = tmp_path / "public.jsonl", tmp_path / "private.jsonl"
    assert split_off(source, PublicShare(count=2), *files, label_column="pay") == (6, 54)
    found = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert sorted(found, key=lambda row: row["age"]) == rows
    assert open_dataset(files[0], **how).read().y.tolist() == [NAMES.index(row["pay"]) for row in found[:6]]


@pytest.mark.parametrize(
    ("share", "words"),
    [
        ({}, "exactly one"),
        ({"share": 0.1, "count": 3}, "exactly one"),
        ({"share": 1.0}, "< 1"),
        ({"share": 1e-6}, "each side"),
        ({"count": 1000}, "each side"),
        ({"count": 3000, "per_class": False}, "each side"),
        ({"count": 200}, "at least 200"),
        ({"count": 1, "seed": -1}, "seed"),
    ],
)
def test_bad_shares_are_refused_and_leave_nothing(tmp_path: Path, share: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words) as caught:
        parted(tmp_path / "a", ArraySource(X, Y, NAMES), PublicShare(**share))
    assert "100" not in str(caught.value).replace("1000", "")  # the size of the smallest class is not said
    assert not list(tmp_path.rglob("*.*"))


def test_files_that_exist_are_never_replaced(tmp_path: Path) -> None:
    source = ArraySource(X, Y, NAMES)
    (tmp_path / "old.npz").write_text("mine")
    for public, private in (("old.npz", "b.npz"), ("a.npz", "old.npz"), ("a.npz", "a.npz"), ("a.csv", "b.npz")):
        with pytest.raises(InvalidInput):
            split_off(source, PublicShare(count=1), tmp_path / public, tmp_path / private)
    assert [path.name for path in tmp_path.iterdir()] == ["old.npz"]


def test_a_failure_leaves_neither_file(tmp_path: Path) -> None:
    class Broken(ArraySource):
        reads = 0

        def batches(self, size: int) -> Any:
            self.reads += 1
            yield next(super().batches(size)) if self.reads > 1 else self.read()
            if self.reads > 1:
                raise InvalidInput("inputs", 0, "none of this")

    with refuses("inputs"):
        parted(tmp_path / "a", Broken(X, Y, NAMES), PublicShare(count=1))
    assert not list((tmp_path / "a").iterdir())


def test_classes_whose_names_are_numbers_come_back(tmp_path: Path) -> None:
    for public_or_private in parted(
        tmp_path / "a", open_dataset((X, Y + 1), classes=["1", "2", "3"]), PublicShare(count=50)
    ):
        assert public_or_private.schema.classes == ("1", "2", "3")
        assert set(public_or_private.read().y.tolist()) == {0, 1, 2}
