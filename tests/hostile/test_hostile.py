"""Every hostile folder with every verb: refused in one line, or harmless; and never a side effect."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.corpus import ALL, CASES, KINDS, NOT_FOR, Case, told_first
from tests.hostile.guard import MOST_MEMORY
from tests.hostile.planted import EFFECTS

REPOSITORY = Path(__file__).parents[2]
for module in sorted(Path(__file__).parent.glob("cases_*.py")):
    importlib.import_module(f"tests.hostile.{module.stem}")

Seen = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Seen:
    """What one process saw that opened everything: with every verb, where somebody here asks for that."""
    every = any(item.path == request.path and item.get_closest_marker("thorough") for item in request.session.items)
    root = tmp_path_factory.mktemp("hostile") / "root"
    # Nothing may be fetched because fetching is allowed, and not because it is switched off.
    offline = {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "PRIVMIX_DEBUG"}
    environment = {name: value for name, value in os.environ.items() if name not in offline}
    # Held back, not given in: a proxy would make every address look like one of this machine.
    command = [sys.executable, "-m", "tests.hostile.worker", str(root), *(["--every-verb"] if every else [])]
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-2000:]
    found: Seen = {}
    for line in (root / "report.jsonl").read_text().splitlines():
        entry = json.loads(line)
        found.setdefault(entry["case"], []).append(entry)
    return found


def effects(entry: dict[str, Any]) -> list[str]:
    """Side effects of one command, memory among them."""
    grown = entry["grown"] > MOST_MEMORY
    return [*entry["found"], *([f"memory: {entry['grown'] / 2**20:.0f} MiB"] if grown else [])]


def check(entry: dict[str, Any]) -> None:
    """An exit code for users' errors, said in one line; nothing else happened."""
    told = f"{entry['case']}: {entry['verb']}: {entry['error'][-600:]}"
    assert not effects(entry), f"{told}: {effects(entry)}"
    assert entry["code"] in (0, 1, 2), told
    if entry["code"]:
        # What was spent, and how to go on, stands below the error.
        lines = [
            line for line in entry["error"].strip().splitlines() if not line.startswith(("budget: ", "continue: "))
        ]
        assert lines, told
        assert lines[-1].startswith("error: "), told
        # Running out of memory is no check: a larger machine would not.
        assert not lines[-1].startswith("error: memory"), told
        assert len(lines[-1]) < 1000, told
        assert "Traceback" not in entry["error"], told


@pytest.mark.parametrize("name", CASES)
def test_a_hostile_folder_has_no_effect(seen: Seen, name: str) -> None:
    """With the first verb that takes such a folder, and one that must refuse it."""
    check_all(seen, CASES[name], told_first(CASES[name]))


@pytest.mark.thorough
@pytest.mark.parametrize("name", CASES)
def test_nor_has_it_with_any_other_verb(seen: Seen, name: str) -> None:
    check_all(seen, CASES[name], ALL[CASES[name].kind] - told_first(CASES[name]))


def check_all(seen: Seen, case: Case, verbs: set[str]) -> None:
    entries = {entry["verb"]: entry for entry in seen[case.name] if entry["verb"] in verbs}
    # Where fitting is refused there is no model to evaluate.
    assert verbs - set(entries) <= ({"evaluate"} if case.kind == "release" else set())
    for entry in entries.values():
        check(entry)
    passed = {verb for verb in case.refused if verb in entries and entries[verb]["code"] == 0}
    assert not passed, f"{case.name} passes {sorted(passed)}"


@pytest.mark.parametrize("kind", KINDS)
def test_honest_folders_pass(seen: Seen, kind: str) -> None:
    entries = seen[f"honest {kind}"]
    assert {entry["verb"] for entry in entries} == ALL[kind]
    for entry in entries:
        check(entry)
        assert (entry["code"] == 0) == (entry["verb"] not in NOT_FOR[kind]), entry


@pytest.mark.parametrize("name", EFFECTS)
def test_the_watch_is_awake(seen: Seen, name: str) -> None:
    (entry,) = seen[f"planted {name}"]
    assert any(told.startswith(name) for told in effects(entry)), entry
