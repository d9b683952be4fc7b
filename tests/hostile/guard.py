"""Watches one process for side effects: files, sockets, processes, code, pickles and memory."""

import ctypes
import os
import resource
import site
import struct
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

MEBIBYTE: Final = 2**20
# Above what one command of a warm process takes on the small data at hand, and far below what hostile files ask for.
MOST_MEMORY: Final = 300 * MEBIBYTE
# A command that asks for more than this fails there and then: the machine is not the place to try it.
_CEILING: Final = 3 * 2**30
_REPOSITORY: Final = Path(__file__).resolve().parents[2]
# The first argument of these events is a path that is made, changed or removed.
_CHANGES: Final = frozenset(
    {"os.mkdir", "os.remove", "os.rmdir", "os.truncate", "os.chmod", "os.chown", "os.utime", "os.mkfifo", "os.mknod"}
)
# ... and of these the second one as well.
_MOVES: Final = frozenset({"os.rename", "os.link", "os.symlink"})
# Which argument of these is the descriptor of an open folder that each of their paths may be beside.
_DESCRIPTORS: Final = {
    "os.mkdir": (2,),
    "os.remove": (1,),
    "os.rmdir": (1,),
    "os.chmod": (2,),
    "os.rename": (2, 3),
    "os.link": (2, 3),
    "os.symlink": (),
}
# As files are made in an open folder.
_NEW: Final = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
_PROCESSES: Final = frozenset({"os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty"})
_PROCESSES_TOO: Final = frozenset({"subprocess.Popen", "pty.spawn", "os.startfile", "os.kill"})
_NETWORK: Final = frozenset(
    {"socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.bind", "socket.sendto", "urllib.Request"}
)
# What urllib3 asks for when it is imported, to see whether there is IPv6; nobody is reached by it, and nobody listens.
_ANY_OWN_PORT: Final = ("::1", 0)
_WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_IN_OPEN: Final = 0x20


@dataclass
class Guard:
    """Records what Python says it is about to do (``sys.addaudithook``), by folders that may be read and written."""

    readable: list[str] = field(default_factory=list)
    writable: list[str] = field(default_factory=list)
    found: list[str] = field(default_factory=list)
    active: bool = False

    def __post_init__(self) -> None:
        purelib = [sysconfig.get_paths()[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")]
        own = [*purelib, *site.getsitepackages(), sys.prefix, sys.base_prefix, f"{_REPOSITORY}/src"]
        paths = [path for path in sys.path if path and Path(path).resolve() != _REPOSITORY]
        tests = f"{_REPOSITORY}/tests"
        self._code = tuple(sorted({os.path.realpath(path) + "/" for path in (*own, *paths, tests)}))
        # Time zones, users' names, processors and the system's own libraries.
        self._system = ("/proc/", "/sys/", "/dev/", "/usr/", "/lib/", "/lib64/", "/etc/")
        sys.addaudithook(self._hook)

    @contextmanager
    def watching(self) -> Iterator[list[str]]:
        """Side effects inside the block are in the list that it gets."""
        self.found = []
        self.active = True
        try:
            yield self.found
        finally:
            self.active = False

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.active:
            return
        # Whatever happens in here is our own doing.
        self.active = False
        try:
            told = self._judge(event, arguments)
            if told is not None:
                self.found.append(told)
        finally:
            self.active = True

    def _judge(self, event: str, arguments: tuple[Any, ...]) -> str | None:
        if event == "open":
            return self._opened(*arguments)
        if event in _PROCESSES or event in _PROCESSES_TOO:
            return f"process: {event} {arguments[:1]!r:.200}"
        if event in _NETWORK and not (event == "socket.bind" and arguments[1] == _ANY_OWN_PORT):
            return f"network: {event} {arguments[1:2]!r:.200}"
        if event == "pickle.find_class":
            return f"pickle: {'.'.join(map(str, arguments))}"
        if event in _CHANGES or event in _MOVES:
            places = _places(event, arguments)
            if bad := [place for place in places if not self._under(place, self.writable)]:
                return f"change: {event} {bad[0]!r:.200}"
        if event == "exec":
            return self._ran(getattr(arguments[0], "co_filename", ""))
        if event == "compile":
            return self._ran(arguments[1])
        if event in ("ctypes.dlopen", "import"):
            name = arguments[0] if event == "ctypes.dlopen" else arguments[1]
            return self._ran(name)
        return None

    def _opened(self, path: Any, mode: Any, flags: Any) -> str | None:
        if isinstance(path, int):
            return None
        writes = bool(flags & _WRITES) if isinstance(flags, int) else any(sign in str(mode) for sign in "wax+")
        if writes:
            # A new file of a folder that is held open: its place is told when it gets its name.
            held = isinstance(flags, int) and flags & _NEW == _NEW and "/" not in os.fsdecode(path)
            fine = held or self._under(path, [*self.writable, "/dev/null"])
            return None if fine else f"write: {path!r:.200}"
        if isinstance(flags, int) and flags & os.O_NOFOLLOW:
            # A link in this place is not followed: where it leads to does not matter.
            path = os.path.join(_real(os.path.dirname(os.fsdecode(path))), ".")
        name = _real(path) + "/"
        fine = name.startswith((*self._code, *self._system)) or self._under(path, [*self.readable, *self.writable])
        return None if fine or name == f"{_REPOSITORY}/" else f"read: {path!r:.200}"

    def _ran(self, filename: Any) -> str | None:
        """Code is fine where it is Python's, a library's or ours, and where it comes from no file."""
        if isinstance(filename, bytes):
            filename = os.fsdecode(filename)
        if not isinstance(filename, str) or "/" not in filename or filename.startswith("<"):
            return None
        name = _real(filename)
        return None if name.startswith((*self._code, "/usr/", "/lib")) else f"code: {filename:.200}"

    def _under(self, path: Any, folders: list[str]) -> bool:
        if isinstance(path, int):
            return True
        name = _real(path) + "/"
        return any(name.startswith(os.path.realpath(folder) + "/") for folder in folders)


def _places(event: str, arguments: tuple[Any, ...]) -> list[Any]:
    """The paths that a change is of, those beside an open folder's descriptor as that folder's."""
    paths = arguments[: 2 if event in _MOVES else 1]
    where = _DESCRIPTORS.get(event, ())
    found = []
    for number, path in enumerate(paths):
        descriptor = arguments[where[number]] if number < len(where) else -1
        held = isinstance(descriptor, int) and descriptor >= 0 and not isinstance(path, int)
        found.append(os.path.join(os.readlink(f"/proc/self/fd/{descriptor}"), os.fsdecode(path)) if held else path)
    return found


def _real(path: Any) -> str:
    return os.path.realpath(os.fsdecode(path))


class Baits:
    """Files that nobody may open, not even a library written in C: the system itself tells (Linux, inotify)."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._handle = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._handle < 0:
            raise OSError(ctypes.get_errno(), "inotify")
        self._names: dict[int, str] = {}

    def add(self, path: Path) -> None:
        """Watch a file."""
        number = self._libc.inotify_add_watch(self._handle, os.fsencode(path), _IN_OPEN)
        if number < 0:
            raise OSError(ctypes.get_errno(), "inotify", str(path))
        self._names[number] = str(path)

    def opened(self) -> list[str]:
        """Files that were opened since the last call."""
        found: list[str] = []
        while True:
            try:
                content = os.read(self._handle, 2**16)
            except BlockingIOError:
                return sorted(set(found))
            place = 0
            while place < len(content):
                number, mask, _, length = struct.unpack_from("iIII", content, place)
                place += 16 + length
                if mask & _IN_OPEN:
                    found.append(self._names[number])


@contextmanager
def memory() -> Iterator[dict[str, int]]:
    """Bytes by which the process grew at its highest inside the block, under the key ``grown``."""
    told: dict[str, int] = {}
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    before = status("VmRSS")
    resource.setrlimit(resource.RLIMIT_DATA, (status("VmData") + _CEILING, hard))
    # Written to this file, a 5 sets the highest mark back to what is in use now.
    Path("/proc/self/clear_refs").write_text("5")
    try:
        yield told
    finally:
        told["grown"] = max(0, status("VmHWM") - before)
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def status(name: str) -> int:
    """Bytes of a line of proc(5)'s status."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(name)
