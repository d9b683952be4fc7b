"""Data on file systems that fsspec reaches: object stores, web servers, memory."""

from __future__ import annotations

import errno
import glob
import hashlib
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, Final

from numpy.typing import NDArray

from privmix.data.files import may_belong
from privmix.data.manifest import Manifest
from privmix.data.openers import companions
from privmix.data.source import Schema, Source
from privmix.errors import InvalidInput, MissingExtra, PrivmixError, StorageError, in_terms_of
from privmix.held_folders import hold
from privmix.scratch import ScratchFolder

_SCHEME: Final = re.compile(r"^[a-zA-Z][a-zA-Z0-9+.:-]*://")
_LOCAL: Final = "file://"
_WEB: Final = ("http://", "https://")


class RemoteSource(Source):
    """A dataset at an address, read from a private copy on this machine.

    The files are copied, not streamed: every format here is read more than once (records are counted, then read, and
    a release may read them again), Parquet, zip and Arrow files jump to and fro, and a release must not fail half-way
    because a connection did, once its budget is spent. The copy lies in a new folder that its owner alone can enter
    (mode 0700, in TMPDIR), and is removed when the source is no longer used, and at the latest when Python exits; what
    a process that is killed leaves behind goes when the next one starts. Files that name another split are not copied.

    Args:
        url: of a file, a folder or a pattern.
        split: ``"train"``, ``"test"`` or ``"val"``.
        open_local: opens the copy.

    Formal guarantees:
        - No secrets in messages: an address is shown without user, password and query, and what a remote library says
          is dropped.

    Raises:
        StorageError: there is nothing, or it cannot be read.
        InvalidInput: no such scheme, or as the format's own source.
        MissingExtra: fsspec is not installed.
    """

    def __init__(self, url: str, split: str, open_local: Callable[[Path], Source]) -> None:
        # Gone with this object: a scratch folder goes with its own.
        self._scratch = ScratchFolder()
        self._folder = str(self._scratch.path)
        try:
            self._path, self._base = _copy(url, split, Path(self._folder))
            with self._renaming():
                self._local = open_local(self._path)
            self.files = self._local.files
        except BaseException:
            self._scratch.remove()
            raise

    @property
    def schema(self) -> Schema:
        """That of the copy."""
        return self._local.schema

    @property
    def names(self) -> tuple[str, ...] | None:
        """Those of the copy."""
        return self._local.names

    def _chunks(self, size: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        with self._renaming():
            yield from self._local._chunks(size)

    def _chunks_from(self, first: int, size: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        with self._renaming():
            yield from self._local._chunks_from(first, size)

    def manifest(self) -> Manifest:
        """That of the copy."""
        return self._local.manifest()

    @contextmanager
    def copy(self) -> Iterator[Path]:
        """Where the copy lies, for what else is to be read of the same records; errors within name the address."""
        with self._renaming():
            yield self._path

    @contextmanager
    def _renaming(self) -> Iterator[None]:
        """Errors name the address, not the copy."""
        with in_terms_of(texts={self._folder: self._base}):
            yield


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


def public_name(url: str) -> str:
    """The address without user, password, query and fragment.

    Example:
        >>> public_name("https://ann:secret@host/train.csv?token=abc")
        'https://host/train.csv'
    """
    # A password may hold @ and /, so everything up to the last @ after a colon goes.
    return re.split(r"[?#]", re.sub(r"://(?:.*:.*@|[^/]*@)", "://", url), maxsplit=1)[0]


def remote_digests(url: str, split: str | None = None, skip: Callable[[str], bool] | None = None) -> list[str]:
    """SHA-256 of every file at an address, hidden ones left out; nothing is kept on this machine.

    Args:
        url: the address.
        split: of a folder, those files alone that may belong to it.
        skip: by their names, files to leave out.

    Raises:
        StorageError, InvalidInput, MissingExtra: as :class:`RemoteSource`.
    """
    system, files, target = _find(url)
    if split is not None and files != [target] and not glob.has_magic(target):
        files = [file for file in files if may_belong(PurePosixPath(file).relative_to(PurePosixPath(target)), split)]
    if skip is not None:
        files = [file for file in files if not skip(_file_name(file))]
    digests = []
    with _talking(url):
        for file in files:
            with system.open(file, "rb") as stream:
                digest = hashlib.sha256()
                while piece := stream.read(2**20):
                    digest.update(piece)
                digests.append(digest.hexdigest())
    return digests


def _copy(url: str, split: str, folder: Path) -> tuple[Path, str]:
    """Copy what ``split`` needs below ``folder``; the copy's path (or pattern), and the public name of ``folder``."""
    system, files, target = _find(url)
    shown = public_name(url).rstrip("/")
    if files == [target]:
        path = folder / _file_name(target)
        with _talking(url):
            _fetch(system, target, path)
            for companion in companions(path):
                place = str(PurePosixPath(_without_query(target)).with_name(companion.name))
                if companion != path and system.exists(place):
                    _fetch(system, place, companion)
        return path, shown.rpartition("/")[0]
    pattern = glob.has_magic(target)
    root = PurePosixPath(_fixed_part(target) if pattern else target)
    wanted = {file: PurePosixPath(file).relative_to(root) for file in files}
    if not pattern:
        wanted = {file: relative for file, relative in wanted.items() if may_belong(relative, split)}
    if not wanted:
        raise InvalidInput("split", split, f"a split that {shown} holds")
    with _talking(url):
        for file, relative in wanted.items():
            if ".." not in relative.parts:
                _fetch(system, file, folder / relative)
    if not pattern:
        return folder, shown
    return folder / PurePosixPath(target).relative_to(root), re.split(r"[*\[]", shown)[0].rpartition("/")[0]


def _find(url: str) -> tuple[Any, list[str], str]:
    """The file system, the paths there of all files that ``url`` means, and its own path there."""
    try:
        import fsspec
    except ImportError:
        raise MissingExtra("fsspec", "remote") from None
    try:
        system, target = fsspec.url_to_fs(url)
    except (ImportError, ValueError):
        allowed = "a scheme whose file system is installed (s3:// needs s3fs, gs:// gcsfs, https:// aiohttp)"
        raise InvalidInput("data", public_name(url), allowed) from None
    except Exception:
        raise StorageError(f"{public_name(url)}: cannot be opened") from None
    target = target.rstrip("/")
    with _talking(url):
        system.invalidate_cache()
        if not url.startswith(_WEB) and glob.has_magic(target) and not system.exists(target):
            files = [file for file in system.glob(target) if system.isfile(file)]
        elif system.isfile(target):
            return system, [target], target
        else:
            files = system.find(target)
    files = sorted(file for file in files if not PurePosixPath(file).name.startswith("."))
    if not files:
        raise StorageError(f"{public_name(url)}: no such file or folder, or nothing in it")
    return system, files, target


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
    return re.split(r"[?#]", target, maxsplit=1)[0] if target.startswith(_WEB) else target


@contextmanager
def _talking(url: str) -> Iterator[None]:
    """Whatever a remote library raises loses its message, which may quote the address with its secrets."""
    try:
        yield
    except PrivmixError:
        raise
    except FileNotFoundError:
        raise StorageError(f"{public_name(url)}: no such file or folder") from None
    except Exception as error:
        full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        problem = "no room for a copy in the folder for temporary files" if full else "cannot be read"
        raise StorageError(f"{public_name(url)}: {problem}") from None
