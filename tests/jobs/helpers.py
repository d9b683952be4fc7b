"""A release, a model fitted on it and a trained model of the same 300 digits, for the tests of what measures them."""

from __future__ import annotations

from pathlib import Path

import privmix as pm
from tests.cli.training import train, write_all


def write_targets(root: Path) -> None:
    """``own``, ``REL``, ``FIT`` and ``MODEL`` in the current folder, which is ``root``."""
    write_all(root)
    design = pm.designs.Poisson(mixup_degree=8)
    pm.release("own", classes=10, epsilon=8, delta=1e-4, design=design, centre="none", out="REL")
    pm.fit("REL").save("FIT")
    assert train().code == 0
