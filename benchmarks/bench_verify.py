"""Time and memory of ``privmix verify`` on MNIST-sized releases, rows and second moments, and what its tests catch.

The releases are made by privmix in a temporary folder, from synthetic features. Each repetition verifies in a process
of its own, which reports wall and CPU seconds and its highest memory; that of a process that only imports is taken off.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import common
from privmix.engine import PrivateRecords
from privmix.planning import ReleaseConfig
from privmix.releases import SecretStreams, release_to_folder, verify_release

CLASSES = tuple("0123456789")
RECORDS, DIM, REPEATS = 60_000, 3_969, 3
TARGET = (1.0, 1e-5)
ONE = """
import json, sys, time
from pathlib import Path
from privmix.releases import load_release, verify_release
work = {"verify": verify_release, "load": load_release, "import": lambda folder: None}[sys.argv[1]]
start, cpu = time.perf_counter(), time.process_time()
work(sys.argv[2])
print(json.dumps({"seconds": time.perf_counter() - start, "cpu": time.process_time() - cpu,
                  "gib": int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 2**20}))
"""


def made(folder: Path, design: str, rows: int | None) -> float:
    """Make a release; returns the seconds that took."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((RECORDS, DIM), dtype=np.float32), rng.integers(0, 10, RECORDS)
    own = common.degree_64(design)
    config = ReleaseConfig(records=RECORDS, dim=DIM, classes=CLASSES, design=design, rows=rows, **own)
    plan = config.calibrate(*TARGET)
    facts: dict[str, Any] = {"target": TARGET, "extractor": {"name": "identity"}, "input_shape": (DIM,)}
    start = time.perf_counter()
    release_to_folder(plan, PrivateRecords(x, y), SecretStreams.from_entropy(), folder, **facts)
    return time.perf_counter() - start


def measured(work: str, folder: Path) -> dict[str, float]:
    """One process."""
    found = subprocess.run([sys.executable, "-c", ONE, work, str(folder)], check=True, capture_output=True, text=True)
    return dict(json.loads(found.stdout))


def main() -> None:
    results: dict[str, Any] = {}
    rows, caught = [], []
    with tempfile.TemporaryDirectory() as root:
        for design, count in (("poisson", RECORDS), ("moments", 1_000)):
            folder = Path(root) / design
            spent = made(folder, design, count)
            size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 2**30
            empty = measured("import", folder)["gib"]
            found = {work: [measured(work, folder) for _ in range(REPEATS)] for work in ("verify", "load")}
            tests = [test.to_dict() for test in verify_release(folder).tests]
            results[design] = {
                "release_seconds": spent,
                "gib": size,
                "runs": found,
                "import_gib": empty,
                "tests": tests,
            }
            for work, runs in found.items():
                wall = [run["seconds"] for run in runs]
                rows.append(
                    (
                        f"{work}, {design}, {count:,} rows",
                        f"{size:.2f}",
                        f"{common.median(wall):.2f}",
                        f"{min(wall):.2f} to {max(wall):.2f}",
                        f"{common.median([run['cpu'] for run in runs]):.2f}",
                        f"{max(run['gib'] for run in runs) - empty:.2f}",
                    )
                )
            caught += [
                (design, test["name"], f"{test['tests']:,}", _share(test["lowest"]), _share(test["caught"]))
                for test in tests
            ]
    tables = [
        common.table(["", "GiB on disk", "seconds, median", "range", "CPU seconds", "GiB of memory"], rows),
        "Each test against the certified noise: the least found, and what is caught with probability 0.99 where data "
        "add nothing, as shares of the certified standard deviation.",
        common.table(["design", "test", "tests", "least found", "caught below"], caught),
    ]
    settings = {"records": RECORDS, "dim": DIM, "degree": 64, "epsilon": TARGET[0], "delta": TARGET[1]}
    common.save("verify", "Verification of MNIST-sized releases", settings, results, tables)


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


if __name__ == "__main__":
    main()
