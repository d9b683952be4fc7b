"""A run: one key, one dataset, one result, in a private folder that outlives a kill and becomes the result.

The run folder ``.NAME.run`` beside the result's place (for its owner only) holds what is needed to go on:

* ``run.key``: the secret key, on disk before the first private row is used;
* ``run.json``: settings, versions, a keyed fingerprint of the records, and what the caller must find again, such as a
  reservation; sealed by the key;
* what one kind of run keeps beside these: finished shards, or a checkpoint;
* the result itself, whose certificate is written last and marks that all is there.

Draws depend on key, settings and records alone, so a resumed run ends with the bits that the first would have had.
Steps are ordered so that a kill between any two leaves a folder that can be resumed: key before ``run.json``,
``run.json`` before rows, certificate before the end of the key, end of the key before ``run.json`` goes, and then the
rename.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Final, Self

from privmix.errors import WITHHELD, InvalidInput, PrivmixError, StorageError
from privmix.folders import FolderKind, PathLock, put_in_place, sync_folder, write_durably
from privmix.mechanisms.run_folder import (
    DISCARD,
    KEY_FILE,
    NOTES_FILE,
    RunFolder,
    check_same,
    damaged,
    is_whole,
    run_folder_of,
)
from privmix.mechanisms.run_state import RunState, Stated
from privmix.mechanisms.streams import SecretStreams
from privmix.packages import package_version

_VERSION: Final = 3
_MARK: Final = "certificate.json"
_SEAL_BYTES: Final = 64


class Run(ABC):
    """The run that makes ``out``; use it in ``with``. A subclass says what kind of result that is.

    Errors. What somebody can go on with is kept, what can never succeed is not: leaving the block by an error keeps
    the folder for ``resume``, unless :attr:`PrivmixError.resumable` says that the same inputs would fail again
    (:class:`InvalidInput`, such as a record that can't be read, or a learning rate that diverges). A kill, ctrl-C,
    full disks, lost networks and machines, missing memory and defects of ours are no reason to pay for a run twice.
    Inputs that were refused would leave a key and private bytes to nobody's use: that run is discarded. A run that was
    resumed, or is complete, is kept whatever happens: whoever resumes it may have given it other inputs than its own.

    Formal guarantees:
        * One key, one dataset: a run goes on only with the records that it began with.
        * One key, one setting: it goes on only with the settings and in the versions that it began with.
        * Same bits: killed anywhere, it ends with the result, certificate included, that it would have had.
        * For the owner: folder and key can be read by nobody else; a folder that others can enter, or a link in its
          place, is neither used nor emptied.
        * Sealed: notes, and what is kept beside them, are refused if they were changed since the key sealed them.
        * The key is in the run folder only, and is overwritten and removed before the result appears; see
          :func:`privmix.private_files.shred` for what overwriting can't do.
        * One at a time: two processes never work on one run.

    Args:
        out: the result's folder; nothing is there before the run is done.
        settings: JSON values; everything that decides the result. They are shown in messages: nothing private.
        streams: secret streams, destroyed at the end; None takes a fresh key. A resumed run has its own, and those
            given are destroyed.
        extra: what the caller wants to find again in :class:`RunState`; JSON values.
        files: of the result, that are there from the beginning, by name.
        overwrite: a result at ``out`` is replaced; an interrupted run is discarded unless ``resume``.
        resume: go on with the interrupted run.

    Attributes:
        out: as given.
        resumed: whether an earlier attempt was interrupted.
        complete: nothing is left but :meth:`publish`; there is no key and none is needed.

    Raises:
        InvalidInput: ``out`` exists; there is an interrupted run and neither flag is given; there is none to resume, it
            is of other settings, or damaged; another process works on it.
        StorageError: the folder can't be written.
    """

    kind: ClassVar[FolderKind]
    # Under another version of these, the same key may give other draws.
    packages: ClassVar[tuple[str, ...]] = ("privmix", "numpy", "randomgen")

    @property
    @abstractmethod
    def leaves(self) -> frozenset[str]:
        """What such a run may leave in its folder beside key, notes and certificate, the result's files included."""

    @classmethod
    @abstractmethod
    def stated(cls, folder: Path) -> Stated:
        """What the certificate in ``folder`` states.

        Raises:
            InvalidInput, StorageError: it is damaged, or can't be read.
        """

    def __init__(
        self,
        out: str | Path,
        settings: Mapping[str, Any],
        *,
        streams: SecretStreams | None = None,
        extra: Mapping[str, Any] | None = None,
        files: Mapping[str, bytes] | None = None,
        overwrite: bool = False,
        resume: bool = False,
    ) -> None:
        self.out, self._overwrite = Path(out), overwrite
        self._given = json.loads(json.dumps(dict(settings)))
        self._held: RunFolder | None = None
        self._streams: SecretStreams | None = None
        with self.writing():
            self.out.parent.mkdir(parents=True, exist_ok=True)
            self._lock = self._locked(self.out)
            try:
                self._open(streams, extra or {}, files or {}, resume)
            except BaseException:
                self._close()
                raise

    def _open(
        self, streams: SecretStreams | None, extra: Mapping[str, Any], files: Mapping[str, bytes], resume: bool
    ) -> None:
        self.kind.check_target(self.out, overwrite=self._overwrite)
        self._held = RunFolder.find(self.out, self.kind.field)
        left = None
        if self._held is not None and (resume or not self._overwrite):
            left = self._left(self._held)
        self._check_wanted(self.out, left, resume=resume)
        self.resumed = left is not None
        if left is None:
            self.discard()
            self._streams = SecretStreams.from_entropy() if streams is None else streams
            self._begin(extra, files)
            return
        if streams is not None:
            streams.destroy()
        self._notes, self._streams = left
        self._go_on()

    def _begin(self, extra: Mapping[str, Any], files: Mapping[str, bytes]) -> None:
        self.complete = False
        self._held = RunFolder(self.out, self.kind.field, create=True)
        self._notes = {
            "version": _VERSION,
            "id": uuid.uuid4().hex,
            "settings": self._given,
            "made_with": {name: package_version(name) for name in self.packages},
            "fingerprint": None,
            "files": {name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
            "extra": dict(extra),
        }
        sync_folder(self.out.parent)
        try:
            for name, content in files.items():
                write_durably(self.folder / name, content)
            self._held.save_key(self.streams)
            self._held.write_notes(self.streams, self._notes)
        except BaseException:
            self.discard()
            raise

    def _go_on(self) -> None:
        self.complete = self._folder.has(_MARK)
        self.check_settings(RunState("", self._notes["settings"], {}, self._streams is None), self._given)
        if self.complete:
            # All rows are there: nothing is drawn any more.
            if self._streams is not None:
                self._streams.destroy()
            self._streams, files = None, self.stated(self.folder).files
        else:
            files = self._notes["files"]
            made_with = {name: package_version(name) for name in self.packages}
            check_same({"made_with": self._notes["made_with"]}, {"made_with": made_with})
        for name, digest in files.items():
            if not is_whole(self.folder / name, digest):
                raise damaged(self._folder, name)

    @classmethod
    def check(cls, out: str | Path, *, overwrite: bool = False, resume: bool = False) -> RunState | None:
        """What opening asks of its place, beforehand: the state of the run to resume, or None where one is to begin.

        Raises:
            InvalidInput: as opening a run does, but for its settings; see :meth:`check_settings`.
            StorageError: the run folder can't be read.
        """
        path = Path(out)
        cls.kind.check_target(path, overwrite=overwrite)
        if run_folder_of(path).is_dir():
            with _storage_errors(cls.kind.field, "write", path):
                cls._locked(path).release()
        found = None if overwrite and not resume else cls.interrupted(path)
        cls._check_wanted(path, found, resume=resume)
        return found

    @classmethod
    def interrupted(cls, out: str | Path) -> RunState | None:
        """The interrupted run that would make ``out``, or None. Changes nothing.

        Raises:
            InvalidInput: the run folder is damaged, or is not this user's alone.
            StorageError: it can't be read.
        """
        path = Path(out)
        with _storage_errors("run", "read", run_folder_of(path)):
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
                return RunState(notes["id"], notes["settings"], notes["extra"], folder.has(_MARK))

    @staticmethod
    def check_settings(state: RunState, settings: Mapping[str, Any]) -> None:
        """Raise :class:`InvalidInput` unless an interrupted run has these settings."""
        given = json.loads(json.dumps(dict(settings)))
        # A certificate need not state all of them.
        check_same(state.settings, {name: given.get(name) for name in state.settings} if state.complete else given)

    @classmethod
    def _check_wanted(cls, out: Path, left: object | None, *, resume: bool) -> None:
        """Raise unless what an earlier run left is what the flags ask for."""
        if resume and left is None:
            raise InvalidInput("resume", str(out), "the `out` of an interrupted run; there is none")
        if left is not None and not resume:
            allowed = "`resume` to go on with the interrupted run that was making it, or `overwrite` to discard it"
            raise InvalidInput(cls.kind.field, str(out), allowed)

    @classmethod
    def _left(cls, folder: RunFolder) -> tuple[dict[str, Any], SecretStreams | None] | None:
        """A run's notes, once its key has shown that they are unchanged, and the key; None where nothing can go on.

        Where the key is gone and the result whole, they are what its certificate states.
        """
        complete = folder.has(_MARK)
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
        if notes.get("version") != _VERSION:
            streams.destroy()
            raise damaged(folder, NOTES_FILE)
        return notes, streams

    @property
    def folder(self) -> Path:
        """The run folder."""
        return self._folder.path

    @property
    def id(self) -> str:
        """Names the result."""
        return str(self._notes["id"])

    @property
    def extra(self) -> dict[str, Any]:
        """What the caller of the first attempt gave; see :class:`RunState`."""
        return dict(self._notes["extra"])

    @property
    def settings(self) -> dict[str, Any]:
        """As the run was opened with."""
        return dict(self._given)

    @property
    def streams(self) -> SecretStreams:
        """The run's own; a complete one has none any more."""
        if self._streams is None:
            raise RuntimeError("this run has no key any more")
        return self._streams

    @property
    def fingerprint_key(self) -> bytes:
        """For a fingerprint of the records that tells nobody else anything."""
        return self.streams.derive("fingerprint").share()

    def bind(self, fingerprint: str) -> None:
        """Note which records the key serves, by their fingerprint; call it before the first draw.

        Raises:
            InvalidInput: a resumed run began with other records.
        """
        if self._notes["fingerprint"] is None:
            with self.writing():
                self._folder.write_notes(self.streams, {**self._notes, "fingerprint": fingerprint})
            self._notes["fingerprint"] = fingerprint
        elif not hmac.compare_digest(str(self._notes["fingerprint"]), fingerprint):
            # The difference of two results under one key is free of noise.
            raise InvalidInput("data", WITHHELD, "the records that the interrupted run began with, unchanged")

    def keep(self, name: str, content: bytes) -> None:
        """Keep something for a resume, with the key's seal: whole, or not at all."""
        with self.writing():
            self._folder.write(name, self.streams.seal(name, content).encode() + content)

    def kept(self, name: str) -> bytes | None:
        """What :meth:`keep` was given under this name, or None.

        Raises:
            InvalidInput: it is damaged, or of another key.
        """
        if not self._folder.has(name):
            return None
        with _storage_errors("run", "read", self.folder / name), self._folder.open(name) as stream:
            content = stream.read()
        # From other content, the noise of the steps to come would be added to other sums.
        if not hmac.compare_digest(content[:_SEAL_BYTES], self.streams.seal(name, content[_SEAL_BYTES:]).encode()):
            raise damaged(self._folder, name)
        return content[_SEAL_BYTES:]

    def publish(self, write: Callable[[Path], None] | None = None) -> None:
        """Destroy the key and put the result in its place, whole; each step may already have been done.

        Args:
            write: writes the result into the run folder, its certificate last and durably; None where it is there.

        Raises:
            StorageError: it can't be written; the run can be resumed.
        """
        with self.writing():
            if write is not None and not self.complete:
                write(self.folder)
            self.complete = self._folder.has(_MARK)
            if not self.complete:
                raise RuntimeError("only a whole result is published")
            self.kind.check_target(self.out, overwrite=self._overwrite)
            held, files = self._folder, self.stated(self.folder).files
            held.end_key()
            held.sync()
            for name in self.leaves - {name.split("/")[0] for name in files}:
                held.remove(name)
            held.keep_only(set(files))
            held.sync()
            put_in_place(held.path, self.out, self.kind.marks)
            sync_folder(self.out.parent)
            self._release()

    def discard(self) -> None:
        """Overwrite the key, and remove what is kept of the run."""
        if self._held is not None:
            self._held.end(self.leaves | {_MARK})
            self._release()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Trouble with files inside is a :class:`StorageError` that names ``out``."""
        with _storage_errors(self.kind.field, "write", self.out):
            yield

    @property
    def _folder(self) -> RunFolder:
        if self._held is None:
            raise RuntimeError("this run is over")
        return self._held

    def _release(self) -> None:
        if self._held is not None:
            self._held.close()
            self._held = None

    def _close(self) -> None:
        if self._streams is not None:
            self._streams.destroy()
        self._release()
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if isinstance(error, PrivmixError) and not (error.resumable or self.resumed or self.complete):
                self.discard()
        finally:
            self._close()

    @classmethod
    def _locked(cls, out: Path) -> PathLock:
        busy = InvalidInput(cls.kind.field, str(out), "a folder that no other process is making just now")
        return PathLock(out, busy)


@contextmanager
def _storage_errors(field: str, what: str, place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(f"{field}: can't {what} {place}: {error.strerror or type(error).__name__}") from None
