"""Noisy sums as a plan declares them: their price follows from what one record changes, over the noise of each."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privmix.audits.empty_runs import sums_tests
from privmix.errors import InvalidInput
from privmix.planning import ReleaseConfig
from privmix.plans.parts import Part, SumDesign, SumPlan
from privmix.plans.registry import all_designs
from tests.refusals import refuses
from tests.releases.helpers import own_options

DESIGNS = sorted(one.name for one in all_designs() if issubclass(one, SumDesign))
PART: dict[str, Any] = {"name": "a", "meaning": "", "words": "a", "bound": 1.0, "noise_std": 1.0, "unit": 1.0}


def plan_of(name: str, **changes: Any) -> SumPlan:
    plan = ReleaseConfig(300, 6, ("a", "b", "c"), **own_options({"design": name, **changes})).with_noise(2.0)
    assert isinstance(plan, SumPlan)
    return plan


@pytest.mark.parametrize("name", DESIGNS)
def test_parts_use_up_what_their_queries_are_priced_for(name: str) -> None:
    plan = plan_of(name)
    moved = sum((one.bound * plan.growth / one.noise_std) ** 2 for one in plan.parts)
    assert moved == pytest.approx(sum(query**-2 for query in plan.queries), rel=1e-12)
    assert moved == pytest.approx(plan.noise_multiplier**-2, rel=1e-12)


def test_every_step_of_a_series_has_the_noise_of_its_price() -> None:
    plan: Any = plan_of("moments-series", steps=4)
    for _ in range(3):
        assert plan.event
        plan = plan.after(50)
    assert plan.is_last
    assert plan.event


@pytest.mark.parametrize("name", DESIGNS)
def test_parts_with_another_noise_than_the_price_is_for_have_none(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of(name)
    for number, part in enumerate(plan.arrays):
        if isinstance(part, Part):
            noises = (part.noise_std * 2 / 3, 0.0, -part.noise_std, math.inf, math.nan)
            for other in ([], *([replace(part, noise_std=std)] for std in noises)):
                with monkeypatch.context() as patch:
                    patch.setattr(type(plan), "arrays", (*plan.arrays[:number], *other, *plan.arrays[number + 1 :]))
                    with pytest.raises(InvalidInput, match="^noise of " if other else "^noise of parts: "):
                        _ = plan.event


def test_arrays_that_follow_from_parts_need_tests_of_their_own() -> None:
    with refuses("design"):
        sums_tests(plan_of("two-stage"), None)


@given(side=st.integers(1, 6), stack=st.sampled_from([(), (1,), (3,)]), seed=st.integers(0, 99))
def test_symmetric_parts_keep_entries_and_norm(side: int, stack: tuple[int, ...], seed: int) -> None:
    part = Part(**PART, shape=(*stack, side, side), symmetric=True)
    half = np.random.default_rng(seed).normal(size=part.shape).astype(np.float32)
    values = half + np.swapaxes(half, -1, -2)
    stored = part.stored(values)
    assert stored.shape == part.stored_shape
    np.testing.assert_array_equal(part.read(stored), values)
    assert np.linalg.norm(part.vector(values)) == pytest.approx(np.linalg.norm(values.astype(np.float64)), rel=1e-6)
