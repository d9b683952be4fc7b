"""Fixtures every floor's tests share."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

from tests.durations import leave_out


@pytest.fixture(scope="session")
def data_root() -> Path:
    """Folder with the real datasets (PRIVMIX_DATA, else ../shared/data beside the checkout); skips without it."""
    root = Path(os.environ.get("PRIVMIX_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not root.is_dir():
        pytest.skip(f"no datasets at {root}: set PRIVMIX_DATA to a folder with mnist/, cifar10/, ...")
    return root


# The dearest files, which run first: processes take whole files, and one that began such a file last would end alone.
FIRST = (
    "tests/test_site.py",
    "tests/test_docs.py",
    "tests/planning/test_planner.py",
    "tests/audits/test_planted_bugs.py",
    "tests/hostile/test_hostile.py",
    "tests/cli/test_path.py",
    "tests/audits/test_worst_case.py",
    "tests/engine/test_ray.py",
    "tests/attacks/test_canaries.py",
    "tests/cli/test_interrupted.py",
    "tests/cli/test_train_interrupted.py",
    "tests/training/gradients/test_strategies.py",
    "tests/reports/test_page.py",
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    """Garbage of imports is little, and looking for it takes a fifth of them."""
    gc.disable()


def pytest_runtestloop() -> None:
    """Where others collect, too."""
    gc.enable()


def pytest_collection_finish() -> None:
    """What is there before the first test stays: looking through it for garbage again and again takes long."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    root = Path(__file__).parents[1]
    ranks = {root / file: rank for rank, file in enumerate(FIRST)}
    items.sort(key=lambda item: ranks.get(item.path, len(FIRST)))
    leave_out(items)


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name bytes by their argument: what they hold may change with the clock, and workers must agree on names."""
    return argname if isinstance(val, bytes) else None
