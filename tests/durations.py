"""A plugin of pytest that notes what each test takes: ``PRIVMIX_DURATIONS=FILE pytest -p tests.durations``.

A line of JSON for each phase of a test: its name, the phase, seconds, CPU seconds (of processes that it started and
waited for, too), the outcome, and whether it is left out by ``make test``. ``benchmarks/bench_suite.py`` adds them up.

``python -m tests.durations FILE...`` writes ``tests/thorough.txt`` of such notes: the tests that take most of the time
and that ``make test`` leaves out beside those that say so themselves. Of a test with many cases its first one stays.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

THOROUGH = Path(__file__).with_name("thorough.txt")
ALL_BUT_FIRST = " *"
# Seconds of all cases of a test from which its first case alone runs daily, and of one test that does not: such that
# the daily ones take two cores five minutes.
_MANY, _DEAR = 0.4, 1.0
# Seconds of waiting that count as one of work: who waits holds a process, but leaves its core to others.
_WAITED = 2


def listed() -> dict[str, bool]:
    """Test -> whether its first case runs daily."""
    lines = THOROUGH.read_text(encoding="utf-8").splitlines() if THOROUGH.exists() else []
    return {
        line.removesuffix(ALL_BUT_FIRST): line.endswith(ALL_BUT_FIRST) for line in lines if line[:1] not in ("", "#")
    }


def leave_out(items: list[pytest.Item]) -> None:
    """Mark what is listed as thorough."""
    known, seen = listed(), set()
    for item in items:
        name = item.nodeid.split("[")[0]
        if name in known:
            if not known[name] or name in seen:
                item.add_marker(pytest.mark.thorough)
            seen.add(name)


def dear(notes: list[Path], kept: set[str]) -> list[str]:
    """Lines of the list, by what tests took; ``kept`` run daily as a whole, since they catch planted faults."""
    cases: dict[str, dict[str, float]] = {}
    for text in (line for place in notes for line in place.read_text(encoding="utf-8").splitlines()):
        name, phase, seconds, cpu, outcome, *_ = json.loads(text)
        if outcome != "skipped" and phase != "teardown":
            own = cases.setdefault(name.split("[")[0], {})
            own[name] = own.get(name, 0.0) + max(cpu, seconds / _WAITED)
    found = []
    for name, own in sorted(cases.items()):
        if name in kept or name.split("::")[0] in kept:
            continue
        if len(own) > 1 and sum(own.values()) > _MANY:
            found.append(name + ("" if max(own.values()) > _DEAR else ALL_BUT_FIRST))
        elif len(own) == 1 and sum(own.values()) > _DEAR:
            found.append(name)
    return found


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


if __name__ == "__main__":
    from tests.detection import FAULTS

    named = {test.split("[")[0] for fault in FAULTS for test in fault.tests}
    THOROUGH.write_text(
        "# Written by `python -m tests.durations`: left out by `make test`; of those with a star the first case runs.\n"
        + "\n".join(dear([Path(word) for word in sys.argv[1:]], named))
        + "\n",
        encoding="utf-8",
    )
