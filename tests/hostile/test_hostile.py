"""Every hostile folder with every verb: refused in one line, or harmless; and never a side effect."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.corpus import ALL, CASES, KINDS, NOT_FOR, told_first
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
        lines = entry["error"].strip().splitlines()
        *_, last = ["", *(line for line in lines if not line.startswith(("budget: ", "continue: ")))]
        assert last.startswith("error: "), told
        # Running out of memory is no check: a larger machine would not.
        assert not last.startswith("error: memory"), told
        assert len(last) < 1000, told
        assert "Traceback" not in entry["error"], told


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("others", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_a_hostile_folder_has_no_effect(seen: Seen, name: str, others: bool) -> None:
    """With the first verb that takes such a folder, and one that must refuse it; and with all others."""
    case = CASES[name]
    verbs = ALL[case.kind] - told_first(case) if others else told_first(case)
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
