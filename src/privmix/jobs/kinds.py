"""Kinds of folders, by certificate, and what can be done with each kind."""

import os
from pathlib import Path
from typing import Final

from privmix.certificate.certificate import CERTIFICATE_FILE, MODEL, Certificate
from privmix.certificate.certificate import read_certificate as read_any
from privmix.certificate.verification import Verification
from privmix.mechanisms.plan import Plan
from privmix.progress import Progress, silent

FITTED: Final = "fitted-model"


def kind_of(folder: str | Path) -> str | None:
    """Return ``"release"`` or ``"model"``, by the certificate; ``"fitted-model"``; or None where it is neither."""
    # A link that leads nowhere is a certificate, too: its reader refuses it by name.
    if os.path.lexists(Path(folder) / CERTIFICATE_FILE):
        return read_any(folder).kind
    # Learners import scikit-learn, which users of a certificate need not wait for.
    from privmix.learning.model_io import is_fitted_model

    return FITTED if is_fitted_model(folder) else None


# Each branch imports for itself: a training's modules import torch, and verification imports SciPy.


def read_certified(folder: str | Path) -> Certificate:
    """Return the certificate of a release or trained model; its shape alone is checked."""
    if read_any(folder).kind == MODEL:
        from privmix.training.certificate import read_certificate as read_model

        return read_model(folder)
    from privmix.releases.certificate import read_certificate

    return read_certificate(folder)


def verify_certified(folder: str | Path, progress: Progress = silent) -> Verification:
    """Verify a release or trained model: every byte, the price recomputed."""
    if read_any(folder).kind == MODEL:
        # Its weights are few, and no noise in them can be tested: no progress.
        from privmix.training.verify import verify_trained

        return verify_trained(folder)
    from privmix.releases.verify import verify_release

    return verify_release(folder, progress)


def certified_plan(certificate: Certificate) -> Plan:
    if certificate.kind == MODEL:
        from privmix.training.verify import plan_of

        return plan_of(certificate)
    from privmix.plans.registry import plan_from_dict

    return plan_from_dict(certificate["plan"])
