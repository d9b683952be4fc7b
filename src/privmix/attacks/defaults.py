"""What attacks do where nothing else is asked; importing this takes no time."""

from __future__ import annotations

from typing import Final

RUNS: Final = 10_000
CONFIDENCE: Final = 0.95

LOSS: Final = "loss"
ATTACKS: Final = (LOSS, "lira", "lira-offline", "rmia", "rmia-offline")
"""On membership; all but the loss need reference models."""

STEPS: Final = 500
"""Of an inversion, at these mixup degrees and budgets."""
DEGREES: Final = "1,4,8,16,64"
EPSILONS: Final = "none,8,1"
DELTA: Final = 1e-5
