"""Designs that others published, with valid bounds, to compare with: DP-MERF, DP-HP, and Gaussian Mixing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privmix.plugins import lazily

if TYPE_CHECKING:
    from privmix.research.rivals.embedding.hermite import Hermite, HermitePlan
    from privmix.research.rivals.embedding.learner import ClassEmbeddingClassifier
    from privmix.research.rivals.embedding.merf import Merf, MerfPlan
    from privmix.research.rivals.embedding.plan import EmbeddingPlan
    from privmix.research.rivals.gaussian_mixing.plan import GaussianMixing, GaussianMixingPlan
else:
    __getattr__, __dir__ = lazily(__name__)

__all__ = [
    "ClassEmbeddingClassifier",
    "EmbeddingPlan",
    "GaussianMixing",
    "GaussianMixingPlan",
    "Hermite",
    "HermitePlan",
    "Merf",
    "MerfPlan",
]
