"""What every attack and every defence keeps to, whichever file it comes from."""

import numpy as np
import pytest

from privmix._registry import literals_of
from privmix.errors import InvalidInput
from privmix.research.poisoning.base import (
    ATTACKS,
    DEFENCES,
    Attack,
    Case,
    Defence,
    DefenceFilter,
    parse_attack,
    parse_defence,
)
from tests.research.poisoning.scenes import scene

# Settings under which an attack is quick; the others have quick defaults, or none.
QUICK: dict[str, str] = {"gradient-matching": "gradient-matching:16,10,1,1"}
BUDGET = 4


@pytest.fixture(params=list(ATTACKS))
def attack(request: pytest.FixtureRequest) -> Attack:
    return parse_attack(QUICK.get(request.param, request.param))


@pytest.fixture(params=list(DEFENCES))
def defence(request: pytest.FixtureRequest) -> Defence:
    return parse_defence(request.param)


def test_an_attack_stays_within_its_threat_model_and_repeats_itself(attack: Attack) -> None:
    trial = scene(transfer=attack.setting == "transfer")
    clean = trial.train.pixels.copy()
    threat = attack.threat(trial, BUDGET, knows_defence=False)
    assert (threat.records, threat.knows_defence) == (BUDGET, False)
    made = attack.craft(trial, threat, None)
    # Raises unless all is within the limits.
    threat.check(trial.train, made)
    assert np.array_equal(trial.train.pixels, clean)
    assert made.records.shape == trial.train.shape
    assert made.records.pixels.dtype == np.float32
    assert 0 <= made.records.pixels.min() <= made.records.pixels.max() <= 1
    # Who is asked for was drawn before the attack, and is no image of the class that is wanted.
    assert len(made.goals) >= 1
    assert set(made.goals.labels) == {trial.wanted}
    again = attack.craft(scene(transfer=attack.setting == "transfer"), threat, None)
    for one, two in ((made.records, again.records), (made.goals, again.goals)):
        assert np.array_equal(one.pixels, two.pixels)
        assert np.array_equal(one.labels, two.labels)
    assert np.array_equal(made.indices, again.indices)


def test_an_attack_refuses_budgets_that_it_can_not_spend(attack: Attack) -> None:
    trial = scene(transfer=attack.setting == "transfer")
    for records in (0, -1, 2.5):
        with pytest.raises(InvalidInput):
            attack.threat(trial, records, knows_defence=False)  # type: ignore[arg-type]
    said = ""
    try:
        assert attack.threat(trial, len(trial.train) + 1, knows_defence=False).how == "inserted"
    except InvalidInput as error:
        said = str(error)
    # Of the owner's records no number is printed.
    assert not any(f" {count} " in said for count in np.bincount(trial.train.labels) if count > BUDGET)


def test_a_defence_trains_and_repeats_itself(defence: Defence) -> None:
    trial = scene()
    defence.check(trial.train)
    made = [defence.train(Case(trial.train, scene(), BUDGET)) for _ in range(2)]
    first, second = (one.model.predict(trial.test.pixels) for one in made)
    assert first.shape == (len(trial.test),)
    assert first.dtype.kind == "i"
    assert 0 <= first.min() <= first.max() < 10
    assert np.array_equal(first, second)
    if isinstance(defence, DefenceFilter):
        assert made[0].kept is not None
        assert made[0].kept.shape == (len(trial.train),)
        assert made[0].kept.dtype == bool
        assert np.array_equal(made[0].kept, made[1].kept)


def test_what_a_defence_says_of_itself(defence: Defence) -> None:
    assert str(parse_defence(str(defence))) == str(defence)
    said = next(one for one in literals_of("privmix.research.poisoning.defences") if one["name"] == defence.name)
    assert said["about"] == defence.about
    trial = scene()
    if defence.guarantees is None:
        assert defence.bound(0.1, 1, "changed", trial.train) == 1
        return
    assert "epsilon" in defence.guarantees
    bounds = [defence.bound(0.1, count, "changed", trial.train) for count in (0, 1, 2, 30)]
    # Never below what happens without poison, and larger with more of it.
    assert bounds == sorted(bounds)
    assert bounds[0] >= 0.1
    assert bounds[0] == pytest.approx(0.1, abs=1e-4)
    assert bounds[-1] <= 1


def test_bounds_are_concave_so_that_they_hold_for_means_over_trials(defence: Defence) -> None:
    """The mean of bounds is at most the bound of the mean: one bound for trials whose scenes are drawn."""
    if defence.guarantees is None:
        pytest.skip("bounds nothing")
    train = scene().train
    for poisoned in (1, 3):
        bounds = [defence.bound(share, poisoned, "changed", train) for share in np.linspace(0, 1, 21)]
        assert np.all(np.diff(bounds) >= -1e-9)
        assert np.all(np.diff(bounds, 2) <= 1e-6)
