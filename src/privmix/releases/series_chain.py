"""Releases as an argument: one, or those of a folder, once they are the steps of one series."""

import hashlib
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from privmix.certificate.certificate import Certificate
from privmix.certificate.notes import SeriesLink, link_of
from privmix.certificate.verification import Verification
from privmix.designs.series.plan import SeriesPlan
from privmix.errors import InvalidInput, StorageError
from privmix.plans.registry import plan_from_dict
from privmix.progress import Progress, silent
from privmix.publication.dataset import HasDataset, ReleasedDataset
from privmix.releases.certificate import read_certificate
from privmix.releases.folder import CENTRE_FILE, load_release
from privmix.releases.series import FIELD, is_series, place_of_step
from privmix.releases.verify import verify_release

_STEP: Final = re.compile(r"step-(\d{3,4})\Z")


@dataclass(frozen=True)
class Link:
    """A release of a series, whose certificate continues that of the step before."""

    place: Path
    certificate: Certificate
    plan: SeriesPlan


@dataclass(frozen=True)
class Chain:
    """A verified series of T ``steps``, with the verification of each release."""

    id: str
    steps: int
    releases: tuple[Verification, ...]

    def __str__(self) -> str:
        return f"{len(self.releases)} of {self.steps} releases, each linked to the one before"

    def to_dict(self) -> dict[str, Any]:
        alarm = math.fsum(one.false_alarm for one in self.releases)
        return {"id": self.id, "steps": self.steps, "releases": len(self.releases), "false_alarm": alarm}


def verify_series(folder: Path, progress: Progress = silent) -> Chain:
    """Verify every release of a series, and that they are the steps of one.

    Formal guarantees (in addition to those of :func:`privmix.releases.verify.verify_release`, for each release):
        * One series: all certificates name the same one, and each states the hash of the certificate before it.
        * No gap: steps follow one another from the first on.
        * One plan: each plan is the one before with one more number of records, and its price that of all steps.
        * One mean, one extractor: records of all steps were prepared alike.
    """
    found: list[Verification] = []
    chain: list[Link] = []
    for place in _places(folder):
        found.append(verify_release(place, progress))
        chain.append(_link_at(place, chain))
        # The folder is read twice and may be replaced in between: both readings must be of one release.
        if chain[-1].certificate.id != found[-1].id:
            raise StorageError(f"{FIELD}: {place} was replaced by another release meanwhile; put the first one back")
    return Chain(_link(chain[-1].certificate).id, chain[-1].plan.steps, tuple(found))


def linked(folder: Path) -> list[Link]:
    """Return the releases of a series by their certificates, which go on from one another; files are not read."""
    chain: list[Link] = []
    for place in _places(folder):
        chain.append(_link_at(place, chain))
    return chain


def _places(folder: Path) -> Iterator[Path]:
    # Sorted as numbers and not as names: step-1000 follows step-999.
    numbers = sorted(int(match[1]) for path in folder.iterdir() if (match := _STEP.match(path.name)))
    if not numbers or numbers != list(range(1, len(numbers) + 1)):
        missing = next(number for number in range(1, len(numbers) + 2) if number not in numbers)
        raise InvalidInput(FIELD, str(folder), f"all steps from the first on: {place_of_step(folder, missing).name}")
    for number in numbers:
        yield place_of_step(folder, number)


def _link_at(place: Path, chain: Sequence[Link]) -> Link:
    """Return the release there; :class:`InvalidInput` unless it is the step after those of the chain."""
    name, certificate = place.name, read_certificate(place)
    link, plan = _link(certificate), plan_from_dict(certificate["plan"])
    if not isinstance(plan, SeriesPlan):
        raise InvalidInput(f"{name}: certificate plan", f"one of design {plan.design}", "one of a series")
    wanted, expected = SeriesLink(link.id, None), plan.of_first()
    before = chain[-1].certificate if chain else None
    if before is not None:
        # The hash covers the whole certificate: an earlier release cannot be exchanged without breaking the next link.
        wanted, last = SeriesLink(_link(before).id, hashlib.sha256(before.to_bytes()).hexdigest()), chain[-1].plan
        if last.is_last:
            raise InvalidInput(f"{name}: certificate plan", "a step more", f"{last.steps} steps, which the series has")
        expected = last.after(plan.counts[-1])
    if link != wanted:
        raise InvalidInput(f"{name}: certificate series", "another link", "that to the release of the step before")
    # Noise and price hold for all steps together: only the number of new records may differ.
    if plan != expected:
        raise InvalidInput(f"{name}: certificate plan", "another plan", "that of the step before, and one step more")
    # One key and one charge serve all steps, so these cannot change between them.
    for field in ("extractor", "input_shape", "insecure_seed", "in_ledger"):
        if before is not None and certificate[field] != before[field]:
            raise InvalidInput(f"{name}: certificate {field}", "another one", "that of the step before")
    if before is not None and _centre(certificate) != _centre(before):
        raise InvalidInput(f"{name}: {CENTRE_FILE}", "another mean", "that of the first step")
    return Link(place, certificate, plan)


def _link(certificate: Certificate) -> SeriesLink:
    if (link := link_of(certificate)) is None:
        raise InvalidInput("certificate series", None, "a release of a series")
    return link


def _centre(certificate: Certificate) -> list[str]:
    return [item["sha256"] for item in certificate.files if item["file"] == CENTRE_FILE]


def dataset_of(release: ReleasedDataset | HasDataset | str | Path) -> ReleasedDataset:
    """Return the dataset of a release, or of the newest release of a series; errors as :func:`load_release`."""
    if isinstance(release, ReleasedDataset):
        return release
    if isinstance(release, HasDataset):
        return release.dataset
    return load_series(release) if is_series(Path(release)) else load_release(release)


def load_series(folder: str | Path) -> ReleasedDataset:
    """Read the newest release of a series in ``folder``, which covers the records of all steps so far.

    Formal guarantees:
        * nothing but released numbers is read, and those are what the newest certificate lists;
        * releases that are not the steps of one series, one after another from the first on, are refused.
    """
    last = linked(Path(folder))[-1]
    newest = load_release(last.place)
    if newest.certificate is None or newest.certificate.id != last.certificate.id:
        raise StorageError(f"{FIELD}: {last.place} was replaced by another release meanwhile; put the first one back")
    return newest
