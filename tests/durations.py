"""A plugin of pytest that notes what each test takes: ``PRIVMIX_DURATIONS=FILE pytest -p tests.durations``.

A line of JSON for each phase of a test: its name, the phase, seconds, CPU seconds (of processes that it started and
waited for, too), the outcome, whether it is left out by ``make test``, and what was set up for it and for others, with
seconds. ``benchmarks/bench_suite.py`` adds them up.

``python -m tests.durations FILE...`` writes ``tests/thorough.txt`` of such notes: the tests that take most of the time
and that ``make test`` leaves out beside those that say so themselves. Of a test with many cases its first one stays.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

THOROUGH = Path(__file__).with_name("thorough.txt")
ALL_BUT_FIRST = " *"
# Seconds of all cases of a test from which its first case alone runs daily, of one test that does not, and of what is
# set up for several from which none of them does: such that the daily ones take two cores five minutes.
_MANY, _DEAR, _SHARED = 0.25, 0.5, 5.0
# Set up daily, whatever it takes.
_IN_ANY_CASE = ("tests/engine @ cluster",)
_SETS_UP = " @ "
# Seconds of waiting that count as one of work: who waits holds a process, but leaves its core to others.
_WAITED = 2


def listed() -> dict[str, bool]:
    """Test, or place and fixture of several -> whether its first case runs daily."""
    lines = THOROUGH.read_text(encoding="utf-8").splitlines() if THOROUGH.exists() else []
    return {
        line.removesuffix(ALL_BUT_FIRST): line.endswith(ALL_BUT_FIRST) for line in lines if line[:1] not in ("", "#")
    }


def catching() -> set[str]:
    """Tests that catch planted faults."""
    from tests.detection import FAULTS

    return {test.split("[")[0] for fault in FAULTS for test in fault.tests}


def leave_out(items: list[pytest.Item]) -> None:
    """Mark what is listed as thorough."""
    known, seen, kept = listed(), set[str](), catching()
    shared = [tuple(line.split(_SETS_UP)) for line in known if _SETS_UP in line]
    for item in items:
        name = item.nodeid.split("[")[0]
        own = getattr(item, "fixturenames", ())
        dear_set_up = any(name.startswith(place) and fixture in own for place, fixture in shared)
        if name in known:
            if dear_set_up or not known[name] or name in seen:
                item.add_marker(pytest.mark.thorough)
            seen.add(name)
        elif dear_set_up and name not in kept:
            item.add_marker(pytest.mark.thorough)


def dear(notes: list[Path], kept: set[str]) -> list[str]:
    """Lines of the list, by what tests took; ``kept`` run daily as a whole, since they catch planted faults."""
    cases: dict[str, dict[str, float]] = {}
    found = set[str]()
    for place in notes:
        taken: dict[str, float] = {}
        for text in place.read_text(encoding="utf-8").splitlines():
            name, phase, seconds, cpu, outcome, _, *fixtures = json.loads(text)
            if outcome != "skipped" and phase != "teardown":
                # Who comes first pays for what is set up for all.
                both = sum(sum(one.values()) for one in fixtures)
                taken[name] = taken.get(name, 0.0) + max(0.0, max(cpu, seconds / _WAITED) - both)
            found |= {line for one in fixtures for line, time in one.items() if time > _SHARED}
        for name, cost in taken.items():
            own = cases.setdefault(name.split("[")[0], {})
            own[name] = min(cost, own.get(name, cost))
    for name, own in cases.items():
        if name in kept or name.split("::")[0] in kept:
            continue
        if len(own) > 1 and sum(own.values()) > _MANY:
            found.add(name + ("" if max(own.values()) > _DEAR else ALL_BUT_FIRST))
        elif len(own) == 1 and sum(own.values()) > _DEAR:
            found.add(name)
    return sorted(found - set(_IN_ANY_CASE))


class Notes:
    """Writes the lines; where tests run in several processes, in the one that hears of all."""

    def __init__(self, place: Path) -> None:
        self._place = place

    def pytest_runtest_logreport(self, report: Any) -> None:
        thorough = "thorough" in report.keywords
        line = [report.nodeid, report.when, report.duration, report.cpu_seconds, report.outcome, thorough]
        if report.fixtures:
            line.append(report.fixtures)
        with self._place.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def cpu_seconds() -> float:
    return sum(os.times()[:4])


_before = cpu_seconds()
# What was set up for several tests since the last report -> seconds.
_set_up: dict[str, float] = {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    global _before
    report: Any = yield
    now = cpu_seconds()
    report.cpu_seconds, _before = now - _before, now
    report.fixtures = dict(_set_up)
    _set_up.clear()
    return report


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any) -> Iterator[None]:
    start, before = time.perf_counter(), sum(_set_up.values())
    made: Any = yield
    if fixturedef.scope != "function":
        # Without what it needs, which was set up meanwhile.
        own = time.perf_counter() - start - (sum(_set_up.values()) - before)
        _set_up[f"{fixturedef.baseid}{_SETS_UP}{fixturedef.argname}"] = own
    return made


def pytest_configure(config: pytest.Config) -> None:
    place = os.environ.get("PRIVMIX_DURATIONS")
    if place and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Notes(Path(place)))


if __name__ == "__main__":
    THOROUGH.write_text(
        "# Written by `python -m tests.durations`: left out by `make test`; of those with a star the first case runs.\n"
        "# PLACE @ FIXTURE: of tests that use it, those run that catch planted faults.\n"
        + "\n".join(dear([Path(word) for word in sys.argv[1:]], catching()))
        + "\n",
        encoding="utf-8",
    )
