"""Making features ahead: what a killed run reads again, and two workers of a Ray cluster beside one.

The data are random images in Parquet. A run is killed when nine tenths of the records are on the disk, here and on a
cluster of one machine; the next one finishes it, and says how many records it read. Workers' CPU
seconds stand beside one process's: on a machine that others use, times on the clock would tell of them.

    python benchmarks/bench_encoding.py [--records 12000] [--pairs 3]
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from common import RESULTS, median, save, table
from privmix.data.tiles import tile_records, tiles_of

SHAPE, GROUP, DIM = (28, 28), 100, 3969
AT = 0.9
# Runs here are short: a tenth of what is usual.
_CHECKPOINT = 0.5


def make(folder: Path, records: int) -> Path:
    """Random grey images as lists of numbers, in row groups of a hundred."""
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (records, *SHAPE), dtype=np.uint8)

    def png(image: np.ndarray) -> bytes:
        stream = io.BytesIO()
        Image.fromarray(image).save(stream, format="PNG", compress_level=0)
        return stream.getvalue()

    content = pa.table({"image": [png(one) for one in pixels], "label": rng.integers(0, 2, records)})
    pq.write_table(content, folder / "d.parquet", row_group_size=GROUP)
    return folder / "d.parquet"


def child(data: str, out: str, engine: str, workers: int) -> None:
    """One extraction, in a process of its own; says what it read and what it cost."""
    from privmix import extract_features
    from privmix.data import partial
    from privmix.data.source import Source
    from privmix.features import parse_features
    from privmix.jobs.columns import Columns

    read, original = [0], Source._silent_chunks

    def counted(self: Source, size: int, first: int = 0) -> Any:
        passed = first - self.manifest().entry(first)
        read[0] += passed
        for x, y in original(self, size, first):
            read[0] += len(x)
            yield x, y

    Source._silent_chunks = counted  # type: ignore[method-assign]
    partial.CHECKPOINT_SECONDS = _CHECKPOINT
    # What is imported late is no data.
    parse_features("scattering")
    costs: dict[int, float] = {}
    if engine == "ray":
        note_workers(costs)
    start = time.process_time()
    extract_features(
        data,
        out=out,
        features="scattering",
        classes=2,
        columns=Columns(image_size=SHAPE[0], colour="grey"),
        engine=f"ray:workers={workers}" if engine == "ray" else engine,
        progress=False,
    )
    found = {
        "read": read[0],
        "cpu": time.process_time() - start,
        "workers": list(costs.values()),
    }
    digest = hashlib.sha256((Path(out) / "features.npy").read_bytes()).hexdigest()
    print(json.dumps({**found, "sha256": digest}), flush=True)


def note_workers(costs: dict[int, float]) -> None:
    """Have every tile that is done note the CPU time of the worker that made it."""
    import psutil

    from privmix.engine import encoding

    original = encoding._Work.done

    def noted(self: Any, *, wait: bool) -> set[int]:
        found = original(self, wait=wait)
        for process in psutil.Process().children(recursive=True):
            try:
                if "TileWorker" in " ".join(process.cmdline()):
                    used = process.cpu_times()
                    costs[process.pid] = used.user + used.system
            except psutil.Error:
                continue
        return found

    encoding._Work.done = noted  # type: ignore[method-assign]


def started(data: Path, out: Path, engine: str, workers: int) -> subprocess.Popen[str]:
    run = [sys.executable, __file__, "--child", str(data), str(out), engine, str(workers)]
    given = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(run, env=given, stdout=subprocess.PIPE, text=True, start_new_session=True)


def told(process: subprocess.Popen[str]) -> dict[str, Any]:
    text, _ = process.communicate()
    assert process.returncode == 0
    found: dict[str, Any] = json.loads(text.splitlines()[-1])
    return found


def on_disk(out: Path, records: int) -> int:
    """Records whose features a kill would leave."""
    progress, size = out.with_name(f".{out.name}.partial") / "progress.json", tile_records(records, DIM)
    rows = json.loads(progress.read_text())["rows"] if progress.is_file() else 0
    tiles = {int(path.name.removeprefix("tile-")) for path in tiles_of(out).glob("tile-*")}
    ends = [
        min((number + 1) * size, records) - max(number * size, rows) for number in tiles if (number + 1) * size > rows
    ]
    return rows + sum(ends)


def killed(data: Path, out: Path, engine: str, records: int) -> dict[str, Any]:
    process = started(data, out, engine, 2)
    while (done := on_disk(out, records)) < AT * records:
        assert process.poll() is None, "too fast to be killed"
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    time.sleep(1)
    left = on_disk(out, records)
    size = tile_records(records, DIM)
    found = told(started(data, out, engine, 2))
    again = found["read"] if engine == "local" else None
    return {**found, "engine": engine, "done": done / records, "left": left / records, "read": again, "tile": size}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=12_000)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--again", action="store_true", help="tell the kept runs anew")
    parser.add_argument("--child", nargs=4)
    asked = parser.parse_args()
    if asked.again:
        kept = json.loads((RESULTS / "encoding.json").read_text())
        tell(kept["settings"], kept["results"], again=True)
        return
    if asked.child:
        data, out, engine, workers = asked.child
        child(data, out, engine, int(workers))
        return
    with tempfile.TemporaryDirectory() as above:
        folder, records = Path(above), asked.records
        data = make(folder, records)
        whole = told(started(data, folder / "whole", "local", 1))
        kills = [killed(data, folder / f"killed-{engine}", engine, records) for engine in ("local", "ray")]
        pairs = []
        for number in range(asked.pairs):
            one, two = (told(started(data, folder / f"{number}-{many}", "ray", many)) for many in (1, 2))
            pairs.append({"one": one, "two": two})
    tell({"records": records, "pairs": asked.pairs, "threads": 1}, {"whole": whole, "killed": kills, "pairs": pairs})


def tell(settings: dict[str, Any], results: dict[str, Any], *, again: bool = False) -> None:
    """Write the page."""
    whole, kills, pairs, records = results["whole"], results["killed"], results["pairs"], settings["records"]
    same = all(run["sha256"] == whole["sha256"] for run in [*kills, *(pair[n] for pair in pairs for n in pair)])
    rows = []
    for run in kills:
        told_of = "-" if run["read"] is None else f"{100 * run['read'] / records:.1f}%"
        rows.append([run["engine"], f"{100 * run['left']:.1f}%", told_of, f"{100 * (1 - run['left']):.1f}%"])
    shares = [sum(pair["one"]["workers"]) / max(pair["two"]["workers"]) for pair in pairs]
    cost = []
    for number, (pair, share) in enumerate(zip(pairs, shares, strict=True), 1):
        one, two = sum(pair["one"]["workers"]), " + ".join(f"{used:.1f}" for used in pair["two"]["workers"])
        cost.append([number, f"{whole['cpu']:.1f}", f"{one:.1f}", two, f"{pair['one']['cpu']:.1f}", f"{share:.2f}"])
    bytes_are = "the same bytes" if same else "OTHER BYTES"
    head = ["pair", "local", "one worker", "two workers", "head of one", "one / the longer of two"]
    tables = [
        f"{records:,} images of {SHAPE[0]} x {SHAPE[1]}, scattering ({DIM:,} features). All stores have {bytes_are}.",
        "## A run that is killed when nine tenths are on the disk",
        table(["engine", "on the disk", "records read by the next run", "records that lacked"], rows),
        "One run each, with checkpoints every half second in place of five. Records that a reader passes over in a row "
        "group count as read. On a cluster workers read the tiles that lack, and what they read is not counted.",
        "## Two workers beside one, CPU seconds",
        table(head, cost),
        f"Median of {len(shares)} pairs: {median(shares):.2f}. A worker's imports, some seconds, are in its time.",
    ]
    save("encoding", "Features made ahead", settings, results, tables, again=again)


if __name__ == "__main__":
    main()
