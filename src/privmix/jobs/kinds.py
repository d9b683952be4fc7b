"""Kinds of folders, by certificate, and the functions for each kind."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from privmix import plans, releases, training
from privmix.certificate import Certificate, Verification
from privmix.certificate import read_certificate as read_any
from privmix.certificate.certificate import CERTIFICATE_FILE, MODEL, RELEASE
from privmix.mechanisms.plan import Plan
from privmix.progress import Progress, silent

FITTED: Final = "fitted-model"


class VerifyFunction(Protocol):
    """How a folder is verified: every byte, the price recomputed."""

    def __call__(self, folder: str | Path, progress: Progress = silent, /) -> Verification: ...


def _verify_model(folder: str | Path, progress: Progress = silent, /) -> Verification:
    # Its weights are few, and no noise in them can be tested.
    del progress
    return training.verify_trained(folder)


@dataclass(frozen=True)
class CertifiedKind:
    """Functions for every certified folder: `read` checks the shape alone, `verify` every byte and the price."""

    read: Callable[[str | Path], Certificate]
    verify: VerifyFunction
    plan: Callable[[Mapping[str, Any]], Plan]


KINDS: Final[Mapping[str, CertifiedKind]] = {
    # Lambdas, since each function's module takes long to import: a training's modules import torch.
    RELEASE: CertifiedKind(
        lambda folder: releases.read_certificate(folder),
        lambda folder, progress=silent: releases.verify_release(folder, progress),
        lambda certificate: plans.plan_from_dict(certificate["plan"]),
    ),
    MODEL: CertifiedKind(
        lambda folder: training.read_certificate(folder), _verify_model, lambda found: training.plan_of(found)
    ),
}


def kind_of(folder: str | Path) -> str | None:
    """Return ``"release"`` or ``"model"``, by the certificate; ``"fitted-model"``; or None where it is neither."""
    if os.path.lexists(Path(folder) / CERTIFICATE_FILE):
        return read_any(folder).kind
    # Learners import scikit-learn, which users of a certificate need not wait for.
    from privmix.learning import is_fitted_model

    return FITTED if is_fitted_model(folder) else None


def certified(folder: str | Path) -> CertifiedKind:
    """Return the kind of a folder with a certificate."""
    return KINDS[read_any(folder).kind]
