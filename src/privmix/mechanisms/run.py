"""A run: one key, one dataset, one result, in a private folder that outlives a kill and becomes the result.

The run folder ``.NAME.run`` next to the result's place (for its owner only) holds what a resumed run needs. ``run.key``
is the secret key. ``run.json`` has settings, versions, a keyed fingerprint of the records and the caller's notes,
sealed by the key. ``run.room`` reserves bytes for later notes on a full disk. Further files are finished shards or a
checkpoint, and files for the owner, such as a sealed copy of the key. The last is the result, whose certificate is
written last and marks that it is complete.

Draws depend on key, settings and records alone, so a resumed run ends with the same bits. A kill between any two steps
leaves a folder that can be resumed, by this order. Key, ``run.json``, charge and rows, certificate and files next to
the result come first. End of the key, removal of ``run.json`` and rename follow.
"""

import contextlib
import hashlib
import hmac
import json
import os
import uuid
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Final, Self

from privmix.errors import WITHHELD, InvalidInput, PrivmixError
from privmix.folders import FolderLost, hold, put_in_place, storage_errors, sync_folder
from privmix.mechanisms.run_folder import (
    MARK,
    VERSION,
    RunFolder,
    RunPlace,
    RunState,
    beside,
    check_same,
    damaged,
    is_whole,
)
from privmix.mechanisms.streams import SecretStreams
from privmix.packages import package_version

_SEAL_BYTES: Final = 64


class Run(RunPlace):
    """The run that makes ``out``, a context manager; a subclass defines the kind of result.

    A kill, ctrl-C, full disks, lost networks, missing memory and defects keep the folder for ``resume``: it is paid
    for. An error whose :attr:`PrivmixError.resumable` is false (:class:`InvalidInput`) discards a new run, whose key
    and private bytes are of no use. A resumed or complete run is always kept: it may have got other inputs than its
    own. So is a run that was paid for and whose records were refused before they were bound, hence before the first
    draw: it is marked as refused, and continues with corrected records under a fresh key.

    Formal guarantees:
        * One key, one dataset: a run goes on only with the records that it began with. If it was refused for them, the
          next attempt's key is another, and the first one is overwritten.
        * One charge, one key, one dataset: before the first draw the ledger learns a keyed hash of run, settings and
          records. A copy of the folder goes on with these alone.
        * One key, one setting: it goes on only with the settings and in the versions that it began with.
        * Same bits: killed anywhere, it ends with the result, certificate included, that it would have had; but a key
          that is sealed is sealed again, into other bytes.
        * For the owner: no other user can read folder and key; a folder that others can enter, or a link in its place,
          is neither used nor emptied.
        * Sealed: notes, and files kept with them, are refused if they were changed since the key sealed them.
        * The key is in the run folder only, and is overwritten and removed before the result appears; see
          :func:`privmix.folders.shred` for the limits of overwriting. Next to the result there is at most what a
          subclass sealed of it, for its owner's eyes, whole and in its place before the key ends.
        * One at a time: two processes never work on one run.
        * Same folder: all writing goes into the folder that was opened. If another process renames that one or puts
          another in its place, the run ends with :class:`FolderLost`, its key first; nothing is written elsewhere.
    """

    # settings: JSON values; everything that decides the result. They are shown in messages: nothing private. streams:
    # destroyed at the end; None takes a fresh key. A resumed run has its own, and those given are destroyed. extra: for
    # `RunState`. files: of the result, that are there from the beginning. overwrite: a result at `out` is replaced; an
    # interrupted run is discarded unless `resume`.

    # Under another version of these, the same key may give other draws.
    packages: ClassVar[tuple[str, ...]] = ("privmix", "numpy", "randomgen")

    @property
    @abstractmethod
    def leaves(self) -> frozenset[str]:
        """Names that such a run may leave in its folder besides key, notes and certificate, the result included."""

    def __init__(
        self,
        out: str | Path,
        settings: Mapping[str, Any] | None,
        *,
        streams: SecretStreams | None = None,
        extra: Mapping[str, Any] | None = None,
        files: Mapping[str, bytes] | None = None,
        overwrite: bool = False,
        resume: bool = False,
    ) -> None:
        self.out: Final = Path(out)
        self._overwrite = overwrite
        self.paid: bool = False
        self._given = None if settings is None else json.loads(json.dumps(dict(settings)))
        self.bind_steps: Callable[[Sequence[str]], None] = lambda _: None
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

    @classmethod
    def before_plan(cls, out: Path, **given: Any) -> Self:
        """Open the run of a plan that is still to be made: a key and notes. Opened again, it gets its settings."""
        run = cls.__new__(cls)
        Run.__init__(run, out, None, **given)
        return run

    def _open(
        self, streams: SecretStreams | None, extra: Mapping[str, Any], files: Mapping[str, bytes], resume: bool
    ) -> None:
        self.kind.check_target(self.out, overwrite=self._overwrite)
        self._held = RunFolder.find(self.out, self.kind.field)
        left = None
        if self._held is not None and (resume or not self._overwrite):
            left = self._left(self._held)
        self._check_wanted(self.out, left, resume=resume)
        self.resumed: bool = left is not None
        if left is None:
            self.discard()
            self._streams = SecretStreams.from_entropy() if streams is None else streams
            self._begin(extra, files)
            return
        if streams is not None:
            streams.destroy()
        self._notes, self._streams = left
        self._folder.finish_renewal()
        self._go_on(extra, files)
        if self._notes.get("refused") and not self.complete:
            self._renew(extra)

    def _begin(self, extra: Mapping[str, Any], files: Mapping[str, bytes]) -> None:
        self.complete: bool = False
        self._held = RunFolder(self.out, self.kind.field, create=True)
        self._notes = {
            "version": VERSION,
            "id": uuid.uuid4().hex,
            "settings": self._given,
            "made_with": {name: package_version(name) for name in self.packages},
            "fingerprint": None,
            "refused": False,
            "files": {name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
            "extra": dict(extra),
        }
        sync_folder(self.out.parent)
        try:
            for name, content in files.items():
                self._held.write(name, content, shared=True)
            self._held.save_key(self.streams)
            self._held.write_notes(self.streams, self._notes)
            self._held.make_room()
        except BaseException:
            self.discard()
            raise

    def _go_on(self, extra: Mapping[str, Any], files: Mapping[str, bytes]) -> None:
        self.complete = self._folder.has(MARK)
        if not self.complete:
            made_with = {name: package_version(name) for name in self.packages}
            check_same({"made_with": self._notes["made_with"]}, {"made_with": made_with})
        if self._notes["settings"] is None:
            if self._given is not None:
                self._plan_of(extra, files)
            return
        self.check_settings(RunState("", self._notes["settings"], {}, self._streams is None), self._given or {})
        if self.complete:
            # All rows are there: nothing is drawn any more.
            if self._streams is not None:
                self._streams.destroy()
            self._streams, hashes = None, self.stated(self.folder).files
        else:
            hashes = self._notes["files"]
        for name, digest in hashes.items():
            if not is_whole(self.folder / name, digest):
                raise damaged(self._folder, name)

    def _plan_of(self, extra: Mapping[str, Any], files: Mapping[str, bytes]) -> None:
        """Give the run its settings, once what its plan waited for is known."""
        for name, content in files.items():
            self._folder.write(name, content, shared=True)
        hashes = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
        notes = {**self._notes, "settings": self._given, "files": hashes, "extra": dict(extra)}
        self._folder.write_notes(self.streams, notes)
        self._notes = notes

    def _renew(self, extra: Mapping[str, Any]) -> None:
        """Begin again, for other records and so with another key."""
        assert self._notes["fingerprint"] is None, "what was drawn for is bound"
        for name in self.leaves - set(self._notes["files"]):
            self._folder.remove(name)
        streams, notes = SecretStreams.from_entropy(), {**self._notes, "refused": False, "extra": dict(extra)}
        self._folder.renew(streams, notes)
        self.streams.destroy()
        self._streams, self._notes = streams, notes

    @property
    def folder(self) -> Path:
        """The run folder's place; to write, take :attr:`held`."""
        return self._folder.path

    @property
    def held(self) -> RunFolder:
        """The open run folder; raises :class:`FolderLost` where its place leads elsewhere."""
        self._folder.check_in_place()
        return self._folder

    @property
    def id(self) -> str:
        return str(self._notes["id"])

    @property
    def extra(self) -> dict[str, Any]:
        """The values that the caller of the first attempt gave; see :class:`RunState`."""
        return dict(self._notes["extra"])

    @property
    def settings(self) -> dict[str, Any]:
        return dict(self._given or {})

    @property
    def streams(self) -> SecretStreams:
        """The run's own; a complete one has none any more."""
        if self._streams is None:
            raise RuntimeError("this run has no key any more")
        return self._streams

    @property
    def bound(self) -> bool:
        """Whether its records are noted, without which nothing is drawn for them."""
        return self.complete or self._notes["fingerprint"] is not None

    @property
    def fingerprint_key(self) -> bytes:
        """Key for a fingerprint of the records that is useless to others."""
        return self.streams.derive("fingerprint").share()

    def bind(self, fingerprint: str) -> None:
        """Record which records the key serves (fingerprint), before the first draw; raise where they were others."""
        if self._notes["fingerprint"] is None:
            with self.writing():
                self._folder.write_notes(self.streams, {**self._notes, "fingerprint": fingerprint})
            self._notes["fingerprint"] = fingerprint
        elif not hmac.compare_digest(str(self._notes["fingerprint"]), fingerprint):
            # The difference of two results under one key is free of noise.
            raise InvalidInput("data", WITHHELD, "the records that the interrupted run began with, unchanged")
        # Also of a run that was bound before: a kill may have come between.
        self.bind_charge(fingerprint)

    def bind_charge(self, fingerprint: str) -> None:
        """Have the ledger record which records the charge serves under this key; raise where it served others."""
        known = json.dumps([self.id, self._notes["settings"], fingerprint], sort_keys=True)
        self.bind_steps([hashlib.sha256(known.encode()).hexdigest()])

    def note(self, **extra: Any) -> None:
        """Change the notes that the caller reads later."""
        notes = {**self._notes, "extra": {**self._notes["extra"], **extra}}
        if notes != self._notes:
            with self.writing():
                self.held.write_notes(self.streams, notes)
            self._notes = notes

    def keep(self, name: str, content: bytes) -> None:
        """Keep something for a resume, with the key's seal: whole, or not at all."""
        with self.writing():
            self.held.write(name, self.streams.seal(name, content).encode() + content)

    def kept(self, name: str) -> bytes | None:
        """Return what :meth:`keep` stored under this name, or None; raise where it is damaged or of another key."""
        if not self._folder.has(name):
            return None
        with storage_errors("run", "read", self.folder / name), self._folder.open(name) as stream:
            content = stream.read()
        # From other content, the noise of the steps to come would be added to other sums.
        if not hmac.compare_digest(content[:_SEAL_BYTES], self.streams.seal(name, content[_SEAL_BYTES:]).encode()):
            raise damaged(self._folder, name)
        return content[_SEAL_BYTES:]

    def publish(self, write: Callable[[RunFolder], None] | None = None) -> None:
        """Destroy the key and put the whole result in its place; each step may already have been done."""
        # `write` writes the result into the run folder, its certificate last and durably; None where it is there.
        with self.writing():
            if write is not None and not self.complete:
                write(self.held)
            self.complete = self._folder.has(MARK)
            if not self.complete:
                raise RuntimeError("only a whole result is published")
            self.kind.check_target(self.out, overwrite=self._overwrite)
            held, stated = self.held, self.stated(self.folder)
            files = stated.files
            for name, digest in stated.beside.items():
                self._put_beside(held, name, digest)
            held.end_key()
            held.sync()
            for name in self.leaves - {name.split("/")[0] for name in files}:
                held.remove(name)
            held.keep_only(set(files))
            held.sync()
            put_in_place(held, self.out, self.kind.marks)
            sync_folder(self.out.parent)
            self._release()

    def _put_beside(self, held: RunFolder, name: str, digest: str) -> None:
        """Move a file next to the result, for the owner only; it may be there already."""
        place = beside(self.out, name)
        there = os.path.lexists(place)
        if there and (place.is_symlink() or not is_whole(place, digest)):
            raise InvalidInput(self.kind.field, str(place), "a free name: move the existing file or folder away")
        if not held.has(name):
            if not there:
                raise damaged(held, name)
            return
        if not is_whole(held.path / name, digest):
            raise damaged(held, name)
        with hold(self.out.parent) as above:
            os.replace(name, place.name, src_dir_fd=held.descriptor, dst_dir_fd=above.descriptor)
            above.sync()
        held.sync()

    def discard(self) -> None:
        """Overwrite the key, and remove what is kept of the run."""
        if self._held is not None:
            self._held.end(self.leaves | {MARK})
            self._release()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Trouble with files inside is a :class:`StorageError` that names ``out``."""
        with storage_errors(self.kind.field, "write", self.out):
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
            # Lost: neither under its own name nor under its result's.
            if self._held is not None and not self._held.is_in_place() and not self._held.is_at(self.out):
                self._end_lost(error)
            elif isinstance(error, PrivmixError) and not (error.resumable or self.complete):
                if self.paid and not self.bound:
                    # Without the mark it goes on with the same records alone.
                    with contextlib.suppress(OSError):
                        # A budget that does not hold it reveals nothing of the records.
                        self._notes["refused"] = isinstance(error, InvalidInput)
                        self._folder.write_notes(self.streams, self._notes)
                elif not self.resumed:
                    self.discard()
        finally:
            self._close()

    def _end_lost(self, error: BaseException | None) -> None:
        """End a run that cannot be resumed, its key first."""
        place = self._folder.path
        with storage_errors(self.kind.field, "end the run of", self.out):
            self.discard()
        if error is None or isinstance(error, Exception):
            raise FolderLost(
                f"{self.kind.field}: the run's folder {place} was renamed, or another put in its place, while it was "
                "written: its key is overwritten and what it held is removed; nothing is published"
            ) from None
