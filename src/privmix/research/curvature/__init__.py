"""How sharp the minimum is in which a trained model lies (Park et al. 2024, table 4): on public data alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privmix.plugins import lazily

if TYPE_CHECKING:
    from privmix.research.curvature.hessian import Curvature, curvature
    from privmix.research.curvature.job import SharpnessResult, sharpness
else:
    __getattr__, __dir__ = lazily(__name__)

__all__ = ["Curvature", "SharpnessResult", "curvature", "sharpness"]
