"""Processes that tests start: two of one world, as torchrun starts them, and children killed at any file operation."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any


def environment() -> dict[str, str]:
    """The environment of processes that meet on this machine alone."""
    return {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(sys.path),
        "CUDA_VISIBLE_DEVICES": "",
        "GLOO_SOCKET_IFNAME": "lo",
        "COLUMNS": "200",
    }


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def two_processes(script: str, root: Path) -> list[subprocess.CompletedProcess[str]]:
    """Run a script twice in a folder, which it is also told."""
    shared = {**environment(), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "WORLD_SIZE": "2"}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(script), str(root)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=root,
            env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in (0, 1)
    ]
    try:
        said = [process.communicate(timeout=120)[0] for process in running]
        pairs = zip(running, said, strict=True)
        return [subprocess.CompletedProcess(process.args, process.returncode, out) for process, out in pairs]
    finally:
        for process in running:
            process.kill()
            process.wait()


def run_in(folder: Path, script: str, *arguments: object, timeout: float) -> subprocess.CompletedProcess[str]:
    """Run a script, which may import tests, in a folder and in a process that has started no threads."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env={**environment(), "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def killing(script: str, *arguments: object, timeout: float) -> list[int]:
    """Run a script that kills its children; return the numbers it prints."""
    done = run_in(Path(), script, *arguments, timeout=timeout)
    return [int(word) for word in done.stdout.split() if word.isdigit()]


def child(work: Callable[[], object]) -> int:
    """Fork, do the work there, and return the exit code."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        except BaseException as error:
            print(repr(error), flush=True)
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def hooked(work: Callable[[], object], at: int, count: Path | None = None) -> None:
    """Do the work and die at file operation ``at`` (0: never); write the number of operations to ``count``."""
    state = [0]

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            state[0] += 1
            if state[0] == at:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **kwargs)

        return counted

    for name in ("open", "write", "fsync", "replace", "unlink", "mkdir", "rmdir", "chmod", "close"):
        setattr(os, name, wrap(getattr(os, name)))
    work()
    if count is not None:
        count.write_text(str(state[0]))
