"""What a replay takes beside its release, and what sealing a key costs: whole commands, in turns, on MNIST.

Three commands a turn: a release, the same release with its key sealed for an auditor, and the replay of that. Wall and
CPU seconds; on a machine that does other work, too, only the latter mean anything. Every replay must say "equal".
Finished runs are kept in results/replay_runs.json.

    python benchmarks/bench_replay.py [REPEATS]
"""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import common

REPEATS = int(sys.argv[1]) if sys.argv[1:] else 3
KINDS = {
    "poisson, scattering": ["--features", "scattering", "--design", "poisson"],
    "moments, scattering": ["--features", "scattering", "--design", "moments"],
    "poisson, pixels": ["--features", "pixels", "--design", "poisson"],
}
VERBS = ("release", "release for an auditor", "replay")


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measured(folder: Path, options: list[str]) -> dict[str, dict[str, float]]:
    """Each of the three commands once."""
    data, privmix = str(common.data_root() / "mnist"), str(Path(sys.executable).with_name("privmix"))
    key, rel, other = folder / "auditor", folder / "REL", folder / "OTHER"
    subprocess.run([privmix, "keygen", str(key), "--auditor"], check=True, capture_output=True)
    made = ["release", "--data", data, *options, "--epsilon", "1", "--delta", "1e-5"]
    commands = {
        "release": [*made, "--out", str(other)],
        "release for an auditor": [
            *[*made, "--out", str(rel)],
            *["--replay-for", f"{key}.pub.pem:until=2099-12-31"],
        ],
        "replay": ["replay", str(rel), "--data", data, "--key", f"{key}.pem"],
    }
    found = {}
    for verb, command in commands.items():
        start, before = time.perf_counter(), _cpu()
        output = subprocess.run([privmix, *command], check=True, capture_output=True, text=True).stdout
        found[verb] = {"seconds": time.perf_counter() - start, "cpu": _cpu() - before}
    assert output.startswith("equal:"), output
    return found


def main() -> None:
    kept = common.RESULTS / "replay_runs.json"
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in KINDS}
    results |= json.loads(kept.read_text()) if kept.exists() else {}
    for number in range(REPEATS):
        for name, options in KINDS.items():
            if len(results[name]) <= number:
                folder = Path(tempfile.mkdtemp())
                results[name].append(measured(folder, options))
                shutil.rmtree(folder)
                kept.write_text(json.dumps(results, indent=1) + "\n")
    _told({name: runs for name, runs in results.items() if runs})


def _told(results: dict[str, list[dict[str, Any]]]) -> None:
    """Write the page."""
    rows = []
    for name, runs in results.items():
        cells = []
        for what in ("seconds", "cpu"):
            times = {verb: np.median([run[verb][what] for run in runs]) for verb in VERBS}
            pairs = {
                "sealing": [run["release for an auditor"][what] / run["release"][what] for run in runs],
                "replay": [run["replay"][what] / run["release"][what] for run in runs],
            }
            cells.append((times, {one: np.median(ratios) for one, ratios in pairs.items()}, max(pairs["replay"])))
        (wall, ratios, _), (cpu, by_cpu, most) = cells
        rows.append(
            (
                name,
                *(f"{wall[verb]:.1f} / {cpu[verb]:.1f}" for verb in VERBS),
                f"{ratios['sealing']:.2f} / {by_cpu['sealing']:.2f}",
                f"{ratios['replay']:.2f} / {by_cpu['replay']:.2f}",
                f"{most:.2f}",
            )
        )
    header = ("MNIST, 60,000 records and rows", *VERBS, "sealing", "replay / release", "largest, CPU")
    common.save(
        "replay",
        "What a replay takes beside its release: whole commands, wall / CPU seconds (medians)",
        {
            "runs": {name: len(runs) for name, runs in results.items()},
            "epsilon": 1,
            "delta": 1e-5,
            "goal": "replay / release at most 1.2",
        },
        results,
        [
            "A replay reads and extracts, mixes and adds noise as the release did, hashes the records, and compares "
            "each row with the released one in place of writing it. Ratios are of pairs in turns.",
            common.table(header, rows),
        ],
    )


if __name__ == "__main__":
    main()
