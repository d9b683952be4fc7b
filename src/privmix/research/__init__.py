"""Research: reproductions of papers and studies of attacks, on privmix's public names and entry points alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privmix.plugins import lazily

if TYPE_CHECKING:
    from privmix.research.collapse.verb import measure_collapse
    from privmix.research.curvature.job import sharpness
    from privmix.research.inversion.verb import invert
    from privmix.research.poisoning.verb import poison
    from privmix.research.synthesis.verb import synthesise
else:
    __getattr__, __dir__ = lazily(__name__)

__all__ = ["invert", "measure_collapse", "poison", "sharpness", "synthesise"]
