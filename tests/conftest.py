"""Fixtures every floor's tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data_root() -> Path:
    """Folder with the real datasets (PRIVMIX_DATA, else ../shared/data beside the checkout); skips without it."""
    root = Path(os.environ.get("PRIVMIX_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not root.is_dir():
        pytest.skip(f"no datasets at {root}: set PRIVMIX_DATA to a folder with mnist/, cifar10/, ...")
    return root


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name bytes by their argument: what they hold may change with the clock, and workers must agree on names."""
    return argname if isinstance(val, bytes) else None
