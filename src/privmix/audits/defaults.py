"""Default settings of attacks; importing this module takes no time."""

from typing import Final

RUNS: Final = 10_000
CONFIDENCE: Final = 0.95

LOSS: Final = "loss"
ATTACKS: Final = (LOSS, "lira", "lira-offline", "rmia", "rmia-offline")
"""On membership; all but the loss need reference models."""
