"""privmix release + fit + evaluate on MNIST from the raw files, as three commands, with what they take by default.

Wall and CPU seconds; on a machine that does other work, too, only the latter mean anything.

    python benchmarks/bench_end_to_end.py [REPEATS]
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

import numpy as np

import common

REPEATS = int(sys.argv[1]) if sys.argv[1:] else 3


def main() -> None:
    data = common.data_root() / "mnist"
    privmix = Path(sys.executable).with_name("privmix")
    rows, totals, cpu, runs = [], [], [], []
    for _ in range(REPEATS):
        folder = Path(tempfile.mkdtemp())
        release, model = folder / "REL", folder / "MODEL"
        commands = {
            "release": ["release", "--data", data, "--features", "scattering", "--design", "poisson",
                        "--epsilon", 1, "--delta", 1e-5, "--out", release],
            "fit": ["fit", release, "--out", model],
            "evaluate": ["evaluate", model, "--data", data, "--split", "test", "--json"],
        }  # fmt: skip
        times, work = {}, {}
        for verb, command in commands.items():
            start, before = time.perf_counter(), _cpu()
            output = subprocess.run([privmix, *map(str, command)], check=True, capture_output=True, text=True).stdout
            times[verb], work[verb] = time.perf_counter() - start, _cpu() - before
        accuracy = json.loads(output)["accuracy"]
        degree = json.loads((release / "certificate.json").read_text())["plan"]["mixup_degree"]
        totals.append(sum(times.values()))
        cpu.append(sum(work.values()))
        runs.append({**times, "cpu_seconds": work, "accuracy": accuracy, "mixup_degree": degree})
        cells = [f"{times[verb]:.1f} / {work[verb]:.1f}" for verb in commands]
        rows.append((*cells, f"{totals[-1]:.1f} / {cpu[-1]:.1f}", f"{100 * accuracy:.2f}"))
        shutil.rmtree(folder)
    common.save(
        "end_to_end",
        "MNIST from raw files to accuracy, three commands",
        {
            "repeats": REPEATS,
            "epsilon": 1,
            "delta": 1e-5,
            "m": f"{degree}, by theory (default)",
            "T": "60,000 (default)",
            "centring": "private (default)",
            "learner": "discriminant (default)",
            "busy": f"load of the machine at the end {os.getloadavg()[1]:.1f}, mean of five minutes",
        },
        runs,
        [
            common.table([*(f"{verb}, wall / CPU s" for verb in (*commands, "total")), "accuracy %"], rows),
            f"Median total: {common.median(totals):.1f} s of wall time, {common.median(cpu):.1f} of CPU time. Mean "
            f"accuracy {100 * float(np.mean([run['accuracy'] for run in runs])):.1f}%.",
        ],
    )


def _cpu() -> float:
    """CPU seconds of the commands that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
