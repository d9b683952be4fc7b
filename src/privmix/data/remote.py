"""Data on file systems that fsspec reaches: object stores, web servers, memory."""

import glob
import hashlib
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import Any, Final, cast

from numpy.typing import NDArray

from privmix.data.files import CopyFirst, may_belong
from privmix.data.manifest import Manifest
from privmix.data.reader import companions
from privmix.data.remote_files import WEB, Entry, FileVersion, RemotePath, Tree, public_name, system_of, talking
from privmix.data.source import Source
from privmix.errors import InvalidInput, PrivmixError, StorageError, in_terms_of
from privmix.folders import hold
from privmix.scratch import ScratchFolder

__all__ = ["RemoteSource", "is_remote", "local_path", "public_name", "remote_digests"]

_SCHEME: Final = re.compile(r"^[a-zA-Z][a-zA-Z0-9+.:-]*://")
_LOCAL: Final = "file://"


class RemoteSource(Source):
    """A dataset at an address: read in place by ranges of bytes, or from a private copy on this machine.

    Files whose format lets a reader begin in their midst are read in place. Others are copied (packed ones, folders of
    images), and so are files where ranges or versions are unavailable. A copy lies in an owner-only folder in TMPDIR
    until the source is no longer used or Python exits; after a kill, the next process removes it.

    Formal guarantees:
        - One version: all records are of the files that were there when it was opened, by their size, and checksum,
          version or time, as their file system states them. If one of them was changed before the last record was read,
          the last batch does not come.
        - No secrets in messages: an address is shown without user, password and query, and messages of a remote library
          are dropped.
        - Nothing on the disk: what is read in place is in memory alone.
    """

    # `open_local` opens anything with the methods of a path: the copy, or the files in place.

    def __init__(self, url: str, split: str, open_local: Callable[[Path], Source]) -> None:
        found = _Found.at(url)
        self._scratch: ScratchFolder | None = None
        self._tree = found.tree()
        if self._tree is not None:
            try:
                self._path = cast(Path, RemotePath(self._tree, found.below))
                with self._renaming():
                    self._local = open_local(self._path)
            except CopyFirst:
                self._tree = None
        if self._tree is None:
            self._open_copy(found, split, open_local)
        self._schema = self._local.schema
        self.number_names: tuple[str, ...] | None = self._local.number_names
        self.files: tuple[Path, ...] = self._local.files
        self.unread: str = self._local.unread

    def _open_copy(self, found: "_Found", split: str, open_local: Callable[[Path], Source]) -> None:
        # Gone with this object: a scratch folder goes with its own.
        self._scratch = ScratchFolder()
        try:
            self._path, self._base = found.copy(split, self._scratch.path)
            with self._renaming():
                self._local = open_local(self._path)
        except BaseException:
            self._scratch.remove()
            raise

    @property
    def travels(self) -> bool:  # type: ignore[override]
        return self._tree is not None and self._local.travels

    @property
    def names(self) -> tuple[str, ...] | None:
        return self._local.names

    def _chunks(self, first: int, stop: int, size: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        with self._renaming():
            yield from self._local._chunks(first, stop, size)

    def manifest(self) -> Manifest:
        return self._local.manifest()

    def check_unchanged(self) -> None:
        """By what the file system now states about the files that were read."""
        if self._tree is not None:
            self._tree.check()

    @contextmanager
    def place(self) -> Iterator[Path]:
        """Yield the place of the files, to read other facts about the same records; errors within name the address."""
        with self._renaming():
            yield self._path
        self.check_unchanged()

    @contextmanager
    def _renaming(self) -> Iterator[None]:
        """Errors name the address, not the copy; and that files changed, not what was misread in changed ones."""
        if self._tree is None:
            assert self._scratch is not None
            with in_terms_of(texts={str(self._scratch.path): self._base}):
                yield
            return
        try:
            yield
        except CopyFirst:
            raise
        except PrivmixError:
            self._tree.check()
            raise


def is_remote(path: str | Path) -> bool:
    """Whether fsspec opens it."""
    return isinstance(path, str) and _SCHEME.match(path) is not None and not path.startswith(_LOCAL)


def local_path(path: str | Path) -> Path:
    """Return the path, without ``file://``."""
    return Path(path.removeprefix(_LOCAL) if isinstance(path, str) else path)


def remote_digests(url: str, split: str | None = None, skip: Callable[[str], bool] | None = None) -> list[str]:
    """SHA-256 of the files at an address that may belong to ``split``, without hidden ones and ``skip``."""
    found = _Found.at(url)
    files = found.files
    if split is not None and not found.one and not found.pattern:
        files = [file for file in files if may_belong(found.relative(file), split)]
    if skip is not None:
        files = [file for file in files if not skip(_file_name(file))]
    tree, digests = found.tree(), []
    for file in files:
        if tree is not None:
            digests.append(RemotePath(tree, str(found.relative(file))).sha256())
        else:
            digest = hashlib.sha256()
            with talking(url), found.system.open(file, "rb") as stream:
                while piece := stream.read(2**20):
                    digest.update(piece)
            digests.append(digest.hexdigest())
    return digests


class _Found:
    """The file system, target path and files behind an address: one file, a folder or a pattern."""

    def __init__(self, url: str, system: Any, target: str, infos: dict[str, Any], one: bool) -> None:
        self.url, self.system, self.target, self._infos, self.one = url, system, target, infos, one
        self.files, self.pattern = sorted(infos), not one and glob.has_magic(target)
        shown = public_name(url).rstrip("/")
        if one:
            self._root, self.shown = str(PurePosixPath(_without_query(target)).parent), shown.rpartition("/")[0]
        elif self.pattern:
            # The folders before the first one with a special character.
            self._root = "/".join(takewhile(lambda part: not glob.has_magic(part), target.split("/")))
            self.shown = re.split(r"[*\[]", shown)[0].rpartition("/")[0]
        else:
            self._root, self.shown = target, shown
        # The part of the address below the folder of all: of a file or a pattern.
        self.below = str(self.relative(target)) if one or self.pattern else ""

    @classmethod
    def at(cls, url: str) -> "_Found":
        system, target = system_of(url)
        with talking(url):
            # File systems keep earlier answers, and files may have changed since.
            system.invalidate_cache()
            if not url.startswith(WEB) and glob.has_magic(target) and not system.exists(target):
                found = system.glob(target, detail=True).items()
                infos = {file: info for file, info in found if info.get("type") != "directory"}
            elif system.isfile(target):
                return cls(url, system, target, {target: None}, one=True)
            else:
                infos = system.find(target, detail=True)
        # Hidden files are no records, as in a local folder: tools leave checksums and settings there.
        infos = {file: info for file, info in infos.items() if not PurePosixPath(file).name.startswith(".")}
        if not infos:
            raise StorageError(f"{public_name(url)}: no such file or folder, or nothing in it")
        return cls(url, system, target, infos, one=False)

    def relative(self, file: str) -> PurePosixPath:
        return PurePosixPath(_without_query(file)).relative_to(PurePosixPath(self._root))

    def beside(self) -> Iterator[tuple[str, str]]:
        """Names and paths of the files that belong to a single one and are there."""
        path = Path(_file_name(self.target))
        for companion in companions(path):
            place = str(PurePosixPath(_without_query(self.target)).with_name(companion.name))
            if companion != path and self.system.exists(place):
                yield companion.name, place

    def tree(self) -> Tree | None:
        """Return the files as they are now; None where they cannot be read in place."""
        entries = {}
        with talking(self.url):
            targets = {str(self.relative(file)): (file, self._infos[file]) for file in self.files}
            if self.one:
                targets |= {name: (place, None) for name, place in self.beside()}
            listed = self._lists_versions()
            for name, (target, info) in targets.items():
                if info is None or not listed:
                    info = self._info(target)
                version = None if info is None else FileVersion.of(info)
                # A web server may ignore a range and send the whole file.
                ranged = not self.url.startswith(WEB) or (info is not None and info.get("partial") is True)
                # Without a version a change between two reads would pass unseen; a path upwards leaves the folder.
                if version is None or not version.tag or not ranged or ".." in PurePosixPath(name).parts:
                    return None
                entries[name] = Entry(target, version)
        return Tree(self.url, self.shown, entries)

    def _lists_versions(self) -> bool:
        """Whether the file list gives the version that a query for one gives; times are mostly written otherwise."""
        first = self.files[0]
        listed, alone = self._infos[first], self._info(first)
        if listed is None or alone is None:
            return False
        version = FileVersion.of(listed)
        # A weak version, such as a time of whole seconds, may stand for two contents.
        return version is not None and version.strong and version == FileVersion.of(alone)

    def _info(self, target: str) -> Any:
        try:
            return self.system.info(target)
        except Exception:
            return None

    def copy(self, split: str, folder: Path) -> tuple[Path, str]:
        """Copy what a split needs below ``folder``; the copy's path (or pattern), and what ``folder`` stands for."""
        wanted = {file: self.relative(file) for file in self.files}
        if not self.below:
            wanted = {file: relative for file, relative in wanted.items() if may_belong(relative, split)}
        if not wanted:
            raise InvalidInput("split", split, f"a split of {self.shown}")
        with talking(self.url):
            if self.one:
                wanted |= {place: PurePosixPath(name) for name, place in self.beside()}
            for file, relative in wanted.items():
                # A listed name must not lead out of the copy's folder.
                if ".." not in relative.parts:
                    _fetch(self.system, file, folder / relative)
        return folder / self.below, self.shown


def _fetch(system: Any, file: str, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with system.open(file, "rb") as stream, hold(path.parent) as folder, folder.create(path.name) as copy:
        shutil.copyfileobj(stream, copy, 2**20)


def _file_name(target: str) -> str:
    return PurePosixPath(_without_query(target)).name


def _without_query(target: str) -> str:
    return re.split(r"[?#]", target, maxsplit=1)[0] if target.startswith(WEB) else target
