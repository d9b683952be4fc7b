"""Finished trials in a private folder: a run that was killed goes on with them."""

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.folders import PrivateFolder, private_folder, storage_errors
from privmix.research.poisoning.images import VictimImages
from privmix.research.poisoning.victims.ordinary import Victim
from privmix.untrusted import MEBIBYTE

# A trial is a line of a few hundred bytes.
_MOST_BYTES: Final = 256 * MEBIBYTE


@dataclass(frozen=True)
class Trial:
    """One trial of one defence."""

    # success: of the drawn input; share: of all goal inputs; accuracy: on clean test images; removed: by a filter.
    number: int
    success: bool
    share: float
    accuracy: float
    removed: int = 0
    removed_poisoned: int = 0


class KeptTrials:
    """Trials of one attack on the same records, victim and settings: a line of JSON each, in a file of their own."""

    # A line is written under a lock when its trial is done, so several processes can share the folder. A line cut
    # by a kill is no JSON; its trial runs again. `work`: this user's own folder; None: nothing is kept.

    def __init__(
        self,
        work: Path | None,
        name: str,
        settings: dict[str, Any],
        train: VictimImages,
        test: VictimImages,
        victim: Victim,
    ) -> None:
        self._known: dict[str, Trial] = {}
        self._folder: PrivateFolder | None = None
        if work is None:
            return
        self._name = f"{name}-{_digest(settings, train, test, victim)}.jsonl"
        with storage_errors("work", "use", work):
            self._folder = private_folder(work, "work")
            found = self._folder.read(self._name, _MOST_BYTES) if self._folder.has(self._name) else b""
        for line in found.splitlines():
            if (kept := _parsed(line)) is not None:
                self._known[kept[0]] = kept[1]

    def get(self, key: str, make: Callable[[], Trial]) -> Trial:
        """Return the kept trial of that key, or the one that `make` runs, which is kept."""
        if key not in self._known:
            self._known[key] = make()
            self._append(json.dumps({"key": key, **asdict(self._known[key])}).encode())
        return self._known[key]

    def _append(self, line: bytes) -> None:
        folder = self._folder
        if folder is None:
            return
        with storage_errors("work", "write", folder.path):
            # Another process may just have made it.
            with contextlib.suppress(FileExistsError):
                folder.create(self._name).close()
            with folder.open(self._name, update=True) as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                end = file.seek(0, os.SEEK_END)
                if end:
                    file.seek(end - 1)
                # Behind half a line, what comes begins a new one.
                half = b"" if not end or file.read(1) == b"\n" else b"\n"
                file.write(half + line + b"\n")
                file.flush()
                os.fsync(file.fileno())


def _parsed(line: bytes) -> tuple[str, Trial] | None:
    try:
        found = json.loads(line)
        return str(found.pop("key")), Trial(**found)
    except (ValueError, TypeError, AttributeError, KeyError):
        return None


def _digest(settings: dict[str, Any], train: VictimImages, test: VictimImages, victim: Victim) -> str:
    told = hashlib.sha256(json.dumps({**settings, "victim": asdict(victim.config)}, sort_keys=True).encode())
    parts: list[NDArray[Any]] = [train.pixels, train.labels, test.pixels, test.labels]
    if victim.extractor is not None:
        parts += [value.numpy() for value in victim.extractor.network.state_dict().values()]
    for part in parts:
        told.update(f"{part.dtype}{part.shape}".encode())
        told.update(np.ascontiguousarray(part).tobytes())
    return told.hexdigest()[:16]
