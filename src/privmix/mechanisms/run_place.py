"""The place of a run: what an interrupted one left there, and whether another may begin."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final

from privmix.errors import InvalidInput, StorageError
from privmix.folders import FolderKind, PathLock
from privmix.mechanisms.run_folder import (
    DISCARD,
    KEY_FILE,
    NOTES_FILE,
    RunFolder,
    check_same,
    damaged,
    run_folder_of,
    storage_errors,
)
from privmix.mechanisms.streams import SecretStreams


@dataclass(frozen=True)
class RunState:
    """State of an interrupted run that makes the result ``id``."""

    # settings: of a complete run, those in its certificate. extra: the caller's; empty after a kill once the key was
    # gone, since the notes can no longer be authenticated. complete: everything is written; resuming uses no record and
    # no key. refused: its records were refused before any draw: others may take their place, under a fresh key.
    # planned: whether it has settings; a private count comes before them.

    id: str
    settings: Mapping[str, Any]
    extra: Mapping[str, Any]
    complete: bool
    refused: bool = False
    planned: bool = True


@dataclass(frozen=True)
class CertifiedContents:
    """Contents of a certificate: id, settings, files with SHA-256, files next to the result with SHA-256."""

    id: str
    settings: Mapping[str, Any]
    files: Mapping[str, str | None]
    beside: Mapping[str, str] = field(default_factory=dict)


VERSION: Final = 5
MARK: Final = "certificate.json"


class RunPlace(ABC):
    """The place of a kind of run and the state found there; see :class:`privmix.mechanisms.run.Run`."""

    kind: ClassVar[FolderKind]

    @classmethod
    @abstractmethod
    def stated(cls, folder: Path) -> CertifiedContents:
        """Return the contents of the certificate in ``folder``; raise where it is damaged or unreadable."""

    @classmethod
    def check(
        cls, out: str | Path, *, overwrite: bool = False, resume: bool = False, own: str | None = None
    ) -> RunState | None:
        """Check the place before opening: return the state of the run to resume, or None where a new one begins."""
        # own: the id of the run that this job began there. Raises as opening does, but for settings; see
        # check_settings.
        path = Path(out)
        cls.kind.check_target(path, overwrite=overwrite)
        if run_folder_of(path).is_dir():
            with storage_errors(cls.kind.field, "write", path):
                cls._locked(path).release()
        found = None if overwrite and not resume and own is None else cls.interrupted(path)
        if own is None:
            cls._check_wanted(path, found, resume=resume)
        elif found is None or found.id != own:
            raise StorageError(
                f"{cls.kind.field}: another run replaced this one meanwhile; nothing was written. Run the command again"
            )
        return found

    @classmethod
    def interrupted(cls, out: str | Path) -> RunState | None:
        """Return the interrupted run that would make ``out``, or None; change nothing."""
        path = Path(out)
        with storage_errors("run", "read", run_folder_of(path)):
            folder = RunFolder.find(path, cls.kind.field)
            if folder is None:
                return None
            with folder:
                left = cls._left(folder)
                if left is None:
                    return None
                notes, streams = left
                if streams is not None:
                    streams.destroy()
                settings, refused = notes["settings"], bool(notes.get("refused"))
                planned = settings is not None
                return RunState(notes["id"], settings or {}, notes["extra"], folder.has(MARK), refused, planned)

    @staticmethod
    def check_settings(state: RunState, settings: Mapping[str, Any]) -> None:
        """Raise :class:`InvalidInput` unless an interrupted run has these settings, or is not planned yet."""
        if not state.planned:
            return
        given = json.loads(json.dumps(dict(settings)))
        # A certificate need not state all of them.
        check_same(state.settings, {name: given.get(name) for name in state.settings} if state.complete else given)

    @classmethod
    def _check_wanted(cls, out: Path, left: object | None, *, resume: bool) -> None:
        """Raise unless what an earlier run left is what the flags ask for."""
        if resume and left is None:
            raise InvalidInput("resume", str(out), "the `out` of an interrupted run; there is none")
        if left is not None and not resume:
            allowed = "`resume` to continue the interrupted run, or `overwrite` to discard it"
            raise InvalidInput(cls.kind.field, str(out), allowed)

    @classmethod
    def _left(cls, folder: RunFolder) -> tuple[dict[str, Any], SecretStreams | None] | None:
        """Return a run's notes, authenticated by its key, and the key; None where nothing can resume."""
        # If the key is gone and the result whole, they are what its certificate states.
        complete = folder.has(MARK)
        try:
            # Notes without a key: killed while it was being discarded, or the key was lost or changed.
            streams = folder.load_key() if folder.has(NOTES_FILE) else None
        except (FileNotFoundError, InvalidInput):
            if not complete:
                raise InvalidInput(
                    f"{folder.path.name}/{KEY_FILE}", "no such key", f"the interrupted run's own key ({DISCARD})"
                ) from None
            streams = None
        if streams is None:
            if not complete:
                return None
            stated = cls.stated(folder.path)
            return {"id": stated.id, "settings": stated.settings, "extra": {}}, None
        try:
            notes = folder.read_notes(streams)
        except InvalidInput:
            notes = {}
        if notes.get("version") != VERSION:
            streams.destroy()
            raise damaged(folder, NOTES_FILE)
        return notes, streams

    @classmethod
    def _locked(cls, out: Path) -> PathLock:
        busy = InvalidInput(
            cls.kind.field, str(out), "a folder that no other process is writing; wait until the other run ends"
        )
        return PathLock(out, busy)
