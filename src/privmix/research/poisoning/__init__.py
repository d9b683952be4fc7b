"""Poisoning: what an attacker who controls some training records reaches against mixing, noise, filters and guarantees.

An attack makes poisoned records within a threat model; a defence makes a model of records that may be poisoned; trials,
paired by seed, count how often the attacker gets what it wants, beside what the defence's guarantee allows at most.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from privmix.plugins import lazily

if TYPE_CHECKING:
    from privmix.research.poisoning.base import (
        ATTACKS,
        DEFENCES,
        Attack,
        Augmentation,
        Case,
        Defence,
        Defended,
        Filter,
        Joined,
        parse_attack,
        parse_defence,
    )
    from privmix.research.poisoning.images import Images, Poisoned
    from privmix.research.poisoning.job import OWN_ONLY, STATEMENTS, Poisoning, PoisoningJob
    from privmix.research.poisoning.kept import Trial
    from privmix.research.poisoning.scene import Scene
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
    "Augmentation",
    "Case",
    "Defence",
    "Defended",
    "Filter",
    "Images",
    "Joined",
    "Poisoned",
    "Poisoning",
    "PoisoningJob",
    "PoisoningResult",
    "Scene",
    "ThreatModel",
    "TrainedNetwork",
    "Trial",
    "TrialConfig",
    "Victim",
    "VictimConfig",
    "parse_attack",
    "parse_defence",
    "run_trials",
]
