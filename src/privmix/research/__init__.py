"""Research: what reproduces papers and studies attacks, and no release or training needs.

It lives on what privmix shows to every other package, and arrives by the entry points that others use: verbs, panels of
the report. privmix itself imports none of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from privmix.plugins import lazily

if TYPE_CHECKING:
    from privmix.research.attacks import attack
    from privmix.research.curvature.job import sharpness
    from privmix.research.synthesis.job import synthesise
else:
    __getattr__, __dir__ = lazily(__name__)

__all__ = ["attack", "sharpness", "synthesise"]
