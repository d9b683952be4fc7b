"""The planner: which design, at which settings and with which learner, is expected to serve best. Reads no record."""

from typing import TYPE_CHECKING

from privmix._lazy import lazily

if TYPE_CHECKING:
    from privmix.planning.choice import PlannerChoice
    from privmix.planning.config import ReleaseConfig
    from privmix.planning.planner import choose_design, predict_accuracy
else:
    __getattr__, __dir__ = lazily(__name__)

__all__ = ["PlannerChoice", "ReleaseConfig", "choose_design", "predict_accuracy"]
