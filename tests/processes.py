"""Processes of tests: two of one world, as torchrun starts them, and forked ones that are killed."""

from __future__ import annotations

import importlib
import os
import signal
import socket
import subprocess
import sys
import textwrap
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


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
        said = [process.communicate(timeout=300)[0] for process in running]
        return [
            subprocess.CompletedProcess(process.args, process.returncode, out)
            for process, out in zip(running, said, strict=True)
        ]
    finally:
        for process in running:
            process.kill()
            process.wait()


_tell: list[int] = []


def killed(act: Callable[[], object]) -> None:
    """Let a forked process act until it comes to :func:`die`; it starts no thread of its own before.

    What it imported is imported here afterwards, so that the next one finds it there.
    """
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        _tell.append(write)
        try:
            act()
        except BaseException:
            traceback.print_exc()
        os._exit(1)
    os.close(write)
    with open(read, encoding="utf-8") as stream:
        names = stream.read().split()
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code == -signal.SIGKILL, code
    for name in names:
        with suppress(Exception):
            importlib.import_module(name)


def die(*_: object, **__: object) -> None:
    """Be killed, after the last word to whoever waits in :func:`killed`."""
    for descriptor in _tell:
        with open(descriptor, "w", encoding="utf-8") as stream:
            stream.write("\n".join(sys.modules))
    os.kill(os.getpid(), signal.SIGKILL)
