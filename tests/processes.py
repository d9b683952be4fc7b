"""Processes that tests start: two of one world, as torchrun starts them, and children killed at any file operation."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any


def two_processes(script: str, root: Path) -> list[subprocess.CompletedProcess[str]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(sys.path),
        "CUDA_VISIBLE_DEVICES": "",
        "GLOO_SOCKET_IFNAME": "lo",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": "2",
    }
    running = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(script), str(root)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in (0, 1)
    ]
    try:
        said = [process.communicate(timeout=90)[0] for process in running]
        return [
            subprocess.CompletedProcess(process.args, process.returncode, out)
            for process, out in zip(running, said, strict=True)
        ]
    finally:
        for process in running:
            process.kill()
            process.wait()


def killing(script: str, *arguments: object, timeout: float) -> list[int]:
    """Run a script that kills its children, in a process that has started no threads; return the numbers it prints."""
    command = [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
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
