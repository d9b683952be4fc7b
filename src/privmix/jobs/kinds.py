"""Kinds of folders, by certificate, and the functions for each kind."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from privmix.certificate.certificate import CERTIFICATE_FILE, MODEL, RELEASE, Certificate
from privmix.certificate.certificate import read_certificate as read_any
from privmix.certificate.verification import Verification
from privmix.mechanisms.plan import Plan
from privmix.progress import Progress, silent

FITTED: Final = "fitted-model"


class VerifyFunction(Protocol):
    """How a folder is verified: every byte, the price recomputed."""

    def __call__(self, folder: str | Path, progress: Progress = silent, /) -> Verification: ...


# Each function imports for itself: a training's modules import torch, and verification imports SciPy.


def _read_release(folder: str | Path) -> Certificate:
    from privmix.releases.certificate import read_certificate

    return read_certificate(folder)


def _read_model(folder: str | Path) -> Certificate:
    from privmix.training.certificate import read_certificate

    return read_certificate(folder)


def _verify_release(folder: str | Path, progress: Progress = silent, /) -> Verification:
    from privmix.releases.verify import verify_release

    return verify_release(folder, progress)


def _verify_model(folder: str | Path, progress: Progress = silent, /) -> Verification:
    from privmix.training.verify import verify_trained

    # Its weights are few, and no noise in them can be tested.
    del progress
    return verify_trained(folder)


def _plan_of_release(certificate: Mapping[str, Any]) -> Plan:
    from privmix.plans.named import plan_from_dict

    return plan_from_dict(certificate["plan"])


def _plan_of_model(certificate: Mapping[str, Any]) -> Plan:
    from privmix.training.verify import plan_of

    return plan_of(certificate)


@dataclass(frozen=True)
class CertifiedKind:
    """Functions for every certified folder: `read` checks the shape alone, `verify` every byte and the price."""

    read: Callable[[str | Path], Certificate]
    verify: VerifyFunction
    plan: Callable[[Mapping[str, Any]], Plan]


KINDS: Final[Mapping[str, CertifiedKind]] = {
    RELEASE: CertifiedKind(_read_release, _verify_release, _plan_of_release),
    MODEL: CertifiedKind(_read_model, _verify_model, _plan_of_model),
}


def kind_of(folder: str | Path) -> str | None:
    """Return ``"release"`` or ``"model"``, by the certificate; ``"fitted-model"``; or None where it is neither."""
    if os.path.lexists(Path(folder) / CERTIFICATE_FILE):
        return read_any(folder).kind
    # Learners import scikit-learn, which users of a certificate need not wait for.
    from privmix.learning.model_io import is_fitted_model

    return FITTED if is_fitted_model(folder) else None


def certified(folder: str | Path) -> CertifiedKind:
    """Return the kind of a folder with a certificate."""
    return KINDS[read_any(folder).kind]
