"""Is what somebody calls public the private data? By files, before budget is charged; by records, afterwards."""

from __future__ import annotations

import base64
import hashlib
import heapq
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.data.files import may_belong, reading
from privmix.data.fingerprint import files_of
from privmix.data.openers import holds_split, may_hold_splits
from privmix.data.overlap_rule import SKETCH_FLOOR, TELLING, single, too_many
from privmix.data.remote import is_remote, local_path, remote_digests
from privmix.data.source import Source
from privmix.errors import InvalidInput
from privmix.fields import Checked, Coded, Size, Switch, read, stored

_SHARE_OF_FILES: Final = 0.5
_SKETCHED: Final = 1024
# The largest hash of a sample tells how many records it is of, to 3%: 8 standard deviations.
_PLAUSIBLE: Final = 1.25
_DIGEST_BYTES: Final = 16
_HASHES: Final = 2 ** (8 * _DIGEST_BYTES)
_BATCH: Final = 4096
_SAME: Final = np.float32(1e-6)


def same_place(first: str, second: str) -> bool:
    """Whether two paths or addresses are the same, through links.

    Example:
        >>> same_place("data/../train.npz", "train.npz")
        True
    """
    if first == second:
        return True
    return (
        not is_remote(first) and not is_remote(second) and local_path(first).resolve() == local_path(second).resolve()
    )


def same_files(public: str, private: str, split: str = "train") -> bool:
    """Whether files of the same bytes make up half of what is read of either, whatever they are called.

    What is called public is read as a training split. A file that holds several splits as arrays of their own is
    another dataset to each of them.

    Files are hashed as a ledger's fingerprint hashes them, without looking at what they mean, and only where their
    sizes agree. Label files and descriptions of different datasets may be the same: hence half.

    Raises:
        StorageError: a file can't be read.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "a.csv").write_text("x,label\\n1,0\\n"), (folder / "b.csv").write_text("x,label\\n1,0\\n")
        >>> same_files(str(folder / "a.csv"), str(folder / "b.csv"))
        True
    """
    if is_remote(public) or is_remote(private):
        both = [set(_digests_at(public, "train")), set(_digests_at(private, split))]
        shared = both[0] & both[1]
        return bool(shared) and any(len(shared) >= _SHARE_OF_FILES * len(one) for one in both)
    ours, theirs = _local(public, "train"), _local_alone(private, split)
    sizes = {path.stat().st_size for path in ours} & {path.stat().st_size for path in theirs}
    found = [dict(_hashed(files, sizes)) for files in (ours, theirs)]
    shared_bytes = sum(size for digest, size in found[0].items() if digest in found[1])
    totals = [sum(path.stat().st_size for path in files) for files in (ours, theirs)]
    return shared_bytes > 0 and any(shared_bytes >= _SHARE_OF_FILES * total for total in totals)


@dataclass(frozen=True)
class Contents:
    """Hashes of a dataset's records: equal for equal inputs, in whatever format and order they lie.

    Attributes:
        counts: how often each record stands there, by a hash of its inputs; labels do not count, and blank records
            (16 numbers or more, all the same) are left out.
        telling: records hold enough numbers that equal ones are no chance.
    """

    counts: dict[bytes, int]
    telling: bool

    @classmethod
    def of(cls, source: Source) -> Contents:
        """Read all records once.

        Raises:
            InvalidInput, StorageError: as :meth:`Source.batches`.
        """
        counts: Counter[bytes] = Counter()
        telling = _is_telling(source)
        for _, digests in _digests_of(source, telling):
            counts.update(digests)
        return cls(dict(counts), telling)

    def beside(self, public: Container[bytes]) -> Contents:
        """As what private records count beside those of a public dataset."""
        del public
        return self

    def overlaps(self, private: Contents) -> bool:
        """Whether these are in large part private records.

        It takes 30 different ones at least, and a tenth of either or half, as :func:`too_many` says; of the private
        ones those count that :func:`single` gives.

        Formal guarantees:
            - Floor: where fewer than 30 different records are in both, the answer is no, whatever all others are.
            - Multiplicity: how often records stand in the public dataset decides nothing.
        """
        known = single(private.counts, private.telling)
        return too_many(len(known & self.counts.keys()), len(self.counts), len(known), self.telling, private.telling)


@dataclass(frozen=True, eq=False)
class PersonsContents:
    """Hashes of the records of persons, each of whom has some. Secret.

    Attributes:
        of_persons: hashes of the records of each.
        telling: as :class:`Contents` has it.
    """

    of_persons: tuple[frozenset[bytes], ...]
    telling: bool

    def __repr__(self) -> str:
        return "<PersonsContents>"

    @classmethod
    def of(cls, source: Source, whose: NDArray[np.int64]) -> PersonsContents:
        """Read all records once; ``whose`` says by a number, from 0 on, whose each is.

        Raises:
            InvalidInput, StorageError: as :meth:`Source.batches`.
        """
        held: list[set[bytes]] = [set() for _ in range(int(whose.max(initial=-1)) + 1)]
        telling = _is_telling(source)
        for places, digests in _digests_of(source, telling):
            for person, digest in zip(whose[places].tolist(), digests, strict=True):
                held[person].add(digest)
        return cls(tuple(map(frozenset, held)), telling)

    def beside(self, public: Container[bytes]) -> Contents:
        """One record of each person, who is then in both datasets where that record is.

        Of arrays of 16 numbers or more it is one that is public, where they have such. Texts and rows of tables are
        alike by chance: among many of one person some always are, so theirs is the one of the smallest hash.

        Formal guarantees:
            - One: which record a person counts with depends on theirs and on the public ones alone. A person more, with
              any number of records, is therefore a record more to :meth:`Contents.overlaps`, whose floor is then one of
              persons.

        Example:
            >>> two = PersonsContents((frozenset([b"a", b"b", b"c"]), frozenset([b"d"])), telling=True)
            >>> two.beside({b"b", b"c"}).counts
            {b'b': 1, b'd': 1}
        """
        counts: Counter[bytes] = Counter()
        for held in self.of_persons:
            if held:
                counts[min(held, key=lambda digest: (self.telling and digest not in public, digest))] += 1
        return Contents(dict(counts), self.telling)


def _is_telling(source: Source) -> bool:
    schema = source.schema
    return schema.columns is None and int(np.prod(schema.input_shape)) >= TELLING


def _digests_of(source: Source, telling: bool) -> Iterator[tuple[NDArray[np.int64], list[bytes]]]:
    """Places of records and their hashes, batch by batch, without blank ones where records are telling."""
    start = 0
    for batch in source.batches(_BATCH):
        x, places = batch.x, np.arange(start, start + len(batch))
        start += len(batch)
        if telling:
            flat = x.reshape(len(x), -1)
            kept = (flat != flat[:, :1]).any(axis=1)
            x, places = x[kept], places[kept]
        if len(x):
            yield places, list(_record_hashes(x))


def _in_base64(digests: tuple[bytes, ...]) -> str:
    return base64.b64encode(b"".join(digests)).decode("ascii")


def _from_base64(text: str) -> tuple[bytes, ...]:
    content = base64.b64decode(text.encode("ascii"), validate=True)
    return tuple(content[at : at + _DIGEST_BYTES] for at in range(0, len(content), _DIGEST_BYTES))


@dataclass(frozen=True)
class Sketch(Checked):
    """The smallest hashes of a public dataset's records: as good as a random sample of them, small enough for a card.

    What was made of public records tells by it, later and wherever they are by then, whether they were private ones.
    Whoever has it can test whether a record that they hold was among the 1,024, as with any hash.

    Attributes:
        records: how many different ones there are.
        digests: of at most 1,024 of them, rising; of all where there are no more.
        telling: as :class:`Contents` has it.
    """

    records: Size
    digests: Annotated[tuple[bytes, ...], Coded(_in_base64, _from_base64)]
    telling: Switch

    @classmethod
    def of(cls, contents: Contents) -> Sketch:
        """Of these records, each once.

        Example:
            >>> kept = Sketch.of(Contents({bytes([one]) * 16: 1 for one in range(100)}, telling=True))
            >>> kept.records, len(kept.digests), Sketch.from_dict(kept.to_dict()) == kept
            (100, 100, True)
        """
        return cls(len(contents.counts), tuple(heapq.nsmallest(_SKETCHED, contents.counts)), contents.telling)

    @classmethod
    def from_dict(cls, found: Any) -> Sketch:
        """From what :meth:`to_dict` gives, which may be a stranger's.

        Raises:
            InvalidInput: it is anything else, or no records of that number have these hashes.
        """
        made = read(cls, found, "sketch")
        digests, kept = made.digests, min(made.records, _SKETCHED)
        rising = all(one < other for one, other in pairwise(digests))
        if len(digests) != kept or any(len(one) != _DIGEST_BYTES for one in digests) or not rising:
            raise InvalidInput("digests", "another value", f"{kept} of {_DIGEST_BYTES} bytes, rising, in base64")
        if made.records > _SKETCHED:
            largest, expected = int.from_bytes(digests[-1], "big"), _HASHES * _SKETCHED // made.records
            if not expected / _PLAUSIBLE < largest < expected * _PLAUSIBLE:
                raise InvalidInput("digests", "others", f"the smallest of {made.records} records' hashes")
        return made

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return stored(self)

    def overlaps(self, private: Contents) -> bool:
        """Whether the records were in large part private ones: the rule of :meth:`Contents.overlaps`, estimated.

        Of more than 1,024 records the sample's share stands for that of all, so that a private dataset of less than a
        seventh of the public one is often missed, and shares near the limit may fall on either side of it.

        Formal guarantees:
            - Floor: a card is a stranger's word, who may have chosen the hashes: where fewer than 100 of them are of
              private records, the answer is no, whatever the card says beside them.
        """
        known = single(private.counts, private.telling)
        found = sum(digest in known for digest in self.digests)
        if found < SKETCH_FLOOR:
            return False
        shared = found * self.records / len(self.digests)
        return too_many(shared, self.records, len(known), self.telling, private.telling)


def _record_hashes(x: NDArray[Any]) -> Iterator[bytes]:
    if x.dtype == object:
        for row in x:
            # Half characters, too: an encoder that refuses one shows it.
            yield _hash("\x1f".join(map(_cell, row)).encode(errors="surrogatepass"))
        return
    values = x.reshape(len(x), -1).astype(np.float32)
    if x.dtype != np.uint8:
        # An image as whole numbers from 0 to 255, and the same divided by 255, are one record.
        scaled = np.round(values * np.float32(255))
        near = np.abs(values - scaled / np.float32(255)) <= _SAME
        whole = np.all(near & (scaled >= 0) & (scaled <= 255), axis=1, keepdims=True)
        values = np.where(whole, scaled, values)
    # Adding zero makes -0 the same as 0.
    for row in values + np.float32(0):
        yield _hash(row.tobytes())


def _cell(value: Any) -> str:
    """A text that is equal where CSV and typed formats mean the same."""
    if value is None:
        return ""
    try:
        return repr(float(value))
    except ValueError:
        return str(value).strip()


def _hash(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()


def _local(place: str, split: str) -> list[Path]:
    """Files of a split; a file by itself is whatever split is asked for."""
    root = local_path(place)
    with reading(root, "a file or folder"):
        files = files_of(root)
        return [path for path in files if may_belong(path.relative_to(root), split)] if root.is_dir() else files


def _local_alone(place: str, split: str) -> list[Path]:
    """Files of a split, but for those that hold several splits as arrays of their own."""
    return [path for path in _local(place, split) if split == "train" or not holds_split(path, split)]


def _digests_at(place: str, split: str) -> list[str]:
    """Hashes of the same files at a path or an address, where what a file holds is not known before it is fetched."""
    if not is_remote(place):
        return _digests(_local_alone(place, split))
    return remote_digests(place, split, None if split == "train" else may_hold_splits)


def _hashed(files: Iterable[Path], sizes: set[int]) -> Iterator[tuple[str, int]]:
    for path in files:
        size = path.stat().st_size
        if size and size in sizes:
            with reading(path, "a file"), path.open("rb") as stream:
                yield hashlib.file_digest(stream, "sha256").hexdigest(), size


def _digests(files: list[Path]) -> list[str]:
    return [digest for digest, _ in _hashed(files, {path.stat().st_size for path in files})]
