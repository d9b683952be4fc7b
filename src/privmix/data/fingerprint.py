"""What tells one private dataset from another: a hash of its files. Private, like what it is made from."""

from __future__ import annotations

import glob
import hashlib
import os
from pathlib import Path

from privmix.data.files import reading
from privmix.data.remote import is_remote, local_path, remote_digests
from privmix.errors import StorageError


def fingerprint(path: str | Path) -> str:
    """Hash the content of a file, or of all files below a folder but hidden ones, whatever they are called.

    The same files have the same hash wherever they lie: ``path`` may be a pattern with ``*``, ``?`` or ``[``, or an
    address that fsspec opens (``s3://``, ...; as a str, since a Path would lose a slash).

    The hash is private: whoever guesses the data can confirm it. It belongs in the owner's ledger and nowhere else.

    Returns:
        64 hexadecimal digits.

    Raises:
        StorageError: a file can't be read.
        InvalidInput, MissingExtra: the address has a scheme that can't be opened.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile() as file:
        ...     len(fingerprint(file.name))
        64
    """
    digests = remote_digests(str(path)) if is_remote(path) else _local_digests(local_path(path))
    # Sorted: a copy under other names is the same data.
    return hashlib.sha256("\n".join(sorted(digests)).encode()).hexdigest()


def _local_digests(root: Path) -> list[str]:
    digests = []
    with reading(root, "a file or folder"):
        for file in files_of(root):
            with file.open("rb") as stream:
                digests.append(hashlib.file_digest(stream, "sha256").hexdigest())
    return digests


def files_of(path: Path) -> list[Path]:
    """The file ``path``, or all files below it or matching it but hidden ones, in order. Links are followed.

    Raises:
        StorageError: there is nothing.
    """
    if path.is_file():
        return [path]
    if not path.exists() and glob.has_magic(str(path)):
        found = [Path(name) for name in glob.glob(str(path), recursive=True)]
    else:
        found = [Path(folder) / name for folder, _, names in os.walk(path, followlinks=True) for name in names]
    files = sorted(file for file in found if file.is_file() and not file.name.startswith("."))
    if not files:
        raise StorageError(f"{path}: no such file or folder, or nothing in it")
    return files
