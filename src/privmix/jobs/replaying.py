"""Replaying a release: everything made again beside the records, by an auditor's key. And the end of that."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix import private_files
from privmix.bars import Asked, callback, shows_bars
from privmix.certificate.auditor_keys import AuditorKey
from privmix.certificate.certificate import CERTIFICATE_FILE, MOST_BYTES
from privmix.certificate.keys import PrivateKey
from privmix.certificate.replay_end import ENDED_FILE, Ending, read_end, state_end
from privmix.certificate.sealed_key import (
    MOST_SEALED_BYTES,
    SEALED_FILE,
    Commitment,
    bound_to,
    commitment_of,
    open_sealed,
)
from privmix.data import FeatureStore
from privmix.engine.records import PrivateRecords
from privmix.errors import WITHHELD, InvalidInput, StorageError, check_integer
from privmix.features import Extractor, from_spec
from privmix.held_folders import hold
from privmix.jobs.columns import Columns
from privmix.jobs.dataset import Dataset, open_dataset
from privmix.jobs.features import records_of, sorted_store
from privmix.jobs.options import Inputs
from privmix.jobs.persons import Persons, records_of_each
from privmix.jobs.places import check_store
from privmix.jobs.release_setting import check_engine
from privmix.jobs.replay_options import SPOT_CHECKS, ReplayOptions
from privmix.mechanisms.run_folder import beside
from privmix.mechanisms.streams import SecretStreams
from privmix.plans import Plan
from privmix.private_files import no_core_dumps, open_private
from privmix.progress import Progress
from privmix.releases.replay import Comparison, replay_release
from privmix.releases.verify import Held, check_but_numbers
from privmix.scratch import ScratchFolder
from privmix.shown import Shown
from privmix.untrusted import read_plain

TOLERANCE: Final = 0.01
"""Length, as a share of its own, by which a record's features may be off where they come from a store."""

_MOST_KEY_BYTES: Final = 2**16


@dataclass(frozen=True)
class SpotChecks:
    """Features of a store that were made anew.

    Attributes:
        records: of how many records, drawn at random.
        same_bits: how many came out the same to the last bit.
        largest: the largest distance, as a share of the features' length.
        wrong: how many are further off than :data:`TOLERANCE`, or have another label.
    """

    records: int
    same_bits: int
    largest: float
    wrong: int

    def __str__(self) -> str:
        off = f"{self.wrong} are not those of their records" if self.wrong else f"off by {self.largest:.2g} at most"
        return f"features of {self.records:,} records made anew: {self.same_bits:,} to the last bit, {off}"


@dataclass(frozen=True, eq=False, repr=False)
class Replay(Shown):
    """A release that was made again. It says whether these are its records: for its owner and its auditor alone.

    Attributes:
        release: its id.
        commitment: what its certificate states of the key.
        comparison: of its records and bytes.
        spot_checks: of features that came from a store; None where all were made anew.
    """

    release: str
    commitment: Commitment
    comparison: Comparison
    spot_checks: SpotChecks | None = None

    @property
    def equal(self) -> bool:
        """Whether the records are the committed ones, every byte is as it is made again, and spot checks hold."""
        return self.comparison.equal and (self.spot_checks is None or not self.spot_checks.wrong)

    @property
    def found(self) -> tuple[str, ...]:
        """What is not as it should be, a sentence each; nothing where all is."""
        told = [str(one) for one in self.comparison.differences]
        if not self.comparison.records:
            told.insert(0, "the records are not those that the certificate commits to, or their features differ here")
        if self.spot_checks is not None and self.spot_checks.wrong:
            told.append(f"the features' store: {self.spot_checks}")
        return tuple(told)

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know of how it was compared, a sentence each."""
        told = []
        if self.spot_checks is not None and not self.spot_checks.wrong:
            told.append(f"features came from a store that the certificate commits to; {self.spot_checks}")
        if self.comparison.other_versions:
            versions = ", ".join(
                f"{name} {there} then and {here} now" for name, (there, here) in self.comparison.other_versions.items()
            )
            told.append(f"other versions, under which a key may draw other numbers: {versions}")
        return tuple(told)

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        comparison = self.comparison
        return {
            "release": self.release,
            "equal": self.equal,
            "records": comparison.records,
            "files": comparison.files,
            "rows": comparison.rows,
            "differences": [one.to_dict() for one in comparison.differences],
            "spot_checks": None if self.spot_checks is None else vars(self.spot_checks),
            "other_versions": {name: list(both) for name, both in comparison.other_versions.items()},
        }

    def shown(self) -> tuple[str, Mapping[str, object]]:
        """Equal, or where not."""
        verdict = "every byte is made again" if self.equal else "NOT as it is made again"
        facts: dict[str, object] = {"files, rows": f"{self.comparison.files:,}, {self.comparison.rows:,}"}
        return f"Release {self.release}: {verdict}", {
            **facts,
            **({"not equal": "; ".join(self.found)} if self.found else {}),
            **({"notes": "; ".join(self.notes)} if self.notes else {}),
        }


@shows_bars
def replay(
    release: str | os.PathLike[str],
    data: Any,
    *,
    key: str | Path | AuditorKey,
    sealed_key: str | Path | None = None,
    split: str = "train",
    classes: Any = None,
    columns: Columns | str | Sequence[str] | None = None,
    label: str | None = None,
    person: Any = None,
    person_pattern: str | None = None,
    person_file: Path | None = None,
    person_missing: str = "error",
    features_model: str | Path | None = None,
    trust_features_model: bool = False,
    features_store: str | Path | None = None,
    spot_checks: int = SPOT_CHECKS,
    engine: str = "local",
    memory_gb: float | None = None,
    workers: int | None = None,
    ray_address: str | None = None,
    progress: Asked = None,
) -> Replay:
    """Make every byte of a release again, beside its records and by an auditor's key, and say whether they are equal.

    This finds with certainty what no test of the released numbers can: noise of another law, size or key, noise used
    twice, other records, another plan. It takes the release's own key, sealed for an auditor by ``replay_for`` of
    :func:`privmix.release`; what that key tells, and what a replay does not show, is in docs/security.md. It costs no
    privacy as long as nothing of it but "equal" is told to others.

    Args:
        release: a release, or its folder.
        data, split, classes, columns, label, person, person_pattern, person_file, person_missing: as the release read
            them; see :func:`privmix.release`. Classes are the release's where nothing is said.
        key: the auditor's private key (PEM without passphrase) or :class:`AuditorKey`.
        sealed_key: its file; None: beside the release.
        features_model, trust_features_model: for an extractor whose model no package brings.
        features_store: the features' store of the release, for an extractor whose last bits differ on this machine; see
            :class:`ReplayOptions`.
        spot_checks: so many of its records' features are made anew.
        engine, memory_gb, workers, ray_address: as of :func:`privmix.release`; another engine gives the same.
        progress: called with (stage, done, total); True: bars; None: bars where somebody looks on.

    Raises:
        InvalidInput: the release has no sealed key, or its day is past; a key is not its auditor's; it does not open;
            the release's certificate does not hold; the data have other inputs than the release.
        StorageError: something can't be read.
    """
    declared, column = Persons.taken_from(
        {
            "person": person,
            "person_pattern": person_pattern,
            "person_file": person_file,
            "person_missing": person_missing,
        },
        data,
    )
    named = Columns.declared(columns, label, column)
    inputs = Inputs(
        classes=classes, columns=named, features_model=features_model, trust_features_model=trust_features_model
    )
    asked = ReplayOptions(
        split=split,
        inputs=inputs,
        persons=declared,
        sealed_key=None if sealed_key is None else Path(sealed_key),
        features_store=None if features_store is None else Path(features_store),
        spot_checks=spot_checks,
        engine=engine,
        memory_gb=memory_gb,
        workers=workers,
        ray_address=ray_address,
    )
    opened = key if isinstance(key, AuditorKey) else AuditorKey.read(Path(key))
    return carry_out(Path(release), data, opened, asked, callback(progress))


def carry_out(folder: Path, data: Any, key: AuditorKey, asked: ReplayOptions, progress: Progress) -> Replay:
    """See :func:`replay`."""
    no_core_dumps()
    held = check_but_numbers(folder)
    certificate, plan = held.certificate, held.plan
    sealed = _sealed(held)
    today = datetime.now(UTC).date().isoformat()
    if today > sealed.until:
        raise InvalidInput(
            "replay_until", sealed.until, f"a day that is not past ({today}, UTC): end it, see `destroy`"
        )
    check_engine(asked.engine, plan.design, asked.memory_gb, asked.workers, asked.ray_address)
    dataset, extractor = _opened(held, data, asked)
    check_store(asked.features_store)
    content = _read_sealed(asked.sealed_key or beside(folder, SEALED_FILE))
    bound = bound_to(sealed, certificate.id, certificate.plan, sealed.records_root)
    streams = SecretStreams.of_entrusted(open_sealed(content, sealed, bound, key))
    with ScratchFolder() as scratch:
        try:
            whose = None if plan.per_person is None else asked.persons.read(dataset)
            records, checks = _records(dataset, extractor, whose, asked, scratch, progress)
        except BaseException:
            streams.destroy()
            raise
        comparison = replay_release(
            folder,
            held,
            sealed,
            streams,
            records,
            counted=dataset.schema.records if whose is None else records_of_each(whose),
            engine=asked.engine,
            memory_gb=asked.memory_gb,
            workers=asked.workers,
            address=asked.ray_address,
            progress=progress,
        )
    return Replay(certificate.id, sealed, comparison, checks)


def _sealed(held: Held) -> Commitment:
    """What the certificate states of the sealed key, where there should still be one."""
    sealed = commitment_of(held.certificate)
    if sealed is None:
        allowed = (
            "a release whose key was sealed for an auditor (privmix release `replay_for`): this one's is destroyed"
        )
        raise InvalidInput("release", held.certificate.id, allowed)
    if held.ended is not None:
        allowed = f"one whose sealed key is left: this one's was destroyed on {held.ended.ending.date}, by a statement"
        raise InvalidInput("release", held.certificate.id, allowed)
    return sealed


def _opened(held: Held, data: Any, asked: ReplayOptions) -> tuple[Dataset, Extractor]:
    """The records as the release read them, none of them looked into, and its extractor."""
    certificate, plan, inputs = held.certificate, held.plan, asked.inputs
    _check_unit(asked, plan)
    extractor = from_spec(
        certificate["extractor"],
        inputs.features_model,
        trust_model=inputs.trust_features_model,
        arrays=dict(held.carried),
    )
    shape, classes = tuple(certificate["input_shape"]), inputs.classes or list(plan.classes)
    found = open_dataset(data, extractor, split=asked.split, classes=classes, columns=inputs.columns, input_shape=shape)
    if tuple(found.schema.input_shape) != shape:
        raise InvalidInput("data", found.schema.input_shape, f"inputs of shape {shape}")
    if tuple(found.schema.classes) != tuple(plan.classes):
        raise InvalidInput("classes", list(found.schema.classes), f"the release's: {', '.join(plan.classes)}")
    asked.persons.check(found)
    return found, extractor


def _check_unit(asked: ReplayOptions, plan: Plan) -> None:
    """Raise :class:`InvalidInput` unless persons are declared exactly where they are the release's unit."""
    declared = asked.persons.declared(asked.inputs.columns.person)
    if declared is not (plan.per_person is not None):
        allowed = "none: the release's unit is a record" if declared else "whose records are: its unit is a person"
        raise InvalidInput("person", "some" if declared else None, allowed)


def _records(
    dataset: Dataset,
    extractor: Extractor,
    whose: NDArray[np.int64] | None,
    asked: ReplayOptions,
    scratch: Path,
    progress: Progress,
) -> tuple[PrivateRecords | FeatureStore, SpotChecks | None]:
    """What is mixed, and what spot checks found of it where it came from a store."""
    if asked.features_store is None:
        made = records_of(dataset, extractor, whose, None, lambda: scratch / "features", asked.memory_gb, progress)
        return made, None
    store = FeatureStore.open(asked.features_store)
    if store.features.shape != (dataset.schema.records, extractor.output_dim(dataset.schema.input_shape)):
        raise InvalidInput("features_store", WITHHELD, "one of these records, by this extractor")
    store.verify()
    checks = _spot_checks(dataset, extractor, store, check_integer("spot_checks", asked.spot_checks, low=1), progress)
    return sorted_store(store, whose, scratch / "by-person", asked.memory_gb, progress), checks


def _spot_checks(
    dataset: Dataset, extractor: Extractor, store: FeatureStore, number: int, progress: Progress
) -> SpotChecks:
    """Make the features of some records anew, whichever an unpredictable draw takes, and compare."""
    total = dataset.schema.records
    drawn = np.sort(np.random.default_rng().choice(total, min(number, total), replace=False))
    start = checked = same = wrong = 0
    largest = 0.0
    for batch in dataset.source.batches(extractor.step):
        stop = start + len(batch.y)
        own = drawn[np.searchsorted(drawn, start) : np.searchsorted(drawn, stop)]
        if len(own):
            made, kept = extractor.transform(batch.x[own - start]), np.asarray(store.features[own])
            lengths = np.maximum(np.linalg.norm(kept.astype(np.float64), axis=1), 1e-12)
            off = np.linalg.norm(made.astype(np.float64) - kept, axis=1) / lengths
            same += int((made.view(np.uint32) == kept.view(np.uint32)).all(axis=1).sum())
            wrong += int((~(off <= TOLERANCE) | (np.asarray(store.labels[own]) != batch.y[own - start])).sum())
            largest, checked = max(largest, float(off.max())), checked + len(own)
        start = stop
        progress("spot checks", start, total)
    return SpotChecks(checked, same, largest, wrong)


def _read_sealed(place: Path) -> bytes:
    try:
        with open_private(place, "sealed key") as stream:
            return stream.read(MOST_SEALED_BYTES)
    except FileNotFoundError:
        raise StorageError(f"sealed key: there is none at {place}") from None
    except OSError as error:
        raise StorageError(f"sealed key: can't read {place}: {error.strerror}") from None


@dataclass(frozen=True, repr=False)
class ReplayEnded(Shown):
    """A sealed key that is gone, and the statement of it.

    Attributes:
        ending: what is stated.
        key_id: of the key that signed it.
        statement: its file, in the release.
    """

    ending: Ending
    key_id: str
    statement: Path = field(default_factory=Path)

    def shown(self) -> tuple[str, Mapping[str, object]]:
        """What is stated, by whom."""
        return f"Release {self.ending.release}: the sealed key is destroyed", {
            "auditor's key destroyed": ", ".join(self.ending.auditor_keys) or "none",
            "signed by": self.key_id,
            "statement": self.statement,
            "what it shows": "its signer's word; that no copy is left can't be shown",
        }


def end_replay(
    release: str | os.PathLike[str],
    *,
    sign_key: str | Path | PrivateKey,
    sealed_key: str | Path | None = None,
    key: str | Path | None = None,
    passphrase: Callable[[Path], bytes | None] = lambda _: None,
) -> ReplayEnded:
    """Overwrite and remove the sealed key of a release, and state so under a signature, in the release's folder.

    A statement is somebody's word. It can't show that no copy of the sealed key is left; with the auditor's private
    key (``key``) all copies end that only this one opens.

    Formal guarantees:
        * That one: a file that is not the sealed key that the certificate commits to is neither removed nor stated.
        * In order: the statement is on disk before anything is removed, and in the release afterwards; after a kill the
          same call goes on.

    Args:
        release: a release, or its folder. If it is signed, sign it anew afterwards: there is one more file.
        sign_key: private key (PEM) of whoever vouches for the end; see :func:`privmix.certificate.new_key_files`.
        sealed_key: its file; None: beside the release.
        key: the file of the auditor's private key, to be destroyed too: nothing else that was sealed to it opens then.
        passphrase: of the file of a key, where it has one.

    Raises:
        InvalidInput: the release has no sealed key, its end is stated already, or a file is another key's.
        StorageError: something can't be read or written.
    """
    folder = Path(release)
    held = check_but_numbers(folder)
    sealed = _sealed(held)
    place = Path(sealed_key) if sealed_key is not None else beside(folder, SEALED_FILE)
    signing = (
        sign_key if isinstance(sign_key, PrivateKey) else PrivateKey.read(Path(sign_key), passphrase(Path(sign_key)))
    )
    file = None if key is None else Path(key)
    opened = AuditorKey.read(file, passphrase(file)).public.key_id if file is not None and file.exists() else None
    if opened not in (None, sealed.auditor):
        raise InvalidInput("key", f"key {opened[:16]}", f"that of {sealed.whom}")
    digest = hashlib.sha256(read_plain(folder / CERTIFICATE_FILE, "certificate", MOST_BYTES)).hexdigest()
    draft = beside(folder, ENDED_FILE)
    left = read_end(draft, held.certificate.id, sealed, digest)
    if os.path.lexists(place) or left is None:
        if file is not None and opened is None:
            raise StorageError(f"key: there is none at {file}")
        if hashlib.sha256(_read_sealed(place)).hexdigest() != sealed.sealed_sha256:
            raise InvalidInput("sealed key", place.name, "the file whose SHA-256 is in the certificate")
        today = datetime.now(UTC).date().isoformat()
        ending = Ending(held.certificate.id, sealed.sealed_sha256, () if opened is None else (opened,), today)
        with hold(folder.parent) as above:
            above.write(draft.name, state_end(ending, digest, signing).to_bytes(), shared=True)
        private_files.shred(place, "sealed key", MOST_SEALED_BYTES)
    elif file is None and left.ending.auditor_keys:
        raise InvalidInput("key", None, "the file of the interrupted call")
    if file is not None:
        private_files.shred(file, "key", _MOST_KEY_BYTES)
    with hold(folder.parent) as above, hold(folder) as inside:
        os.replace(draft.name, ENDED_FILE, src_dir_fd=above.descriptor, dst_dir_fd=inside.descriptor)
        inside.sync()
        above.sync()
    found = read_end(folder / ENDED_FILE, held.certificate.id, sealed, digest)
    assert found is not None
    return ReplayEnded(found.ending, found.key_id, folder / ENDED_FILE)
