"""Refusals, compared by the field that an error names; and of all that changes a folder."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privmix.errors import InvalidInput, PrivmixError


def refuses(field: str, *hidden: str) -> Any:
    """Expect :class:`InvalidInput` about ``field``, without hidden texts: ``with refuses("epsilon"): ...``."""
    return pytest.raises(
        InvalidInput, check=lambda error: error.field == field and not any(text in str(error) for text in hidden)
    )


def refuses_any_change(folder: Path, verify: Callable[[Path], object], files: int) -> None:
    """Bytes changed, added and taken in each file: at twenty places, chosen at random, and at both ends."""
    rng = np.random.default_rng(0)
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    assert len(paths) == files
    for path in paths:
        whole = path.read_bytes()
        for index in {0, len(whole) - 1, *rng.integers(0, len(whole), 20).tolist()}:
            flipped = bytes([whole[index] ^ int(rng.integers(1, 256))])
            for middle in (flipped, flipped + whole[index : index + 1], b""):
                path.write_bytes(whole[:index] + middle + whole[index + 1 :])
                with pytest.raises(PrivmixError):
                    verify(folder)
        path.write_bytes(whole + b"\n")
        with pytest.raises(PrivmixError):
            verify(folder)
        path.write_bytes(whole)
    verify(folder)
