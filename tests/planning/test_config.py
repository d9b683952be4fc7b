"""A mixup degree that is left to theory is a number before there is a plan, and a number of public facts alone."""

import math
from dataclasses import replace
from typing import Any

import pytest

from privmix.commands.account.account import Account, prices_of
from privmix.designs import Classwise, Fixed, Hierarchical
from privmix.errors import InvalidInput
from privmix.planning import ReleaseConfig
from privmix.planning.config import degree_by_theory
from privmix.planning.theory import best_mixup_degree
from privmix.plans.design import Design
from privmix.plans.registry import all_designs
from tests.refusals import refuses

RECORDS, EPSILON, DELTA = 1200, 2.0, 1e-4
CLASSES = ("ant", "bee", "cat")
MIXING = [kind for kind in all_designs() if "mixup_degree" in {option.name for option in kind.options()}]


def config(design: Design[Any] | str = "poisson", **changes: Any) -> ReleaseConfig:
    return ReleaseConfig(**{"records": RECORDS, "dim": 7, "classes": CLASSES, "design": design, **changes})  # type: ignore[arg-type]


def planned(made: ReleaseConfig, epsilon: float = EPSILON, delta: float = DELTA) -> Any:
    return made.calibrate(epsilon, delta)


def degree(made: ReleaseConfig, **target: float) -> int:
    return int(planned(made, **target).mixup_degree)


@pytest.mark.parametrize("kind", MIXING, ids=lambda kind: kind.name)
def test_the_plan_is_that_of_the_number(kind: type[Design[Any]]) -> None:
    """Every design with a mixup degree leaves it to theory by default, and plans as if the number had been given."""
    made = config(kind.name)
    assert made.design.largest_degree(made) is not None
    plan = planned(made)
    assert plan.mixup_degree == degree_by_theory(made, made.design, EPSILON, DELTA)
    assert plan == planned(config(kind.name, mixup_degree=plan.mixup_degree))
    assert 1 <= plan.mixup_degree <= RECORDS / 2
    assert plan.record_rate <= 0.5
    assert kind.plan_type.from_dict(plan.to_dict()) == plan


def test_it_is_the_degree_of_the_theory() -> None:
    assert degree(config()) == best_mixup_degree(RECORDS, RECORDS, 1, EPSILON, DELTA).mixup_degree
    # Features do not enter the theory's choice: so many of them have the same best degree.
    assert degree(config()) == best_mixup_degree(RECORDS, RECORDS, 200, EPSILON, DELTA).mixup_degree
    # Li et al. 2022, Corollary 3.2: of the order n / sqrt(T), here with noise by PLD.
    few, many = degree(config(rows=RECORDS)), degree(config(rows=8 * RECORDS))
    assert few / many == pytest.approx(math.sqrt(8), rel=0.4)


@pytest.mark.parametrize(
    "changes",
    [
        {"dim": 900},
        {"centre": "none"},
        {"clip_norm": 3.0},
        {"records_declared": True},
        {"records_noise_multiplier": 50.0},
        {"classes": tuple("0123456789")},
        {"residual_clip_norm": 0.3},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_nothing_but_records_rows_and_target_decides(changes: dict[str, Any]) -> None:
    assert degree(config(**changes)) == degree(config())


def test_more_budget_and_more_records_take_a_larger_degree() -> None:
    assert degree(config()) < min(degree(config(), epsilon=8.0), degree(config(records=4 * RECORDS)))


def test_small_classes_bound_the_degree() -> None:
    """Half of those who may join a row, however much theory asks for."""
    names = tuple(map(str, range(120)))
    for design in (Classwise(), Hierarchical(expected_classes=1.0)):
        made = config(design, classes=names)
        assert degree(made, epsilon=8.0) == design.largest_degree(made) == 5
        assert degree(config(), epsilon=8.0) > 5
    # One record a class: any degree is too many for half of it, and the least there is stays.
    assert Classwise().largest_degree(config(Classwise(), records=120, classes=names)) == 1


@pytest.mark.parametrize(("records", "rows"), [(1, 5), (2, 2), (2, 50), (3, 3), (1437, 1437)])
def test_few_records_have_a_degree_too(records: int, rows: int) -> None:
    assert 1 <= degree(config(records=records, rows=rows), epsilon=1.0) <= max(1, records // 2)


def test_pure_privacy_has_a_degree_of_its_own_price() -> None:
    def relative(m: int) -> float:
        noise: float = planned(config(Fixed(m, noise="laplace")), delta=0).noise_multiplier
        return noise / math.sqrt(m * (1 - m / RECORDS))

    found = degree(config(Fixed(noise="laplace")), delta=0)
    assert relative(found) == min(relative(2**power) for power in range(10))


def test_there_is_no_degree_without_a_target() -> None:
    with refuses("mixup_degree"):
        config().with_noise(1.0)
    assert config(mixup_degree=8).with_noise(1.0).mixup_degree == 8  # type: ignore[attr-defined]
    # The relation shows without one, and full batches have no degree to choose.
    assert config().draft().adjacency is config(mixup_degree=8).with_noise(1.0).adjacency
    assert Classwise(full_batch=True).largest_degree(config()) is None
    assert config(Classwise(full_batch=True)).with_noise(1.0).mixup_degree == RECORDS // 3  # type: ignore[attr-defined]


@pytest.mark.parametrize("given", ["theory", "64", 0, -1, 1.5, None, True, RECORDS + 1])
def test_other_words_are_refused(given: Any) -> None:
    with refuses("mixup_degree"):
        config(mixup_degree=given)


def test_what_account_prices_is_what_release_plans() -> None:
    asked = Account(records=RECORDS, epsilon=EPSILON, delta=DELTA)
    assert prices_of(asked).found[0]["noise_multiplier"] == planned(config(centre="none")).noise_multiplier
    with refuses("mixup_degree"):
        prices_of(replace(asked, epsilon=None, noise_multiplier=1.0))


@pytest.mark.parametrize("design", ["moments", "poisson", "fixed"])
def test_a_sketch_has_about_the_noise_and_claims_nothing(design: str) -> None:
    """It serves pictures: without a target it can't be released (``Plan.priced`` is what gives one)."""
    made = config(design, **({} if design == "moments" else {"mixup_degree": 8}))
    plan = made.sketch(EPSILON, DELTA)
    assert (plan.epsilon, plan.delta) == (None, None)
    assert plan.noise_multiplier == pytest.approx(planned(made).noise_multiplier, rel=0.03)
    with pytest.raises(InvalidInput):
        made.sketch(0.0, DELTA)
    # A count that has cost all of the budget leaves nothing that noise could meet.
    with pytest.raises(InvalidInput):
        config(design, records_noise_multiplier=0.01).sketch(EPSILON, DELTA)


NEAR = math.sqrt(0.3 / 0.55)


@pytest.mark.parametrize(
    ("bound", "epsilon", "noise"),
    [(0.55, 1, 20), (1.0, 1, 20), (0.3, 1, 20 * NEAR), (0.3, 8, 4), (0.001, 1, 20 * NEAR), (0.001, 0.1, 200 * NEAR)],
)
def test_records_that_are_clipped_nearer_to_the_mean_have_a_better_one(
    bound: float, epsilon: float, noise: float
) -> None:
    assert planned(config(residual_clip_norm=bound, mixup_degree=8), epsilon).centre_noise_multiplier == pytest.approx(
        noise
    )
