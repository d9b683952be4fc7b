"""Releases larger than memory: out of core against in memory, on Ray, resumed; and what a billion records would cost.

Every run is a process of its own. Memory is the peak of RssAnon above what the process had before the run: pages of
memory-mapped files, which the system takes back when it needs them, do not count. Features are synthetic, normal, in a
feature store on disk. ``--quick`` shows that it works, at sizes whose times mean nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import nnls

import common
from privmix.data import FeatureStore, Schema
from privmix.engine import ReleaseEngine
from privmix.mechanisms.membership import RECORD_TILE, ROW_TILE
from privmix.mechanisms.noise import gaussian_on_lattice
from privmix.planning import ReleaseConfig
from privmix.plans import ReleasePlan
from privmix.releases import SecretStreams, release_to_folder

CACHE = Path(__file__).parent / "cache"
CLASSES = tuple("0123456789")
TARGET = (8.0, 1e-9)
FULL = {"n": 2_000_000, "d": 512, "T": 200_000, "m": 256}
# What a Ray worker on another machine has to itself; used for the extrapolation only.
NETWORK_BYTES_A_SECOND = 1.25e9
WORKER_SUMS_BYTES = 16 * 2**30


def plan_of(size: dict[str, int]) -> ReleasePlan:
    config = ReleaseConfig(
        records=size["n"], dim=size["d"], classes=CLASSES, mixup_degree=size["m"], rows=size["T"], centre="none"
    )
    return config.with_noise(1.2)


def store_of(n: int, d: int) -> FeatureStore:
    """A store of normal features, made once a size."""
    path = CACHE / f"scale-{n}-{d}"
    if not path.exists():
        CACHE.mkdir(exist_ok=True)
        rng = np.random.default_rng(0)
        schema = Schema(records=n, input_shape=(d,), classes=CLASSES)
        with FeatureStore.create(path, n, d, schema=schema, extractor={"name": "identity"}) as writer:
            for start in range(0, n, RECORD_TILE):
                rows = min(RECORD_TILE, n - start)
                writer.append(rng.standard_normal((rows, d), dtype=np.float32), rng.integers(0, 10, rows))
    return FeatureStore.open(path)


# --- one run, in a process of its own --------------------------------------------------------------------------------


def rows_only(engine: Any, found: dict[str, float]) -> None:
    with common.watched(found):
        for block in engine.rows():
            assert block.x.dtype == np.float32


def point(task: dict[str, Any]) -> dict[str, float]:
    size, mode, found = task["size"], task["mode"], {}
    store, plan = store_of(size["n"], size["d"]), plan_of(size)
    # Read once: what is measured is the engine, with its records in the page cache where that is large enough.
    for start in range(0, size["n"], RECORD_TILE):
        store.features[start : start + RECORD_TILE].max()
    if mode in ("memory", "stream"):
        memory = 2**50 if mode == "memory" else int(task["memory_gib"] * 2**30)
        engine = ReleaseEngine(
            plan,
            store,
            SecretStreams.from_entropy(),
            memory_bytes=memory,
            workers=task.get("workers"),
            tiles_at_once=task.get("tiles_at_once"),
        )
        assert engine.out_of_core == (mode == "stream")
        rows_only(engine, found)
    elif mode == "ray":
        ray_point(task, plan, store, found)
    else:
        folder_point(mode, plan, store, found)
    return found


def ray_point(task: dict[str, Any], plan: ReleasePlan, store: FeatureStore, found: dict[str, float]) -> None:
    """Nodes of one processor each, on this machine; their start is not counted, nor is memory outside this process."""
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    import ray
    from ray.cluster_utils import Cluster

    from privmix.engine.ray import RayReleaseEngine

    node = {"num_cpus": 1, "object_store_memory": task["object_store_mib"] * 2**20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=node)
    for _ in range(task["nodes"] - 1):
        cluster.add_node(**node)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    try:
        rows_only(RayReleaseEngine(plan, store, SecretStreams.from_entropy(), workers=1), found)
    finally:
        ray.shutdown()
        cluster.shutdown()


def folder_point(mode: str, plan: ReleasePlan, store: FeatureStore, found: dict[str, float]) -> None:
    """To disk in one go, or stopped after half of the rows and resumed: seconds of both parts together."""

    def stop(stage: str, done: int, total: int) -> None:
        if stage == "rows" and 2 * done >= total:
            raise KeyboardInterrupt

    facts: dict[str, Any] = {"target": TARGET, "extractor": {"name": "identity"}, "input_shape": (plan.dim,)}
    work = Path(tempfile.mkdtemp(dir=CACHE))
    try:
        with common.watched(found):
            streams = SecretStreams.from_entropy()
            if mode == "folder":
                release_to_folder(plan, store, streams, work / "rel", **facts)
            else:
                try:
                    release_to_folder(plan, store, streams, work / "rel", progress=stop, **facts)
                except KeyboardInterrupt:
                    release_to_folder(plan, store, None, work / "rel", resume=True, **facts)
    finally:
        shutil.rmtree(work)


def measure(size: dict[str, int], mode: str, repeats: int, **options: Any) -> dict[str, Any]:
    runs = []
    for _ in range(repeats):
        task = json.dumps({"size": size, "mode": mode, **options})
        ended = subprocess.run([sys.executable, __file__, "--point", task], capture_output=True, text=True, check=False)
        if ended.returncode:
            raise RuntimeError(ended.stderr[-2000:])
        runs.append(json.loads(ended.stdout.splitlines()[-1]))
    middle = {key: common.median([run[key] for run in runs]) for key in runs[0]}
    print(mode, size, options, {key: round(value, 2) for key, value in middle.items()}, flush=True)
    return {"size": size, "mode": mode, **options, **middle, "runs": runs}


# --- the cost model --------------------------------------------------------------------------------------------------

TERMS: dict[str, Callable[[dict[str, int]], float]] = {
    "T m d (sums)": lambda s: s["T"] * s["m"] * s["d"],
    "n d (reading, clipping, rounding)": lambda s: s["n"] * s["d"],
    "T d (noise)": lambda s: s["T"] * s["d"],
    "T m (drawing members)": lambda s: s["T"] * s["m"],
    "row tiles x record tiles": lambda s: math.ceil(s["T"] / ROW_TILE) * math.ceil(s["n"] / RECORD_TILE),
    "T d x record tiles (adding up)": lambda s: s["T"] * s["d"] * math.ceil(s["n"] / RECORD_TILE),
}


def timed_alone() -> dict[str, float]:
    """Core-seconds a number of what whole runs can't tell apart from the rest: drawing noise, and adding sums up."""
    generator = SecretStreams.from_seed(0).generator("benchmark")
    shape = (1024, 512)
    total, part = np.zeros(shape, np.int32), np.ones(shape, np.int32)
    noise = common.median(common.seconds(lambda: gaussian_on_lattice(generator, shape, 1e5), 9))
    adding = common.median(common.seconds(lambda: np.add(total, part, out=total), 99))
    return {"T d (noise)": noise / total.size, "T d x record tiles (adding up)": adding / total.size}


def fit(points: list[dict[str, Any]]) -> dict[str, float]:
    """Non-negative least squares of relative errors, for the terms that were not timed alone."""
    alone = timed_alone()
    rest = [name for name in TERMS if name not in alone]
    known = np.array([sum(alone[name] * TERMS[name](one["size"]) for name in alone) for one in points])
    seconds = np.array([one["cpu_seconds"] for one in points])
    matrix = np.array([[TERMS[name](one["size"]) / one["cpu_seconds"] for name in rest] for one in points])
    scale = matrix.max(axis=0)
    found, _ = nnls(matrix / scale, 1 - known / seconds)
    return {name: alone[name] if name in alone else dict(zip(rest, found / scale, strict=True))[name] for name in TERMS}


def predicted(model: dict[str, float], size: dict[str, int], passes: int = 1) -> float:
    again = {"n d (reading, clipping, rounding)": passes}
    return sum(model[name] * term(size) * again.get(name, 1) for name, term in TERMS.items())


def extrapolated(model: dict[str, float], size: dict[str, int], cores: int) -> dict[str, float]:
    """Hours on ``cores`` workers of one core: work divides, and sums of every task cross the network once."""
    passes = math.ceil(4.6 * size["T"] * size["d"] / WORKER_SUMS_BYTES)
    noise = model["T d (noise)"] * size["T"] * size["d"]
    work = predicted(model, size, passes) - noise
    # Each core's tasks send sums of all rows into a tree that adds them up in parallel.
    levels = math.ceil(math.log(2 * cores, 4))
    network = levels * 4.0 * size["T"] * size["d"] / NETWORK_BYTES_A_SECOND
    parts = {"sums": work / cores, "network": network, "noise": noise}
    return {name: value / 3600 for name, value in parts.items()} | {"hours": sum(parts.values()) / 3600}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="small sizes, one run each, results not saved")
    parser.add_argument("--refit", action="store_true", help="fit the cost model anew to the stored runs")
    parser.add_argument("--keep", action="store_true", help="keep the feature stores in benchmarks/cache")
    parser.add_argument("--point", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.point:
        print(json.dumps(point(json.loads(options.point))))
        return
    try:
        report(options.quick, options.refit)
    finally:
        if not options.keep:
            for folder in CACHE.glob("scale-*"):
                shutil.rmtree(folder)


def report(quick: bool, refit: bool) -> None:
    shrink, repeats = (20, 1) if quick else (1, 3)
    target = {**FULL, "n": FULL["n"] // shrink, "T": FULL["T"] // shrink, "d": FULL["d"] // (8 if quick else 1)}
    half = {**target, "n": target["n"] // 2, "T": target["T"] // 2}
    # Budgets too small for the records and large enough for all sums. Sizes too small for any such budget: all row
    # tiles at once make it one pass.
    one_pass = {"memory_gib": 0.02, "tiles_at_once": 10**6}
    sizes: list[tuple[dict[str, int], dict[str, Any]]] = [
        (half, one_pass if quick else {"memory_gib": 0.7}),
        (target, one_pass if quick else {"memory_gib": 1.0}),
    ]
    base = {"n": 131_072, "d": 64, "T": 16_384, "m": 64} if quick else {"n": 524_288, "d": 128, "T": 65_536, "m": 64}
    ways = [{}, {"n": 0.5}, {"n": 2}, {"d": 2}, {"T": 2}, {"m": 4}, {"n": 2, "T": 0.5}, {"d": 2, "m": 2}]
    if not quick:
        # Wide enough to tell the terms apart: many tiles with few draws each, wide records, full rows.
        ways += [{"n": 4}, {"d": 4}, {"m": 8}, {"n": 2, "d": 4, "m": 0.25}, {"T": 2, "m": 4, "n": 0.25}]
    checks = [{"n": 0.5, "m": 2}, {"n": 2, "d": 2, "T": 0.5, "m": 4}]

    def points(changes: list[dict[str, float]]) -> list[dict[str, Any]]:
        scaled = [{key: int(value * change.get(key, 1)) for key, value in base.items()} for change in changes]
        return [measure(size, "stream", repeats, workers=1, **one_pass) for size in scaled]

    if refit:
        kept = json.loads((common.RESULTS / "scale.json").read_text())["results"]
        compared, model_points, check_points = kept["compared"], kept["points"], kept["checks"]
        others = kept["others"]
    else:
        compared = [
            measure(size, mode, repeats, **(memory if mode == "stream" else {}))
            for size, memory in sizes
            for mode in ("memory", "stream")
        ]
        model_points, check_points = points(ways), points(checks)
        # Large enough for a node to have something to do.
        small = {**base, "n": base["n"] * 4, "m": base["m"] * 4}
        others = [measure(small, "ray", repeats, nodes=nodes, object_store_mib=300) for nodes in (1, 2)]
        others += [measure(small, mode, repeats) for mode in ("folder", "folder resumed")]
    streamed = [one for one in compared if one["mode"] == "stream"]
    # Half the target is in the fit, since only wide and full rows show what sums cost; the target is not.
    model = fit([*model_points, streamed[0]])
    tables = [
        "## Out of core and in memory\n\n" + _compared(compared),
        "## Ray and resuming\n\nNodes of one core on this machine; to a folder with everything synced to disk.\n\n"
        + common.table(
            ["run", "n", "d", "T", "m", "seconds"],
            [
                (_OTHERS[one["mode"], one.get("nodes")], *one["size"].values(), f"{one['seconds']:.2f}")
                for one in others
            ],
        ),
        "## Cost model\n\nCore-seconds, fitted on runs out of core and checked on others; noise and adding up were "
        "timed alone.\n\n" + _model(model),
        _checks(model, [*check_points, streamed[1]]),
        _billion(model),
    ]
    results = {"compared": compared, "model": model, "points": model_points, "checks": check_points, "others": others}
    if quick:
        print("\n\n".join(tables))
        return
    common.save("scale", "Releases larger than memory", {"target": FULL, "repeats": repeats}, results, tables)


_OTHERS = {
    ("ray", 1): "Ray, one node",
    ("ray", 2): "Ray, two nodes",
    ("folder", None): "to a folder",
    ("folder resumed", None): "to a folder, killed half-way and resumed: both parts",
}


def _compared(runs: list[dict[str, Any]]) -> str:
    return common.table(
        ["n", "d", "T", "m", "engine", "memory given", "seconds", "peak anonymous GiB"],
        [
            (
                *one["size"].values(),
                {"memory": "in memory", "stream": "out of core"}[one["mode"]],
                f"{one['memory_gib']} GiB" if "memory_gib" in one else "all",
                f"{one['seconds']:.2f}",
                f"{one['peak_gib']:.2f}",
            )
            for one in runs
        ],
    )


def _model(model: dict[str, float]) -> str:
    return common.table(["term", "core-seconds per unit"], [(name, f"{value:.3g}") for name, value in model.items()])


def _checks(model: dict[str, float], runs: list[dict[str, Any]]) -> str:
    rows = [
        (*one["size"].values(), f"{one['cpu_seconds']:.2f}", f"{predicted(model, one['size']):.2f}") for one in runs
    ]
    return "Runs that it was not fitted on:\n\n" + common.table(
        ["n", "d", "T", "m", "core-seconds measured", "predicted"], rows
    )


def _billion(model: dict[str, float]) -> str:
    size = {"n": 10**9, "d": 512, "T": 1_000_000, "m": 256}
    rows = []
    for cores in (64, 256, 1024):
        hours = extrapolated(model, size, cores)
        rows.append((cores, *(f"{60 * hours[name]:.2f}" for name in ("sums", "network", "noise", "hours"))))
    return (
        "## A billion records, extrapolated, not measured\n\n"
        + ", ".join(f"{name} = {value:,}" for name, value in size.items())
        + "; design poisson without centring. Assumed: work "
        f"divides evenly over cores like this machine's; features (2 TB) are read at the speed at which the page cache "
        f"gave them here; each worker has {WORKER_SUMS_BYTES / 2**30:.0f} GiB for its sums; the network moves "
        f"{NETWORK_BYTES_A_SECOND / 1e9:g} GB/s at each node; noise is drawn on one core of the head.\n\n"
        + common.table(["cores", "sums, minutes", "network", "noise", "in all"], rows)
    )


if __name__ == "__main__":
    main()
