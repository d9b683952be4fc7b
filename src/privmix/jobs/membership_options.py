"""What is asked of membership inference, option by option; importing this takes no time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privmix.attacks.defaults import ATTACKS
from privmix.jobs.asked import told


@dataclass(frozen=True, kw_only=True)
class MembershipOptions:
    """How membership inference goes.

    Attributes:
        members: split that the model was made of.
        nonmembers: split of the same kind that it was not made of.
        held_out: non-members in a dataset of their own, in place of a split: in a file or in memory.
        attacks: which, as a list or with commas: loss, lira, rmia; all but loss need references.
        references: reference models to make; each is a release and a fit, or a training run.
        release: the release that the model was fitted on; references are made by its plan.
        work: private folder for finished references: the same call goes on with what is there.
        confidence: of all intervals.
        highest: members at the highest risk to list, for the owner.
        public_data: the data are public: single records are not listed.
    """

    members: str = told("train", "Split that the model was made of.")
    nonmembers: str = told("test", "Split of the same kind that it was not made of.")
    held_out: Any = told(None, "Dataset that the non-members are in, where it is another than the members'.")
    attacks: str | Sequence[str] = told(
        "loss", f"Which, with commas: {', '.join(ATTACKS)}. All but loss need references.", flag="attack"
    )
    references: int = told(16, "Reference models to make; each is a release and a fit, or a training run.")
    release: str | Path | None = told(None, "Release that the model was fitted on; references are made by its plan.")
    work: str | Path | None = told(
        None, "Private folder for finished references: the same command goes on with what is there."
    )
    confidence: float = told(0.95, "Of all intervals.")
    highest: int = told(10, "Members at the highest risk to list, for the owner.")
    public_data: bool = told(False, "The data are public: single records are not listed.")
