"""Poisoning: attacks by some training records against mixing, noise, filters and guarantees, in paired trials."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privmix.plugins import lazily

if TYPE_CHECKING:
    from privmix.research.poisoning.base import (
        ATTACKS,
        DEFENCES,
        Attack,
        Case,
        Defence,
        DefenceAugmentation,
        DefenceFilter,
        Defended,
        Joined,
        parse_attack,
        parse_defence,
    )
    from privmix.research.poisoning.images import Poisoned, VictimImages
    from privmix.research.poisoning.job import OWN_ONLY, STATEMENTS, PoisoningJob, PoisoningResults
    from privmix.research.poisoning.kept import Trial
    from privmix.research.poisoning.scene import PoisoningScene
    from privmix.research.poisoning.threat import ThreatModel
    from privmix.research.poisoning.trials import PoisoningResult, TrialConfig, run_trials
    from privmix.research.poisoning.victims.ordinary import TrainedNetwork, Victim, VictimConfig
else:
    __getattr__, __dir__ = lazily(__name__)

__all__ = [
    "ATTACKS",
    "DEFENCES",
    "OWN_ONLY",
    "STATEMENTS",
    "Attack",
    "Case",
    "Defence",
    "DefenceAugmentation",
    "DefenceFilter",
    "Defended",
    "Joined",
    "Poisoned",
    "PoisoningJob",
    "PoisoningResult",
    "PoisoningResults",
    "PoisoningScene",
    "ThreatModel",
    "TrainedNetwork",
    "Trial",
    "TrialConfig",
    "Victim",
    "VictimConfig",
    "VictimImages",
    "parse_attack",
    "parse_defence",
    "run_trials",
]
