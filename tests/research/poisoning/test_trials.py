"""Trials are paired, counted right and go on after a kill; and nothing that does nothing looks like something."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from privmix.audits.bounds import clopper_pearson
from privmix.errors import InvalidInput
from privmix.research.poisoning.base import (
    Attack,
    Case,
    Defence,
    DefenceAugmentation,
    Defended,
    parse_attack,
    parse_defence,
)
from privmix.research.poisoning.images import Poisoned, VictimImages
from privmix.research.poisoning.kept import Trial
from privmix.research.poisoning.order import check_order, compare
from privmix.research.poisoning.scene import PoisoningScene
from privmix.research.poisoning.threat import ThreatModel
from privmix.research.poisoning.trials import PoisoningResult, TrialConfig, run_trials
from privmix.research.poisoning.victims.ordinary import Victim
from tests.refusals import refuses
from tests.research.poisoning.scenes import QUICK, digits, scene

VICTIM = Victim(QUICK)


@dataclass(frozen=True)
class Idle(DefenceAugmentation):
    """Changes nothing."""

    name: ClassVar[str] = "idle"
    about: ClassVar[str] = "nothing"


@dataclass(frozen=True)
class Powerless(Attack):
    """Controls records and leaves them as they are."""

    name: ClassVar[str] = "powerless"
    about: ClassVar[str] = "nothing"
    adapts: ClassVar[bool] = True
    seen: list[tuple[PoisoningScene, Defence | None]] = field(
        default_factory=list, init=False, repr=False, compare=False
    )

    def threat(self, scene: PoisoningScene, records: int, *, knows_defence: bool) -> ThreatModel:
        return ThreatModel(records, knows_defence=knows_defence)

    def craft(self, scene: PoisoningScene, threat: ThreatModel, defence: Defence | None) -> Poisoned:
        self.seen.append((scene, defence))
        return Poisoned(scene.train, np.arange(threat.records), scene.targets)


@dataclass(frozen=True)
class Coin:
    """A model that says class 0, or the wanted one."""

    label: int

    def predict(self, pixels: NDArray[np.float32]) -> NDArray[np.int64]:
        return np.full(len(pixels), self.label)


@dataclass(frozen=True)
class Toss(Defence):
    """Trains nothing: the attack succeeds in the trials in ``falls``, and never without poison."""

    falls: tuple[int, ...] = ()
    promise: bool = False
    name: ClassVar[str] = "toss"
    about: ClassVar[str] = "luck"
    calls: list[int] = field(default_factory=list, init=False, repr=False, compare=False)

    def train(self, case: Case) -> Defended:
        seed, number = case.scene.seed
        self.calls.append(number)
        # No defender knows the classes; this one draws them anew.
        known = PoisoningScene.draw(digits("train", 200), digits("test", 100), VICTIM, seed=seed, number=number)
        return Defended(Coin(known.wanted if number in self.falls else known.source))

    @property
    def guarantees(self) -> str | None:
        return "a promise" if self.promise else None

    def bound(self, clean_success: float, poisoned: int, how: str, records: VictimImages) -> float:
        return min(1.0, clean_success * (1 + poisoned))


def run(attack: Attack, *defences: Defence, work: Path | None = None, **config: object) -> list[PoisoningResult]:
    settings = TrialConfig(**{"poisoned": 3, "trials": 6, **config})  # type: ignore[arg-type]
    return run_trials(attack, defences, digits("train", 200), digits("test", 100), VICTIM, settings, work=work)


@pytest.mark.parametrize("falls", [(), (0, 3), tuple(range(6))])
def test_successes_are_counted_with_clopper_and_pearsons_interval(falls: tuple[int, ...]) -> None:
    (found,) = run(Powerless(), Toss(falls), confidence=0.9)
    assert (found.successes, found.trials, found.poisoned_records) == (len(falls), 6, 3)
    assert found.interval == tuple(float(limit) for limit in clopper_pearson(len(falls), 6, (1 - 0.9) / 2))
    assert found.to_dict()["success_rate"] == found.success_rate == len(falls) / 6
    assert [one.success for one in found.outcomes] == [number in falls for number in range(6)]
    assert (found.certified_bound, found.guarantee, found.base_successes) == (1.0, None, None)


def test_a_bound_starts_from_the_upper_limit_of_the_success_without_poison() -> None:
    (found,) = run(Powerless(), Toss((1,), promise=True), trials=40)
    assert found.base_successes == 1
    assert found.certified_bound == pytest.approx(4 * clopper_pearson(1, 40, 0.05)[1])


def test_every_defence_and_attack_meets_the_same_scenes() -> None:
    attack, other = Powerless(), Powerless()
    run(attack, Toss(), replace(Toss(), falls=(1,)))
    run(other, Toss(), trials=3)
    # Made once a trial where the defence is not known, and for each defence where it is.
    assert [defence for _, defence in attack.seen] == [None] * 6
    for (one, _), (two, _) in zip(attack.seen, other.seen, strict=False):
        assert (one.wanted, one.source, one.drawn, one.seed) == (two.wanted, two.source, two.drawn, two.seed)
    adaptive = Powerless()
    run(adaptive, Toss(), replace(Toss(), falls=(1,)), trials=2, adaptive=True)
    assert [str(defence) for _, defence in adaptive.seen] == ["toss", "toss:(1,),False"] * 2


def test_a_killed_run_goes_on_wherever_it_was_killed(tmp_path: Path) -> None:
    falls = (0, 2)
    whole = run(Powerless(), Toss(falls, promise=True), trials=4, work=tmp_path / "work")
    (file,) = (tmp_path / "work").iterdir()
    assert file.stat().st_mode & 0o077 == (tmp_path / "work").stat().st_mode & 0o077 == 0
    lines = file.read_bytes().splitlines(keepends=True)
    assert len(lines) == 8
    for done in range(8):
        for cut in (0, 1, len(lines[done]) // 2, len(lines[done]) - 2, len(lines[done]) - 1):
            file.write_bytes(b"".join(lines[:done]) + lines[done][:cut])
            again = Toss(falls, promise=True)
            assert run(Powerless(), again, trials=4, work=tmp_path / "work") == whole
            # All but the line break is a whole trial.
            assert len(again.calls) == 8 - done - (cut == len(lines[done]) - 1)
            assert len([line for line in file.read_bytes().splitlines() if line.endswith(b"}")]) == 8


def test_kept_trials_count_for_the_same_study_only(tmp_path: Path) -> None:
    def trained(falls: tuple[int, ...] = (), **config: object) -> int:
        toss = Toss(falls)
        run(Powerless(), toss, work=tmp_path, **config)
        return len(toss.calls)

    tmp_path.chmod(0o755)
    with refuses("work"):
        trained()
    tmp_path.chmod(0o700)
    assert trained() == 6
    assert trained(trials=4) == trained(confidence=0.5) == 0
    # Some more of the same, a defence with other settings, and other studies.
    assert trained(trials=9) == 3
    assert trained((1,)) == trained(poisoned=4) == trained(seed=1) == trained(adaptive=True) == 6


# Planted failures. All seeds are fixed: what is said below holds each time, and is no matter of luck.


def test_doing_nothing_does_not_look_better_than_none() -> None:
    none, idle = run(parse_attack("patch-backdoor"), parse_defence("none"), Idle(), poisoned=10, trials=3)
    assert idle.outcomes == none.outcomes
    assert compare(idle, none).verdict == "equal"


def result(defence: str, *shares: float) -> PoisoningResult:
    trials = tuple(Trial(number, share > 0.5, share, 0.9) for number, share in enumerate(shares))
    return PoisoningResult("a", defence, "", 1, len(shares), 0, (0, 1), 0, 0, None, 1.0, None, 0, 0, trials)


def test_orders_are_judged_trial_by_trial() -> None:
    ten = range(10)
    worse, better = result("none", *(0.5 + one / 30 for one in ten)), result("mixup", *(0.4 + one / 30 for one in ten))
    (found,) = check_order([worse, better], {"none": 95, "mixup": 5, "cutmix": 1})
    assert (found.better, found.fewer, found.more, found.verdict) == ("mixup", 10, 0, "holds (p < 0.05)")
    assert found.p_value == pytest.approx(2 / 2**10)
    (found,) = check_order([worse, better], {"none": 5, "mixup": 95})
    assert found.verdict == "reversed (p < 0.05)"
    few = [result("none", 1, 1, 0), result("mixup", 0, 1, 0)]
    assert [one.verdict for one in check_order(few, {"none": 2, "mixup": 1})] == ["holds"]
    assert check_order(few, {"none": 1, "mixup": 1}) == []
    with pytest.raises(InvalidInput):
        compare(few[0], worse)


def test_a_defender_does_not_see_what_was_attacked() -> None:
    here = scene(records=60)
    case = Case(here.train.with_inserted(here.test.pixels[:5], here.test.labels[:5]), here, 5)
    assert (case.clean_records, len(case.records)) == (60, 65)
    assert case.scene.train is case.records
    assert (len(case.scene.test), case.scene.wanted, case.scene.source, case.scene.drawn) == (0, -1, -1, -1)
    assert case.scene.number_for("training") == here.number_for("training")


def test_more_than_a_guarantee_allows_is_said() -> None:
    for successes, bound, above in ((20, 0.5, True), (11, 0.5, False), (20, 1.0, False)):
        interval = clopper_pearson(successes, 20, 0.025)
        found = PoisoningResult("a", "b", "", 1, 20, successes, interval, 0, 0, 0, bound, "epsilon 1", 0, 0)
        assert found.above_bound == found.to_dict()["above_bound"] == above
