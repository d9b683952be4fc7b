"""Check that each machine of a cluster sees the folders and files of a job, before anything is charged or read."""

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
    """Raise unless each machine of the connected cluster sees the folder, as this user, and the data files."""
    # A file of the owner's alone with a random word is in the folder meanwhile; a task on each machine with a CPU reads
    # it. No record is read. Machines that join later are not asked. For files at an address, one file shows whether a
    # machine can reach it.
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
