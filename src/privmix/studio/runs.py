"""The one release that is being made: started once, watched, stopped, finished later."""

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
# Seconds that a stopped worker has to end by itself.
_PATIENCE: Final = 30.0


class Busy(Exception):
    """A release is being made already."""


class FormKeys:
    """Keys of forms, each good for one release: a page that is sent twice does nothing twice."""

    def __init__(self) -> None:
        self._open: dict[str, None] = {}
        self._lock = Lock()

    def new(self) -> str:
        key = secrets.token_urlsafe(24)
        with self._lock:
            self._open[key] = None
            # Each view of a page makes a key: the oldest ones go.
            while len(self._open) > _MOST_KEYS:
                self._open.pop(next(iter(self._open)))
        return key

    def use(self, key: str) -> bool:
        """Whether the key is good; it is not any more after this."""
        with self._lock:
            # `self` marks a key that is not there: every key has the value None.
            return self._open.pop(key, self) is not self


@dataclass
class StudioRun:
    """A release in progress or finished; its paths are in ``folder``."""

    # state: running, done, failed or stopped; spent: cost in words; kept: it can be resumed at no further cost.

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
        return self.folder / str(self.order.release["out"])

    def hear(self, event: dict[str, Any]) -> None:
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
        self.last: StudioRun | None = None
        self._all: dict[str, StudioRun] = {}

    @property
    def running(self) -> StudioRun | None:
        return self.last if self.last is not None and self.last.state == RUNNING else None

    def get(self, id: str) -> StudioRun | None:
        return self._all.get(id)

    def start(self, order: Order, folder: Path, *, resume: bool = False) -> StudioRun:
        """Begin or resume a release; raise Busy while another one runs."""
        with self._lock:
            # Under the lock: two requests at once must not start two releases.
            if self.running is not None:
                raise Busy
            run = StudioRun(order, folder)
            self._process = subprocess.Popen(
                # -P: the folder of the data, where the worker starts, is no place to import from.
                [sys.executable, "-P", "-m", "privmix.studio.worker"],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": _path()},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                encoding="utf-8",
                # In the terminal, ctrl-C ends the studio, which then ends this process by itself.
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
        self.stop()
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_PATIENCE)

    def _watch(self, process: subprocess.Popen[str], run: StudioRun, resume: bool) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        # A worker that died at once takes no order: its end is reported below.
        with contextlib.suppress(OSError):
            json.dump({"order": asdict(run.order), "resume": resume}, process.stdin)
            process.stdin.close()
        for line in process.stdout:
            # A line that was cut short must not end the watch.
            with contextlib.suppress(ValueError, KeyError, TypeError):
                run.hear(json.loads(line))
        process.wait()
        if run.state == RUNNING:
            # A killed process leaves no message.
            stopped = process.returncode == -signal.SIGINT
            killed = "the release process ended without a message: it ran out of memory or was killed"
            run.error = "stopped at your request" if stopped else killed
            run.spent = "A charge to a ledger stays. You can finish the run without another charge."
            run.kept, run.state = True, STOPPED if stopped else FAILED


def _path() -> str:
    """Return the worker's search path for packages: the one of this process, as whole paths."""
    own = Path(__file__).parents[2]
    # A relative entry would name a place in the folder of the data.
    return os.pathsep.join([str(own), *(str(Path(one).resolve()) for one in sys.path if one)])
