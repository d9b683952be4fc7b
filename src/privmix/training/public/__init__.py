"""Public data in training: warm-up, and methods with public gradients in private steps (Park et al. 2024)."""
# No part reads private records. Results depend on public data, public seeds and released weights: no privacy cost.

from typing import TYPE_CHECKING

from privmix._lazy import lazily

if TYPE_CHECKING:
    from privmix.training.public.base import METHODS, ExtendedMethod, method_names, parse_method
    from privmix.training.public.config import ExtendedConfig, Scenario, WarmUpConfig
    from privmix.training.public.extended import AdaDps, DopeSgd, MirrorDescent, WeightMultiplicity
    from privmix.training.public.gradients import PublicGradients, public_gradient
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
