"""Data on file systems that fsspec reaches: object stores, web servers, memory."""

from __future__ import annotations

import glob
import hashlib
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, Final, cast

from numpy.typing import NDArray

from privmix.data.files import CopyFirst, may_belong
from privmix.data.manifest import Manifest
from privmix.data.openers import companions
from privmix.data.remote_files import (
    WEB,
    Entry,
    RemotePath,
    Tree,
    Version,
    public_name,
    system_of,
    talking,
)
from privmix.data.source import Schema, Source
from privmix.errors import InvalidInput, PrivmixError, StorageError, in_terms_of
from privmix.held_folders import hold
from privmix.scratch import ScratchFolder

__all__ = ["RemoteSource", "is_remote", "local_path", "public_name", "remote_digests"]

_SCHEME: Final = re.compile(r"^[a-zA-Z][a-zA-Z0-9+.:-]*://")
_LOCAL: Final = "file://"


class RemoteSource(Source):
    """A dataset at an address: read where it is, by ranges of bytes, or from a private copy on this machine.

    Files whose format lets a reader begin in their midst stay where they are: a reader asks for the bytes of the
    records that it needs, and a source that goes to another process takes names, versions and places along. Files of
    other formats (packed ones, folders of images) are copied, and so is what lies where no range of bytes can be had or
    where a file system does not tell a file from an earlier one of its size. A copy lies in a new folder that its owner
    alone can enter (mode 0700, in TMPDIR), and is removed when the source is no longer used, and at the latest when
    Python exits; what a process that is killed leaves behind goes when the next one starts. Files that name another
    split are not copied.

    Args:
        url: of a file, a folder or a pattern.
        split: ``"train"``, ``"test"`` or ``"val"``.
        open_local: opens what has the methods of a path: the copy, or the files where they are.

    Formal guarantees:
        - One version: all records are of the files that were there when it was opened, by what their file system says
          of them (size, and checksum, version or time); where one of them was changed before the last record was read,
          the last batch does not come.
        - No secrets in messages: an address is shown without user, password and query, and what a remote library says
          is dropped.
        - Nothing on the disk: what is read in place is in memory alone.

    Raises:
        StorageError: there is nothing, or it cannot be read.
        InvalidInput: no such scheme, or as the format's own source; or a file is another one by now.
        MissingExtra: fsspec is not installed.
    """

    def __init__(self, url: str, split: str, open_local: Callable[[Path], Source]) -> None:
        found = _Found.at(url)
        self._scratch: ScratchFolder | None = None
        self._tree = found.tree()
        if self._tree is not None:
            try:
                self._path = cast(Path, found.path(self._tree))
                with self._renaming():
                    self._local = open_local(self._path)
            except CopyFirst:
                self._tree = None
        if self._tree is None:
            self._open_copy(found, split, open_local)
        self.files, self.unread = self._local.files, self._local.unread

    def _open_copy(self, found: _Found, split: str, open_local: Callable[[Path], Source]) -> None:
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
        """Where no copy was made."""
        return self._tree is not None and self._local.travels

    @property
    def schema(self) -> Schema:
        """Of the files."""
        return self._local.schema

    @property
    def names(self) -> tuple[str, ...] | None:
        """Of the files."""
        return self._local.names

    @property
    def number_names(self) -> tuple[str, ...] | None:
        """Of the files."""
        return self._local.number_names

    def _chunks(self, size: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        with self._renaming():
            yield from self._local._chunks(size)

    def _chunks_from(self, first: int, size: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        with self._renaming():
            yield from self._local._chunks_from(first, size)

    def _chunks_until(self, first: int, stop: int, size: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        with self._renaming():
            yield from self._local._chunks_until(first, stop, size)

    def manifest(self) -> Manifest:
        """Of the files."""
        return self._local.manifest()

    def check_unchanged(self) -> None:
        """By what the file system says now of the files that were read."""
        if self._tree is not None:
            self._tree.check()

    @contextmanager
    def place(self) -> Iterator[Path]:
        """Where the files lie, for what else is to be read of the same records; errors within name the address."""
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
    """Whether fsspec is to open it.

    Example:
        >>> is_remote("s3://bucket/train.csv"), is_remote("train.csv"), is_remote("file:///data/train.csv")
        (True, False, False)
    """
    return isinstance(path, str) and _SCHEME.match(path) is not None and not path.startswith(_LOCAL)


def local_path(path: str | Path) -> Path:
    """The path, without ``file://``."""
    return Path(path.removeprefix(_LOCAL) if isinstance(path, str) else path)


def remote_digests(url: str, split: str | None = None, skip: Callable[[str], bool] | None = None) -> list[str]:
    """SHA-256 of every file at an address, hidden ones left out; nothing is kept on this machine.

    Args:
        url: the address.
        split: of a folder, those files alone that may belong to it.
        skip: by their names, files to leave out.

    Raises:
        StorageError, InvalidInput, MissingExtra: as :class:`RemoteSource`.
    """
    found = _Found.at(url)
    files = found.files
    if split is not None and not found.one and not found.pattern:
        files = [file for file in files if may_belong(found.relative(file), split)]
    if skip is not None:
        files = [file for file in files if not skip(_file_name(file))]
    tree, digests = found.tree(), []
    for file in files:
        digests.append(_streamed_digest(found, file) if tree is None else RemotePath(tree, found.name(file)).sha256())
    return digests


def _streamed_digest(found: _Found, file: str) -> str:
    digest = hashlib.sha256()
    with talking(found.url), found.system.open(file, "rb") as stream:
        while piece := stream.read(2**20):
            digest.update(piece)
    return digest.hexdigest()


class _Found:
    """What an address means: a file, a folder or a pattern, and the files of it.

    Attributes:
        url: the address.
        system: its file system.
        target: its path there.
        files: paths there of all files, hidden ones left out.
        one: whether it is a single file.
        pattern: whether it is a pattern.
    """

    def __init__(self, url: str, system: Any, target: str, infos: dict[str, Any], one: bool) -> None:
        self.url, self.system, self.target, self._infos, self.one = url, system, target, infos, one
        self.files, self.pattern = sorted(infos), not one and glob.has_magic(target)
        shown = public_name(url).rstrip("/")
        if one:
            self._root, self.shown = str(PurePosixPath(_without_query(target)).parent), shown.rpartition("/")[0]
        elif self.pattern:
            self._root, self.shown = _fixed_part(target), re.split(r"[*\[]", shown)[0].rpartition("/")[0]
        else:
            self._root, self.shown = target, shown

    @classmethod
    def at(cls, url: str) -> _Found:
        """Ask the file system."""
        system, target = system_of(url)
        with talking(url):
            system.invalidate_cache()
            if not url.startswith(WEB) and glob.has_magic(target) and not system.exists(target):
                infos = {file: info for file, info in system.glob(target, detail=True).items() if _is_file(info)}
            elif system.isfile(target):
                return cls(url, system, target, {target: None}, one=True)
            else:
                infos = system.find(target, detail=True)
        infos = {file: info for file, info in infos.items() if not PurePosixPath(file).name.startswith(".")}
        if not infos:
            raise StorageError(f"{public_name(url)}: no such file or folder, or nothing in it")
        return cls(url, system, target, infos, one=False)

    def relative(self, file: str) -> PurePosixPath:
        """A file's path below the folder of all."""
        return PurePosixPath(_without_query(file)).relative_to(PurePosixPath(self._root))

    def name(self, file: str) -> str:
        """As it is called in a tree."""
        return _file_name(file) if self.one else str(self.relative(file))

    def beside(self) -> Iterator[tuple[str, str]]:
        """Names and paths of the files that belong to a single one and are there."""
        path = Path(_file_name(self.target))
        for companion in companions(path):
            place = str(PurePosixPath(_without_query(self.target)).with_name(companion.name))
            if companion != path and self.system.exists(place):
                yield companion.name, place

    def tree(self) -> Tree | None:
        """The files as they are now; None where they can't be read in place."""
        entries = {}
        with talking(self.url):
            targets = {self.name(file): (file, self._infos[file]) for file in self.files}
            if self.one:
                targets |= {name: (place, None) for name, place in self.beside()}
            listed = self._lists_versions()
            for name, (target, info) in targets.items():
                if info is None or not listed:
                    info = self._info(target)
                version = None if info is None else Version.of(info)
                ranged = not self.url.startswith(WEB) or (info is not None and info.get("partial") is True)
                if version is None or not version.tag or not ranged or ".." in PurePosixPath(name).parts:
                    return None
                entries[name] = Entry(target, version)
        return Tree(self.url, self.shown, entries)

    def _lists_versions(self) -> bool:
        """Whether the list of files says of them what is said of a single one; times are mostly written otherwise."""
        first = self.files[0]
        listed, alone = self._infos[first], self._info(first)
        if listed is None or alone is None:
            return False
        version = Version.of(listed)
        return version is not None and version.strong and version == Version.of(alone)

    def _info(self, target: str) -> Any:
        """What is said of a file; None: nothing."""
        try:
            return self.system.info(target)
        except Exception:
            return None

    def path(self, tree: Tree) -> RemotePath:
        """What the address means in that tree."""
        if self.one:
            return RemotePath(tree, _file_name(self.target))
        if self.pattern:
            return RemotePath(tree, str(self.path_below()))
        return RemotePath(tree, "")

    def copy(self, split: str, folder: Path) -> tuple[Path, str]:
        """Copy what a split needs below ``folder``; the copy's path (or pattern), and what ``folder`` stands for."""
        if self.one:
            path = folder / _file_name(self.target)
            with talking(self.url):
                _fetch(self.system, self.target, path)
                for name, place in self.beside():
                    _fetch(self.system, place, path.with_name(name))
            return path, self.shown
        wanted = {file: self.relative(file) for file in self.files}
        if not self.pattern:
            wanted = {file: relative for file, relative in wanted.items() if may_belong(relative, split)}
        if not wanted:
            raise InvalidInput("split", split, f"a split that {self.shown} holds")
        with talking(self.url):
            for file, relative in wanted.items():
                if ".." not in relative.parts:
                    _fetch(self.system, file, folder / relative)
        return folder / self.path_below() if self.pattern else folder, self.shown

    def path_below(self) -> PurePosixPath:
        """Of a pattern, what comes behind the folder of all."""
        return PurePosixPath(self.target).relative_to(self._root)


def _is_file(info: Any) -> bool:
    return bool(info.get("type") != "directory")


def _fetch(system: Any, file: str, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with system.open(file, "rb") as stream, hold(path.parent) as folder, folder.create(path.name) as copy:
        shutil.copyfileobj(stream, copy, 2**20)


def _fixed_part(pattern: str) -> str:
    """The folders before the first one with a special character."""
    parts = pattern.split("/")
    return "/".join(parts[: next(place for place, part in enumerate(parts) if glob.has_magic(part))])


def _file_name(target: str) -> str:
    return PurePosixPath(_without_query(target)).name


def _without_query(target: str) -> str:
    return re.split(r"[?#]", target, maxsplit=1)[0] if target.startswith(WEB) else target
