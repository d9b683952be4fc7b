"""Designs: the ways to release records, a folder a family."""

from typing import TYPE_CHECKING

from privmix._lazy import lazily

if TYPE_CHECKING:
    from privmix.designs.corrected.plan import CorrectedMoments, CorrectedPlan
    from privmix.designs.moments.plan import ClassMoments, ClassMomentsPlan, Moments, MomentsPlan
    from privmix.designs.rows.classwise import Classwise
    from privmix.designs.rows.fixed import Fixed, RandomWeight
    from privmix.designs.rows.hierarchical import Hierarchical
    from privmix.designs.rows.poisson import Allocation, Poisson
    from privmix.designs.series.plan import MomentsSeries, SeriesPlan
    from privmix.designs.stages.three_plan import ThreeStage, ThreeStagePlan
    from privmix.designs.stages.two_plan import TwoStage, TwoStagePlan
else:
    __getattr__, __dir__ = lazily(__name__)

__all__ = [
    "Allocation",
    "ClassMoments",
    "ClassMomentsPlan",
    "Classwise",
    "CorrectedMoments",
    "CorrectedPlan",
    "Fixed",
    "Hierarchical",
    "Moments",
    "MomentsPlan",
    "MomentsSeries",
    "Poisson",
    "RandomWeight",
    "SeriesPlan",
    "ThreeStage",
    "ThreeStagePlan",
    "TwoStage",
    "TwoStagePlan",
]
