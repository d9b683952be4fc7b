"""Two processes of one world, as torchrun starts them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
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
        said = [process.communicate(timeout=90)[0] for process in running]
        return [
            subprocess.CompletedProcess(process.args, process.returncode, out)
            for process, out in zip(running, said, strict=True)
        ]
    finally:
        for process in running:
            process.kill()
            process.wait()
