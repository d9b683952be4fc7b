"""privmix release + fit + evaluate on MNIST from the raw files, as three commands."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import common

REPEATS = int(sys.argv[1]) if sys.argv[1:] else 3


def main() -> None:
    data = common.data_root() / "mnist"
    privmix = Path(sys.executable).with_name("privmix")
    rows, totals, runs = [], [], []
    for _ in range(REPEATS):
        folder = Path(tempfile.mkdtemp())
        release, model = folder / "REL", folder / "MODEL"
        commands = {
            "release": ["release", "--data", data, "--features", "scattering", "--design", "poisson",
                        "--mixup-degree", 64, "--rows", 60_000, "--epsilon", 1, "--delta", 1e-5, "--out", release],
            "fit": ["fit", release, "--learner", "noise-aware-ridge", "--out", model],
            "evaluate": ["evaluate", model, "--data", data, "--split", "test", "--json"],
        }  # fmt: skip
        times = {}
        for verb, command in commands.items():
            start = time.perf_counter()
            output = subprocess.run([privmix, *map(str, command)], check=True, capture_output=True, text=True).stdout
            times[verb] = time.perf_counter() - start
        accuracy = json.loads(output)["accuracy"]
        totals.append(sum(times.values()))
        runs.append({**times, "accuracy": accuracy})
        rows.append((*(f"{value:.1f}" for value in times.values()), f"{totals[-1]:.1f}", f"{100 * accuracy:.2f}"))
        shutil.rmtree(folder)
    common.save(
        "end_to_end",
        "MNIST from raw files to accuracy, three commands",
        {"repeats": REPEATS, "epsilon": 1, "delta": 1e-5, "m": 64, "T": 60_000, "centring": "private (default)"},
        runs,
        [common.table(["release s", "fit s", "evaluate s", "total s", "accuracy %"], rows),
         f"Median total: {common.median(totals):.1f} s."],
    )  # fmt: skip


if __name__ == "__main__":
    main()
