"""The private folder ``.NAME.run`` next to a run's result: its key, its notes, and what an interrupted run left."""

import errno
import hashlib
import hmac
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final

from privmix.errors import InvalidInput, StorageError, Unquoted
from privmix.folders import FolderKind, PathLock, PrivateFolder, storage_errors
from privmix.mechanisms.streams import SecretStreams, shred
from privmix.untrusted import MEBIBYTE, parse_json

KEY_FILE, NOTES_FILE, ROOM_FILE = "run.key", "run.json", "run.room"
DISCARD: Final = "`overwrite` discards the run"
# Files that replace key and notes, once both are there.
_NEXT_KEY, _NEXT_NOTES = "run.key.next", "run.json.next"
_SEAL: Final = "seal"
_MOST_NOTES: Final = 16 * MEBIBYTE
# The largest growth of later notes, and a block of most file systems.
_MORE: Final = 4096


class RunFolder(PrivateFolder):
    """A run folder, held open: ``.NAME.run`` next to ``out``; ``field`` is its name in messages.

    Formal guarantees (in addition to those of :class:`PrivateFolder`):
        * Sealed: notes that were changed, or that belong to another key, are refused.
        * Nothing else goes: a folder that no run made is not discarded under any name.
    """

    def __init__(self, out: Path, field: str, *, create: bool = False) -> None:
        super().__init__(run_folder_of(out), field, create=create)

    @classmethod
    def find(cls, out: Path, field: str) -> "RunFolder | None":
        """Return the folder of an earlier run, or None; raise where something else has its name."""
        try:
            return cls(out, field)
        except FileNotFoundError:
            return None

    def save_key(self, streams: SecretStreams) -> None:
        streams.save(KEY_FILE, dir_fd=self.descriptor)

    def load_key(self) -> SecretStreams:
        """Return streams under the run's key; raise where it is gone, damaged or not the owner's alone."""
        renewed = self.has(_NEXT_NOTES) and self.has(_NEXT_KEY)
        return SecretStreams.load(_NEXT_KEY if renewed else KEY_FILE, dir_fd=self.descriptor)

    def end_key(self) -> None:
        """Overwrite and remove the key; no key, no work."""
        shred(KEY_FILE, dir_fd=self.descriptor)

    def write_notes(self, streams: SecretStreams, notes: Mapping[str, Any]) -> None:
        """Keep JSON values, with the seal of the key; on a full disk in the bytes reserved for them."""
        content = sealed(streams, NOTES_FILE, notes)
        try:
            self.write(NOTES_FILE, content)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not self.has(ROOM_FILE):
                raise
            self.remove(ROOM_FILE)
            self.write(NOTES_FILE, content)

    def make_room(self) -> None:
        with self.open(NOTES_FILE) as stream:
            self.write(ROOM_FILE, bytes(os.fstat(stream.fileno()).st_size + _MORE))

    def read_notes(self, streams: SecretStreams) -> dict[str, Any]:
        name = _NEXT_NOTES if self.has(_NEXT_NOTES) else NOTES_FILE
        return unsealed(streams, NOTES_FILE, self.read(name, _MOST_NOTES))

    def renew(self, streams: SecretStreams, notes: Mapping[str, Any]) -> None:
        """Take another key, and notes that it seals, for the old ones: a kill leaves the one pair or the other."""
        self.remove(_NEXT_KEY)
        streams.save(_NEXT_KEY, dir_fd=self.descriptor)
        self.write(_NEXT_NOTES, sealed(streams, NOTES_FILE, notes))
        self.finish_renewal()

    def finish_renewal(self) -> None:
        """Do what a kill left to do of :meth:`renew`."""
        if not self.has(_NEXT_NOTES):
            return
        places = {"src_dir_fd": self.descriptor, "dst_dir_fd": self.descriptor}
        if self.has(_NEXT_KEY):
            self.end_key()
            os.replace(_NEXT_KEY, KEY_FILE, **places)
        os.replace(_NEXT_NOTES, NOTES_FILE, **places)
        self.sync()

    def end(self, known: Collection[str]) -> None:
        """Destroy the key and remove the folder; ``known`` names what a run leaves in it besides key and notes."""
        if not {KEY_FILE, NOTES_FILE} & self.names():
            self.check_names({*known, ROOM_FILE, _NEXT_KEY, _NEXT_NOTES})
        self.end_key()
        shred(_NEXT_KEY, dir_fd=self.descriptor)
        # First of the rest: without them nothing takes the folder for a run that could go on.
        for name in (_NEXT_NOTES, NOTES_FILE):
            self.remove(name)
        self.discard()


def run_folder_of(out: Path) -> Path:
    return out.with_name(f".{out.name}.run")


def beside(out: Path, name: str) -> Path:
    return out.with_name(f"{out.name}.{name}")


def sealed(streams: SecretStreams, purpose: str, notes: Mapping[str, Any]) -> bytes:
    """JSON values as text with the key's seal of them; :func:`unsealed` gives them back."""
    # As they will be read: tuples come back as lists, and all names as text.
    read = json.loads(json.dumps(notes, allow_nan=False))
    return (json.dumps({**read, _SEAL: streams.seal(purpose, _canonical(read))}, indent=1) + "\n").encode()


def unsealed(streams: SecretStreams, purpose: str, content: bytes) -> dict[str, Any]:
    """Return the values that :func:`sealed` sealed; raise where content, key or purpose differ."""
    found = parse_json(content, purpose)
    seal = found.pop(_SEAL, None) if isinstance(found, dict) else None
    if not isinstance(seal, str):
        raise InvalidInput(purpose, Unquoted("no seal"), "notes as this version of privmix writes them")
    if not hmac.compare_digest(seal.encode(), streams.seal(purpose, _canonical(found)).encode()):
        raise InvalidInput(purpose, Unquoted("other values"), "the notes of this run, unchanged")
    assert isinstance(found, dict)
    return found


def is_whole(file: Path, digest: str | None) -> bool:
    """Whether there is such a file, with the SHA-256 that it must have, if one is known."""
    if not file.is_file() or digest is None:
        return file.is_file()
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest() == digest


def damaged(folder: RunFolder, name: str) -> InvalidInput:
    allowed = f"what this version of privmix wrote there in this run, unchanged ({DISCARD})"
    return InvalidInput(f"{folder.path.name}/{name}", "damaged, changed or other content", allowed)


def check_same(kept: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Raise :class:`InvalidInput`, which names them, where settings differ from those of the interrupted run."""
    before, now = dict(_leaves(kept)), dict(_leaves(given))
    differing = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
    if differing:
        name = differing[0]
        allowed = f"{before.get(name)!r}, as in the interrupted run"
        more = "" if len(differing) == 1 else f"; also different: {', '.join(differing[1:])}"
        raise InvalidInput(f"`resume` with {name}", now.get(name), allowed + more)


def _leaves(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield settings by their full names, such as ``optimiser.momentum``."""
    for name, value in settings.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _canonical(notes: Mapping[str, Any]) -> bytes:
    """Return the same bytes for the same JSON values."""
    return json.dumps(notes, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


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
        # own: the id of this job's run there. Raises as opening does, but for settings; see check_settings.
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
