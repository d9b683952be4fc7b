"""Trials of one attack against several defences: paired by seed, counted, resumable."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from privmix.audits.bounds import clopper_pearson
from privmix.errors import InvalidInput
from privmix.fields import Checked, Count, Share, Whole
from privmix.progress import Progress
from privmix.research.poisoning.base import Attack, Case, Defence
from privmix.research.poisoning.images import Poisoned, VictimImages
from privmix.research.poisoning.kept import KeptTrials, Trial
from privmix.research.poisoning.scene import PoisoningScene
from privmix.research.poisoning.threat import ThreatModel
from privmix.research.poisoning.victims.ordinary import Victim


@dataclass(frozen=True)
class TrialConfig(Checked):
    """Settings of a study of one attack; trial i of any attack and defence meets the same scene."""

    poisoned: Count = 10
    trials: Count = 20
    seed: Annotated[int, Whole(0, 2**32 - 1)] = 0
    adaptive: bool = False
    confidence: Share = 0.95


@dataclass(frozen=True)
class PoisoningResult:
    """An attack's result against one defence."""

    # successes: trials whose drawn input got the wanted class; interval: Clopper-Pearson; share: mean share of goal
    # inputs that got it. base_successes: without poison, where a guarantee needs it. certified_bound: with the
    # upper limit of the success without poison; 1.0 without a guarantee.
    attack: str
    defence: str
    threat: str
    poisoned_records: int
    trials: int
    successes: int
    interval: tuple[float, float]
    share: float
    accuracy: float
    base_successes: int | None
    certified_bound: float
    guarantee: str | None
    removed: float
    removed_poisoned: float
    outcomes: tuple[Trial, ...] = field(default=(), repr=False)
    success_means: str = ""

    @property
    def success_rate(self) -> float:
        return self.successes / self.trials

    @property
    def above_bound(self) -> bool:
        """Whether even the lower end of the interval is above the bound: hardly ever by chance."""
        return bool(self.interval[0] > self.certified_bound)

    def to_dict(self) -> dict[str, Any]:
        found = {**asdict(self), "interval": list(self.interval), "success_rate": self.success_rate}
        found["above_bound"] = self.above_bound
        return {**found, "outcomes": [asdict(one) for one in self.outcomes]}


def run_trials(
    attack: Attack,
    defences: Sequence[Defence],
    train: VictimImages,
    test: VictimImages,
    victim: Victim,
    config: TrialConfig,
    *,
    work: Path | None = None,
    progress: Progress | None = None,
) -> list[PoisoningResult]:
    """Attack and defend, trial by trial; one result per defence."""
    # Poisons made without knowing the defence are made once a trial and meet every defence. A defence with a
    # guarantee is trained without poison too: its bound starts from that success. `work` keeps finished trials.
    check_possible(attack, defences, train, test, victim, config)
    # A study of more trials, or of another confidence, goes on with the same ones.
    settings = {name: getattr(config, name) for name in ("poisoned", "seed", "adaptive")} | {"attack": repr(attack)}
    kept = KeptTrials(work, attack.name, settings, train, test, victim)
    done: dict[str, list[Trial]] = {str(one): [] for one in defences}
    base: dict[str, list[Trial]] = {str(one): [] for one in defences if one.guarantees}
    total = config.trials * len(defences)
    for number in range(config.trials):
        drawn = _Drawn(attack, PoisoningScene.draw(train, test, victim, seed=config.seed, number=number), config)
        for place, defence in enumerate(defences):
            if progress is not None:
                progress(f"trials ({attack} against {defence})", number * len(defences) + place, total)
            name = str(defence)
            done[name].append(kept.get(f"poisoned {defence!r} {number}", partial(drawn.against, defence, number)))
            if defence.guarantees:
                base[name].append(kept.get(f"clean {defence!r} {number}", partial(drawn.without, defence, number)))
    if progress is not None:
        progress("trials", total, total)
    threat = attack.threat(
        PoisoningScene.draw(train, test, victim, seed=config.seed, number=0),
        config.poisoned,
        knows_defence=config.adaptive,
    )
    return [summarise(attack, one, threat, done[str(one)], base.get(str(one)), config, train) for one in defences]


def check_possible(
    attack: Attack,
    defences: Sequence[Defence],
    train: VictimImages,
    test: VictimImages,
    victim: Victim,
    config: TrialConfig,
) -> None:
    """Raise InvalidInput, before anything is trained, if a trial could not be run."""
    if train.shape != test.shape or train.classes != test.classes:
        raise InvalidInput("test", f"{test.shape}, {test.classes} classes", f"{train.shape}, {train.classes} classes")
    if config.poisoned >= len(train):
        raise InvalidInput("poisoned", config.poisoned, f"fewer than the {len(train)} records")
    if config.adaptive and not attack.adapts:
        raise InvalidInput("adaptive", str(attack), "an attack that trains through the defence")
    for number in range(config.trials):
        scene = PoisoningScene.draw(train, test, victim, seed=config.seed, number=number)
        attack.threat(scene, config.poisoned, knows_defence=config.adaptive)
    for defence in defences:
        defence.check(train)
    names = [str(one) for one in defences]
    if len(set(names)) != len(names):
        raise InvalidInput("defence", ", ".join(names), "each defence once")


class _Drawn:
    """One trial's scene, and the poisons that are shared by defences."""

    def __init__(self, attack: Attack, scene: PoisoningScene, config: TrialConfig) -> None:
        self._attack, self._scene, self._config = attack, scene, config
        self._shared: tuple[Poisoned, Case] | None = None
        self._clean: Case | None = None

    def against(self, defence: Defence, number: int) -> Trial:
        poisoned, case = self._poisons(defence)
        return _measured(number, defence, case, poisoned.goals, self._scene.test, poisoned)

    def without(self, defence: Defence, number: int) -> Trial:
        poisoned, _ = self._poisons(defence)
        if self._clean is None:
            self._clean = Case(self._scene.train, self._scene, self._config.poisoned)
        return _measured(number, defence, self._clean, poisoned.goals, self._scene.test, None)

    def _poisons(self, defence: Defence) -> tuple[Poisoned, Case]:
        if self._config.adaptive:
            return self._made(defence)
        if self._shared is None:
            self._shared = self._made(None)
        return self._shared

    def _made(self, defence: Defence | None) -> tuple[Poisoned, Case]:
        scene, budget = self._scene, self._config.poisoned
        threat = self._attack.threat(scene, budget, knows_defence=defence is not None)
        poisoned = self._attack.craft(scene, threat, defence)
        threat.check(scene.train, poisoned)
        return poisoned, Case(poisoned.records, scene, budget)


def _measured(
    number: int, defence: Defence, case: Case, goals: VictimImages, test: VictimImages, poisoned: Poisoned | None
) -> Trial:
    defended = defence.train(case)
    got = defended.model.predict(goals.pixels) == goals.labels
    accuracy = float((defended.model.predict(test.pixels) == test.labels).mean())
    removed = np.zeros(0, np.int64) if defended.kept is None else np.flatnonzero(~defended.kept)
    caught = 0 if poisoned is None else len(np.intersect1d(removed, poisoned.indices))
    return Trial(number, bool(got[0]), float(got.mean()), accuracy, len(removed), caught)


def summarise(
    attack: Attack,
    defence: Defence,
    threat: ThreatModel,
    trials: Sequence[Trial],
    base: Sequence[Trial] | None,
    config: TrialConfig,
    train: VictimImages,
) -> PoisoningResult:
    successes = sum(one.success for one in trials)
    tail = (1 - config.confidence) / 2
    low, high = clopper_pearson(successes, len(trials), tail)
    bound, clean = 1.0, None
    if base is not None:
        clean = sum(one.success for one in base)
        _, highest = clopper_pearson(clean, len(base), 1 - config.confidence)
        bound = defence.bound(float(highest), config.poisoned, threat.how, train)
    mean = {name: float(np.mean([getattr(one, name) for one in trials])) for name in _MEANS}
    return PoisoningResult(
        str(attack),
        str(defence),
        threat.describe(),
        config.poisoned,
        len(trials),
        successes,
        (float(low), float(high)),
        base_successes=clean,
        certified_bound=bound,
        guarantee=defence.guarantees,
        outcomes=tuple(trials),
        success_means=threat.success,
        **mean,
    )


_MEANS = ("share", "accuracy", "removed", "removed_poisoned")
