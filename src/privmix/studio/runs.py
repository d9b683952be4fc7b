"""The one release that is being made: started once, watched, stopped, finished later."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Lock, Thread
from typing import Any, Final

from privmix.studio.order import Order

RUNNING, DONE, FAILED, STOPPED = "running", "done", "failed", "stopped"
_MOST_KEYS: Final = 200
_PATIENCE: Final = 30.0


class Busy(Exception):
    """A release is being made already."""


class Keys:
    """Keys of forms, each good for one release: a page that is sent twice does nothing twice."""

    def __init__(self) -> None:
        self._open: dict[str, None] = {}
        self._lock = Lock()

    def new(self) -> str:
        """A key for one form."""
        key = secrets.token_urlsafe(24)
        with self._lock:
            self._open[key] = None
            while len(self._open) > _MOST_KEYS:
                self._open.pop(next(iter(self._open)))
        return key

    def use(self, key: str) -> bool:
        """Whether the key is good; it is not any more after this."""
        with self._lock:
            return self._open.pop(key, self) is not self


@dataclass
class Run:
    """A release that is being made, or was.

    Attributes:
        order: what was asked.
        folder: in which its paths are.
        id: names it in addresses.
        state: running, done, failed or stopped.
        stage, percent: where it is.
        error: what went wrong, in words.
        spent: what that cost.
        kept: whether it can be finished at no further cost.
        warnings: what its owner should know.
    """

    order: Order
    folder: Path
    id: str = field(default_factory=lambda: secrets.token_urlsafe(9))
    state: str = RUNNING
    stage: str = "starting"
    percent: int = 0
    error: str = ""
    spent: str = ""
    kept: bool = False
    warnings: tuple[str, ...] = ()

    @property
    def out(self) -> Path:
        """The folder of the release."""
        return self.folder / str(self.order.release["out"])

    def hear(self, event: dict[str, Any]) -> None:
        """Take in a line of the worker."""
        if event.get("done"):
            self.state, self.warnings, self.percent = DONE, tuple(event["warnings"]), 100
        elif "error" in event:
            self.state = STOPPED if event["stopped"] else FAILED
            self.error, self.spent, self.kept = event["error"], event["spent"], event["kept"]
        else:
            self.stage, self.percent = event["stage"], event["percent"]


class Runs:
    """Releases, one at a time, each in a process of its own: no private record is in the memory of this one.

    Formal guarantees:
        * One at a time: a second one is refused while the first is being made.
        * No code from the data's folder: the process takes none from the folder that it works in.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._process: subprocess.Popen[str] | None = None
        self.last: Run | None = None
        self._all: dict[str, Run] = {}

    @property
    def running(self) -> Run | None:
        """The release that is being made, if one is."""
        return self.last if self.last is not None and self.last.state == RUNNING else None

    def get(self, id: str) -> Run | None:
        """The run of that name."""
        return self._all.get(id)

    def start(self, order: Order, folder: Path, *, resume: bool = False) -> Run:
        """Begin a release, or finish one that was interrupted.

        Raises:
            Busy: another one is being made.
        """
        with self._lock:
            if self.running is not None:
                raise Busy
            run = Run(order, folder)
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "privmix.studio.worker"],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": _path()},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                encoding="utf-8",
                # What ctrl-C ends in the terminal is the studio, which then ends this by itself.
                start_new_session=True,
            )
            self.last = self._all[run.id] = run
        Thread(target=self._watch, args=(self._process, run, resume), name="release", daemon=True).start()
        return run

    def stop(self) -> None:
        """Ask the worker to end, as ctrl-C does: what was paid for is kept."""
        process = self._process
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGINT)

    def close(self) -> None:
        """End the worker and wait for it."""
        self.stop()
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_PATIENCE)

    def _watch(self, process: subprocess.Popen[str], run: Run, resume: bool) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(OSError):
            json.dump({"order": asdict(run.order), "resume": resume}, process.stdin)
            process.stdin.close()
        for line in process.stdout:
            with contextlib.suppress(ValueError, KeyError, TypeError):
                run.hear(json.loads(line))
        process.wait()
        if run.state == RUNNING:
            # A kill says nothing.
            stopped = process.returncode == -signal.SIGINT
            killed = "the process that made the release ended without a word (out of memory, or killed)"
            run.error = "stopped, as you asked" if stopped else killed
            run.spent = "If a ledger was charged, it stays charged; finishing the run is not charged again."
            run.kept, run.state = True, STOPPED if stopped else FAILED


def _path() -> str:
    """Where the worker finds packages: as this process does, by whole paths."""
    own = Path(__file__).parents[2]
    return os.pathsep.join([str(own), *(str(Path(one).resolve()) for one in sys.path if one)])
