"""What a stranger's folder must never bring about, done on purpose: the watch must notice each."""

import contextlib
import ctypes
import io
import os
import pickle
import runpy
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
from PIL import Image

from tests.hostile.cases_records import EPS
from tests.hostile.corpus import World
from tests.hostile.guard import MOST_MEMORY


class Payload:
    """Unpickled, it leaves a file."""

    def __init__(self, proof: Path) -> None:
        self._proof = proof

    def __reduce__(self) -> tuple[object, ...]:
        return (os.system, (f"touch '{self._proof}'",))


def _made(world: World) -> Path:
    path = world.root / "home" / "own.txt"
    path.touch()
    return path


def _read_in_c(world: World) -> None:
    path = _made(world)
    world.bait(path)
    libc = ctypes.CDLL(None)
    libc.close(libc.open(os.fsencode(path), os.O_RDONLY))


def _connect(world: World) -> None:
    with contextlib.suppress(OSError), socket.socket() as one:
        one.settimeout(0.01)
        one.connect(("127.0.0.1", 9))


def _fork(world: World) -> None:
    if not (child := os.fork()):
        os._exit(0)
    os.waitpid(child, 0)


def _decode(world: World) -> None:
    """As an image library does with whatever bytes it is given."""
    with contextlib.suppress(OSError), Image.open(io.BytesIO(EPS)) as image:
        image.load()


def _run_file(world: World) -> None:
    path = world.root / "data" / "own.py"
    path.write_text("x = 1\n")
    runpy.run_path(str(path))


def _wait(world: World) -> None:
    pipe = world.root / "home" / "pipe"
    os.mkfifo(pipe)
    signal.alarm(1)
    with pipe.open("rb") as stream:
        stream.read()
    time.sleep(5)


EFFECTS: Final[dict[str, Callable[[World], object]]] = {
    "pickle": lambda world: pickle.loads(pickle.dumps(Payload(world.proof))),
    "read": lambda world: _made(world).read_text(),
    "bait opened": _read_in_c,
    "write": lambda world: (world.root / "home" / "written.txt").write_text("x"),
    "change": lambda world: _made(world).unlink(),
    "network": _connect,
    "network: socket.getaddrinfo": lambda _: socket.getaddrinfo("127.0.0.1", 80),
    "process": lambda _: subprocess.run(["/bin/true"], check=False),
    "process: os.system": lambda _: os.system("true"),
    "process: os.posix_spawn": lambda _: os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0),
    "process: os.fork": _fork,
    "process: subprocess.Popen": _decode,
    "code of a stranger ran": _decode,
    "code": _run_file,
    "memory": lambda _: np.ones(int(1.2 * MOST_MEMORY) // 8),
    "waits for ever": _wait,
}
