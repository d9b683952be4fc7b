"""Jobs: what a user asks for, from the question to the answer; the command line and Python run the same ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privmix._lazy import lazily

if TYPE_CHECKING:
    from privmix.jobs import (
        budget,
        checking,
        comparison,
        dataset,
        features,
        fitting,
        models,
        overlap,
        public_data,
        release,
    )
else:
    __getattr__, __dir__ = lazily(__name__)

__all__ = [
    "budget",
    "checking",
    "comparison",
    "dataset",
    "features",
    "fitting",
    "models",
    "overlap",
    "public_data",
    "release",
]
