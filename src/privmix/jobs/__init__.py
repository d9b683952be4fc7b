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
        canary_options,
        checking,
        checks,
        collapse,
        columns,
        comparison,
        dataset,
        engines,
        evaluation,
        features,
        fitting,
        guarantee,
        inversion,
        membership,
        models,
        overlap,
        places,
        planned,
        planning,
        prediction,
        progress,
        public_data,
        recording,
        release,
        release_options,
        report,
        training,
        training_options,
        training_settings,
    )
else:
    __getattr__, __dir__ = lazily(__name__)

__all__ = [
    "attack",
    "audit",
    "audited",
    "budget",
    "canaries",
    "canary_options",
    "checking",
    "checks",
    "collapse",
    "columns",
    "comparison",
    "dataset",
    "engines",
    "evaluation",
    "features",
    "fitting",
    "guarantee",
    "inversion",
    "membership",
    "models",
    "overlap",
    "places",
    "planned",
    "planning",
    "prediction",
    "progress",
    "public_data",
    "recording",
    "release",
    "release_options",
    "report",
    "training",
    "training_options",
    "training_settings",
]
