"""Designs that others published, honestly priced, to compare with: DP-MERF, DP-HP, and Gaussian Mixing.

They come by entry points as any package's designs do, and are planned, released, verified, learnt from and audited by
their names. The planner does not take them by itself.
"""

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
