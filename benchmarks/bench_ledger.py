"""Reservations per second, SQLite and PostgreSQL: one after another, and from many threads at once.

PostgreSQL: set PRIVMIX_BENCH_POSTGRES to the URL of an empty database; it is left out otherwise.
"""

from __future__ import annotations

import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import common
from privmix.accounting import Event, Gaussian, PoissonSampled, Repeated
from privmix.ledger import Ledger

SERIAL, PARALLEL, THREADS = 100, 128, 64
RELEASE = Repeated(PoissonSampled(64 / 60_000, Gaussian(20.0)), 60_000)
EVENTS: dict[str, Event] = {"a Gaussian query": Gaussian(1e3), "an MNIST-sized release": RELEASE}


def rates(url: str, name: str, event: Event) -> tuple[float, float]:
    """Reservations per second from one thread and from many, each on a dataset of its own."""
    ledger = Ledger.create(url)
    for way in ("serial", "parallel"):
        ledger.add_dataset(f"{name} {way}", epsilon=1e3, delta=1e-5)

    def reserve(way: str) -> None:
        Ledger.open(url).reserve(f"{name} {way}", event, purpose="benchmark")

    reserve("serial")
    start = time.perf_counter()
    for _ in range(SERIAL):
        reserve("serial")
    serial = SERIAL / (time.perf_counter() - start)
    start = time.perf_counter()
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(reserve, ["parallel"] * PARALLEL))
    parallel = PARALLEL / (time.perf_counter() - start)
    assert ledger.budget(f"{name} parallel").reservations == PARALLEL
    return serial, parallel


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        urls = {"SQLite (WAL, synchronous FULL)": f"sqlite:///{folder}/ledger.db"}
        if "PRIVMIX_BENCH_POSTGRES" in os.environ:
            urls["PostgreSQL (loopback)"] = os.environ["PRIVMIX_BENCH_POSTGRES"]
        found = {
            (label, name): rates(url, f"{name} {time.time()}", event)
            for label, url in urls.items()
            for name, event in EVENTS.items()
        }
    rows = [(label, name, f"{one:.0f}", f"{many:.0f}") for (label, name), (one, many) in found.items()]
    common.save(
        "ledger",
        "Ledger: reservations per second on one dataset",
        {"reservations": f"{SERIAL} serial, {PARALLEL} from {THREADS} threads", "connection": "opened for each"},
        [{"database": key[0], "event": key[1], "serial": one, "parallel": many} for key, (one, many) in found.items()],
        [common.table(["database", "charge", "one thread", f"{THREADS} threads"], rows)],
    )


if __name__ == "__main__":
    main()
