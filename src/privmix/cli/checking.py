"""What a folder holds, verified: one way for the verbs that check and the one that signs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from privmix.certificate.signing import Subject
from privmix.features import wanted_model
from privmix.learning import load_model
from privmix.release import verify_release
from privmix.release.certificate import read_certificate
from privmix.training import is_trained_model, load_trained
from privmix.training.verify import verify_trained

_MODEL: Final = "model.json"
_CERTIFICATE: Final = "certificate.json"
_RELEASE_UNCHECKED: Final = (
    "not checked: that the rows came from running this plan, that its key was kept secret, that a ledger was "
    "charged, and the planner's predictions and picture, if there are any"
)
_MODEL_UNCHECKED: Final = (
    "not checked: that the weights came from running this plan, that its key was kept secret, that a ledger was "
    "charged, that what it calls public data is public, and other files in the folder"
)
_FITTED_UNCHECKED: Final = (
    "not checked: that it was fitted on that release. A fitted model has no guarantee of its own: verify the release, "
    "whose guarantee is the model's too if it saw nothing else"
)


@dataclass(frozen=True)
class Checked:
    """A folder that holds.

    Attributes:
        subject: what it is.
        found: figures for machines.
        files: whose hashes were compared, in words; empty where there are none.
        unchecked: what this check leaves open.
        wanted: a model that its features need, from elsewhere.
        warnings: of the certificate.
    """

    subject: Subject
    found: dict[str, Any]
    files: str
    unchecked: str
    wanted: str | None
    warnings: tuple[str, ...] = ()


def check_folder(folder: Path) -> Checked:
    """Verify a release, a trained model or a model fitted on a release.

    Raises:
        InvalidInput: something does not hold.
        StorageError: a file is missing or can't be read.
    """
    if is_trained_model(folder):
        trained = verify_trained(folder)
        wanted = wanted_model(load_trained(folder).facts_.extractor)
        files = "weights and certificate"
        return Checked(Subject.of(trained), dict(vars(trained)), files, _MODEL_UNCHECKED, wanted, trained.warnings)
    if (folder / _MODEL).is_file() and not (folder / _CERTIFICATE).exists():
        facts = load_model(folder).facts_
        subject, found = Subject("fitted-model", facts.release_id), {"fitted_on": facts.release_id}
        return Checked(subject, found, "", _FITTED_UNCHECKED, wanted_model(facts.extractor))
    released = verify_release(folder)
    wanted = wanted_model(read_certificate(folder)["extractor"])
    files = f"{released.files} files"
    return Checked(Subject.of(released), dict(vars(released)), files, _RELEASE_UNCHECKED, wanted, released.warnings)


def remembered(found: list[Checked]) -> Callable[[Path], Subject]:
    """:func:`check_folder` for signatures; what it found is put into the list, for printing."""

    def check(folder: Path) -> Subject:
        found.append(check_folder(folder))
        return found[-1].subject

    return check
