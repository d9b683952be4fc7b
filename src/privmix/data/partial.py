"""Folders in the making: files of rows that survive a crash, and tiles of a store that several processes write."""
# One process at a time writes the rows; a lock sees to it.
# A tile's content follows from the data and the extractor alone: every process makes the same bytes.

import contextlib
import hashlib
import json
import os
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from privmix.data.files import reading
from privmix.errors import InvalidInput, StorageError
from privmix.folders import FolderLost, PathLock, PrivateFolder, sync_folder

# Seconds of work that a crash may cost; each checkpoint waits for the disk.
CHECKPOINT_SECONDS: Final = 5.0
_BEGIN, _PROGRESS = "begin.json", "progress.json"
_BLOCK: Final = 2**20
_MOST_FACTS: Final = 2**26
_PREFIX: Final = "tile-"
_DIGEST: Final = hashlib.sha256().digest_size
# As many tiles as make what a kill costs small, as few as keep their files and calls cheap.
_WANTED: Final = 1024
_FEWEST: Final = 256
_MOST: Final = 65_536
_MOST_BYTES: Final = 2**28
# How often a folder is emptied that another process keeps filling.
_TRIES: Final = 8


class PartialFolder:
    """``.{name}.partial`` next to ``path``: files of fixed headers and growing rows, renamed to ``path`` when whole.

    Formal guarantees:
        - Durable: ``rows`` after a crash counts rows that were on the disk, with the bytes that were written (their
          hash is compared), in every file.
        - Alone: while one process holds the folder, another one's attempt is a :class:`StorageError`.
        - Closed: folder and files are the owner's only; a folder of that name that is not, or a link, is refused.
        - In place: rows go into the folder that was opened, even if another gets its name meanwhile.
    """

    # `facts` must be equal to resume with rows of another process; `last` is the file that `publish` adds.

    def __init__(
        self,
        path: Path,
        headers: Mapping[str, bytes],
        row_bytes: Mapping[str, int],
        facts: Mapping[str, Any],
        last: str,
        *,
        resume: bool,
    ) -> None:
        self._path, self._headers, self._row_bytes, self._last = path, dict(headers), dict(row_bytes), last
        self._facts = json.dumps(facts, sort_keys=True)
        self.folder: Final = path.with_name(f".{path.name}.partial")
        self.rows: int = 0
        self.durable_rows: int = 0
        self._files: dict[str, IO[bytes]] = {}
        self._hashes: dict[str, Any] = {}
        self._held: PrivateFolder | None = None
        self._checked = time.monotonic()
        with reading(path.parent, "a folder"):
            self._lock = PathLock(path, StorageError(f"{path}: another process is writing it"))
            try:
                with contextlib.suppress(FileNotFoundError):
                    self._held = PrivateFolder(self.folder, self.folder.name)
                if not (resume and self._resume()):
                    self._restart()
            except InvalidInput:
                # Not ours to empty.
                self._held = None
                self.remove()
                raise
            except BaseException:
                self.remove()
                raise

    def write(self, rows: int, contents: Mapping[str, memoryview]) -> None:
        """Append ``rows`` rows to every file; now and then wait until they are on the disk."""
        for name, content in contents.items():
            self._files[name].write(content)
        for name, content in contents.items():
            self._hashes[name].update(content)
        self.rows += rows
        if time.monotonic() - self._checked >= CHECKPOINT_SECONDS:
            self.checkpoint()

    def checkpoint(self) -> None:
        """Return when all rows so far are durable; raise FolderLost where the folder was renamed or replaced."""
        self._own.check_in_place()
        for file in self._files.values():
            file.flush()
            os.fsync(file.fileno())
        hashes = {name: digest.hexdigest() for name, digest in self._hashes.items()}
        self._own.write(_PROGRESS, json.dumps({"rows": self.rows, "sha256": hashes}).encode())
        self.durable_rows, self._checked = self.rows, time.monotonic()

    def publish(self, text: str) -> None:
        """Add the last file, rename the folder into place and release the lock."""
        self.checkpoint()
        self._close()
        self._own.write(self._last, text.encode())
        # A rename replaces an empty folder without a word.
        if self._path.exists() or self._path.is_symlink():
            raise FileExistsError(17, "File exists")
        self.folder.rename(self._path)
        if not self._own.is_at(self._path):
            raise FolderLost(f"{self._path}: another process replaced this folder; run the command again")
        for left in (_BEGIN, _PROGRESS):
            self._own.remove(left)
        sync_folder(self._path.parent)
        self._own.close()
        self._lock.release()

    def leave(self) -> None:
        """Stop writing, keep what is durable for another process, give the lock back."""
        if not self.durable_rows or not self._own.is_in_place():
            self.remove()
            return
        self._close()
        self._lock.release()

    def remove(self) -> None:
        """Stop writing, remove everything, give the lock back."""
        self._close()
        if self._held is not None and self._lock.held:
            with contextlib.suppress(OSError):
                self._held.discard()
            self._held.close()
        self._lock.release()

    @property
    def _own(self) -> PrivateFolder:
        assert self._held is not None
        return self._held

    def _restart(self) -> None:
        if self._held is not None:
            self._held.check_names({_BEGIN, _PROGRESS, *self._headers, self._last})
            held, self._held = self._held, None
            held.discard()
        self._held = PrivateFolder(self.folder, self.folder.name, create=True)
        for name, header in self._headers.items():
            self._files[name] = self._own.create(name)
            self._files[name].write(header)
            self._hashes[name] = hashlib.sha256(header)
        self._own.write(_BEGIN, self._facts.encode())

    def _resume(self) -> bool:
        """Take over rows that are whole and of the same store; False if there are none."""
        if self._held is None or not self._own.has(_BEGIN) or not self._own.has(_PROGRESS):
            return False
        if self._own.read(_BEGIN, _MOST_FACTS) != self._facts.encode():
            return False
        try:
            progress = json.loads(self._own.read(_PROGRESS, _MOST_FACTS))
            rows, hashes = int(progress["rows"]), dict(progress["sha256"])
        except (ValueError, KeyError, TypeError):
            return False
        sizes = {name: len(header) + rows * self._row_bytes[name] for name, header in self._headers.items()}
        found = {name: _hash_of(self._own, name, size) for name, size in sizes.items()}
        for name, digest in found.items():
            if digest is None or digest.hexdigest() != hashes.get(name):
                return False
        for name, size in sizes.items():
            self._files[name] = self._own.open(name, update=True)
            # Rows behind the last checkpoint may be torn.
            self._files[name].truncate(size)
            self._files[name].seek(size)
        self._hashes = dict(found)
        self.rows = self.durable_rows = rows
        return True

    def _close(self) -> None:
        for file in self._files.values():
            # Closing flushes, and may fail again on the full disk that brought us here.
            try:
                file.close()
            except OSError:
                continue


def _hash_of(folder: PrivateFolder, name: str, size: int) -> Any:
    """Hash of the first ``size`` bytes, open for more; None if the file is shorter."""
    digest = hashlib.sha256()
    if not folder.has(name):
        return None
    with folder.open(name) as stream:
        if os.fstat(stream.fileno()).st_size < size:
            return None
        while size:
            block = stream.read(min(size, _BLOCK))
            digest.update(block)
            size -= len(block)
    return digest


def tile_records(records: int, dim: int) -> int:
    """Return records per tile: a thousandth of all, between 256 and 65,536, and at most 256 MiB of features."""
    return max(1, min(_MOST_BYTES // (4 * dim), max(_FEWEST, min(_MOST, -(-records // _WANTED)))))


class TileFolder:
    """``.{name}.tiles`` next to the store ``path``: one owner-only file per tile; ``facts`` hashes the store's origin.

    Formal guarantees:
        * Whole: a tile has its name once all its bytes are on the disk; what reads it compares their hash.
        * Its own: a tile of other facts (data, extractor), or of another number, is none. One that a worker of an
          attempt before puts there late, for another store, is made again.
        * Again: two processes that make one tile, as one was taken for lost, do not disturb each other.
        * Closed: the folder and its files are the owner's only, and no link is followed.
    """

    def __init__(self, folder: PrivateFolder, facts: bytes) -> None:
        self._folder = folder
        self.facts: Final = facts

    @classmethod
    def beside(cls, path: Path, facts: Mapping[str, Any]) -> Self:
        """Open the folder of the store at ``path``, whose lock the caller holds; remove tiles of other facts."""
        place, wanted = tiles_of(path), json.dumps(facts, sort_keys=True).encode()
        mark = hashlib.sha256(wanted).digest()
        with reading(path.parent, "a folder"):
            with contextlib.suppress(FileNotFoundError):
                left = PrivateFolder(place, place.name)
                if left.has(_BEGIN) and left.read(_BEGIN, _MOST_FACTS) == wanted:
                    # Partial tiles of killed workers; a worker that still runs loses its tile.
                    for name in left.names():
                        if name.startswith(f".{_PREFIX}"):
                            left.remove(name)
                    return cls(left, mark)
                _check_ours(left)
                left.discard()
            folder = PrivateFolder(place, place.name, create=True)
            folder.write(_BEGIN, wanted)
        return cls(folder, mark)

    @classmethod
    def clear(cls, path: Path) -> None:
        """Remove tiles next to the store at ``path``, whose lock the caller holds; leave anything else of that name."""
        place = tiles_of(path)
        with reading(path.parent, "a folder"), contextlib.suppress(FileNotFoundError, InvalidInput):
            left = PrivateFolder(place, place.name)
            try:
                _check_ours(left)
                left.discard()
            finally:
                left.close()

    @classmethod
    def at(cls, path: Path, facts: bytes | None = None) -> Self:
        """Open the folder of a store that another process makes at ``path``; ``facts`` None: those of the folder."""
        # StorageError where it is absent: this machine does not share the file system, or another user owns the folder.
        place = tiles_of(path)
        try:
            folder = PrivateFolder(place, place.name)
            found = hashlib.sha256(folder.read(_BEGIN, _MOST_FACTS)).digest() if facts is None else facts
            return cls(folder, found)
        except FileNotFoundError:
            raise StorageError(f"{place}: missing. Every machine must share the folder of the store") from None

    def there(self) -> set[int]:
        found = (name.removeprefix(_PREFIX) for name in self._folder.names() if name.startswith(_PREFIX))
        return {int(number) for number in found if number.isdigit()}

    def write(self, number: int, features: NDArray[np.float32], labels: NDArray[np.int64]) -> None:
        """Put a tile in its place: (b, d) features and (b,) labels."""
        content = np.ascontiguousarray(features, "<f4").tobytes() + np.ascontiguousarray(labels, "<i8").tobytes()
        content += self._digest(number, content)
        with self._folder.new(_name(number), draft=f".{_name(number)}.{secrets.token_hex(8)}.draft") as stream:
            stream.write(content)

    def read(self, number: int, records: int, dim: int) -> tuple[NDArray[np.float32], NDArray[np.int64]] | None:
        """Return a tile's features (b, d) and labels (b,); None where there is no such tile, or another one's bytes."""
        size = records * (4 * dim + 8) + _DIGEST
        try:
            with self._folder.open(_name(number)) as stream:
                content = stream.read(size + 1)
        except FileNotFoundError:
            return None
        whole = memoryview(content)
        if len(whole) != size or self._digest(number, whole[:-_DIGEST]) != bytes(whole[-_DIGEST:]):
            return None
        end = records * dim * 4
        features = np.frombuffer(whole[:end], "<f4").reshape(records, dim)
        return features, np.frombuffer(whole[end:-_DIGEST], "<i8")

    def _digest(self, number: int, content: bytes | memoryview) -> bytes:
        hasher = hashlib.sha256(self.facts + number.to_bytes(8, "little"))
        hasher.update(content)
        return hasher.digest()

    def remove(self, number: int) -> None:
        self._folder.remove(_name(number))

    def discard(self) -> None:
        """Remove all of it, also what a worker that was taken for dead puts there meanwhile."""
        for _ in range(_TRIES):
            with contextlib.suppress(OSError):
                self._folder.discard()
                return
        self._folder.close()

    def close(self) -> None:
        self._folder.close()


def tiles_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.tiles")


def _check_ours(folder: PrivateFolder) -> None:
    tiles = {name for name in folder.names() if name.removeprefix(".").startswith(_PREFIX)}
    folder.check_names({_BEGIN, *tiles})


def _name(number: int) -> str:
    return f"{_PREFIX}{number:09d}"
