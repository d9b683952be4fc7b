"""What is asked of membership inference, option by option; importing this takes no time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privmix.audits.defaults import ATTACKS
from privmix.options import described, option


@described
@dataclass(frozen=True, kw_only=True)
class MembershipOptions:
    """How membership inference goes."""

    members: str = option("train", "Split that the model was made of.")
    nonmembers: str = option("test", "Split of the same kind that it was not made of.")
    held_out: Any = option(None, "Dataset that the non-members are in, where it is another than the members'.")
    attacks: str | Sequence[str] = option(
        "loss", f"Which, with commas: {', '.join(ATTACKS)}. All but loss need references.", flag="attack"
    )
    references: int = option(16, "Reference models to make; each is a release and a fit, or a training run.")
    release: str | Path | None = option(None, "Release that the model was fitted on; references are made by its plan.")
    work: str | Path | None = option(
        None, "Private folder for finished references: the same command goes on with what is there."
    )
    confidence: float = option(0.95, "Of all intervals.")
    highest: int = option(10, "Members at the highest risk to list, for the owner.")
    public_data: bool = option(False, "The data are public: single records are not listed.")
