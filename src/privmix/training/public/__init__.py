"""Public data in training: warm-up, and the methods that use public gradients in private steps (Park et al. 2024).

Nothing in this package reads private records. What it computes depends on public data, on seeds that are public, and
on weights, which are released; so it adds nothing to the privacy cost of a run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from privmix._lazy import lazily

if TYPE_CHECKING:
    from privmix.training.public.base import METHODS, ExtendedMethod, method_names, parse_method
    from privmix.training.public.config import ExtendedConfig, Scenario, WarmUpConfig
    from privmix.training.public.extended import AdaDps, DopeSgd, MirrorDescent
    from privmix.training.public.gradients import PublicGradients, public_gradient
    from privmix.training.public.multiplicity import WeightMultiplicity
    from privmix.training.public.registry import Combined, build_method
    from privmix.training.public.scenario import PublicUse, plan_public_use
    from privmix.training.public.warmup import warm_up
else:
    __getattr__, __dir__ = lazily(__name__)

__all__ = [
    "METHODS",
    "AdaDps",
    "Combined",
    "DopeSgd",
    "ExtendedConfig",
    "ExtendedMethod",
    "MirrorDescent",
    "PublicGradients",
    "PublicUse",
    "Scenario",
    "WarmUpConfig",
    "WeightMultiplicity",
    "build_method",
    "method_names",
    "parse_method",
    "plan_public_use",
    "public_gradient",
    "warm_up",
]
