"""A plugin of pytest that notes what each test takes: ``PRIVMIX_DURATIONS=FILE pytest -p tests.durations``.

A line of JSON for each phase of a test: its name, the phase, seconds, CPU seconds (of processes that it started and
waited for, too), the outcome, whether it is left out by ``make test``, and what was set up for it and for others, with
seconds.

``python -m tests.durations FILE`` writes ``tests/thorough.txt`` from such notes: the seconds of each test file, and
the slow tests, which ``make test`` leaves out in addition to tests with the marker ``thorough``. The first case of a
slow test with many fast cases stays. Files without notes keep their lines.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.detection import FAULTS

CATCHING = {test.split("[")[0] for fault in FAULTS for test in fault.tests}
THOROUGH = Path(__file__).with_name("thorough.txt")
ALL_BUT_FIRST = " *"
# Seconds of all cases of a test from which its first case alone runs daily, of one test that does not, and of what is
# set up for several from which none of them does: such that the daily ones take two cores five minutes.
_MANY, _DEAR, _SHARED = 0.25, 0.5, 5.0
# Set up daily, whatever it takes.
_IN_ANY_CASE = ("tests/engine @ cluster",)
_SETS_UP = " @ "
_HEAD = """\
# Written by `python -m tests.durations`. FILE SECONDS: of all its tests. Below it those that `make test` leaves out; of
# those with a star the first case runs. PLACE @ FIXTURE: of tests that use it, those run that catch planted faults."""
# Seconds of waiting that count as one of work: who waits holds a process, but leaves its core to others.
_WAITED = 2


@dataclass(frozen=True)
class Recorded:
    """Seconds of each test file, slow tests and whether their first case runs daily, and slow shared fixtures."""

    seconds: dict[str, float]
    left_out: dict[str, bool]
    set_up: list[tuple[str, str]]


def recorded() -> Recorded:
    """Read the file; empty if there is none."""
    found, file = Recorded({}, {}, []), ""
    for line in THOROUGH.read_text(encoding="utf-8").splitlines() if THOROUGH.exists() else []:
        if line.startswith("#"):
            continue
        if _SETS_UP in line:
            place, fixture = line.split(_SETS_UP)
            found.set_up.append((place, fixture))
        elif line.startswith(" "):
            found.left_out[f"{file}::{line.strip().removesuffix(ALL_BUT_FIRST)}"] = line.endswith(ALL_BUT_FIRST)
        else:
            file, seconds = line.split(" ")
            found.seconds[file] = float(seconds)
    return found


def leave_out(items: list[pytest.Item]) -> None:
    """Mark what is listed as thorough."""
    record, seen = recorded(), set[str]()
    known = record.left_out
    for item in items:
        name = item.nodeid.split("[")[0]
        own = getattr(item, "fixturenames", ())
        dear_set_up = any(name.startswith(place) and fixture in own for place, fixture in record.set_up)
        if name in known:
            if dear_set_up or not known[name] or name in seen:
                item.add_marker(pytest.mark.thorough)
            seen.add(name)
        elif dear_set_up and name not in CATCHING:
            item.add_marker(pytest.mark.thorough)


def measured(notes: Path) -> Recorded:
    """Add up notes; tests that catch planted faults run daily as a whole."""
    cases: dict[str, dict[str, float]] = {}
    found = Recorded({}, {}, [])
    for text in notes.read_text(encoding="utf-8").splitlines():
        name, phase, seconds, cpu, outcome, _, *fixtures = json.loads(text)
        file = name.split("::")[0]
        found.seconds[file] = found.seconds.get(file, 0.0) + seconds
        if outcome != "skipped" and phase != "teardown":
            # Who comes first pays for what is set up for all.
            both = sum(sum(one.values()) for one in fixtures)
            own = cases.setdefault(name.split("[")[0], {})
            own[name] = own.get(name, 0.0) + max(0.0, max(cpu, seconds / _WAITED) - both)
        for one in fixtures:
            shared = [line for line, time in one.items() if time > _SHARED and line not in _IN_ANY_CASE]
            found.set_up.extend((place, fixture) for place, fixture in (line.split(_SETS_UP) for line in shared))
    for name, own in cases.items():
        if name in CATCHING:
            continue
        if len(own) > 1 and sum(own.values()) > _MANY:
            found.left_out[name] = max(own.values()) <= _DEAR
        elif len(own) == 1 and sum(own.values()) > _DEAR:
            found.left_out[name] = False
    return found


def lines(before: Recorded, now: Recorded) -> list[str]:
    """Lines of the new file: measured files, and the earlier lines of all others."""

    def stays(file: str) -> bool:
        return file not in now.seconds and (THOROUGH.parents[1] / file).exists()

    kept = [one for one in before.set_up if stays(one[0])]
    found = [_HEAD, *(_SETS_UP.join(one) for one in sorted({*kept, *now.set_up}))]
    seconds = {file: total for file, total in before.seconds.items() if stays(file)} | now.seconds
    left_out = {name: first for name, first in before.left_out.items() if stays(name.split("::")[0])} | now.left_out
    for file, total in sorted(seconds.items()):
        own = [name.removeprefix(f"{file}::") for name in sorted(left_out) if name.startswith(f"{file}::")]
        if own or total >= 1:
            found.append(f"{file} {total:.0f}")
        found += [f" {name}" + (ALL_BUT_FIRST if left_out[f"{file}::{name}"] else "") for name in own]
    return found


def cpu_seconds() -> float:
    return sum(os.times()[:4])


def pytest_runtest_logreport(report: Any) -> None:
    """Write a line; where tests run in several processes, in the one that hears of all."""
    place = os.environ.get("PRIVMIX_DURATIONS")
    if place and "PYTEST_XDIST_WORKER" not in os.environ:
        thorough = "thorough" in report.keywords
        line = [report.nodeid, report.when, report.duration, report.cpu_seconds, report.outcome, thorough]
        with Path(place).open("a", encoding="utf-8") as file:
            file.write(json.dumps([*line, report.fixtures] if report.fixtures else line) + "\n")


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


if __name__ == "__main__":
    text = lines(recorded(), measured(Path(sys.argv[1])))
    THOROUGH.write_text("\n".join(text) + "\n", encoding="utf-8")
