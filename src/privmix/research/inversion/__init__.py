"""Model inversion: which images an attacker gets out of released rows (He et al. 2019; Li et al. 2022, appendix G)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privmix.plugins import lazily

if TYPE_CHECKING:
    from privmix.research.inversion.job import InversionResult
    from privmix.research.inversion.search import InversionConfig, MixedFeatures, invert
    from privmix.research.inversion.study import STATEMENTS, InversionCase, InversionStudy, case_name, study_inversion
else:
    __getattr__, __dir__ = lazily(__name__)

__all__ = [
    "STATEMENTS",
    "InversionCase",
    "InversionConfig",
    "InversionResult",
    "InversionStudy",
    "MixedFeatures",
    "case_name",
    "invert",
    "study_inversion",
]
