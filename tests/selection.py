"""Select the thorough tests of a change: the tests near to it, and one of four equal parts of all.

``python -m tests.selection`` prints test files for ``pytest -m thorough``. The distance of a test file from a change
counts imports (:mod:`tests.imports`): 0 for changed test files and for the tests of changed modules, 1 for tests that
import a changed module, and so on. Files are taken in this order, the fastest first at the same distance, until the
time is used up. ``tests/thorough.txt`` has the seconds of each file. The commit's hash chooses the part; a part always
runs as a whole.

A change begins at the first of these commits that exists:

1. the commit that the environment variable PRIVMIX_BASE names;
2. the merge base with the default branch of ``origin``, if it differs from HEAD;
3. the last commit that is twelve hours older than HEAD, because commits that land together were made in that time;
4. the oldest commit in the clone, if it differs from HEAD.

If none exists, every test file counts as near.
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.durations import recorded
from tests.imports import ImportGraph

ROOT = Path(__file__).parents[1]
PARTS = 4
# Minutes of the selected tests on so many processes. Factor: files may take longer than recorded, and processes wait.
MINUTES = 18.0
PROCESSES = 2
SLOWER = 1.2
BUDGET = MINUTES * 60 * PROCESSES / SLOWER
# Seconds of a file without a record.
UNRECORDED = 1.0
HOURS = 12
# A change of these files reaches all tests, at a distance beyond all imports.
EVERYWHERE = ("pyproject.toml", "constraints.txt", "Makefile", ".ci/run", "tests/conftest.py")
FAR = 1000


class Selection(NamedTuple):
    """Test files to run: the commit's part, others that the change reaches, and those left for lack of time."""

    part: list[str]
    touched: list[str]
    left: list[str]


def parts(tests: Sequence[str], seconds: Mapping[str, float]) -> list[list[str]]:
    """Split files into parts of equal time: the slowest first, each into the part with the least time."""
    found: list[list[str]] = [[] for _ in range(PARTS)]
    taken = [0.0] * PARTS
    for test in sorted(tests, key=lambda test: (-seconds.get(test, UNRECORDED), test)):
        least = taken.index(min(taken))
        found[least].append(test)
        taken[least] += seconds.get(test, UNRECORDED)
    return found


def near(graph: ImportGraph, changed: Sequence[str]) -> dict[str, int]:
    """Distances of the test files that a change reaches."""
    distances = graph.distances(changed)
    if any(path in EVERYWHERE for path in changed):
        distances = dict.fromkeys(graph.tests, FAR) | distances
    return {test: distances[test] for test in graph.tests if test in distances}


def select(
    graph: ImportGraph, changed: Sequence[str], number: int, seconds: Mapping[str, float], budget: float = BUDGET
) -> Selection:
    """Select test files; ``number`` chooses the part; ``seconds``: recorded, by file."""
    part = parts(graph.tests, seconds)[number % PARTS]
    ranks = {test: rank for test, rank in near(graph, changed).items() if test not in part}
    left_over = budget - sum(seconds.get(test, UNRECORDED) for test in part)
    found = Selection(part, [], [])
    for test in sorted(ranks, key=lambda test: (ranks[test], seconds.get(test, UNRECORDED), test)):
        cost = seconds.get(test, UNRECORDED)
        (found.touched if cost <= left_over else found.left).append(test)
        left_over -= cost if cost <= left_over else 0.0
    return found


def git(root: Path, *arguments: str) -> str | None:
    """Output of git; None if git fails."""
    command = ["git", "-C", str(root), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def base(root: Path, named: str | None = None) -> str | None:
    """Commit at which a change begins."""
    head = git(root, "rev-parse", "HEAD")
    if head is None:
        return None
    if named:
        found = git(root, "merge-base", named, "HEAD")
        if found is None:
            raise SystemExit(f"PRIVMIX_BASE: {named} and HEAD have no common commit: fetch it, or unset PRIVMIX_BASE")
        return found
    upstream = git(root, "rev-parse", "--abbrev-ref", "origin/HEAD") or "origin/main"
    found = git(root, "merge-base", upstream, "HEAD")
    if found not in (None, "", head):
        return found
    time = int(git(root, "log", "-1", "--format=%ct") or 0) - HOURS * 3600
    history = (git(root, "rev-list", "HEAD") or head).split()
    return git(root, "rev-list", "-1", f"--before=@{time}", "HEAD") or (history[-1] if history[-1] != head else None)


def changed_since(root: Path, commit: str) -> list[str]:
    """Paths that differ from a commit, uncommitted and new ones included."""
    of_commits = git(root, "diff", "--name-only", "--no-renames", "-z", commit) or ""
    new = git(root, "ls-files", "--others", "--exclude-standard", "-z") or ""
    return sorted({path for path in (of_commits + "\0" + new).split("\0") if path})


def main() -> None:
    begin = base(ROOT, os.environ.get("PRIVMIX_BASE"))
    changed = list(EVERYWHERE) if begin is None else changed_since(ROOT, begin)
    number = int(git(ROOT, "rev-parse", "HEAD") or "0", 16)
    seconds = recorded().seconds
    found = select(ImportGraph(ROOT), changed, number, seconds)

    def summary(tests: Sequence[str]) -> str:
        return f"{len(tests)} files, {sum(seconds.get(test, UNRECORDED) for test in tests):,.0f} s"

    since = "an unknown commit" if begin is None else f"{begin[:12]} ({len(changed)} files)"
    print(f"thorough tests since {since}: part {number % PARTS + 1} of {PARTS}: {summary(found.part)}", file=sys.stderr)
    print(f"near to the change: {summary(found.touched)}; left: {summary(found.left)}", file=sys.stderr)
    print("\n".join([*found.touched, *found.part]))


if __name__ == "__main__":
    main()
