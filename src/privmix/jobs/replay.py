"""Make a release again from its records, by an auditor's key."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np

from privmix.certificate.sealed_key import (
    MOST_SEALED_BYTES,
    SEALED_FILE,
    AuditorKey,
    Commitment,
    bound_to,
    commitment_of,
    open_sealed,
)
from privmix.data.store import FeatureStore
from privmix.engine.records import PrivateRecords
from privmix.errors import REFUTED, WITHHELD, InvalidInput, check_integer
from privmix.features.base import Extractor
from privmix.features.spec import from_spec
from privmix.folders import no_core_dumps, open_private, storage_errors
from privmix.jobs.columns import Columns
from privmix.jobs.dataset import Dataset, open_dataset
from privmix.jobs.features import features_place, records_of, sorted_store
from privmix.jobs.options import machine_of
from privmix.jobs.persons import Persons, records_of_each, said_of
from privmix.jobs.places import check_store
from privmix.mechanisms.run_folder import beside
from privmix.mechanisms.streams import SecretStreams
from privmix.progress import Progress
from privmix.releases.replay import ReplayComparison, replay_release
from privmix.releases.verify import VerifiedFolder, check_but_numbers
from privmix.scratch import ScratchFolder
from privmix.shown import Shown

TOLERANCE: Final = 0.01
"""Length, as a share of its own, by which a record's features may be off where they come from a store."""


@dataclass(frozen=True)
class SpotChecks:
    """Features of a store that were made again, of records drawn at random."""

    # largest: distance, as a share of the features' length. wrong: further off than TOLERANCE, or with another label.
    records: int
    same_bits: int
    largest: float
    wrong: int

    def __str__(self) -> str:
        off = f"{self.wrong} do not match their records" if self.wrong else f"off by {self.largest:.2g} at most"
        return f"features of {self.records:,} records extracted again: {self.same_bits:,} bit-identical, {off}"


@dataclass(frozen=True, eq=False, repr=False)
class Remade(Shown):
    """A release that was made again, compared with the first: for its owner and its auditor alone."""

    release: str
    commitment: Commitment
    comparison: ReplayComparison
    spot_checks: SpotChecks | None = None

    @property
    def equal(self) -> bool:
        """Whether the records are the committed ones, every byte is as it is made again, and spot checks hold."""
        return self.comparison.equal and (self.spot_checks is None or not self.spot_checks.wrong)

    @property
    def found(self) -> tuple[str, ...]:
        told = [str(one) for one in self.comparison.differences]
        if not self.comparison.records:
            told.insert(0, "the records are not those that the certificate commits to, or their features differ here")
        if self.spot_checks is not None and self.spot_checks.wrong:
            told.append(f"the features' store: {self.spot_checks}")
        return tuple(told)

    @property
    def warnings(self) -> tuple[str, ...]:
        told = []
        if self.spot_checks is not None and not self.spot_checks.wrong:
            told.append(f"features came from a store that the certificate commits to; {self.spot_checks}")
        if self.comparison.other_versions:
            versions = ", ".join(
                f"{name} {there} at release and {here} now"
                for name, (there, here) in self.comparison.other_versions.items()
            )
            told.append(f"other versions, with which the key may draw other numbers: {versions}")
        return tuple(told)

    def to_dict(self) -> dict[str, Any]:
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
        size = f"{self.comparison.files:,} files ({self.comparison.rows:,} rows)"
        verdict = (
            "PASS: the records are those that the certificate commits to, and every byte of {} was reproduced"
            if self.equal
            else "FAIL: {} were reproduced"
        )
        return verdict.format(size), {
            "release": self.release,
            **({"differences": "; ".join(self.found)} if self.found else {}),
            **({"warnings": "; ".join(self.warnings)} if self.warnings else {}),
        }

    @property
    def exit_code(self) -> int:
        return 0 if self.equal else REFUTED


def remade(folder: Path, data: Any, asked: Any, progress: Progress) -> Remade:
    # Before the key is opened: a dump of the process would hold it.
    no_core_dumps()
    key = asked.key if isinstance(asked.key, AuditorKey) else AuditorKey.read(Path(asked.key), asked.passphrase)
    held = check_but_numbers(folder)
    certificate, plan = held.certificate, held.plan
    if (sealed := commitment_of(certificate)) is None:
        allowed = "a release with a key sealed for an auditor (privmix release `replay_for`): it was destroyed"
        raise InvalidInput("release", certificate.id, allowed)
    today = datetime.now(UTC).date().isoformat()
    # This check comes before the key is opened: the owner agreed to replays until that day only.
    if today > sealed.until:
        allowed = f"a date from {today} (UTC) on. The replay has expired: its owner deletes the sealed key"
        raise InvalidInput("release", f"until {sealed.until}", allowed)
    machine = machine_of(asked.engine, plan.design)
    persons, columns = said_of(asked, data)
    dataset, extractor = _opened(held, data, persons, columns, asked)
    store = None if asked.features_store is None else Path(asked.features_store)
    check_store(store)
    # The key comes last: checks that fail before it leave no key in memory.
    place = beside(folder, SEALED_FILE) if asked.sealed_key is None else Path(asked.sealed_key)
    with storage_errors("sealed key", "read", place), open_private(place, "sealed key") as stream:
        content = stream.read(MOST_SEALED_BYTES)
    bound = bound_to(sealed, certificate.id, certificate.plan, sealed.records_root)
    with ScratchFolder() as scratch:
        streams = SecretStreams.of_entrusted(open_sealed(content, sealed, bound, key))
        try:
            whose = None if plan.per_person is None else persons.read(dataset)
            records: PrivateRecords | FeatureStore
            checks: SpotChecks | None = None
            if store is None:
                chosen = features_place(dataset, extractor, None, scratch / "features")
                records = records_of(dataset, extractor, whose, chosen, machine.memory_gb, progress)
            else:
                found = FeatureStore.open(store)
                checks = _spot_checks(dataset, extractor, found, asked.spot_checks, progress)
                records = sorted_store(found, whose, scratch / "by-person", machine.memory_gb, progress)
        # Also after ctrl-C: the key can take the noise off a published release.
        except BaseException:
            streams.destroy()
            raise
        # From here on `replay_release` destroys the streams, with any outcome.
        comparison = replay_release(
            folder,
            held,
            sealed,
            streams,
            records,
            counted=dataset.schema.records if whose is None else records_of_each(whose),
            engine=machine.name,
            memory_gb=machine.memory_gb,
            workers=machine.workers,
            address=getattr(machine, "address", None),
            progress=progress,
        )
    return Remade(certificate.id, sealed, comparison, checks)


def _opened(
    held: VerifiedFolder, data: Any, persons: Persons, columns: Columns, asked: Any
) -> tuple[Dataset, Extractor]:
    """Return the records as the release read them, none of them looked into, and its extractor."""
    certificate, plan = held.certificate, held.plan
    declared = persons.declared(columns.person)
    if declared is not (plan.per_person is not None):
        allowed = "no persons: the release protects records" if declared else "persons, as the release protects them"
        raise InvalidInput("person", "some" if declared else None, allowed)
    extractor = from_spec(certificate["extractor"], asked.features_model)
    shape, classes = tuple(certificate["input_shape"]), list(plan.classes)
    found = open_dataset(data, extractor, split=asked.split, classes=classes, columns=columns, input_shape=shape)
    if tuple(found.schema.input_shape) != shape:
        raise InvalidInput("data", found.schema.input_shape, f"inputs of shape {shape}")
    # The order counts, too: a label enters sums by the place of its class in the list.
    if tuple(found.schema.classes) != tuple(plan.classes):
        raise InvalidInput(
            "classes", list(found.schema.classes), f"the classes of the release: {', '.join(plan.classes)}"
        )
    persons.check(found)
    return found, extractor


def _spot_checks(
    dataset: Dataset, extractor: Extractor, store: FeatureStore, number: int, progress: Progress
) -> SpotChecks:
    """Check a store: make the features of some records again, chosen by an unpredictable draw, and compare."""
    total = dataset.schema.records
    if store.features.shape != (total, extractor.output_dim(dataset.schema.input_shape)):
        raise InvalidInput("features_store", WITHHELD, "a store of these records, by this extractor")
    # Damage to the store would otherwise be reported as records that do not match.
    store.verify()
    check_integer("spot_checks", number, low=1)
    # Entropy of the system: the maker of a store cannot foresee which records are made again.
    drawn = np.sort(np.random.default_rng().choice(total, min(number, total), replace=False))
    start = checked = same = wrong = 0
    largest = 0.0
    for batch in dataset.source.batches(extractor.step):
        stop = start + len(batch.y)
        own = drawn[np.searchsorted(drawn, start) : np.searchsorted(drawn, stop)]
        if len(own):
            made, kept = extractor.transform(batch.x[own - start]), np.asarray(store.features[own])
            # A record of zeros has no length to divide by.
            lengths = np.maximum(np.linalg.norm(kept.astype(np.float64), axis=1), 1e-12)
            off = np.linalg.norm(made.astype(np.float64) - kept, axis=1) / lengths
            same += int((made.view(np.uint32) == kept.view(np.uint32)).all(axis=1).sum())
            # Written so that NaN counts as wrong.
            wrong += int((~(off <= TOLERANCE) | (np.asarray(store.labels[own]) != batch.y[own - start])).sum())
            largest, checked = max(largest, float(off.max())), checked + len(own)
        start = stop
        progress("spot checks", start, total)
    return SpotChecks(checked, same, largest, wrong)
