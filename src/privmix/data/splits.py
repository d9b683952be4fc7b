"""Which split a file or folder belongs to, by the words in its name."""

from __future__ import annotations

from pathlib import PurePath
from typing import Final

# MNIST calls its test split t10k.
SPLITS: Final = {"train": ("train",), "test": ("test", "t10k"), "val": ("val", "valid", "validation", "dev")}


def split_of(name: str) -> str | None:
    """The split that a file's name marks, if it marks one.

    Example:
        >>> split_of("train-00000-of-00002.parquet"), split_of("contest.csv")
        ('train', None)
    """
    words = name.lower().replace("-", "_").replace(".", "_").split("_")
    return next((split for split, marks in SPLITS.items() if any(word in marks for word in words)), None)


def folder_split(name: str) -> str | None:
    """The split that a folder's whole name is, if it is one."""
    return next((split for split, marks in SPLITS.items() if name.lower() in marks), None)


def may_belong(relative: PurePath, split: str) -> bool:
    """Whether a file, by its path within a dataset's folder, may belong to a split: no name says another one."""
    top = relative.parts[0]
    marked = split_of(top) if len(relative.parts) == 1 else folder_split(top)
    return marked in (None, split)
