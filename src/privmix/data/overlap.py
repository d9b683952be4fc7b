"""Whether public data are the private data, by a public rule: by files before a charge, by records afterwards."""

import base64
import hashlib
import heapq
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.data.files import is_here, may_belong, reading
from privmix.data.fingerprint import files_of
from privmix.data.reader import holds_split, may_hold_splits
from privmix.data.remote import is_remote, local_path, remote_digests
from privmix.data.source import Source
from privmix.errors import InvalidInput
from privmix.fields import Checked, Coded, Size, Switch, read, stored
from privmix.untrusted import MEBIBYTE, read_json

FLOOR: Final = 30
"""Least number of different common records for a refusal.

A refusal is visible and costs no epsilon: it must not depend on one record, or on a few that an attacker chose. At this
limit one record decides only for an attacker who knows already that 29 others are private records.
"""

SKETCH_FLOOR: Final = 100
"""The same for hashes on the card of a pool, which an attacker can write without the records. It is larger, and small
enough for a sample of 1,024 to detect a dataset with a private share of one seventh."""

# Records of this many numbers are not alike by chance; rows of a small table and short texts often are.
TELLING: Final = 16
_SHARE_OF_ARRAYS: Final = 0.1
_SHARE_OF_OTHERS: Final = 0.5
# A record that occurs more often than this identifies hardly any person, unless all records do.
_FEW: Final = 3
_SHARE_OF_OFTEN: Final = 0.1
_SHARE_OF_ALIKE: Final = 0.9

PUBLISHED: Final = (
    "The guarantee is for what is published, given that it is. privmix release and privmix train compare data that are "
    f"taken as public with the private records, and publish nothing where at least {FLOOR} different ones are the same "
    f"({SKETCH_FLOOR} of those on a pool's card) and these are a large part of either: where just so many are, one "
    "record decides whether there is a publication, and that costs no epsilon."
)
"""The statement in certificates."""

PUBLISHED_OF_PERSONS: Final = (
    "The guarantee is for what is published, given that it is. privmix release and privmix train compare data that are "
    "taken as public with the private records, each person with one record, and publish nothing where those of at "
    f"least {FLOOR} persons are the same ({SKETCH_FLOOR} of those on a pool's card) and these are a large part of "
    "either: where just so many are, one person decides whether there is a publication, and that costs no epsilon."
)
"""The same where persons are the unit."""


def too_many(shared: float, public: int, private: int, *telling: bool) -> bool:
    """Whether two datasets share too many different records for a coincidence."""
    # The limit is a tenth of either for arrays of 16 numbers or more, half for texts, table rows and shorter arrays,
    # which are often equal by chance.
    share = _SHARE_OF_ARRAYS if all(telling) else _SHARE_OF_OTHERS
    return shared >= max(FLOOR, share * min(private, public))


def single(counts: Mapping[bytes, int], telling: bool) -> set[bytes]:
    """Return the records that identify people: those that occur at most three times."""
    # All records of an oversampled dataset count. In one of arrays of 16 numbers or more, a tenth of the different ones
    # occur more than three times. In one of texts or table rows, nine tenths occur equally often.
    most = _FEW
    if telling and sum(count > _FEW for count in counts.values()) >= _SHARE_OF_OFTEN * len(counts):
        return set(counts)
    if counts:
        usual, holders = Counter(counts.values()).most_common(1)[0]
        most *= usual if holders >= _SHARE_OF_ALIKE * len(counts) else 1
    return {digest for digest, count in counts.items() if count <= most}


_SHARE_OF_FILES: Final = 0.5
_SKETCHED: Final = 1024
# The largest hash of a sample gives the number of records sampled, to 3%: 8 standard deviations.
_PLAUSIBLE: Final = 1.25
_DIGEST_BYTES: Final = 16
_HASHES: Final = 2 ** (8 * _DIGEST_BYTES)
_BATCH: Final = 4096
_SAME: Final = np.float32(1e-6)


def same_place(first: str, second: str) -> bool:
    """Whether two paths or addresses are the same, through links."""
    if first == second:
        return True
    return (
        not is_remote(first) and not is_remote(second) and local_path(first).resolve() == local_path(second).resolve()
    )


def same_files(public: str, private: str, split: str = "train") -> bool:
    """Whether files of the same bytes, under any name, make up half of what is read of either dataset."""
    # Public data are read as a training split. A file of several splits is another dataset for each of them. Only files
    # of the same size are hashed. Label files and descriptions of different datasets may be equal: hence half.
    if is_remote(public) or is_remote(private):
        both = [set(_digests_at(public, "train")), set(_digests_at(private, split))]
        shared = both[0] & both[1]
        return bool(shared) and any(len(shared) >= _SHARE_OF_FILES * len(one) for one in both)
    ours, theirs = _local(public, "train"), _local(private, split)
    sizes = {path.stat().st_size for path in ours} & {path.stat().st_size for path in theirs}
    found = [dict(_hashed(files, sizes)) for files in (ours, theirs)]
    shared_bytes = sum(size for digest, size in found[0].items() if digest in found[1])
    totals = [sum(path.stat().st_size for path in files) for files in (ours, theirs)]
    return shared_bytes > 0 and any(shared_bytes >= _SHARE_OF_FILES * total for total in totals)


@dataclass(frozen=True)
class InputHashes:
    """Hashes of a dataset's inputs with their counts: independent of format, order and labels."""

    # Blank records (16 numbers or more, all equal) are left out. `telling`: equal records are no coincidence.

    counts: dict[bytes, int]
    telling: bool

    @classmethod
    def of(cls, source: Source) -> "InputHashes":
        counts: Counter[bytes] = Counter()
        telling = _is_telling(source)
        for _, digests in _digests_of(source, telling):
            counts.update(digests)
        return cls(dict(counts), telling)

    def beside(self, public: Container[bytes]) -> "InputHashes":
        """Return the contents that private records count as, compared with a public dataset."""
        del public
        return self

    def overlaps(self, private: "InputHashes") -> bool:
        """Whether these are in large part private records.

        At least 30 different ones must be shared, and the share that :func:`too_many` requires; of the private records
        those count that :func:`single` returns.

        Formal guarantees:
            - Minimum: where fewer than 30 different records are in both, the answer is no for all possible others.
            - Multiplicity: how often records stand in the public dataset decides nothing.
        """
        known = single(private.counts, private.telling)
        return too_many(len(known & self.counts.keys()), len(self.counts), len(known), self.telling, private.telling)


@dataclass(frozen=True, eq=False)
class PersonsContents:
    """Hashes of the records of each person; ``telling`` as in :class:`InputHashes`. Secret."""

    of_persons: tuple[frozenset[bytes], ...]
    telling: bool

    def __repr__(self) -> str:
        return "<PersonsContents>"

    @classmethod
    def of(cls, source: Source, whose: NDArray[np.int64]) -> "PersonsContents":
        """Read all records once; ``whose`` numbers the person of each, from 0."""
        held: list[set[bytes]] = [set() for _ in range(int(whose.max(initial=-1)) + 1)]
        telling = _is_telling(source)
        for places, digests in _digests_of(source, telling):
            for person, digest in zip(whose[places].tolist(), digests, strict=True):
                held[person].add(digest)
        return cls(tuple(map(frozenset, held)), telling)

    def beside(self, public: Container[bytes]) -> InputHashes:
        """Choose one record per person: the person is in both datasets where that record is.

        For arrays of 16 numbers or more, prefer a public one. Texts and table rows of one person often agree with
        others by chance, so take the one of the smallest hash.

        Formal guarantees:
            - One: which record a person counts with depends on theirs and on the public ones alone. An extra person,
              with any number of records, is therefore an extra record to :meth:`InputHashes.overlaps`, whose minimum is
              then one of persons.
        """
        counts: Counter[bytes] = Counter()
        for held in self.of_persons:
            if held:
                counts[min(held, key=lambda digest: (self.telling and digest not in public, digest))] += 1
        return InputHashes(dict(counts), self.telling)


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
    """The 1,024 smallest hashes, or all, of a public dataset's ``records`` different records: a random sample."""

    # A card with a sketch shows later whether its public records were private ones. Anyone who holds a record and the
    # card can test whether that record is in the sketch, as with any hash.

    records: Size
    digests: Annotated[tuple[bytes, ...], Coded(_in_base64, _from_base64)]
    telling: Switch

    @classmethod
    def of(cls, contents: InputHashes) -> "Sketch":
        return cls(len(contents.counts), tuple(heapq.nsmallest(_SKETCHED, contents.counts)), contents.telling)

    @classmethod
    def from_dict(cls, found: Any) -> "Sketch":
        """Read what :meth:`to_dict` writes, which may come from a stranger."""
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
        return stored(self)

    def overlaps(self, private: InputHashes) -> bool:
        """Whether the records were in large part private ones: the rule of :meth:`InputHashes.overlaps`, estimated."""
        # Beyond 1,024 records the sample's share stands for that of all. A private dataset of less than a seventh of
        # the public one is then often missed, and shares near the limit may fall on either side of it. Minimum: a card
        # comes from a stranger, who may have chosen the hashes. If fewer than 100 of them are of private records, the
        # answer is no for all possible other hashes on the card.
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
    """Return a text that is equal where CSV and typed formats mean the same."""
    if value is None:
        return ""
    try:
        return repr(float(value))
    except ValueError:
        return str(value).strip()


def _hash(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()


def _local(place: str, split: str) -> list[Path]:
    """Files of a split; a single file belongs to every one. A file with arrays of several splits is of ``train``."""
    root = local_path(place)
    with reading(root, "a file or folder"):
        files = files_of(root)
        if root.is_dir():
            files = [path for path in files if may_belong(path.relative_to(root), split)]
    return [path for path in files if split == "train" or not holds_split(path, split)]


def _digests_at(place: str, split: str) -> list[str]:
    """Hashes of the same files at a path or an address, where what a file holds is not known before it is fetched."""
    if not is_remote(place):
        files = _local(place, split)
        return [digest for digest, _ in _hashed(files, {path.stat().st_size for path in files})]
    return remote_digests(place, split, None if split == "train" else may_hold_splits)


def _hashed(files: Iterable[Path], sizes: set[int]) -> Iterator[tuple[str, int]]:
    for path in files:
        size = path.stat().st_size
        if size and size in sizes:
            with reading(path, "a file"), path.open("rb") as stream:
                yield hashlib.file_digest(stream, "sha256").hexdigest(), size


KIND: Final = "synthetic images"
CARD: Final = "card.json"
IMAGES: Final = "train.npz"
_MADE_OF: Final = "made_of"
_SKETCH: Final = "sketch"


def made_of(path: Path) -> Sketch | None:
    """Return the card's record of the public images behind a pool; None without a card or without such images."""
    if not is_here(path) or path.suffix != Path(IMAGES).suffix:
        return None
    images = path.resolve()
    if images.name != IMAGES or not images.with_name(CARD).is_file():
        return None
    try:
        card = read_json(images.with_name(CARD), CARD, MEBIBYTE)
    except InvalidInput:
        # Others have files of that name, too.
        return None
    if not isinstance(card, dict) or card.get("kind") != KIND:
        return None
    given = card.get(_MADE_OF, {})
    if not isinstance(given, dict):
        raise InvalidInput(f"{CARD} {_MADE_OF}", "another value", "an object")
    return Sketch.from_dict(given[_SKETCH]) if _SKETCH in given else None
