"""Refusals, compared by the field that an error names."""

from __future__ import annotations

from typing import Any

import pytest

from privmix.errors import InvalidInput


def refuses(field: str) -> Any:
    """Expect :class:`InvalidInput` about ``field``: ``with refuses("epsilon"): ...``."""
    return pytest.raises(InvalidInput, check=lambda error: error.field == field)
