"""Opening files, and turning what can go wrong there into one-line errors."""

from __future__ import annotations

import gzip
import lzma
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from privmix.errors import WITHHELD, InvalidInput, StorageError

_GZIP_MAGIC = b"\x1f\x8b"


@contextmanager
def reading(path: Path, kind: str) -> Iterator[None]:
    """Translate failures of the enclosed reading of ``path``, a file that should be of ``kind``.

    The cause is dropped: libraries quote the bytes that they stumbled over.
    """
    try:
        yield
    except (InvalidInput, StorageError):
        raise
    except (gzip.BadGzipFile, EOFError, zlib.error, lzma.LZMAError):
        raise _damaged(path, kind) from None
    except OSError as error:
        if error.errno is None:
            # Not from the operating system: a decoder that calls damaged content an I/O error.
            raise _damaged(path, kind) from None
        raise StorageError(f"{path}: {error.strerror or 'cannot be read'}") from None
    except MemoryError:
        raise StorageError(f"{path}: does not fit in memory") from None


@contextmanager
def decoding(path: Path, kind: str) -> Iterator[None]:
    """As :func:`reading`, for decoders that may raise anything at all on damaged input."""
    with reading(path, kind):
        try:
            yield
        except (InvalidInput, StorageError, OSError, EOFError, MemoryError):
            raise
        except Exception:
            raise _damaged(path, kind) from None


def open_binary(path: Path) -> IO[bytes]:
    """Open a file for reading, through gzip if its first bytes say so."""
    with path.open("rb") as file:
        zipped = file.read(2) == _GZIP_MAGIC
    return cast(IO[bytes], gzip.open(path, "rb")) if zipped else path.open("rb")


def _damaged(path: Path, kind: str) -> InvalidInput:
    return InvalidInput(str(path), WITHHELD, f"{kind}, complete and undamaged")
