"""A series of releases: its folder, with a release a step, and beside it the private folder that keeps its key.

``NAME/step-001`` and so on are releases, for everyone. ``.NAME.series`` beside ``NAME`` is for its owner, and holds

* the secret key that the noise of all steps is made of;
* notes, sealed by that key: the plan of the first step, what was charged for all steps, which draws the key gives here,
  and of each step a keyed fingerprint of its records and the hash of its certificate.

No record, and no sum of records, is kept from one step to the next. With the last step, or when the series is ended,
the key is overwritten and the private folder removed.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from privmix.certificate.certificate import CERTIFICATE_FILE
from privmix.certificate.series import SeriesLink
from privmix.designs.series.engine import Before
from privmix.designs.series.plan import SeriesPlan
from privmix.errors import WITHHELD, InvalidInput
from privmix.fields import Checked, Digest, PlainCount, Words, read, stored
from privmix.folders import PathLock, sync_folder
from privmix.mechanisms.run_folder import KEY_FILE, NOTES_FILE, RunFolder, storage_errors
from privmix.mechanisms.streams import SecretStreams
from privmix.plans import plan_from_dict
from privmix.private_files import PrivateFolder
from privmix.releases.certificate import read_certificate
from privmix.releases.folder import read_beside, read_centre

FIELD: Final = "series"
_VERSION: Final = 1
# Enough that another sampler, or another table of the same one, can't give the same.
_PROBED: Final = 2**19


def place_of_step(folder: Path, step: int) -> Path:
    """Where the release of a step is.

    Example:
        >>> place_of_step(Path("visits"), 2).as_posix()
        'visits/step-002'
    """
    return folder / f"step-{step:03d}"


def private_place(folder: Path) -> Path:
    """Where the key of a series is kept.

    Example:
        >>> private_place(Path("work/visits")).as_posix()
        'work/.visits.series'
    """
    return folder.with_name(f".{folder.name}.series")


@dataclass(frozen=True)
class Step(Checked):
    """What is noted of a step.

    Attributes:
        records: public figure for their number.
        fingerprint: of them, keyed by the series.
        run: names the release.
        certificate: SHA-256 of its file; None while it is not known to be there.
    """

    records: PlainCount
    fingerprint: Digest
    run: Words
    certificate: Digest | None = None


@dataclass(frozen=True)
class Notes(Checked):
    """What is noted of a series.

    Attributes:
        version: of these notes.
        id: names the series.
        plan: of the first step.
        extractor: that features come from.
        input_shape: of one raw input.
        charge: how to find the charge for all steps again; None without a ledger.
        seed: of tests and benchmarks.
        draws: a code of what streams under the key draw, by which other samplers are known.
        steps: those whose records are known, in order.
    """

    version: PlainCount
    id: str
    plan: dict[str, Any]
    extractor: dict[str, Any]
    input_shape: tuple[int, ...]
    charge: dict[str, Any] | None
    seed: int | None
    draws: str
    steps: tuple[Step, ...] = ()


class _Folder(RunFolder):
    """The private folder of a series, held open; its key and notes are kept as those of a run are."""

    def __init__(self, folder: Path, *, create: bool = False) -> None:
        PrivateFolder.__init__(self, private_place(folder), FIELD, create=create)


class Series:
    """A series that began: what is noted of it, and its key.

    Formal guarantees:
        * One step, one set of records: a step's noise is drawn only once its records are noted, by a keyed
          fingerprint, and never for others, also after a kill, a refusal or with another plan.
        * In order: a step goes on from the release of the step before, unchanged, and a step whose release is there is
          never made again.
        * Same draws: a key whose streams draw other numbers than when the series began, as under another version of
          NumPy, is not used.
        * For the owner: the key is in the private folder alone, which nobody else can enter; notes that were changed,
          or are of another key, are refused. It is overwritten when the series ends.

    A private folder that was copied, or taken from a backup, knows nothing of later steps. Releases that lie in the
    series' folder and that it does not know are refused. Where a ledger was charged, it knows the records of each step,
    too. What can't be seen: a folder of before a step, where there is neither a ledger nor that step's release.

    Args:
        folder: of the series, where its private folder is beside.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.notes = self._read()

    @classmethod
    def find(cls, folder: Path) -> Series | None:
        """The series of that folder, if it began and has not ended."""
        if os.path.lexists(private_place(folder)):
            with storage_errors(FIELD, "read", private_place(folder)), _Folder(folder) as held:
                whole = held.has(KEY_FILE) and held.has(NOTES_FILE)
            # A kill may leave a part of it, before anything was charged or after all of it ended.
            if whole:
                return cls(folder)
        if os.path.lexists(place_of_step(folder, 1)):
            raise InvalidInput(FIELD, str(folder), "one whose key is there: this one has ended, or its key was moved")
        return None

    @classmethod
    def begin(
        cls,
        folder: Path,
        plan: SeriesPlan,
        *,
        extractor: Mapping[str, Any],
        input_shape: Sequence[int],
        seed: int | None,
    ) -> Series:
        """Make the key and the notes of a new series, before it is charged."""
        streams = SecretStreams.from_entropy() if seed is None else SecretStreams.from_seed(seed)
        try:
            with storage_errors(FIELD, "write", private_place(folder)):
                folder.parent.mkdir(parents=True, exist_ok=True)
                with _locked(folder):
                    if os.path.lexists(private_place(folder)):
                        if cls.find(folder) is not None:
                            raise InvalidInput(FIELD, str(folder), "a new one: it began already")
                        _Folder(folder).end({KEY_FILE, NOTES_FILE})
                    notes = Notes(
                        _VERSION,
                        uuid.uuid4().hex,
                        plan.of_first().to_dict(),
                        dict(extractor),
                        tuple(int(size) for size in input_shape),
                        None,
                        seed,
                        _draws(streams),
                    )
                    with _Folder(folder, create=True) as held:
                        held.save_key(streams)
                        held.write_notes(streams, stored(notes))
                        held.sync()
                    sync_folder(folder.parent)
        finally:
            streams.destroy()
        return cls(folder)

    @cached_property
    def first(self) -> SeriesPlan:
        """The plan of the first step."""
        plan = plan_from_dict(self.notes.plan)
        assert isinstance(plan, SeriesPlan)
        return plan

    @property
    def made(self) -> int:
        """How many steps are released."""
        return sum(step.certificate is not None for step in self.notes.steps)

    @property
    def is_idle(self) -> bool:
        """Whether nothing was charged or drawn for it."""
        return self.notes.charge is None and not self.notes.steps

    def plan_of_next(self, records: int) -> SeriesPlan:
        """The plan of the step that is to be made, which brings so many records."""
        counts = [step.records for step in self.notes.steps[: self.made]] + [records]
        plan = self.first
        if counts[0] != plan.counts[0]:
            raise InvalidInput("records", WITHHELD, f"{plan.counts[0]}, as when the series began")
        for count in counts[1:]:
            plan = plan.after(count)
        return plan

    def streams(self) -> SecretStreams:
        """Streams under the key of the series, which the caller destroys."""
        with storage_errors(FIELD, "read", private_place(self.folder)), _Folder(self.folder) as held:
            streams = held.load_key()
        if not hmac.compare_digest(_draws(streams), self.notes.draws):
            streams.destroy()
            # The noise of the steps before would not be taken off, and that of this one be another.
            allowed = "those that drew the noise of the steps before: install these versions"
            raise InvalidInput("versions of numpy and randomgen", "other draws", allowed)
        return streams

    def fingerprint_key(self) -> bytes:
        """For fingerprints of records that tell nobody else anything."""
        streams = self.streams()
        try:
            return streams.derive("series fingerprint").share()
        finally:
            streams.destroy()

    def charged(self, note: Mapping[str, Any]) -> None:
        """Note the charge for all steps, once it is made, by what finds it again."""
        self._change(lambda notes: replace(notes, charge={**note, "charged": True}))

    def bind(
        self, step: int, records: int, fingerprint: str, run: str, in_ledger: Callable[[Sequence[str]], None]
    ) -> None:
        """Note which records a step is of, before anything is drawn for them.

        Args:
            step: that is being made.
            records: public figure for their number.
            fingerprint: of them, under :meth:`fingerprint_key`.
            run: names the release.
            in_ledger: tells the ledger of the records of all steps so far, by hashes; it refuses other ones.
        """

        def noted(notes: Notes) -> Notes:
            _check_next(notes, step)
            own = Step(records, fingerprint, run)
            if len(notes.steps) >= step:
                kept = notes.steps[step - 1]
                if not hmac.compare_digest(kept.fingerprint, fingerprint) or kept.records != records:
                    # The difference of two releases under one noise is free of noise.
                    allowed = f"the records that step {step} began with, unchanged: its noise serves no others"
                    raise InvalidInput("data", WITHHELD, allowed)
            steps = (*notes.steps[: step - 1], own)
            known = [f"{notes.id} {number} {one.fingerprint}" for number, one in enumerate(steps, start=1)]
            in_ledger([hashlib.sha256(one.encode()).hexdigest() for one in known])
            return replace(notes, steps=steps)

        self._change(noted)

    def done(self, step: int, certificate: str) -> None:
        """Note that a step is released, by the hash of its certificate; a second time changes nothing."""

        def noted(notes: Notes) -> Notes:
            own = notes.steps[step - 1]
            return replace(notes, steps=(*notes.steps[: step - 1], replace(own, certificate=certificate)))

        self._change(noted)

    def reconcile(self) -> None:
        """Note the release of a step that was interrupted after its release had its place."""
        step = self.made + 1
        place = place_of_step(self.folder, step)
        if not os.path.lexists(place):
            return
        found = read_certificate(place)
        own = self.notes.steps[step - 1] if len(self.notes.steps) >= step else None
        if own is None or found.id != own.run:
            allowed = "no release that this series does not know: its private folder is an older copy, or another's"
            raise InvalidInput(FIELD, str(place), allowed)
        self.done(step, hashlib.sha256(found.to_bytes()).hexdigest())

    def before(self, step: int) -> Before | None:
        """What the step before released, its files as they were then; None for the first step."""
        if step == 1:
            return None
        place = place_of_step(self.folder, step - 1)
        certificate = read_certificate(place)
        if hashlib.sha256(certificate.to_bytes()).hexdigest() != self.notes.steps[step - 2].certificate:
            raise InvalidInput(str(place), "another release", f"that of step {step - 1}, unchanged")
        plan = plan_from_dict(certificate["plan"])
        return Before(read_beside(place, plan, certificate), read_centre(place, plan, certificate))

    def link(self, step: int) -> SeriesLink:
        """What the certificate of a step says of the series."""
        return SeriesLink(self.notes.id, None if step == 1 else self.notes.steps[step - 2].certificate)

    def end(self) -> None:
        """Overwrite the key, and remove the private folder. No step can follow."""
        with storage_errors(FIELD, "end", private_place(self.folder)), _locked(self.folder):
            held = _Folder(self.folder)
            held.end({KEY_FILE, NOTES_FILE})
            sync_folder(self.folder.parent)

    def _read(self) -> Notes:
        with storage_errors(FIELD, "read", private_place(self.folder)):
            try:
                held = _Folder(self.folder)
            except FileNotFoundError:
                raise InvalidInput(
                    FIELD, str(self.folder), "one that began, with its private folder beside it"
                ) from None
            with held:
                streams = held.load_key()
                try:
                    return _notes(held, streams)
                finally:
                    streams.destroy()

    def _change(self, change: Callable[[Notes], Notes]) -> None:
        place = private_place(self.folder)
        with storage_errors(FIELD, "write", place), _locked(self.folder), _Folder(self.folder) as held:
            streams = held.load_key()
            try:
                # As they are by now, and not as they were when the job began.
                notes = _notes(held, streams)
                if notes.id != self.notes.id:
                    raise InvalidInput(FIELD, str(self.folder), "the series that the job began with")
                self.notes = change(notes)
                held.write_notes(streams, stored(self.notes))
                held.sync()
            finally:
                streams.destroy()


@dataclass(frozen=True)
class SeriesStep:
    """A step of a series, for the run that makes its release.

    Attributes:
        series: which began.
        plan: of the step.
    """

    series: Series
    plan: SeriesPlan

    @property
    def step(self) -> int:
        """t."""
        return self.plan.step

    @property
    def link(self) -> SeriesLink:
        """For the certificate."""
        return self.series.link(self.step)


def is_series(folder: Path) -> bool:
    """Whether a folder holds a series of releases, and is none itself."""
    return not os.path.lexists(folder / CERTIFICATE_FILE) and (place_of_step(folder, 1) / CERTIFICATE_FILE).is_file()


def _check_next(notes: Notes, step: int) -> None:
    made = sum(one.certificate is not None for one in notes.steps)
    if step != made + 1:
        raise InvalidInput("step", step, f"{made + 1}, the next of the series")


def _notes(held: _Folder, streams: SecretStreams) -> Notes:
    content = held.read_notes(streams)
    if content.get("version") != _VERSION:
        raise InvalidInput(FIELD, content.get("version"), f"notes of version {_VERSION}")
    return read(Notes, content, "series notes")


def _draws(streams: SecretStreams) -> str:
    """A code of what streams under this key draw here."""
    with streams.lent("series draws") as generator:
        return streams.seal("series draws", generator.standard_normal(_PROBED).tobytes())


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    lock = PathLock(private_place(folder), InvalidInput(FIELD, str(folder), "one that no other process uses just now"))
    try:
        yield
    finally:
        lock.release()
