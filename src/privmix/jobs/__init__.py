"""Jobs: what a user asks for, from the question to the answer; the command line and Python run the same ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privmix._lazy import lazily

if TYPE_CHECKING:
    from privmix.jobs import (
        attack,
        audit,
        audited,
        budget,
        canaries,
        checking,
        checks,
        collapse,
        comparison,
        dataset,
        evaluation,
        features,
        fitting,
        guarantee,
        inversion,
        membership,
        models,
        overlap,
        places,
        progress,
        public_data,
        recording,
        release,
        report,
        training_options,
    )
else:
    __getattr__, __dir__ = lazily(__name__)

__all__ = [
    "attack",
    "audit",
    "audited",
    "budget",
    "canaries",
    "checking",
    "checks",
    "collapse",
    "comparison",
    "dataset",
    "evaluation",
    "features",
    "fitting",
    "guarantee",
    "inversion",
    "membership",
    "models",
    "overlap",
    "places",
    "progress",
    "public_data",
    "recording",
    "release",
    "report",
    "training_options",
]
