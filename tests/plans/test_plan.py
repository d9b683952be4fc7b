"""Plans are pure, safe and complete: the price follows from the very constants that the engine uses."""

import contextlib
import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privmix.accounting import Adjacency, Composed, Gaussian, Laplace, PoissonSampled, Repeated, epsilon
from privmix.errors import InvalidInput, PrivmixError
from privmix.planning import ReleaseConfig
from privmix.plans.registry import all_designs, plan_from_dict, takes_persons
from privmix.plans.rows import ReleasePlan
from tests.refusals import refuses
from tests.releases.helpers import ALL_DESIGNS, CLASSES, design_name, make_plan


@pytest.mark.parametrize("choices", ALL_DESIGNS, ids=design_name)
def test_the_event_prices_the_sampler_that_draws(choices: dict[str, Any]) -> None:
    plan = make_plan(**choices)
    # After the query of the mean.
    rest = plan.event.events[1:] if isinstance(plan.event, Composed) else (plan.event,)
    rows = rest[0] if len(rest) == 1 else Composed(rest)
    assert rows == plan.sampler.event(plan.row_query)
    assert plan.sampler.adjacency is plan.adjacency


def test_features_and_labels_are_one_query() -> None:
    plan = make_plan(label_noise_ratio=2.0)
    s_x, s_y = plan.feature_noise_multiplier, plan.label_noise_multiplier
    assert s_y == 2 * s_x
    assert 1 / s_x**2 + 1 / s_y**2 == pytest.approx(1 / plan.noise_multiplier**2)
    laplace = make_plan(design="fixed", noise="laplace", label_noise_ratio=2.0)
    joint = 1 / laplace.feature_noise_multiplier + 1 / laplace.label_noise_multiplier
    assert joint == pytest.approx(1 / laplace.noise_multiplier)


def test_the_mean_query_is_paid_for() -> None:
    plan = make_plan()
    assert isinstance(plan.event, Composed)
    assert Gaussian(plan.centre_noise_multiplier or 0) in plan.event.events
    assert plan.noise_multiplier > make_plan(centre="none").noise_multiplier


def test_label_bound_is_the_norm_of_a_centred_one_hot_label() -> None:
    for choices in ALL_DESIGNS:
        plan = make_plan(**choices)
        label = np.eye(len(CLASSES))[0] - plan.label_offset
        order = 1 if plan.noise == "laplace" else 2
        assert plan.label_bound == pytest.approx(np.linalg.norm(label, order) * (plan.max_weight or 1.0), rel=1e-12)
        assert (plan.label_offset * 2**plan.lattice_bits).is_integer()


def test_public_labels_need_no_noise() -> None:
    plan = make_plan(design="classwise", centre="none")
    assert plan.noise_std_y == 0
    assert plan.feature_noise_multiplier == plan.noise_multiplier


def test_classwise_record_touches_its_own_rows_only() -> None:
    plan = make_plan(design="classwise", rows=100, centre="none")
    assert plan.event == Repeated(PoissonSampled(plan.record_rate, Gaussian(plan.noise_multiplier)), 34)


def test_hierarchical_needs_more_noise_than_poisson() -> None:
    assert make_plan(design="hierarchical", expected_classes=1.5).noise_multiplier > make_plan().noise_multiplier


def test_random_weights_need_noise_for_the_largest_weight() -> None:
    averaged, weighted = make_plan(design="fixed"), make_plan(design="random-weight")
    assert weighted.noise_multiplier == pytest.approx(averaged.noise_multiplier)
    assert weighted.noise_std_x > 10 * averaged.noise_std_x


def test_pure_dp_with_laplace_noise() -> None:
    config = ReleaseConfig(600, 7, CLASSES, "fixed", noise="laplace", mixup_degree=4, rows=50)
    plan = config.calibrate(5.0, 0.0)
    assert isinstance(plan.row_query, Laplace)
    cost = epsilon(plan.event, 0, accountant="pure", adjacency=Adjacency.REPLACE_ONE).epsilon
    assert 4.97 < cost <= 5.0


@pytest.mark.parametrize(
    ("choices", "field"),
    [
        ({"classes": ("one",)}, "classes"),
        ({"classes": ("a", "a")}, "classes"),
        ({"design": "magic"}, "design"),
        ({"mixup_degree": 601}, "mixup_degree"),
        ({"centre": "public"}, "centre"),
        ({"noise": "uniform"}, "noise"),
        ({"noise": "laplace"}, "noise"),
        ({"noise": "laplace", "design": "fixed", "centre": "private"}, "centre"),
        ({"design": "hierarchical", "expected_classes": 4}, "expected_classes"),
        ({"design": "hierarchical", "expected_classes": 0.1, "mixup_degree": 64}, "mixup_degree"),
        ({"design": "classwise", "mixup_degree": 300}, "mixup_degree"),
        ({"full_batch": True}, "full_batch"),
    ],
)
def test_impossible_configs_name_the_field(choices: dict[str, Any], field: str) -> None:
    values: dict[str, Any] = {"records": 600, "dim": 7, "classes": CLASSES, **choices}
    with pytest.raises(InvalidInput, match=f"^{field}: got .*allowed"):
        ReleaseConfig(**values)


def test_no_plan_is_half_in_force() -> None:
    """Fields that one design uses are refused in another: bounds, rates and weights always belong together."""
    for changes in (
        {"max_weight": 1e-6},
        {"dirichlet_alpha": 1.0},
        {"class_rate": 0.5},
        {"record_rate": make_plan().record_rate / 2},
        {"mixup_degree": 1_000_000},
        {"residual_clip_norm": None},
        {"noise": "laplace"},
        {"rows": 600.0},
        {"lattice_bits": 3},
        {"clip_norm": "1"},
    ):
        with pytest.raises(InvalidInput):
            dataclasses.replace(make_plan(), **changes)  # type: ignore[arg-type]


JUNK = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.lists(st.text(max_size=3))
OPTIONAL = sorted({item.name for item in dataclasses.fields(ReleaseConfig)} - {"records", "dim", "classes"})


@given(
    st.fixed_dictionaries(
        {"records": JUNK, "dim": JUNK, "classes": st.lists(st.text(max_size=3)).map(tuple)},
        optional=dict.fromkeys(OPTIONAL, JUNK),
    )
)
@settings(deadline=None)
def test_config_never_fails_but_with_invalid_input(values: dict[str, Any]) -> None:
    with contextlib.suppress(InvalidInput):
        ReleaseConfig(**values)


@given(st.dictionaries(st.text(max_size=8), JUNK, max_size=4))
@settings(deadline=None)
def test_nonsense_plans_are_invalid_input(values: dict[str, Any]) -> None:
    with pytest.raises(PrivmixError):
        ReleasePlan.from_dict(values)


@pytest.mark.parametrize("design", [design.name for design in all_designs() if takes_persons(design)])
def test_no_plan_weighs_persons_by_more_than_its_design_can(design: str) -> None:
    config = ReleaseConfig(records=500, dim=4, classes=("a", "b", "c"), design=design, per_person=1)
    stated = config.calibrate(4.0, 1e-3).to_dict()
    for per_person in (3, 65_537):
        able = config.design.weighs_persons and per_person == 3
        with contextlib.nullcontext() if able else refuses("plan per_person"):
            assert plan_from_dict({**stated, "per_person": per_person}).per_person == per_person
