"""What a stranger's folder must never bring about, done on purpose: the watch must notice each."""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import pickle
import runpy
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


def _secret(world: World) -> Path:
    path = world.root / "home" / "secret.txt"
    path.write_text("a user's own")
    return path


def _unpickle(world: World) -> None:
    pickle.loads(pickle.dumps(Payload(world.proof)))


def _read(world: World) -> None:
    path = world.root / "home" / "read.txt"
    path.touch()
    path.read_text()


def _read_in_c(world: World) -> None:
    path = world.root / "home" / "bait.txt"
    path.touch()
    world.bait(path)
    libc = ctypes.CDLL(None)
    libc.close(libc.open(os.fsencode(path), os.O_RDONLY))


def _write(world: World) -> None:
    (world.root / "home" / "written.txt").write_text("x")


def _remove(world: World) -> None:
    _secret(world).unlink()


def _connect(world: World) -> None:
    with contextlib.suppress(OSError), socket.socket() as one:
        one.settimeout(0.01)
        one.connect(("127.0.0.1", 9))


def _resolve(world: World) -> None:
    with contextlib.suppress(OSError):
        socket.getaddrinfo("localhost", 80)


def _process(world: World) -> None:
    subprocess.run(["/bin/true"], check=False)


def _system(world: World) -> None:
    os.system("true")


def _spawn(world: World) -> None:
    os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)


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


def _fill_memory(world: World) -> None:
    np.ones(int(1.2 * MOST_MEMORY) // 8)


def _wait(world: World) -> None:
    pipe = world.root / "home" / "pipe"
    os.mkfifo(pipe)
    import signal

    signal.alarm(1)
    with pipe.open("rb") as stream:
        stream.read()
    time.sleep(5)


EFFECTS: Final[dict[str, Callable[[World], None]]] = {
    "pickle": _unpickle,
    "read": _read,
    "bait opened": _read_in_c,
    "write": _write,
    "change": _remove,
    "network": _connect,
    "network: socket.getaddrinfo": _resolve,
    "process": _process,
    "process: os.system": _system,
    "process: os.posix_spawn": _spawn,
    "process: os.fork": _fork,
    "process: subprocess.Popen": _decode,
    "code of a stranger ran": _decode,
    "code": _run_file,
    "memory": _fill_memory,
    "waits for ever": _wait,
}
