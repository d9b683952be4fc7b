"""``privmix demo`` of two versions in turns: its CPU time, and that it ends with a page of the same sections.

Usage: ``bench_demo.py CHECKOUT [ROUNDS]``, with another version's working tree, such as ``git worktree add ../before
COMMIT``. Both run in this environment; the first round warms caches up and does not count.
"""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import common
from bench_against import commit

HERE = Path(__file__).parents[1]
WORDS = [sys.executable, "-c", "from privmix.cli.main import main; main()", "demo", "--out", "DEMO"]


def run(checkout: Path) -> dict[str, Any]:
    """Wall and CPU seconds of one demo, and the headings of its page."""
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src")}
    with tempfile.TemporaryDirectory() as folder:
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(WORDS, check=True, capture_output=True, env=environment, cwd=folder)
        wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
        page = (Path(folder) / "DEMO" / "report.html").read_text()
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    # Headings hold the identifiers of releases, which are random.
    found = [re.sub(r"<[^>]*>|\b[0-9a-f]{8,}\b", "", text) for text in re.findall(r"<h[1-3].*?</h[1-3]>", page, re.S)]
    return {"wall": wall, "cpu": cpu, "headings": found}


def main() -> None:
    if not sys.argv[1:]:
        print("nothing to compare with: give another version's working tree")
        return
    other = Path(sys.argv[1]).resolve()
    runs, same = [], True
    for number in range((int(sys.argv[2]) if sys.argv[2:] else 5) + 1):
        sides = sorted({"before": other, "after": HERE}.items(), reverse=number % 2 == 0)
        both = {name: run(checkout) for name, checkout in sides}
        same &= both["before"].pop("headings") == both["after"].pop("headings")
        if number:
            runs.append(both)
        print(json.dumps(both), flush=True)
    rows = []
    for kind in ("wall", "cpu"):
        before, after = ([one[side][kind] for one in runs] for side in ("before", "after"))
        ratio = common.median([b / a for a, b in zip(before, after, strict=True)])
        rows.append((kind, f"{common.median(before):.1f}", f"{common.median(after):.1f}", f"{ratio:.2f}"))
    common.save(
        "demo",
        f"`privmix demo`: version {commit(HERE)} against {commit(other)}",
        {"rounds": len(runs), "before": commit(other), "after": commit(HERE), "same_headings": same},
        runs,
        [common.table(["seconds", "before", "after", "ratio"], rows),
         f"Medians; ratios are medians of the rounds' ratios. Same sections on the page: {'yes' if same else 'no'}."],
    )  # fmt: skip


if __name__ == "__main__":
    main()
