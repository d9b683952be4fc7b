"""The person of each record of a dataset: by a column, an array, or file names."""
# Identifiers are read once and never written. Keyed hashes of many lie in an owner-only folder until numbered; those of
# a series' persons are noted in its private folder.

import csv
import hashlib
import math
import re
import secrets
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privmix.data.array_files import npz_member, npz_values
from privmix.data.dataset import open_dataset
from privmix.data.dialect import Dialect
from privmix.data.files import decoding, reading
from privmix.data.frames import library_of
from privmix.data.memory import column_part, plain
from privmix.data.remote import is_remote, local_path
from privmix.data.remote_files import RemotePath
from privmix.data.source import Source
from privmix.errors import WITHHELD, InvalidInput, in_terms_of
from privmix.folders import hold
from privmix.scratch import ScratchFolder

# Beyond a limit all hashes go to files of a private folder by their first bits: equal hashes share a file.

DIGEST: Final = 16
"""Bytes of a hash. They should look random: the first one selects its file."""

# Hashes in memory, 64 MiB of them.
MOST_HELD: Final = 2**22
AT_ONCE: Final = 2**18
# Files that are open at once.
_PARTS: Final = 64
_ENTRY: Final = np.dtype([("digest", f"V{DIGEST}"), ("place", "<i8")])


class Numbering:
    """Number hashes that are added one after the other.

    Formal guarantees:
        * Same: numbers depend on which hashes are equal and on their order, and not on where they were kept.
        * Bounded: memory holds at most ``MOST_HELD`` hashes of any number, or a 64th of them if that is more. The
          numbers of more than that are mapped from a file, 8 bytes each.
        * Private: files lie in a scratch folder, and are gone when the numbers are, also after a kill.
    """

    # The scratch folder (TMPDIR) needs 32 bytes per hash.

    def __init__(self) -> None:
        self._held, self._count = bytearray(), 0
        self._scratch: ScratchFolder | None = None
        self._files: list[IO[bytes]] = []

    def __repr__(self) -> str:
        return "<Numbering>"

    def __len__(self) -> int:
        return self._count

    def add(self, digest: bytes) -> None:
        self._held += digest
        self._count += 1
        if len(self._held) >= DIGEST * (MOST_HELD if self._scratch is None else AT_ONCE):
            self._spill()

    def numbers(self) -> NDArray[np.int64]:
        """(n,) their numbers; nothing can be added any more."""
        if self._scratch is None:
            return _in_order(np.frombuffer(self._held, f"V{DIGEST}")).astype(np.int64)
        self._spill()
        with self._scratch as folder, reading(folder, "a folder"):
            return self._numbers_on_disk(folder)

    def discard(self) -> None:
        self._held = bytearray()
        for file in self._files:
            file.close()
        if self._scratch is not None:
            self._scratch.remove()

    def _spill(self) -> None:
        """Move all hashes from memory to the files, with their places, by their first byte."""
        if self._scratch is None:
            self._scratch = ScratchFolder()
            with reading(self._scratch.path, "a folder"), hold(self._scratch.path) as folder:
                self._files = [folder.create(str(part)) for part in range(_PARTS)]
        with reading(self._scratch.path, "a folder"):
            write_parts(self._files, np.frombuffer(self._held, f"V{DIGEST}"), self._count)
        self._held = bytearray()

    def _numbers_on_disk(self, folder: Path) -> NDArray[np.int64]:
        """Return a number for each record: ordered by the first place of its hash, then by earlier other hashes."""
        with hold(folder) as held, held.create("numbers") as room:
            # Written, so that a full disk is an error here, and no signal later.
            for start in range(0, self._count, AT_ONCE):
                room.write(bytes(8 * min(AT_ONCE, self._count - start)))
        found: NDArray[np.int64] = np.memmap(folder / "numbers", np.int64, "r+", shape=(self._count,))
        for part, file in enumerate(self._files):
            file.close()
            entries = np.fromfile(folder / str(part), _ENTRY)
            (folder / str(part)).unlink()
            if len(entries):
                found[entries["place"]] = first_places(entries)
        met = 0
        for start in range(0, self._count, AT_ONCE):
            block = found[start : start + AT_ONCE]
            # A record whose first place is its own is the first one with its hash.
            new = block == np.arange(start, start + len(block))
            block[new] = met + np.arange(np.count_nonzero(new))
            # Hashes that occurred before already have their numbers.
            block[~new] = found[block[~new]]
            met += int(np.count_nonzero(new))
        return np.asarray(found)


def write_parts(files: Sequence[IO[bytes]], digests: NDArray[np.void], ended: int) -> None:
    """Append hashes to the files of their first bytes; the last one is number ``ended``, counted from 1."""
    first = ended - len(digests)
    for start in range(0, len(digests), AT_ONCE):
        entries = np.empty(len(digests[start : start + AT_ONCE]), _ENTRY)
        entries["digest"] = digests[start : start + AT_ONCE]
        entries["place"] = np.arange(first + start, first + start + len(entries))
        # Equal hashes share their first byte, so each file can be numbered without the others.
        part = entries.view(np.uint8).reshape(len(entries), -1)[:, 0] % _PARTS
        # A stable sort keeps the entries of a file in the order of places, as `first_places` needs.
        order = np.argsort(part, kind="stable")
        cuts = np.searchsorted(part[order], np.arange(_PARTS + 1))
        entries = entries[order]
        for index, file in enumerate(files):
            file.write(entries[cuts[index] : cuts[index + 1]].tobytes())


def first_places(entries: NDArray[np.void]) -> NDArray[np.int64]:
    """(k,) the place at which the hash of each entry was met first; entries are in the order of places."""
    number = _in_order(np.ascontiguousarray(entries["digest"]))
    # Indices of a dictionary rise by one at each new hash, so a new maximum marks a first occurrence.
    known = np.maximum.accumulate(number)
    new = np.ones(len(number), bool)
    new[1:] = known[1:] > known[:-1]
    return np.asarray(entries["place"][new][number])


def _in_order(digests: NDArray[np.void]) -> NDArray[np.int32]:
    """(k,) numbers from 0 in the order in which hashes are met: indices of a dictionary are."""
    hashes = pa.FixedSizeBinaryArray.from_buffers(pa.binary(DIGEST), len(digests), [None, pa.py_buffer(digests)])
    return np.asarray(hashes.dictionary_encode().indices)


ERROR, OWN = "error", "own"
MISSING: Final = (ERROR, OWN)
"""A record without an identifier is an error or a separate person, never one shared "unknown" person."""
MARK: Final = "mark"
"""Return the number -1 for them, for the owner only."""


@dataclass(eq=False)
class Identities:
    """Hashes of identifiers under a key that outlives the reading, so that persons are known again; secret."""

    # step: of a series; records without an identifier are persons of it alone. met: each hash once, in the order in
    # which persons are numbered.
    key: bytes
    step: int
    met: dict[bytes, None] = field(default_factory=dict)

    def __repr__(self) -> str:
        return "<Identities>"


_LIKE_WHOLE: Final = re.compile(r"[+-]?\d+\.0*|\+\d+|\d+(\.\d+)?[eE]\+\d+")
_BATCH: Final = 65_536
# Integers below are exact as floats, which tables of numbers may hold them as.
_EXACT: Final = 2**53
_FILE, _PERSON = "file_name", "person"


def persons_in_column(
    data: Any,
    column: str | Sequence[str],
    *,
    split: str = "train",
    dialect: Dialect | None = None,
    missing: str = ERROR,
    known: Identities | None = None,
) -> NDArray[np.int64]:
    """(n,) person numbers, by one or several columns of data that :func:`privmix.data.open_dataset` reads.

    In an .npz archive it is the array of that name, or with the split's behind it (``who_train``).

    Formal guarantees:
        * Exact: two records are of one person exactly where their identifiers are the same text, but for spaces around
          it; a whole number is the text of its digits. Numbers that could have been rounded are refused. With several
          columns, where the text in each is the same.
        * Silent: no identifier stands in an error; none is kept, nor a hash of it but in ``known``; numbers follow from
          the order of records alone.
    """
    opened = _opened(data, column, split, dialect)
    if isinstance(opened, list):
        arrays = [npz_values(local_path(data), member) for member in opened]
        parts = [column_part(array, "person")(0, len(array)).tolist() for array in arrays]
        if len(set(map(len, parts))) > 1:
            raise InvalidInput("person", WITHHELD, "arrays of one length")
        return numbered(zip(*parts, strict=True), missing, known)
    return numbered((tuple(row) for chunk in _chunks(opened) for row in chunk.tolist()), missing, known)


def check_column(
    data: Any, column: str | Sequence[str], *, split: str = "train", dialect: Dialect | None = None
) -> None:
    """Raise :class:`InvalidInput` where the data's header (JSON lines have none) lacks a column; no record is read."""
    _opened(data, column, split, dialect)


def _opened(data: Any, column: str | Sequence[str], split: str, dialect: Dialect | None) -> Source | list[str]:
    """Return the columns alone; of an .npz archive, the names of its members."""
    names = [column] if isinstance(column, str) else list(column)
    archive = local_path(data) if isinstance(data, str | Path) and not is_remote(data) else None
    if archive is not None and archive.suffix.lower() == ".npz" and archive.is_file():
        members = [(name, npz_member(archive, name, split)) for name in names]
        if lacking := [name for name, member in members if member is None]:
            raise InvalidInput("person", lacking[0], f"an array of {archive}")
        return [member for _, member in members if member is not None]
    inputs = data[0] if isinstance(data, tuple) and data else data
    if not isinstance(data, str | Path | RemotePath) and not library_of(inputs):
        # The values in the first column there would be taken for persons.
        raise InvalidInput(
            "person", column, "an array with one identifier for each record: these data have no named columns"
        )
    # Classes play no part: labels are not read.
    with in_terms_of({"columns": "person"}):
        return open_dataset(
            data, split=split, classes=1, columns=names, label_column="", labelled=False, dialect=dialect
        )


def persons_in(values: Any, missing: str = ERROR, known: Identities | None = None) -> NDArray[np.int64]:
    """(n,) person numbers, by an array or list of identifiers."""
    values = plain(values, "person")
    return numbered(column_part(values, "person")(0, len(values)).tolist(), missing, known)


def persons_in_names(
    names: Sequence[str], pattern: str, missing: str = ERROR, known: Identities | None = None
) -> NDArray[np.int64]:
    """(n,) person numbers of files, by the first group of a pattern found in the name with its folders."""
    compiled = compiled_pattern(pattern)
    return numbered((found[1] if (found := compiled.search(name)) else None for name in names), missing, known)


def compiled_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a regular expression with one group, which is the person."""
    try:
        compiled = re.compile(pattern)
    except re.error:
        raise InvalidInput("person", pattern, "a regular expression") from None
    if compiled.groups != 1:
        raise InvalidInput("person", pattern, "a regular expression with one group that matches the person")
    return compiled


def persons_in_list(
    names: Sequence[str], file: Path, missing: str = ERROR, known: Identities | None = None
) -> NDArray[np.int64]:
    """(n,) person numbers of files, by a CSV file with the columns ``file_name`` and ``person``."""
    # The file may leave out folders where names differ without them; naming a file twice is an error.
    with decoding(file, "a CSV file"), file.open(encoding="utf-8-sig", newline="") as stream:
        rows = _listed(file, stream)
        whose: dict[str, str] = {}
        for row in rows:
            if row[_FILE] in whose:
                raise InvalidInput("person", WITHHELD, "each file once")
            whose[row[_FILE]] = row[_PERSON]
    alone = Counter(Path(name).name for name in names if name not in whose)
    if any(count > 1 and name in whose for name, count in alone.items()):
        # Two people would be taken for one, whose contribution each of them moves by more than their own.
        raise InvalidInput("person", WITHHELD, "names with their folders, since several folders hold files of one name")
    return numbered((whose.get(name, whose.get(Path(name).name)) for name in names), missing, known)


def check_list(file: Path) -> None:
    """Raise :class:`InvalidInput` where the header of such a CSV file lacks a column; no line of it is read."""
    with decoding(file, "a CSV file"), file.open(encoding="utf-8-sig", newline="") as stream:
        _listed(file, stream)


def _listed(file: Path, stream: IO[str]) -> "csv.DictReader[str]":
    rows = csv.DictReader(stream)
    if not {_FILE, _PERSON} <= set(rows.fieldnames or ()):
        raise InvalidInput("person", str(file), f"a CSV file with the columns {_FILE} and {_PERSON}")
    return rows


def numbered(
    cells: Iterator[Any] | Sequence[Any], missing: str = ERROR, known: Identities | None = None
) -> NDArray[np.int64]:
    """Numbers for identifiers, in the order in which they are first met."""
    numbering = Numbering()
    try:
        without = _taken(cells, missing, numbering, known)
        found = numbering.numbers()
    except BaseException:
        # An error keeps its frames alive, for as long as a caller holds it.
        numbering.discard()
        raise
    if missing == MARK:
        found[without] = -1
    return found


def _taken(
    cells: Iterator[Any] | Sequence[Any], missing: str, numbering: Numbering, known: Identities | None
) -> list[int]:
    """Places of the records without an identifier, each of which is taken as one of its own."""
    # A key that is not asked for is never kept: the hashes reveal no identifier in any place.
    key, without = secrets.token_bytes(32) if known is None else known.key, []
    for place, cell in enumerate(cells):
        text = _text_of_all(_parts(cell))
        if known is not None and any(_LIKE_WHOLE.fullmatch(_text(one)) for one in _parts(cell)):
            # Another step may have its digits alone.
            raise InvalidInput("person", WITHHELD, "whole numbers by their digits alone, without .0, + and e+05")
        if text:
            # Half characters, too, which names of files hold for bytes that are no text, stay what they are.
            digest = hashlib.blake2b(text.encode(errors="surrogatepass"), key=key, digest_size=DIGEST).digest()
        elif missing == ERROR:
            allowed = "an identifier in every record, or `person` COLUMN:missing=own (records without are own persons)"
            raise InvalidInput("person", WITHHELD, allowed)
        else:
            # By its place: the same records, read again, have the same persons.
            own = f"{0 if known is None else known.step} {place}".encode()
            digest = hashlib.blake2b(own, key=key, digest_size=DIGEST, person=b"none").digest()
            without.append(place)
        numbering.add(digest)
        if known is not None:
            known.met[digest] = None
    return without


def _parts(cell: Any) -> tuple[Any, ...]:
    return cell if isinstance(cell, tuple) else (cell,)


def _text_of_all(cells: tuple[Any, ...]) -> str:
    """Return identifiers of several columns as one text, unambiguously; empty where one is missing."""
    texts = [_text(cell) for cell in cells]
    if len(texts) == 1:
        return texts[0]
    return "".join(f"{len(text)}:{text}" for text in texts) if all(texts) else ""


def _text(cell: Any) -> str:
    if cell is None:
        return ""
    if isinstance(cell, bool | np.bool_):
        raise _no_identifier()
    if isinstance(cell, int | np.integer):
        return str(int(cell))
    if isinstance(cell, float | np.floating):
        number = float(cell)
        if math.isnan(number):
            return ""
        if not number.is_integer() or abs(number) >= _EXACT:
            raise _no_identifier()
        return str(int(number))
    if isinstance(cell, bytes):
        cell = cell.decode("utf-8", "surrogateescape")
    if not isinstance(cell, str):
        if _is_missing(cell):
            return ""
        # Days, and other values that are written in one way only.
        cell = str(cell)
    return str(cell).strip()


def _is_missing(cell: Any) -> bool:
    """Whether it is a day, decimal number or the like that is not there: none is equal to itself."""
    try:
        return bool(cell != cell)
    except TypeError:
        # pandas' NA answers neither yes nor no.
        return True
    except (ValueError, ArithmeticError):
        # Arrays, which have no one way to be written.
        raise _no_identifier() from None


def _no_identifier() -> InvalidInput:
    return InvalidInput("person", WITHHELD, "texts, or integers below 2^53; write longer numbers as texts")


def _chunks(source: Source) -> Iterator[NDArray[Any]]:
    """Cells as they are read, before tables make floats of numbers."""
    seen = 0
    for raw, _ in source._silent_chunks(_BATCH):
        seen += len(raw)
        yield raw
    if seen != source.schema.records:
        raise InvalidInput("records", WITHHELD, "the number in the header")
