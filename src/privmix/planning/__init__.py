"""The planner: which design, at which settings and with which learner, is expected to serve best. Reads no record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privmix._lazy import lazily

if TYPE_CHECKING:
    from privmix.planning.choice import Choice
    from privmix.planning.config import ReleaseConfig
    from privmix.planning.planner import choose_design, predict_accuracy
else:
    __getattr__, __dir__ = lazily(__name__)

__all__ = ["Choice", "ReleaseConfig", "choose_design", "predict_accuracy"]
