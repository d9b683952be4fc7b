"""A Ray cluster: how it is found or started, who else reaches it, which files it shares, and what it encrypts."""

import errno
import os
import pickle
import secrets
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.data.files import reading
from privmix.data.remote_files import as_remote
from privmix.errors import InvalidInput, MissingExtra, StorageError
from privmix.folders import file_mode, hold, open_private
from privmix.mechanisms.membership import Secret
from privmix.scratch import ScratchFolder

# A started one listens on the loopback interface to holders of its token, with its files in an owner-only folder.


_CONNECT_SECONDS = 10
# Bytes of the paths of Ray's sockets below its folder; the operating system limits whole paths to 107 bytes.
_SOCKET_PATH = 65
_MOST_PATH = 107
# "0" where Ray runs on one machine alone.
_CLUSTERS = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
_MODE, _TOKEN, _TOKEN_FILE = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"


KEPT: Final = "finished parts are kept: run the command again to continue"
"""The end of every error of a cluster."""

# A disk, a quota, or what one file may have.
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# Errors of Ray's that more machines do not mend.
_REMEDIES: Final = {
    "OutOfDiskError": "no space on the disk with Ray's temporary folder, which holds spilled objects",
    "ObjectStoreFullError": "the object store is too small, and it cannot spill objects",
    "OutOfMemoryError": "a machine has too little memory for its tasks",
}


class ClusterLost(StorageError):
    """The cluster could not finish the work; the run can be resumed, on it or without it."""

    keeps_run = True


def lost(error: Exception) -> ClusterLost:
    """Return the error to raise for one of Ray's, without its text, which holds tracebacks of workers."""
    name = type(error).__name__
    return ClusterLost(f"ray: {name}; {_REMEDIES.get(name, 'the cluster could not finish the work')}; {KEPT}")


def reason_of(error: Exception) -> str:
    """Return why a task failed, without a library's words: the operating system's message, or the error's kind."""
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, OSError) and found.errno is not None:
            full = ": free space on the disk of the features" if found.errno in _FULL else ""
            return os.strerror(found.errno) + full
        # Errors that are worded for users have the system's behind them.
        found = found.__context__
    return type(error).__name__


def check_ray() -> None:
    # Before the first import: Ray reads it once.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray  # noqa: F401
    except ImportError:
        raise MissingExtra("ray", "ray") from None


@contextmanager
def connected(address: str | None) -> Iterator[None]:
    """Connect to a cluster, or start one here, unless this process is connected; undo at the end what was done."""
    import ray

    if ray.is_initialized():
        _check_token_asked()
        yield
        return
    _check_reachable(address)
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    with ExitStack() as done:
        if address is None:
            folder = done.enter_context(ScratchFolder())
            _check_length(folder)
            done.enter_context(_own_token())
            done.enter_context(_loopback())
            # Ray opens its folders to all; no other user can reach them.
            quiet |= {"include_dashboard": False, "_node_ip_address": "127.0.0.1", "_temp_dir": str(folder)}
        else:
            _check_mode()
        try:
            # Registered first: a start that fails halfway leaves processes behind.
            done.callback(ray.shutdown)
            with file_mode(private=True):
                ray.init(address=address or "local", **quiet)
        except Exception as error:
            raise ClusterLost(f"ray: {type(error).__name__}; no cluster at {address or 'this machine'}") from None
        if address is not None:
            _check_token_asked()
        elif not ray.get_runtime_context().gcs_address.startswith(("127.0.0.1:", "[::1]:", "::1:")):
            raise ClusterLost("ray: this version does not keep a cluster of one machine on the loopback interface")
        yield


@contextmanager
def _own_token() -> Iterator[None]:
    """Make this process, and the cluster it starts, use a fresh secret token."""
    before = {name: os.environ.pop(name, None) for name in (_MODE, _TOKEN, _TOKEN_FILE)}
    # Children get it; other users can't read the environment of ours.
    os.environ |= {_MODE: "token", _TOKEN: secrets.token_hex(32)}
    _reread_token()
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        _reread_token()


@contextmanager
def _loopback() -> Iterator[None]:
    """Keep a cluster that is started now on the loopback interface."""
    # Ray does so where clusters are switched off. Its processes read that from the environment; this one has read it
    # when Ray was imported, perhaps by others.
    from ray._private import ray_constants

    constants: Any = ray_constants
    before = getattr(constants, "ENABLE_RAY_CLUSTER", True), os.environ.get(_CLUSTERS)
    constants.ENABLE_RAY_CLUSTER, os.environ[_CLUSTERS] = False, "0"
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before[0]
        del os.environ[_CLUSTERS]
        if before[1] is not None:
            os.environ[_CLUSTERS] = before[1]


def _reread_token() -> None:
    """Make Ray read settings again that it caches."""
    # The mode goes first: while it requires a token, Ray looks for one.
    from ray import _raylet as loaded

    _raylet: Any = loaded
    _raylet.Config.initialize("")
    _raylet.AuthenticationTokenLoader.instance().reset_cache()


def _check_mode() -> None:
    if os.environ.get(_MODE, "").lower() not in ("token", "disabled"):
        raise InvalidInput(
            "RAY_AUTH_MODE",
            os.environ.get(_MODE),
            "token, with the cluster's token in RAY_AUTH_TOKEN_PATH, since private records go there; or disabled on "
            "a network that no other user can reach",
        )


def _check_token_asked() -> None:
    """Raise unless the workers of the cluster were started to ask for a token, or the caller has waived it."""
    import ray

    _check_mode()
    if os.environ[_MODE].lower() == "disabled":
        return
    try:
        # Without a CPU of its own: a busy cluster has to answer, too.
        asked = ray.get(ray.remote(_mode_here).options(num_cpus=0).remote())
    except ray.exceptions.RayError as error:
        raise lost(error) from None
    if asked != "token":
        raise InvalidInput("engine", "a cluster without a token", "a cluster started with RAY_AUTH_MODE=token")


def _mode_here() -> str:
    return os.environ.get(_MODE, "").lower()


def _check_length(folder: Path) -> None:
    # Checked here: the operating system's own message is less clear.
    base = tempfile.gettempdir()
    most = _MOST_PATH - _SOCKET_PATH - len(os.fsencode(folder)) + len(os.fsencode(base))
    if len(os.fsencode(base)) > most:
        raise InvalidInput("TMPDIR", base, f"a path of at most {most} bytes, for Ray's sockets below it")


def _check_reachable(address: str | None) -> None:
    # Ray itself tries for minutes.
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS).close()
    except (OSError, OverflowError):
        raise ClusterLost(f"ray: no cluster at {address}") from None


_NAME: Final = ".pmx-shared-"
_SECONDS: Final = 60.0
_TOKEN_BYTES: Final = 16
_FOLDER, _DATA = "folder", "data"


def check_places(folder: Path, files: tuple[Path, ...]) -> None:
    """Raise unless each machine of the connected cluster sees the folder, as this user, and the data files."""
    # A file of the owner's alone with a random word is in the folder meanwhile; a task on each machine with a CPU reads
    # it. No record is read. Machines that join later are not asked. At an address, one of the files shows the same.
    files = files[:1] if files and as_remote(files[0]) is not None else files
    word, name = secrets.token_hex(_TOKEN_BYTES), f"{_NAME}{secrets.token_hex(8)}"
    with reading(folder, "a folder"), hold(folder) as held:
        try:
            held.write(name, word.encode())
            lacking = set(_asked(str(folder.absolute() / name), word, files, os.getcwd()))
        finally:
            held.remove(name)
    if _FOLDER in lacking:
        allowed = "a path on a file system that all machines of the cluster share, for the same user"
        raise InvalidInput("out, store", str(folder), allowed)
    if _DATA in lacking:
        allowed = "files at the same path on all machines of the cluster, or at an address that they can read"
        raise InvalidInput("data", str(files[0]), allowed)


def lacks(place: str, word: str, files: tuple[Path, ...], folder: str) -> str:
    """Return what this machine does not see: ``"folder"``, ``"data"``, or ``""``."""
    # word: content of the file at `place`. folder: where relative names of files start.
    try:
        with open_private(Path(place), "shared") as stream:
            if stream.read(2 * len(word)).decode() != word:
                return _FOLDER
    except Exception:
        return _FOLDER
    try:
        seen = [_seen(file, folder) for file in files]
    except Exception:
        return _DATA
    return "" if all(seen) else _DATA


def _seen(file: Any, folder: str) -> bool:
    if (remote := as_remote(file)) is not None:
        return remote.tree.unchanged(remote.relative)
    return os.path.exists(os.path.join(folder, file))


def _asked(*given: Any) -> list[str]:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    library: Any = ray
    nodes = [node for node in library.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]
    task = library.remote(lacks)
    asked = [
        task.options(num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)).remote(
            *given
        )
        for node in nodes
    ]
    try:
        found: list[str] = library.get(asked, timeout=_SECONDS)
    except library.exceptions.GetTimeoutError:
        raise ClusterLost("ray: a machine of the cluster does not answer") from None
    return found


# The key is in memory alone. Ray sends small arguments, such as the key, from process to process, never through its
# store: spilled files are useless once the processes have ended.

_KEY_BYTES: Final = 32
_NONCE: Final = 12


@dataclass(frozen=True, eq=False)
class Sealed(Secret):
    """An object that only a key holder can open: encrypted uint8 pieces, and a nonce and a tag for each."""

    pieces: tuple[NDArray[np.uint8], ...]
    seals: tuple[bytes, ...]


class ObjectKey(Secret):
    """Encrypts objects by AES-256-GCM, under a 32-byte key that no other process has and that no disk holds.

    Formal guarantees:
        * Secret: without the key nothing of an object shows but how large its arrays are.
        * Whole: an object that was changed does not open, nor does one that was sealed as another.
        * Not in the store: it is small enough that Ray never puts it there, where it is an argument by itself.
    """

    def __init__(self, key: bytes | None = None) -> None:
        self._key = secrets.token_bytes(_KEY_BYTES) if key is None else key

    def __reduce__(self) -> tuple[Any, ...]:
        return ObjectKey, (self._key,)

    def seal(self, what: Any, name: str, *, spent: bool = False) -> Sealed:
        """Return ``what`` encrypted under a ``name`` of its own; ``spent`` arrays are encrypted in place."""
        from ray import cloudpickle

        buffers: list[pickle.PickleBuffer] = []
        picklers: Any = cloudpickle
        # Protocol 5 hands arrays over as buffers, which are encrypted without a copy inside the pickle.
        head = picklers.dumps(what, protocol=5, buffer_callback=buffers.append)
        pieces, seals = list[NDArray[np.uint8]](), list[bytes]()
        for number, content in enumerate([memoryview(head), *(buffer.raw() for buffer in buffers)]):
            piece = np.frombuffer(content, np.uint8)
            own = piece if spent and not content.readonly else np.empty_like(piece)
            # Name and number are authenticated, so that no stored piece can stand for another one.
            seals.append(self._encrypt(_of(name, number), piece, own))
            pieces.append(own)
        return Sealed(tuple(pieces), tuple(seals))

    def opened(self, sealed: Sealed, name: str) -> Any:
        """Return what was sealed under this name, with writable arrays; raise where key, name or content differ."""
        parts = zip(sealed.pieces, sealed.seals, strict=True)
        contents = [self._decrypt(_of(name, number), *part) for number, part in enumerate(parts)]
        # Every piece was authenticated above: none but a key holder can have made this pickle.
        return pickle.loads(contents[0].tobytes(), buffers=contents[1:])

    def _encrypt(self, about: bytes, piece: NDArray[np.uint8], into: NDArray[np.uint8]) -> bytes:
        # A nonce that is used twice under one key breaks GCM.
        nonce = secrets.token_bytes(_NONCE)
        working: Any = self._cipher(nonce, None).encryptor()
        working.authenticate_additional_data(about)
        working.update_into(piece, into)
        working.finalize()
        tag: bytes = working.tag
        return nonce + tag

    def _decrypt(self, about: bytes, piece: NDArray[np.uint8], seal: bytes) -> NDArray[np.uint8]:
        from cryptography.exceptions import InvalidTag

        # Objects in Ray's store are shared and read-only, so the content goes to memory of this process.
        found = np.empty_like(piece)
        working: Any = self._cipher(seal[:_NONCE], seal[_NONCE:]).decryptor()
        working.authenticate_additional_data(about)
        working.update_into(piece, found)
        try:
            working.finalize()
        except InvalidTag:
            raise ClusterLost("ray: an object in its store was changed") from None
        return found

    def _cipher(self, nonce: bytes, tag: bytes | None) -> Any:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        return Cipher(algorithms.AES(self._key), modes.GCM(nonce, tag))


def _of(name: str, number: int) -> bytes:
    return f"privmix object {number}: {name}".encode()
