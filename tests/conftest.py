"""Fixtures every floor's tests share."""

import gc
import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from privmix.mechanisms.streams import SecretStreams
from tests.durations import leave_out, recorded

# A busy machine is no failure: by default examples have a deadline, and slow ones fail the health check.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")


@pytest.fixture(scope="session")
def data_root() -> Path:
    """Folder with the real datasets (PRIVMIX_DATA, else ../shared/data beside the checkout); skips without it."""
    root = Path(os.environ.get("PRIVMIX_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not root.is_dir():
        pytest.skip(f"no datasets at {root}: set PRIVMIX_DATA to a folder with mnist/, cifar10/, ...")
    return root


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current folder is the test's own."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def fixed_keys() -> Iterator[None]:
    """Keys from a counter instead of the system's random numbers: no threshold of a random result fails by chance."""
    count = itertools.count(1)

    def counted(cls: type[SecretStreams]) -> SecretStreams:
        return cls(bytearray(next(count).to_bytes(32, "big")), insecure_seed=False)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SecretStreams, "from_entropy", classmethod(counted))
        yield


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Debian's Chromium, or Chrome; skips without one."""
    playwright = pytest.importorskip("playwright.sync_api", reason="drives a browser; in privmix[dev]")
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.skip("no chromium, chromium-browser or google-chrome on the PATH")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=["--no-sandbox"] if os.geteuid() == 0 else [])
        yield browser
        browser.close()


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
    """Run slow files first, and files that share a cluster after each other."""
    root, seconds = Path(__file__).parents[1], recorded().seconds
    clustered = {item.path for item in items if "cluster" in getattr(item, "fixturenames", ())}
    items.sort(key=lambda item: (item.path not in clustered, -seconds.get(item.path.relative_to(root).as_posix(), 0.0)))
    leave_out(items)


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name bytes by their argument: what they hold may change with the clock, and workers must agree on names."""
    return argname if isinstance(val, bytes) else None
