"""Releases of up to a hundred million records; one-core nodes of Ray beside no Ray; encoders on a graphics card.

Five parts. ``records``: releases of 10^6, 10^7 and 10^8 records of 512 numbers, by second moments and by Poisson rows,
summed out of core. The records are synthetic: a block of them is made when it is read, and again in every pass, which
the times contain. A line through 10^6 and 10^7 is checked on 10^8 and drawn out to 10^9. ``ray`` and ``ray-large``:
moments of a feature store of 10^6 or 4 x 10^6 records by one core without Ray, by one node of one core and by two, in
turns. ``encoding``: the same of images that become scattering coefficients. ``gpu``, where there is a card: images a
second of public encoders, how far features are from those of the processor, and whether a record's features depend on
its neighbours.

Every run is a process of its own. Runs are kept in results/scale_records_runs.json, so a broken-off benchmark goes on
where it stopped.

    python benchmarks/bench_scale_records.py [--only records,ray,ray-large,encoding,gpu] [--rounds 5] [--most 100000000]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

import common
from privmix import extract_features
from privmix.data import FeatureStore, Schema
from privmix.designs.moments.engine import MomentsEngine
from privmix.engine.ray import Cluster
from privmix.engine.records import RecordUnits, Tile, cores
from privmix.engine.rows import ReleaseEngine
from privmix.features.base import parse_features
from privmix.mechanisms.membership import RECORD_TILE
from privmix.mechanisms.streams import SecretStreams
from privmix.planning import ReleaseConfig

RUNS: Final = common.RESULTS / "scale_records_runs.json"
CACHE: Final = Path(__file__).parent / "cache"
CLASSES: Final = tuple("0123456789")
DIM: Final = 512
SIZES: Final = (10**6, 10**7, 10**8)
# As many rows for each number of records.
ROWS, DEGREE, ROW_MEMORY = 100_000, 256, 2**30
STORED: Final = {"ray": 10**6, "ray-large": 4 * 10**6}
IMAGES: Final = 2**16
DESIGNS: Final = ("moments", "poisson")
# Dollars an hour, assumed: a core, and a card with what stands around it.
CORE_PRICE, CARD_PRICE = 0.05, 3.0
ENCODERS: Final = ("efficientnet:224,lite0", "efficientnet:160,lite2")
ENCODED: Final = 8192
WAYS: Final = ("no Ray, one core", "Ray, one node", "Ray, two nodes")
# What the machine itself has of a second core: two processes that know nothing of each other, at once.
AT_ONCE: Final = "no Ray, twice at once"
_BLOCK: Final = 128


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


@dataclass(frozen=True)
class GeneratedFeatures:
    """Features (b, DIM) of one tile, whole numbers from -128 to 127, made when they are asked for."""

    index: int
    shape: tuple[int, int]
    dtype: ClassVar[Any] = np.dtype(np.float32)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> NDArray[np.float32]:
        start, stop, _ = rows.indices(len(self))
        first = start // _BLOCK
        blocks = [self._block(number) for number in range(first, -(-stop // _BLOCK))]
        return np.concatenate(blocks)[start - first * _BLOCK : stop - first * _BLOCK]

    def _block(self, number: int) -> NDArray[np.float32]:
        generator = np.random.Generator(np.random.Philox(key=[self.index, number]))
        return np.frombuffer(generator.bytes(_BLOCK * DIM), np.int8).reshape(_BLOCK, DIM).astype(np.float32)


@dataclass(frozen=True)
class GeneratedTiles(RecordUnits):
    """Tiles of records that are nowhere until they are read."""

    count: int
    dim: int = DIM

    def tile(self, index: int) -> Tile:
        generator = np.random.Generator(np.random.Philox(key=[index, 2**32]))
        features: Any = GeneratedFeatures(index, (self.length(index), DIM))
        return features, generator.integers(0, len(CLASSES), self.length(index))


# --- one run, in a process of its own --------------------------------------------------------------------------------


def plan_of(records: int, design: str) -> Any:
    own = {"mixup_degree": DEGREE, "rows": ROWS} if design == "poisson" else {"rows": 1}
    config = ReleaseConfig(records=records, dim=DIM, classes=CLASSES, design=design, centre="private", **own)
    return config.calibrate(1.0, 1e-9)


def records_point(design: str, records: int) -> dict[str, float]:
    """One release of generated records, and what making them costs of it."""
    found: dict[str, float] = {}
    tiles, plan, streams = GeneratedTiles(records), plan_of(records, design), SecretStreams.from_entropy()
    engine: Any = (
        MomentsEngine(plan, tiles, streams)
        if design == "moments"
        else ReleaseEngine(plan, tiles, streams, memory_bytes=ROW_MEMORY)
    )
    with common.watched(found):
        for _ in engine.rows():
            pass
    # Cores share a cache and the way to the memory: whoever else is at work there makes the same work longer.
    found["cores"], found["beside_other_work"] = cores(), os.getloadavg()[0] > 1.5 * cores()
    start = time.process_time()
    features, _ = tiles.tile(0)
    for begin in range(0, len(features), 4096):
        features[begin : begin + 4096]
    found["making_cpu_seconds"] = (time.process_time() - start) / len(features) * records
    return found


@contextmanager
def nodes(way: str) -> Iterator[Cluster | None]:
    """A cluster of nodes of one core on this machine, or none; it is there before the clock starts."""
    if way == WAYS[0]:
        yield None
        return
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": os.urandom(32).hex()}
    import ray
    from ray.cluster_utils import Cluster as Nodes

    node = {"num_cpus": 1, "object_store_memory": 200 * 2**20, "include_dashboard": False}
    made = Nodes(initialize_head=True, head_node_args=node)
    for _ in range(WAYS.index(way) - 1):
        made.add_node(**node)
    ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
    try:
        yield Cluster()
    finally:
        ray.shutdown()
        made.shutdown()


def at_once(part: str) -> dict[str, float]:
    """The work of one core without Ray, done by two processes at the same time: how long the slower one takes."""
    context = multiprocessing.get_context("spawn")
    start, found = context.Barrier(2), context.SimpleQueue()
    both = [context.Process(target=_one_of_two, args=(part, start, found)) for _ in range(2)]
    for process in both:
        process.start()
    times = [found.get() for _ in both]
    for process in both:
        process.join()
    return {name: max(one[name] for one in times) for name in times[0]}


def _one_of_two(part: str, start: Any, found: Any) -> None:
    found.put(TIMED[part](WAYS[0], start.wait))


def ray_point(records: int, way: str, ready: Callable[[], Any] = lambda: None) -> dict[str, float]:
    """Moments of a feature store that lies in the page cache."""
    found: dict[str, float] = {}
    store = store_of(records, DIM)
    for start in range(0, records, RECORD_TILE):
        store.features[start : start + RECORD_TILE].max()
    with nodes(way) as cluster:
        machine: dict[str, Any] = {"workers": 1} if cluster is None else {"workers": 1, "cluster": cluster}
        engine = MomentsEngine(plan_of(records, "moments"), store, SecretStreams.from_entropy(), **machine)
        ready()
        with common.watched(found):
            list(engine.rows())
    return found


def encoding_point(way: str, ready: Callable[[], Any] = lambda: None) -> dict[str, float]:
    """Scattering coefficients of images in a file."""
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory(dir=CACHE) as folder, nodes(way) as cluster:
        generator, images = np.random.default_rng(0), Path(folder) / "images.safetensors"
        x = generator.integers(0, 256, (IMAGES, 28, 28), np.uint8)
        save_file({"x": x, "y": generator.integers(0, 10, IMAGES)}, images)
        engine = "local" if cluster is None else "ray"
        ready()
        with common.watched(found):
            extract_features(images, out=Path(folder) / "STORE", features="scattering", classes=10, engine=engine,
                             progress=False)  # fmt: skip
    return found


TIMED: Final[dict[str, Callable[..., dict[str, float]]]] = {
    **{part: partial(ray_point, records) for part, records in STORED.items()},
    "encoding": encoding_point,
}


def gpu_point(features: str) -> dict[str, Any]:
    """Images a second on a card; the processor's features beside them; and each record alone, and among others."""
    import torch

    x = np.random.default_rng(0).random((ENCODED, 32, 32, 3), np.float32)
    extractor = parse_features(features)
    on_card, on_processor = (type(extractor)(**{**extractor.options(), "device": device}) for device in ("cuda", "cpu"))
    on_card.transform(x[:256])
    start = time.perf_counter()
    found = on_card.transform(x)
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    few = on_processor.transform(x[:64])
    places = np.random.default_rng(1).permutation(ENCODED)
    return {
        "convolutions": "float32",
        "seconds": seconds,
        "images_a_second": ENCODED / seconds,
        "off": float(np.abs(found[:64] - few).max() / np.abs(few).max()),
        "same_among_others": bool((on_card.transform(x[places]) == found[places]).all()),
        "same_alone": bool((np.concatenate([on_card.transform(x[i : i + 1]) for i in range(64)]) == found[:64]).all()),
        "card": torch.cuda.get_device_name(),
    }


def point(task: dict[str, Any]) -> dict[str, Any]:
    part = task["part"]
    if part == "records":
        return records_point(task["design"], task["records"])
    if task["way"] == AT_ONCE:
        return at_once(part)
    return gpu_point(task["way"]) if part == "gpu" else TIMED[part](task["way"])


# --- all of them -----------------------------------------------------------------------------------------------------


def jobs(parts: list[str], rounds: int, most: int) -> Iterator[dict[str, Any]]:
    if "gpu" in parts:
        yield from ({"part": "gpu", "way": features} for features in ENCODERS)
    timed = [part for part in TIMED if part in parts]
    for turn in range(rounds):
        yield from ({"part": part, "way": way, "round": turn} for part in timed for way in (*WAYS, AT_ONCE))
    for records in SIZES if "records" in parts else ():
        for design in DESIGNS if records <= most else ():
            yield {"part": "records", "design": design, "records": records}


def kept() -> list[dict[str, Any]]:
    return json.loads(RUNS.read_text()) if RUNS.exists() else []


def measure(task: dict[str, Any]) -> None:
    one_core = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    environment = os.environ | (one_core if task["part"] in TIMED else {})
    ended = subprocess.run(
        [sys.executable, __file__, "--point", json.dumps(task)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    if ended.returncode:
        raise RuntimeError(ended.stderr[-2000:])
    run = {**task, "machine": common.machine(), **json.loads(ended.stdout.splitlines()[-1])}
    # Another part may have added its runs meanwhile.
    RUNS.write_text(json.dumps([*kept(), run], indent=1) + "\n")
    print({key: value for key, value in run.items() if key != "machine"}, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", default="records,ray,ray-large,encoding", help="parts, separated by commas; none: tables alone"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--most", type=int, default=SIZES[-1], help="most records")
    parser.add_argument("--point", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    CACHE.mkdir(exist_ok=True)
    if asked.point:
        print(json.dumps(point(json.loads(asked.point))))
        return
    parts = asked.only.split(",")
    stored = [records for part, records in STORED.items() if part in parts]
    for records in stored:
        store_of(records, DIM)
    for task in jobs(parts, asked.rounds, asked.most):
        if not any(all(run.get(key) == value for key, value in task.items()) for run in kept()):
            measure(task)
    for records in stored:
        shutil.rmtree(CACHE / f"scale-{records}-{DIM}", ignore_errors=True)
    report(kept())


def report(runs: list[dict[str, Any]]) -> None:
    """results/scale_records.md: what was run, the line through two sizes, and ratios of pairs of one round."""
    tables = [
        "## Releases of so many records\n\n" + _records([run for run in runs if run["part"] == "records"]),
        "## Nodes of one core\n\n" + _nodes(runs),
        "## On a graphics card\n\n" + _cards([run for run in runs if run["part"] == "gpu"]),
    ]
    settings = {
        "records": f"d = {DIM}, whole numbers of one byte each, made as they are read; private mean; epsilon 1, delta "
        f"1e-9; Poisson rows: T = {ROWS:,}, m = {DEGREE}, in {ROW_MEMORY // 2**20} MiB",
        "nodes": f"moments of records in a feature store; scattering coefficients of {IMAGES:,} images; a "
        "cluster is there before the clock starts, its workers are not",
        "card": f"{ENCODED:,} images of 32 x 32, from memory",
        "prices, assumed": f"${CORE_PRICE:g} a core and hour, ${CARD_PRICE:g} a card and hour",
    }
    common.save("scale_records", "Large releases: records, nodes and cards", settings, runs, tables)


def _records(runs: list[dict[str, Any]]) -> str:
    rows, said = [], []
    for design in DESIGNS:
        own = sorted((run for run in runs if run["design"] == design), key=lambda run: run["records"])
        # Of a size, the run whose other core had nothing to do, where there is one.
        seconds = {run["records"]: run["cpu_seconds"] for run in sorted(own, key=lambda run: -run["beside_other_work"])}
        for run in own:
            making = run["making_cpu_seconds"] / run["cpu_seconds"]
            each = 1e6 * run["cpu_seconds"] / run["records"]
            facts = [f"{run['seconds']:.0f}", f"{run['cpu_seconds']:.0f}", f"{each:.1f}", f"{100 * making:.0f}%"]
            machine = f"{run['machine']['processor']}, {run['cores']} of {run['machine']['cores']} cores"
            beside = "yes" if run["beside_other_work"] else "no"
            rows.append([design, f"{run['records']:,}", *facts, f"{run['peak_gib']:.2f}", machine, beside])
        if all(size in seconds for size in SIZES[:2]):
            slope = (seconds[SIZES[1]] - seconds[SIZES[0]]) / (SIZES[1] - SIZES[0])
            base = seconds[SIZES[0]] - slope * SIZES[0]
            ahead = base + slope * SIZES[2]
            checked = ", not run yet"
            if SIZES[2] in seconds:
                more = 100 * (seconds[SIZES[2]] / ahead - 1)
                checked = f"; it took {seconds[SIZES[2]]:.0f} ({more:+.0f}%)"
            hours = (base + slope * 10**9) / 3600
            said.append(
                f"{design}: a line through {SIZES[0]:,} and {SIZES[1]:,} says {ahead:.0f} CPU seconds for "
                f"{SIZES[2]:,}{checked}; for 10^9 {hours:.1f} core-hours: {60 * hours / 64:.0f} minutes on 64 cores, "
                f"${CORE_PRICE * hours:.2f}."
            )
    head = ["design", "records", "seconds", "CPU seconds", "microseconds a record", "making them", "peak GiB", "on"]
    head.append("the other core at work")
    return "\n\n".join([common.table(head, rows), *said])


def _nodes(runs: list[dict[str, Any]]) -> str:
    rows = []
    for part in TIMED:
        found = {
            way: {run["round"]: run["seconds"] for run in runs if (run["part"], run.get("way")) == (part, way)}
            for way in (*WAYS, AT_ONCE)
        }
        cells = [
            f"{common.median(list(times.values())):.1f} ({len(times)})" if times else "" for times in found.values()
        ]
        twice = {turn: 2 * seconds for turn, seconds in found[WAYS[0]].items()}
        ratios = (
            _ratio(found[WAYS[1]], found[WAYS[0]]),
            _ratio(found[WAYS[1]], found[WAYS[2]]),
            _ratio(twice, found[AT_ONCE]),
        )
        name = f"moments of {STORED[part]:,} records" if part in STORED else f"encoding of {IMAGES:,} images"
        rows.append([name, *cells, *ratios])
    head = [*(f"{way}, seconds (runs)" for way in (*WAYS, AT_ONCE)), "one node / no Ray", "one node / two"]
    told = (
        "The last column is what the machine has of its second core: two processes without Ray, each with all of the "
        "work, at once, and how much more they do in a second than one alone."
    )
    return common.table(["", *head, "two cores / one"], rows) + "\n\n" + told


def _ratio(one: dict[int, float], other: dict[int, float]) -> str:
    pairs = [one[turn] / other[turn] for turn in one if turn in other]
    return f"{common.median(pairs):.2f}" if pairs else ""


def _cards(runs: list[dict[str, Any]]) -> str:
    rows = []
    for run in runs:
        hours = 10**8 / run["images_a_second"] / 3600
        same = "yes" if run["same_among_others"] and run["same_alone"] else "no"
        rate, off = f"{run['images_a_second']:,.0f}", f"{run['off']:.1e}"
        rows.append(
            [
                run["way"],
                run["card"],
                run["convolutions"],
                rate,
                off,
                same,
                f"{hours / 8:.1f}",
                f"${CARD_PRICE * hours:.0f}",
            ]
        )
    head = [
        "features",
        "card",
        "convolutions",
        "images a second",
        "off the processor's, of the largest",
        "a record's bits the same whatever its neighbours",
    ]
    return common.table([*head, "10^8 images on 8 cards, hours", "price"], rows)


if __name__ == "__main__":
    main()
