"""What a folder is, by its certificate, and what is done with each kind."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from privmix import training
from privmix.certificate import Certificate, Verification
from privmix.certificate import read_certificate as read_any
from privmix.certificate.certificate import CERTIFICATE_FILE, MODEL, RELEASE
from privmix.mechanisms.plan import Plan
from privmix.plans import plan_from_dict
from privmix.progress import Progress, silent
from privmix.releases import verify_release
from privmix.releases.certificate import read_certificate as read_release

FITTED: Final = "fitted-model"


class Verify(Protocol):
    """How a folder is verified: every byte, the price recomputed."""

    def __call__(self, folder: str | Path, progress: Progress = silent, /) -> Verification: ...


def _verify_model(folder: str | Path, progress: Progress = silent, /) -> Verification:
    # Its weights are few, and no noise in them can be tested.
    del progress
    return training.verify_trained(folder)


@dataclass(frozen=True)
class Kind:
    """What can be asked of every certified folder.

    Attributes:
        read: its certificate, its shape checked.
        verify: every byte, the price recomputed.
        plan: in a certificate.
    """

    read: Callable[[str | Path], Certificate]
    verify: Verify
    plan: Callable[[Mapping[str, Any]], Plan]


KINDS: Final[Mapping[str, Kind]] = {
    RELEASE: Kind(read_release, verify_release, lambda certificate: plan_from_dict(certificate["plan"])),
    # A training's modules take torch, which nobody with a release waits for.
    MODEL: Kind(lambda folder: training.read_certificate(folder), _verify_model, lambda found: training.plan_of(found)),
}


def kind_of(folder: str | Path) -> str | None:
    """``"release"`` or ``"model"``, as its certificate says; ``"fitted-model"``; or None where it is neither.

    Raises:
        InvalidInput: there is a certificate, and it is damaged, edited or of another version.
        StorageError: it can't be read.
    """
    if os.path.lexists(Path(folder) / CERTIFICATE_FILE):
        return read_any(folder).kind
    # Learners take scikit-learn, whose import nobody with a certificate waits for.
    from privmix.learning import is_fitted_model

    return FITTED if is_fitted_model(folder) else None


def certified(folder: str | Path) -> Kind:
    """The kind of a folder with a certificate.

    Raises:
        InvalidInput: the certificate is damaged, edited or of another version.
        StorageError: there is none, or it can't be read.
    """
    return KINDS[read_any(folder).kind]
