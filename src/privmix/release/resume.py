"""A release being made: a private folder beside its place that outlives a kill, and is published whole or not at all.

The run folder ``.NAME.run`` (for its owner only) holds what is needed to go on, and is gone when the run is done:

* ``run.key``: the secret key, on disk before the first row is computed;
* ``run.json``: what is being made, with a keyed fingerprint of the records, sealed by the key;
* ``run.shards``: the finished shards and their hashes, each line sealed by the key;
* ``features/``: if the caller wants, the features while the run needs them;
* the release itself, shard by shard; its certificate is written last and marks that all is there.

Rows depend on the key, the plan and the records alone, so a resumed run gives the bits that the first would have given.
Steps are ordered so that a kill between any two leaves a folder that can be resumed: key before ``run.json``,
``run.json`` before rows, certificate before the end of the key, end of the key before ``run.json`` goes, and then the
rename.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from privmix.certificate.croissant import CROISSANT_FILE, croissant
from privmix.certificate.reservation import ReservationNote, mode_of
from privmix.designs import Plan
from privmix.errors import WITHHELD, InvalidInput, StorageError
from privmix.folders import PathLock, put_in_place, sync_folder, write_durably
from privmix.mechanisms.plan import check_price
from privmix.mechanisms.run_folder import NOTES_FILE, RunFolder, run_folder_of
from privmix.mechanisms.streams import SecretStreams
from privmix.release.card import data_card
from privmix.release.certificate import (
    CERTIFICATE_FILE,
    PICTURE_FILE,
    certificate_bytes,
    make_certificate,
    package_version,
    read_certificate,
)
from privmix.release.engine import Engine, Progress
from privmix.release.folder import (
    CENTRE_FILE,
    DATA_FOLDER,
    MOMENTS_FILE,
    RELEASE_FOLDER,
    Journal,
    ShardWriter,
    file_hash,
    write_centre,
    write_certificate,
    write_moments,
)
from privmix.release.moments_engine import MomentsEngine
from privmix.release.tiles import RecordSource, content_fingerprint, tiles_of

_VERSION: Final = 3
_SHARDS, _FEATURES = "run.shards", "features"
_CARD: Final = "README.md"
# What a run that has neither key nor notes any more, or not yet, may have left.
_LEFT: Final = frozenset(
    {_SHARDS, _FEATURES, f".{_FEATURES}.partial", f".{_FEATURES}.lock", _CARD, DATA_FOLDER}
    | {PICTURE_FILE, CENTRE_FILE, MOMENTS_FILE, CERTIFICATE_FILE, CROISSANT_FILE}
)


@dataclass(frozen=True)
class RunState:
    """What an interrupted run left.

    Attributes:
        release_id: names the release that it makes.
        complete: everything is written; resuming reads no record and uses no key, it only puts the folder in place.
        extra: what the caller gave to :func:`open_run`; empty if the kill came after the key was gone, for nothing
            shows any more that the run's notes are its own.
        records: the plan's record count.
    """

    release_id: str
    complete: bool
    extra: Mapping[str, Any]
    records: int


def read_run(out: str | Path) -> RunState | None:
    """Return the interrupted run that would make ``out``, or None. Changes nothing.

    Raises:
        InvalidInput: the run folder is damaged, or is not this user's alone.
        StorageError: it can't be read.
    """
    with _reading(Path(out)):
        folder = RunFolder.find(Path(out), RELEASE_FOLDER.field)
        if folder is None:
            return None
        with folder:
            complete = folder.has(CERTIFICATE_FILE)
            found = _sealed_notes(folder, complete)
            if found is not None:
                notes, streams = found
                streams.destroy()
                return RunState(notes["release_id"], complete, notes["extra"], notes["plan"]["records"])
            if not complete:
                return None
            certificate = read_certificate(folder.path)
            return RunState(certificate["release_id"], True, {}, certificate["plan"]["records"])


def open_run(
    out: str | Path,
    plan: Plan,
    *,
    extractor: Mapping[str, Any],
    input_shape: Sequence[int],
    reservation: ReservationNote | None = None,
    choice: Mapping[str, Any] | None = None,
    picture: bytes | None = None,
    streams: SecretStreams | None = None,
    extra: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    resume: bool = False,
) -> Run:
    """Begin a run that makes ``out``, or with ``resume`` go on with one that was interrupted. Use it in ``with``.

    No record is read here, so features may still have to be extracted: into ``run.features_folder``, if they should
    outlive a kill and then be gone.

    Args:
        out: the release's folder; nothing is there before the run is done.
        plan: from :meth:`ReleaseConfig.calibrate`; it holds the target.
        extractor: description of the feature extractor.
        input_shape: shape of one raw input.
        reservation: of the ledger that was charged.
        choice: how the planner came to the plan: :meth:`Choice.to_dict`.
        picture: SVG of the planner's predictions; given exactly with ``choice``.
        streams: secret streams, destroyed at the end; None takes a fresh key. A resumed run has its own.
        extra: what the caller wants to find again with :func:`read_run`, such as a ledger reservation; JSON values.
        overwrite: a release at ``out`` is replaced; an interrupted run is discarded unless ``resume``.
        resume: go on with the interrupted run.

    Raises:
        InvalidInput: ``out`` exists; there is an interrupted run and neither ``resume`` nor ``overwrite``; there is
            none to resume, or it is of another plan; another process works on it; the plan costs more than was asked
            of it.
        StorageError: the folder can't be written.

    Example:
        >>> import numpy as np, tempfile
        >>> from privmix.release import PrivateRecords, ReleaseConfig
        >>> rng = np.random.default_rng(0)
        >>> plan = ReleaseConfig(records=500, dim=8, classes=("no", "yes"), mixup_degree=16).calibrate(4.0, 1e-4)
        >>> with open_run(Path(tempfile.mkdtemp()) / "rel", plan,
        ...               extractor={"name": "identity"}, input_shape=(8,)) as run:
        ...     certificate = run.release(PrivateRecords(rng.normal(size=(500, 8)), rng.integers(0, 2, 500)))
        >>> certificate["release_id"] == run.release_id
        True
    """
    path = Path(out)
    check_price(plan)
    if not input_shape or any(int(size) < 1 for size in input_shape):
        raise InvalidInput("input_shape", tuple(input_shape), "positive sizes")
    facts: dict[str, Any] = {
        "version": _VERSION,
        "plan": plan.to_dict(),
        "extractor": dict(extractor),
        "input_shape": [int(size) for size in input_shape],
        "in_ledger": mode_of(reservation),
        "choice": None if choice is None else dict(choice),
        # Under another version of these, the same key may give other draws.
        "made_with": {name: package_version(name) for name in ("privmix", "numpy", "randomgen")},
    }
    if (choice is None) != (picture is None):
        raise ValueError("a choice and its picture come together")
    RELEASE_FOLDER.check_target(path, overwrite=overwrite)
    with _writing(path):
        lock = _lock(path)
        try:
            state = read_run(path) if not overwrite or resume else None
            if state is None:
                if resume:
                    raise InvalidInput("resume", str(path), "the `out` of an interrupted run; there is none")
                _discard(path)
                own = streams or SecretStreams.from_entropy()
                return _begin(path, lock, plan, facts, own, extra or {}, picture, reservation)
            if not resume:
                raise InvalidInput(
                    RELEASE_FOLDER.field,
                    str(path),
                    "a folder that no interrupted run was making (`resume` goes on with it, `overwrite` discards it)",
                )
            if streams is not None:
                streams.destroy()
            return _go_on(path, lock, plan, facts, state, reservation)
        except BaseException:
            lock.release()
            raise


class Run:
    """A release being made; from :func:`open_run`.

    Leaving the ``with`` block by an exception discards the run and destroys its key. What does not: trouble with
    disks and networks, any trouble of a run that was resumed, a kill, ctrl-C,
    ``release`` with other records or options that do not exist, and errors that say ``keeps_run``, such as the loss of
    a cluster. After those, and after leaving without ``release``, the run can be resumed.

    Formal guarantees:
        * the same noise is never added to other sums: plan, versions and a fingerprint of all features and labels are
          those of the first attempt, or ``release`` raises before any row is computed;
        * a resumed run ends with the bits, certificate included, of one that was not interrupted;
        * the key is in the run folder only, a file for its owner alone, and is overwritten and removed before the
          release appears; see :func:`privmix.private_files.shred` for what overwriting can't do;
        * a run folder that is not the owner's alone is neither used nor emptied, and notes that were changed since the
          key sealed them are refused.

    Attributes:
        folder: the run folder.
        release_id: names the release.
        resumed: whether an earlier attempt was interrupted.
        complete: nothing is left but to put the release in place: ``release`` needs no records.
    """

    def __init__(
        self,
        out: Path,
        held: RunFolder,
        lock: PathLock,
        plan: Plan,
        facts: dict[str, Any],
        streams: SecretStreams | None,
        reservation: ReservationNote | None,
    ) -> None:
        self._out, self._held, self._lock = out, held, lock
        self._plan, self._facts, self._streams, self._reservation = plan, facts, streams, reservation
        self.folder, self.release_id = held.path, str(facts["release_id"])
        self.complete, self.resumed = streams is None, False
        self._keep = self._published = False

    @property
    def extra(self) -> Mapping[str, Any]:
        """What the caller of the first attempt gave."""
        return dict(self._facts["extra"])

    @property
    def features_folder(self) -> Path:
        """Where a feature store may be while the run needs it; removed before the release appears."""
        return self.folder / _FEATURES

    def release(
        self,
        records: RecordSource | None = None,
        *,
        engine: str = "local",
        memory_gb: float | None = None,
        workers: int | None = None,
        address: str | None = None,
        progress: Progress | None = None,
    ) -> dict[str, Any]:
        """Compute the rows that are missing, write the rest, destroy the key and put the release in place.

        Args:
            records: the private records; not needed when ``complete``.
            engine: ``"local"``, or ``"ray"`` for a Ray cluster.
            memory_gb: see :class:`ReleaseEngine` and :class:`RayReleaseEngine`; in GiB.
            workers: threads of this process; None uses every core.
            address: with Ray, the cluster's; None starts one on this machine.
            progress: called as work proceeds.

        Returns:
            the certificate.

        Raises:
            InvalidInput: an option is out of range, or the records are not those of the first attempt.
            StorageError: the folder can't be written.
        """
        from privmix.release.api import make_engine

        self._keep = True
        with _writing(self._out):
            if not self.complete:
                assert self._streams is not None
                if records is None:
                    raise InvalidInput("records", None, "the private records: the run is not complete")
                self._bind(records)
                maker = make_engine(
                    self._plan, records, self._streams, engine, memory_gb=memory_gb, workers=workers, address=address
                )
                self._keep = False
                self._write(maker, progress)
                self.complete = self._keep = True
            certificate = read_certificate(self.folder)
            _publish(self._held, self._out)
            self._published = True
        return certificate

    def _bind(self, records: RecordSource) -> None:
        """Note what the key's noise is going to be added to, or check that it is the same again."""
        assert self._streams is not None
        key = self._streams.derive("fingerprint").share()
        found = content_fingerprint(tiles_of(records), key, os.cpu_count() or 1)
        if self._facts["fingerprint"] is None:
            self._facts["fingerprint"] = found
            self._held.write_notes(self._streams, self._facts)
        elif self._facts["fingerprint"] != found:
            # The difference of two releases under one key is free of noise.
            raise InvalidInput("records", WITHHELD, "the records of the interrupted run, all of them unchanged")

    def _write(self, engine: Engine | MomentsEngine, progress: Progress | None) -> None:
        assert self._streams is not None
        journal = Journal(self.folder / _SHARDS, partial(self._streams.seal, _SHARDS))
        kept = journal.kept(self.folder)
        journal.rewrite(kept)
        writer = ShardWriter(self.folder, self._plan.rows, journal, kept)
        for block in engine.rows(progress, first=writer.first):
            writer.write(block)
        files = list(writer.files)
        if isinstance(engine, MomentsEngine):
            files.append(write_moments(self.folder, engine.moments))
        if (self.folder / PICTURE_FILE).is_file():
            files.append({"file": PICTURE_FILE, "rows": 0, "sha256": file_hash(self.folder / PICTURE_FILE)})
        if engine.transform.centre is not None:
            files.append(write_centre(self.folder, engine.transform.centre))
        facts = self._facts
        certificate = make_certificate(
            self._plan,
            extractor=facts["extractor"],
            input_shape=facts["input_shape"],
            insecure_seed=self._streams.insecure_seed,
            files=files,
            reservation=self._reservation,
            choice=facts["choice"],
            release_id=self.release_id,
        )
        write_durably(self.folder / _CARD, data_card(self._plan, certificate).encode())
        digest = hashlib.sha256(certificate_bytes(certificate)).hexdigest()
        write_durably(self.folder / CROISSANT_FILE, croissant(certificate, digest))
        # Last: a folder with a certificate is a whole release.
        write_certificate(self.folder, certificate)

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._streams is not None:
                self._streams.destroy()
            keep = self._keep or getattr(error, "keeps_run", False)
            # Full disks and lost networks are no reason to pay for a run twice.
            keep = keep or self.resumed or isinstance(error, StorageError | OSError)
            if isinstance(error, Exception) and not self._published and not keep:
                self._held.end(_LEFT)
        finally:
            self._held.close()
            self._lock.release()


def _begin(
    out: Path,
    lock: PathLock,
    plan: Plan,
    facts: dict[str, Any],
    streams: SecretStreams,
    extra: Mapping[str, Any],
    picture: bytes | None,
    reservation: ReservationNote | None,
) -> Run:
    held = RunFolder(out, RELEASE_FOLDER.field, create=True)
    sync_folder(out.parent)
    try:
        if picture is not None:
            write_durably(held.path / PICTURE_FILE, picture)
        held.save_key(streams)
        whole = {**facts, "release_id": uuid.uuid4().hex, "fingerprint": None, "extra": dict(extra)}
        whole["picture"] = None if picture is None else file_hash(held.path / PICTURE_FILE)
        held.write_notes(streams, whole)
    except BaseException:
        held.end(_LEFT)
        raise
    return Run(out, held, lock, plan, whole, streams, reservation)


def _go_on(
    out: Path,
    lock: PathLock,
    plan: Plan,
    facts: dict[str, Any],
    state: RunState,
    reservation: ReservationNote | None,
) -> Run:
    held = RunFolder(out, RELEASE_FOLDER.field)
    draft = held.path
    damaged = InvalidInput("resume", str(out), "an undamaged run (`overwrite` discards this one)")
    if state.complete:
        # The key is not read: all rows are there.
        certificate = read_certificate(draft)
        if certificate["plan"] != json.loads(json.dumps(facts["plan"])):
            raise InvalidInput("resume", str(out), "the plan of the interrupted run")
        for item in certificate["files"]:
            if not (draft / item["file"]).is_file() or file_hash(draft / item["file"]) != item["sha256"]:
                raise damaged
        whole = {**facts, "release_id": state.release_id, "extra": dict(state.extra)}
        run = Run(out, held, lock, plan, whole, None, reservation)
    else:
        found = _sealed_notes(held, complete=False)
        assert found is not None
        kept, streams = found
        given = json.loads(json.dumps(facts))
        if other := sorted(name for name in given if kept.get(name) != given[name]):
            raise InvalidInput("resume", ", ".join(other), "the plan, options and versions of the interrupted run")
        if kept["picture"] is not None and file_hash(draft / PICTURE_FILE) != kept["picture"]:
            raise damaged
        run = Run(out, held, lock, plan, kept, streams, reservation)
    run.resumed = True
    return run


def _sealed_notes(folder: RunFolder, complete: bool) -> tuple[dict[str, Any], SecretStreams] | None:
    """The run's notes, once its key has shown that they are unchanged, and the key; None if there are none."""
    if not folder.has(NOTES_FILE):
        return None
    discards, field = "(`overwrite` discards it)", "interrupted run"
    try:
        streams = folder.load_key()
    except (FileNotFoundError, InvalidInput):
        if complete:
            # Killed at the end of the key: what is left to do asks for neither.
            return None
        raise InvalidInput(field, str(folder.path), f"one that still has its own key {discards}") from None
    try:
        notes = folder.read_notes(streams)
    except InvalidInput:
        notes = {}
    if notes.get("version") != _VERSION:
        streams.destroy()
        raise InvalidInput(field, str(folder.path), f"as this version of privmix wrote it, unchanged {discards}")
    return notes, streams


def _publish(held: RunFolder, out: Path) -> None:
    """End the key, remove what is not the release's, and rename. Each step may already have been done."""
    held.end_key()
    held.sync()
    held.remove(_FEATURES)
    listed = {item["file"] for item in read_certificate(held.path)["files"]}
    held.keep_only(listed | {CERTIFICATE_FILE, _CARD, CROISSANT_FILE})
    held.sync()
    put_in_place(held.path, out, RELEASE_FOLDER.marks)
    sync_folder(out.parent)


def _discard(out: Path) -> None:
    """Destroy the key and remove the run folder, if there is one."""
    held = RunFolder.find(out, RELEASE_FOLDER.field)
    if held is not None:
        with held:
            held.end(_LEFT)


def _lock(out: Path) -> PathLock:
    """Keep other processes from the run folder."""
    out.parent.mkdir(parents=True, exist_ok=True)
    busy = InvalidInput(RELEASE_FOLDER.field, str(out), "a folder that no other process is making just now")
    return PathLock(out, busy)


@contextmanager
def _reading(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(f"run: can't read {run_folder_of(out)}: {error.strerror}") from None


@contextmanager
def _writing(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise StorageError(f"{RELEASE_FOLDER.field}: can't write {out}: {reason}") from None
