"""Feeds mutants to targets and keeps those that were not handled."""

import hashlib
import random
import shutil
import signal
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NoReturn

from privmix.errors import InvalidInput, StorageError
from tests.hostile.guard import status

# What one small input may take. Far above what honest ones take, far below what would hurt.
MOST_SECONDS: Final = 20
MOST_MEMORY: Final = 2**30
# After so many failures the rest would say the same.
_ENOUGH: Final = 20


@dataclass(frozen=True)
class Target:
    """Opens files of others, each in an empty folder; `open` raises HANDLED alone; `share`: inputs a round."""

    mutants: Callable[[random.Random], bytes]
    open: Callable[[bytes, Path], object]
    share: int = 1


HANDLED: Final = (InvalidInput, StorageError)


@dataclass
class Fuzzer:
    """Runs targets in turn: the same seed gives the same inputs; failing ones go to `keep`."""

    targets: Mapping[str, Target]
    seed: str
    keep: Path
    inputs: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    _known: set[tuple[str, str]] = field(default_factory=set)

    def run(self, seconds: float, inputs: int | None = None) -> None:
        """Go on until the time or the number of inputs is over, or there are enough failures."""
        sources = {name: random.Random(f"{self.seed}/{name}") for name in self.targets}
        until = time.monotonic() + seconds
        with tempfile.TemporaryDirectory() as folder:
            while time.monotonic() < until and len(self.failures) < _ENOUGH:
                for name in [name for name, target in self.targets.items() for _ in range(target.share)]:
                    if inputs is not None and self.inputs.total() >= inputs:
                        return
                    begun = time.process_time()
                    content = self.targets[name].mutants(sources[name])
                    self.feed(name, content, Path(folder) / str(self.inputs.total()))
                    self.seconds[name] += time.process_time() - begun

    def feed(self, name: str, content: bytes, folder: Path) -> None:
        """Open one input, and note what came of it."""
        self.inputs[name] += 1
        folder.mkdir()
        # What earlier inputs took must hide nothing (proc(5): 5 resets the highest mark).
        Path("/proc/self/clear_refs").write_text("5")
        before = status("VmHWM")
        try:
            with _limit(MOST_SECONDS):
                self.targets[name].open(content, folder)
        except HANDLED as error:
            self.refused[name] += 1
            if "\n" in str(error):
                self._keep(name, content, f"an error of several lines: {error}", "several lines")
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            self._keep(name, content, traceback.format_exc(), f"{type(error).__name__} {where.filename}:{where.lineno}")
        if (taken := status("VmHWM") - before) > MOST_MEMORY:
            self._keep(name, content, f"took {taken / 2**20:.0f} MiB", "memory")
        shutil.rmtree(folder)

    def summary(self) -> str:
        """What was run, in lines."""
        lines = [
            f"{name}: {self.inputs[name]:,} inputs in {self.seconds[name]:.0f} s, {self.refused[name]:,} refused"
            for name in self.targets
        ]
        last = f"{self.inputs.total():,} inputs, {len(self.failures)} not handled, seed {self.seed}"
        return "\n".join([*lines, *self.failures, last])

    def _keep(self, name: str, content: bytes, why: str, kind: str) -> None:
        if (name, kind) in self._known:
            return
        self._known.add((name, kind))
        self.keep.mkdir(exist_ok=True)
        file = self.keep / f"{name.replace(' ', '-')}-{hashlib.sha256(content).hexdigest()[:12]}"
        file.write_bytes(content)
        self.failures.append(f"NOT HANDLED by {name} ({file}): {why}")


@contextmanager
def _limit(seconds: int) -> Iterator[None]:
    def stop(*_: object) -> NoReturn:
        raise TimeoutError(f"longer than {seconds} s")

    old = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, old)
