"""A plugin of pytest that notes what each test takes: ``PRIVMIX_DURATIONS=FILE pytest -p tests.durations``.

A line of JSON for each phase of a test: its name, the phase, seconds, CPU seconds (of processes that it started and
waited for, too), the outcome, and whether it is left out by ``make test``. ``benchmarks/bench_suite.py`` adds them up.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


class Notes:
    """Writes the lines; where tests run in several processes, in the one that hears of all."""

    def __init__(self, place: Path) -> None:
        self._place = place

    def pytest_runtest_logreport(self, report: Any) -> None:
        thorough = "thorough" in report.keywords
        line = [report.nodeid, report.when, report.duration, report.cpu_seconds, report.outcome, thorough]
        with self._place.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def cpu_seconds() -> float:
    return sum(os.times()[:4])


_before = cpu_seconds()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    global _before
    report: Any = yield
    now = cpu_seconds()
    report.cpu_seconds, _before = now - _before, now
    return report


def pytest_configure(config: pytest.Config) -> None:
    place = os.environ.get("PRIVMIX_DURATIONS")
    if place and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Notes(Path(place)))
