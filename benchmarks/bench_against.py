"""Two versions of privmix in turns: what the newer one's defences cost a release, its check and a training.

Usage: ``bench_against.py CHECKOUT [ROUNDS [COMMAND ...]]``, with another version's working tree, such as
``git worktree add ../before COMMIT``. Both run in this environment, each command of one beside that of the other; the
first round warms caches up and does not count.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import common

HERE = Path(__file__).parents[1]
DATA = common.data_root() / "mnist"
RELEASE = ["release", "--data", DATA, "--features", "scattering", "--design", "poisson:mixup_degree=64",
           "--rows", 60_000, "--epsilon", 1, "--delta", 1e-5, "--out", "REL"]  # fmt: skip
COMMANDS = {
    "release": RELEASE,
    "verify": ["verify", "REL"],
    "fit": ["fit", "REL", "--out", "MODEL"],
    "train": ["train", "--data", DATA, "--features", "scattering", "--epsilon", 1, "--delta", 1e-5, "--out", "TRAINED"],
}


CHOSEN = sys.argv[3:] or list(COMMANDS)


def run(checkout: Path, folder: Path) -> dict[str, dict[str, float]]:
    """Wall and CPU seconds of every command, in a folder of its own."""
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src")}
    found = {}
    for name, command in ((name, COMMANDS[name]) for name in CHOSEN):
        words = [sys.executable, "-c", "from privmix.cli.main import main; main()", *map(str, command)]
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(words, check=True, capture_output=True, env=environment, cwd=folder)
        wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        found[name] = {"wall": wall, "cpu": cpu}
    return found


def commit(checkout: Path) -> str:
    command = ["git", "-C", str(checkout), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    if not sys.argv[1:]:
        print("nothing to compare with: give another version's working tree")
        return
    other = Path(sys.argv[1]).resolve()
    rounds = int(sys.argv[2]) if sys.argv[2:] else 3
    runs = []
    for number in range(rounds + 1):
        both = {}
        # Whoever goes first changes from round to round.
        for name, checkout in sorted({"before": other, "after": HERE}.items(), reverse=number % 2 == 0):
            folder = Path(tempfile.mkdtemp())
            both[name] = run(checkout, folder)
            shutil.rmtree(folder)
        if number:
            runs.append(both)
        print(json.dumps(both), flush=True)
    rows = []
    for name in CHOSEN:
        cells = []
        for kind in ("wall", "cpu"):
            before, after = ([one[side][name][kind] for one in runs] for side in ("before", "after"))
            ratio = common.median([b / a for a, b in zip(before, after, strict=True)])
            cells += [f"{common.median(before):.1f}", f"{common.median(after):.1f}", f"{ratio:.3f}"]
        rows.append((name, *cells))
    common.save(
        "against",
        f"MNIST: version {commit(HERE)} against {commit(other)}, command by command",
        {"rounds": rounds, "before": commit(other), "after": commit(HERE), "release": list(map(str, RELEASE[3:]))},
        runs,
        [common.table(["command", "wall s before", "after", "ratio", "CPU s before", "after", "ratio"], rows),
         "Medians; ratios are medians of the rounds' ratios."],
    )  # fmt: skip


if __name__ == "__main__":
    main()
