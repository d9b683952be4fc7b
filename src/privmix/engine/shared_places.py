"""Whether each machine of a cluster sees what work on it needs: asked before anything is charged or read."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Any, Final

from privmix.data.files import reading
from privmix.data.remote_files import as_remote
from privmix.engine.cluster import ClusterLost
from privmix.errors import InvalidInput
from privmix.held_folders import hold
from privmix.private_files import open_private

_NAME: Final = ".pmx-shared-"
_SECONDS: Final = 60.0
_TOKEN_BYTES: Final = 16
_FOLDER, _DATA = "folder", "data"


def check_places(folder: Path, files: tuple[Path, ...]) -> None:
    """Raise unless each machine of the cluster that this process is connected to sees a folder, and the data.

    A file with a random word, of its owner alone, is in the folder meanwhile. A task on each machine with a CPU reads
    it, and looks whether the files of the data are there; no record is read. Machines that join later are not asked.

    Args:
        folder: where a store is to be made or is.
        files: of the data; none where they do not travel.

    Raises:
        InvalidInput: a machine does not see the folder as this user, or not the files.
        ClusterLost: a machine does not answer within a minute.
    """
    # Of files at an address one shows whether a machine gets there.
    files = files[:1] if files and as_remote(files[0]) is not None else files
    word, name = secrets.token_hex(_TOKEN_BYTES), f"{_NAME}{secrets.token_hex(8)}"
    with reading(folder, "a folder"), hold(folder) as held:
        try:
            held.write(name, word.encode())
            lacking = set(_asked(str(folder.absolute() / name), word, files, os.getcwd()))
        finally:
            held.remove(name)
    if _FOLDER in lacking:
        allowed = "a place on a file system that all machines of the cluster share, at the same path and as one user's"
        raise InvalidInput("out, store", str(folder), allowed)
    if _DATA in lacking:
        allowed = "files that all machines of the cluster see at the same paths, or at an address that they can read"
        raise InvalidInput("data", str(files[0]), allowed)


def lacks(place: str, word: str, files: tuple[Path, ...], folder: str) -> str:
    """What this machine does not see: ``"folder"``, ``"data"``, or ``""``.

    Args:
        place: of the file with the word.
        word: that stands there.
        files: of the data.
        folder: that relative names of files start in.
    """
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
    """What each machine says."""
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
