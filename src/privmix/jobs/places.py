"""Places where jobs write: asked before the work, and not after it."""

import os
from pathlib import Path
from typing import Final

from privmix.data.store import FeatureStore
from privmix.errors import InvalidInput, StorageError

# Every folder that is made to be handed on has one of these.
_PUBLISHED: Final = ("certificate.json", "model.json")
_PICTURES: Final = (".svg", ".png", ".pdf")


def check_writable(field: str, path: Path) -> None:
    """Raise :class:`StorageError` where a folder ``path`` can't be made or written in, as far as can be known."""
    place = next(place for place in (path.absolute(), *path.absolute().parents) if place.exists())
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        raise StorageError(f"{field}: cannot write {path}: {place} is not a writable folder")


def check_store(store: str | Path | None) -> None:
    """Raise :class:`InvalidInput` or :class:`StorageError` where what is at ``store`` is no feature store."""
    if store is not None and Path(store).exists():
        FeatureStore.check(store)


def check_figure(path: Path | None) -> None:
    """Raise unless a picture of that name can be drawn, outside releases and models."""
    if path is None:
        return
    if path.suffix not in _PICTURES or path.is_dir():
        raise InvalidInput("figure", str(path), "a file name that ends in " + ", ".join(_PICTURES))
    check_unpublished("figure", path)
    check_writable("figure", path.parent)


def check_unpublished(field: str, path: Path) -> None:
    """Raise :class:`InvalidInput` where `path` is in a release or a model: such folders are shared whole."""
    # A file's mode does not survive that.
    # Resolved: a link may lead into such a folder.
    place = path.resolve()
    if any((above / mark).is_file() for above in (place, *place.parents) for mark in _PUBLISHED):
        raise InvalidInput(
            field, str(path), "a place outside of release and model folders, which are shared with others"
        )
