"""A series of releases: a folder with a release a step, and a private folder next to it with the key.

``NAME/step-001`` and so on are releases, for everyone. ``.NAME.series`` is for the owner. It holds the secret key of
all steps' noise, and notes sealed by it: the first plan, the charge for all steps, a code of the key's draws here. Each
step adds a keyed fingerprint of its records, the certificate's hash and keyed hashes of any persons that count in it.

No record and no sum of records is kept between steps. After the last step, or when the series ends, the key is
overwritten and the private folder removed.
"""

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

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privmix.certificate.certificate import CERTIFICATE_FILE
from privmix.certificate.notes import SeriesLink
from privmix.data.persons import DIGEST
from privmix.designs.series.engine import Before
from privmix.designs.series.plan import SeriesPlan
from privmix.errors import WITHHELD, InvalidInput
from privmix.fields import Checked, Digest, PlainCount, Words, read, stored, used
from privmix.folders import PathLock, PrivateFolder, storage_errors, sync_folder
from privmix.mechanisms.noise import MOST_STEPS
from privmix.mechanisms.run_folder import KEY_FILE, NOTES_FILE, RunFolder
from privmix.mechanisms.streams import SecretStreams
from privmix.plans.registry import plan_from_dict
from privmix.releases.certificate import read_certificate
from privmix.releases.folder import read_beside, read_centre

FIELD: Final = "series"
_VERSION: Final = 1
# Enough that another sampler, or another table of the same one, can't give the same.
_PROBED: Final = 2**19
_MOST_BYTES, _MOST_KEY = 2**34, 2**10


def _persons_file(step: int) -> str:
    return f"persons-{step:03d}"


_KNOWN: Final = {KEY_FILE, NOTES_FILE, *map(_persons_file, range(1, MOST_STEPS + 1))}


def place_of_step(folder: Path, step: int) -> Path:
    """Return a step's folder, such as ``visits/step-002``."""
    return folder / f"step-{step:03d}"


def private_place(folder: Path) -> Path:
    """Return the key's folder, such as ``work/.visits.series``."""
    return folder.with_name(f".{folder.name}.series")


@dataclass(frozen=True)
class StepNotes(Checked):
    """Notes on a step: public record count, keyed fingerprint, release id, SHA-256 of its certificate or None."""

    # Both are SHA-256, where persons are units. persons: of the file with the hashes of those that count. named: of
    # what names the person of a record, which is the same in all steps.
    records: PlainCount
    fingerprint: Digest
    run: Words
    certificate: Digest | None = None
    persons: Digest | None = used(None)
    named: Digest | None = used(None)


@dataclass(frozen=True)
class Notes(Checked):
    # plan: of the first step; charge: finds the charge for all steps, None without a ledger; seed: of tests and
    # benchmarks. draws: a code of the key's draws, to recognise other samplers; steps: with known records, in order.

    version: PlainCount
    id: str
    plan: dict[str, Any]
    extractor: dict[str, Any]
    input_shape: tuple[int, ...]
    charge: dict[str, Any] | None
    seed: int | None
    draws: str
    steps: tuple[StepNotes, ...] = ()


class _Folder(RunFolder):
    """The private folder of a series, held open; its key and notes are kept as those of a run are."""

    def __init__(self, folder: Path, *, create: bool = False) -> None:
        PrivateFolder.__init__(self, private_place(folder), FIELD, create=create)


class Series:
    """A series that began: its notes and its key.

    Formal guarantees:
        * One step, one set of records: a step's noise is drawn only once its records are noted, by a keyed fingerprint.
          It is never drawn for others, also after a kill, a refusal or with another plan.
        * In order: a step goes on from the release of the step before, unchanged, and a step whose release is there is
          never made again.
        * At most K steps of a person: :meth:`admitted` states who counts in a step by the hashes of earlier ones. It
          notes their own before anything is drawn for the step. They stay what they were, also after a kill.
        * Same draws: a key whose streams draw other numbers than when the series began, as under another version of
          NumPy, is not used.
        * For the owner: the key is in the private folder alone, which no other user can enter; notes that were changed,
          or are of another key, are refused. It is overwritten when the series ends.

    A private folder from a copy or backup lacks later steps: releases unknown to it are refused, and a charged ledger
    knows each step's records. Not visible: a folder from before a step, with neither a ledger nor that step's release.
    """

    # SHA-256 of who counts in the step to be made, and of what names them.
    _admitted: str | None = None
    _named: str | None = None

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.notes: Notes = self._read()

    @classmethod
    def find(cls, folder: Path) -> "Series | None":
        """Return the series of that folder, if it began and has not ended."""
        # A kill may leave a part of it, before anything was charged or after all of it ended.
        if os.path.lexists(private_place(folder)) and not is_remnant(folder):
            return cls(folder)
        if os.path.lexists(place_of_step(folder, 1)):
            raise InvalidInput(FIELD, str(folder), "a series with its key: this one has ended, or its key was moved")
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
    ) -> "Series":
        """Make the key and the notes of a new series, before it is charged."""
        streams = SecretStreams.from_entropy() if seed is None else SecretStreams.from_seed(seed)
        try:
            with storage_errors(FIELD, "write", private_place(folder)):
                folder.parent.mkdir(parents=True, exist_ok=True)
                with _locked(folder):
                    # Under the lock: two processes may begin at once.
                    if os.path.lexists(private_place(folder)):
                        if cls.find(folder) is not None:
                            raise InvalidInput(FIELD, str(folder), "a new folder: a series began in this one")
                        _Folder(folder).end(_KNOWN)
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
                        # On disk before the charge: a lost key would leave a charge that no step can use.
                        held.sync()
                    sync_folder(folder.parent)
        finally:
            streams.destroy()
        return cls(folder)

    @cached_property
    def first(self) -> SeriesPlan:
        plan = plan_from_dict(self.notes.plan)
        assert isinstance(plan, SeriesPlan)
        return plan

    @property
    def made(self) -> int:
        return sum(step.certificate is not None for step in self.notes.steps)

    @property
    def is_idle(self) -> bool:
        """Whether nothing was charged or drawn for it."""
        return self.notes.charge is None and not self.notes.steps

    def plan_of_next(self, records: int) -> SeriesPlan:
        """Return the plan of the step that is to be made, which brings ``records`` records."""
        # Released steps alone: an interrupted one is noted, too, and comes again.
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
            allowed = "the versions that drew the noise of earlier steps: install these"
            raise InvalidInput("versions of numpy and randomgen", "other draws", allowed)
        return streams

    def key_for(self, what: str) -> bytes:
        """Key for the hashes of one kind, of records ("fingerprint") or "persons", which reveal nothing without it."""
        streams = self.streams()
        try:
            return streams.derive(f"series {what}").share()
        finally:
            streams.destroy()

    def admitted(self, step: int, persons: Sequence[bytes], named: str) -> NDArray[np.bool_]:
        """Which persons of a step, by their hashes, count in it: those that counted in fewer than K steps before."""
        # named: hash of what names them.
        most, place = self.first.steps_per_person, private_place(self.folder)
        assert most is not None
        own, before = pa.array(persons, pa.binary(DIGEST)), np.zeros(len(persons), np.int64)
        with storage_errors(FIELD, "write", place), _locked(self.folder), _Folder(self.folder) as held:
            streams = held.load_key()
            # As they are by now, and not as they were when the job began.
            steps = self._noted(held, streams).steps
            streams.destroy()
            for number, one in enumerate(steps[: step - 1], start=1):
                content = held.read(_persons_file(number), _MOST_BYTES) if held.has(_persons_file(number)) else b""
                if hashlib.sha256(content).hexdigest() != one.persons:
                    raise InvalidInput(f"persons of step {number}", WITHHELD, "those that were noted, unchanged")
                known = pa.FixedSizeBinaryArray.from_buffers(
                    pa.binary(DIGEST), len(content) // DIGEST, [None, pa.py_buffer(content)]
                )
                before += np.asarray(pc.is_in(own, value_set=known))
            counted = before < most
            content = b"".join(one for one, counts in zip(persons, counted.tolist(), strict=True) if counts)
            noted = steps[step - 1].persons if len(steps) >= step else None
            self._admitted, self._named = hashlib.sha256(content).hexdigest(), named
            if noted in (None, self._admitted):
                held.write(_persons_file(step), content)
                held.sync()
            else:
                allowed = f"the persons that step {step} began with: its noise serves no others"
                raise InvalidInput("person", WITHHELD, allowed)
        return counted

    def charged(self, note: Mapping[str, Any]) -> None:
        """Note the charge for all steps, once it is made, by what finds it again."""
        self._change(lambda notes: replace(notes, charge={**note, "charged": True}))

    def bind(
        self, step: int, records: int, fingerprint: str, run: str, in_ledger: Callable[[Sequence[str]], None]
    ) -> None:
        """Note a step's records before anything is drawn for them."""
        # in_ledger: gives the ledger all steps' records, by hashes; it refuses other ones.

        def noted(notes: Notes) -> Notes:
            made = sum(one.certificate is not None for one in notes.steps)
            if step != made + 1:
                raise InvalidInput("step", step, f"{made + 1}, the next of the series")
            own = StepNotes(records, fingerprint, run, persons=self._admitted, named=self._named)
            if (own.persons is None) is not (self.first.steps_per_person is None):
                raise RuntimeError("who counts in a step is stated before it is bound")
            if len(notes.steps) >= step:
                kept = notes.steps[step - 1]
                same = (kept.persons, kept.named) == (own.persons, own.named)
                if not same or not hmac.compare_digest(kept.fingerprint, fingerprint) or kept.records != records:
                    # The difference of two releases under one noise is free of noise.
                    allowed = f"the records that step {step} began with, unchanged: its noise serves no others"
                    raise InvalidInput("data", WITHHELD, allowed)
            steps = (*notes.steps[: step - 1], own)
            # Id and number make the hashes of equal records in two steps differ.
            # Persons are named, too: from an older copy, others could stand for those that counted.
            known = [
                f"{notes.id} {number} {one.fingerprint}"
                + ("" if one.persons is None else f" {one.persons} {one.named}")
                for number, one in enumerate(steps, start=1)
            ]
            # The ledger first: after a kill in between, only the same records can continue.
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
            allowed = "only releases that this series made: its private folder is an older copy, or another's"
            raise InvalidInput(FIELD, str(place), allowed)
        self.done(step, hashlib.sha256(found.to_bytes()).hexdigest())

    def before(self, step: int) -> Before | None:
        """Output of the step before, its files as they were then; None for the first step."""
        if step == 1:
            return None
        place = place_of_step(self.folder, step - 1)
        certificate = read_certificate(place)
        if hashlib.sha256(certificate.to_bytes()).hexdigest() != self.notes.steps[step - 2].certificate:
            raise InvalidInput(str(place), "another release", f"that of step {step - 1}, unchanged")
        plan = plan_from_dict(certificate["plan"])
        return Before(read_beside(place, plan, certificate), read_centre(place, plan, certificate))

    def link(self, step: int) -> SeriesLink:
        return SeriesLink(self.notes.id, None if step == 1 else self.notes.steps[step - 2].certificate)

    @staticmethod
    def end(folder: Path) -> None:
        """Overwrite the key, and remove the private folder. No step can follow."""
        with storage_errors(FIELD, "end", private_place(folder)), _locked(folder):
            _Folder(folder).end(_KNOWN)
            sync_folder(folder.parent)

    def _read(self) -> Notes:
        with storage_errors(FIELD, "read", private_place(self.folder)):
            try:
                held = _Folder(self.folder)
            except FileNotFoundError:
                raise InvalidInput(
                    FIELD, str(self.folder), "a series that began, with its private folder next to it"
                ) from None
            with held:
                streams = held.load_key()
                try:
                    return _notes(held, streams)
                finally:
                    streams.destroy()

    def _noted(self, held: _Folder, streams: SecretStreams) -> Notes:
        notes = _notes(held, streams)
        if notes.id != self.notes.id:
            raise InvalidInput(FIELD, str(self.folder), "the series that the job began with")
        return notes

    def _change(self, change: Callable[[Notes], Notes]) -> None:
        place = private_place(self.folder)
        with storage_errors(FIELD, "write", place), _locked(self.folder), _Folder(self.folder) as held:
            streams = held.load_key()
            try:
                # As they are by now, and not as they were when the job began.
                self.notes = change(self._noted(held, streams))
                held.write_notes(streams, stored(self.notes))
                held.sync()
            finally:
                streams.destroy()


@dataclass(frozen=True)
class SeriesStep:
    """A step of a series, for the run that makes its release; ``plan``: of the step."""

    series: Series
    plan: SeriesPlan

    @property
    def step(self) -> int:
        return self.plan.step

    @property
    def link(self) -> SeriesLink:
        return self.series.link(self.step)


def is_remnant(folder: Path) -> bool:
    """Whether a private folder has no notes, or no key but zeros: a kill left it while its series began or ended."""
    with storage_errors(FIELD, "read", private_place(folder)), _Folder(folder) as held:
        try:
            # A whole key stays out of memory that is not overwritten.
            held.load_key().destroy()
        except FileNotFoundError:
            return True
        except InvalidInput:
            return not any(held.read(KEY_FILE, _MOST_KEY)[1:])
        return not held.has(NOTES_FILE)


def is_series(folder: Path) -> bool:
    """Whether a folder holds a series of releases, and is none itself."""
    return not os.path.lexists(folder / CERTIFICATE_FILE) and (place_of_step(folder, 1) / CERTIFICATE_FILE).is_file()


def _notes(held: _Folder, streams: SecretStreams) -> Notes:
    content = held.read_notes(streams)
    if content.get("version") != _VERSION:
        raise InvalidInput(FIELD, content.get("version"), f"notes of version {_VERSION}")
    return read(Notes, content, "series notes")


def _draws(streams: SecretStreams) -> str:
    """Return a code of what streams under this key draw here."""
    with streams.lent("series draws") as generator:
        return streams.seal("series draws", generator.standard_normal(_PROBED).tobytes())


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    lock = PathLock(
        private_place(folder),
        InvalidInput(FIELD, str(folder), "a series that no other process uses; wait until the other one ends"),
    )
    try:
        yield
    finally:
        lock.release()
