"""What the tests take, by folder: worker-seconds and CPU seconds of ``make test`` and ``make test-all``.

Note a run of all tests, on a quiet machine if you can, then add it up; runs that are named are stood beside each other:

    PRIVMIX_DURATIONS=now.jsonl OMP_NUM_THREADS=1 python -m pytest -p tests.durations -n 2 --dist loadfile
    python benchmarks/bench_suite.py [KEPT...] NAME=now.jsonl [NAME=FILE...]

KEPT: the name of a run that the page has. Which tests are thorough is what the list says now, of runs that are read.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any, Final

import common

DEAREST: Final = 25


def run_daily() -> set[str]:
    """Tests that ``make test`` runs."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-m", "not thorough", "-p", "no:cacheprovider"]
    said = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1]).stdout
    return {line for line in said.splitlines() if "::" in line}


def noted(place: Path, daily: set[str]) -> dict[str, Any]:
    """Sums over a run's lines: of all tests, and without those that are thorough."""
    sums: dict[str, dict[str, list[float]]] = {}
    tests: dict[str, float] = defaultdict(float)
    for text in place.read_text(encoding="utf-8").splitlines():
        name, phase, seconds, cpu, *_ = json.loads(text)
        thorough = name not in daily
        folder = "/".join(name.split("::")[0].split("/")[:2])
        for of in ("make test-all",) if thorough else ("make test", "make test-all"):
            found = sums.setdefault(of, {}).setdefault(folder if "." not in folder else "tests", [0, 0.0, 0.0])
            for place_, value in enumerate((int(phase == "call"), seconds, cpu)):
                found[place_] += value
        tests[name.split("[")[0] + (" (thorough)" if thorough else "")] += seconds
    dearest = sorted(tests.items(), key=lambda item: -item[1])[:DEAREST]
    return {"sums": sums, "dearest": [[name, round(seconds, 1)] for name, seconds in dearest]}


def main() -> None:
    place = common.RESULTS / "suite.json"
    kept = {run["run"]: run for run in json.loads(place.read_text())["results"]} if place.exists() else {}
    words = [word.partition("=") for word in sys.argv[1:]]
    daily = run_daily()
    runs = {name: noted(Path(file), daily) if file else kept[name] for name, _, file in words}
    tables, header = [], ["", "run", "cases", "worker-seconds", "CPU seconds"]
    rows = []
    for of in ("make test", "make test-all"):
        for name, run in runs.items():
            total = [sum(values) for values in zip(*run["sums"][of].values(), strict=True)]
            rows.append([f"`{of}`", name, f"{total[0]:,.0f}", f"{total[1]:,.0f}", f"{total[2]:,.0f}"])
    tables.append(common.table(header, rows))
    last = list(runs.values())[-1]["sums"]
    by_folder = [
        [f"`{folder}`", f"{last['make test'].get(folder, [0, 0, 0])[2]:,.0f}", f"{values[2]:,.0f}"]
        for folder, values in sorted(last["make test-all"].items(), key=lambda item: -item[1][2])
    ]
    tables.append("## CPU seconds by folder\n\n" + common.table(["", "`make test`", "`make test-all`"], by_folder))
    dearest = [[f"`{name}`", seconds] for name, seconds in list(runs.values())[-1]["dearest"]]
    tables.append("## The dearest tests\n\n" + common.table(["", "worker-seconds"], dearest))
    settings = {"runs": ", ".join(runs), "worker-seconds": "of all phases of all tests; waits and other load count"}
    common.save("suite", "What the tests take", settings, [{"run": name, **run} for name, run in runs.items()], tables)


if __name__ == "__main__":
    main()
