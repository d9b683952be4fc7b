"""Settings: defaults that fit, numbers that are checked, and a plan from public facts."""

import json
from dataclasses import replace
from typing import Any

import pytest

from privmix.accounting import Adjacency
from privmix.errors import InvalidInput
from privmix.training.config import OptimiserConfig, TrainingConfig
from privmix.training.gradients.config import ExecutionConfig
from privmix.training.public.config import ExtendedConfig, WarmUpConfig
from privmix.training.views.augment import Flip
from privmix.training.views.config import ViewConfig
from tests.refusals import refuses
from tests.training.runs import config_of


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"feature_norm": 1.0, "model": "cnn"}, "feature_norm"),
        ({"microbatch_size": 300}, "microbatch_size"),
        ({"microbatch_mixes": 2}, "microbatch_mixes"),
        ({"microbatch_size": 2, "execution": ExecutionConfig(compile=True)}, "compile"),
        ({"microbatch_size": 2, "microbatch_keep": False}, "microbatch_keep"),
        ({"microbatch_mixes": 2, "microbatch_size": 2, "views": ViewConfig(2)}, "views"),
    ],
)
def test_settings_that_do_not_go_together_are_named(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        TrainingConfig(**{"epsilon": 1.0, "delta": 1e-5, **changes})


@pytest.mark.parametrize("model", ["linear", "cnn", "wrn-16-4"])
@pytest.mark.parametrize("records", [1, 2, 10, 60_000])
def test_defaults_fit_any_number_of_records(model: str, records: int) -> None:
    config = TrainingConfig.for_model(model, records=records, epsilon=1.0, delta=1e-6)
    assert 1 <= config.batch_size <= records
    assert (config.feature_norm is None) == (model != "linear")


def rate(records: int, epsilon: float = 1.0, **given: Any) -> float:
    target = {"records": records, "epsilon": epsilon, "delta": 1e-5}
    return TrainingConfig.for_model("linear", **target, **given).optimiser.learning_rate


def test_a_linear_heads_rate_follows_from_records_and_budget() -> None:
    assert rate(300) < rate(3000) < min(rate(30_000), rate(3000, 8.0))
    # More than at the small sizes, but less than in proportion: noise is not all that there is.
    assert rate(60_000) / rate(30_000) < 2 < rate(600) / rate(300)
    # Nothing bears more, and a warm-up alone takes it, too.
    assert rate(10**9, 8.0) == rate(300, 0.0) == 16.0


@pytest.mark.parametrize(
    ("given", "factor"),
    [
        ({"clip_norm": 0.2}, 0.5),
        ({"feature_norm": 4.0}, 4.0),
        ({"optimiser": "sgd:momentum=0.8"}, 2.0),
        ({"epochs": 30}, 2.0),
    ],
)
def test_a_linear_heads_rate_makes_up_for_other_settings(given: dict[str, float], factor: float) -> None:
    assert rate(3000, **given) == pytest.approx(factor * rate(3000), rel=0.01)


def test_a_given_rate_wins() -> None:
    for optimiser in ("sgd:learning_rate=3", OptimiserConfig(learning_rate=3.0)):
        assert rate(3000, optimiser=optimiser) == 3.0
    assert rate(3000, optimiser="adam") == 1e-3
    config = TrainingConfig.for_model("linear", records=100, epsilon=1.0, delta=1e-5, epochs=2, clip_norm=None)
    assert (config.epochs, config.clip_norm) == (2, 0.1), "None is no change"


def test_the_plan_is_calibrated_to_the_target() -> None:
    config = config_of(microbatch_size=2, adjacency=Adjacency.REPLACE_ONE)
    plan = config.plan(200, records_declared=True)
    assert (plan.records, plan.batch_size, plan.steps, plan.clip_norm) == (200, 20, 6, 0.1)
    assert (plan.microbatch_size, plan.adjacency, plan.records_declared) == (2, Adjacency.REPLACE_ONE, True)
    assert 0.98 * 8.0 < plan.cost().epsilon <= 8.0
    with refuses("batch_size"):
        config.plan(19)


EVERY_OTHER: dict[str, Any] = {
    "epsilon": 2.0,
    "delta": 1e-4,
    "model": "cnn",
    "batch_size": 8,
    "epochs": 1.0,
    "clip_norm": 2.0,
    "clipping": "automatic",
    "feature_norm": 3.0,
    "microbatch_size": 2,
    "adjacency": Adjacency.REPLACE_ONE,
    "optimiser": OptimiserConfig(momentum=0.5),
    "views": ViewConfig(k_base=3),
    "scenario": "warm",
    "warm_up": WarmUpConfig(epochs=3, augmentations=(Flip(),), mixing="mixup"),
    "extended": ExtendedConfig("dope"),
    "execution": ExecutionConfig("loop"),
    "model_seed": 5,
}


def differing(one: TrainingConfig, other: TrainingConfig) -> set[str]:
    return {key for key, value in one.settings().items() if value != other.settings()[key]}


@pytest.mark.parametrize("name", EVERY_OTHER)
def test_settings_hold_all_that_decides_the_result(name: str) -> None:
    config = TrainingConfig(1.0, 1e-5)
    json.dumps(config.settings(), allow_nan=False)
    assert differing(config, replace(config, **{name: EVERY_OTHER[name]})) == {name}


def test_settings_leave_out_the_chunk_alone() -> None:
    config = TrainingConfig(1.0, 1e-5)
    assert replace(config, execution=ExecutionConfig(chunk=3)).settings() == config.settings()
    fields = set(TrainingConfig.__dataclass_fields__)
    assert set(config.settings()) == fields - {"microbatch_keep", "mechanism", "mechanism_options", "per_person"}
    banks = {"bank_views", "bank_augmentations"}
    together = {"mechanism", "mechanism_options", "per_person", "microbatch_mixes", "microbatch_keep", *banks}
    assert set(EVERY_OTHER) | together == fields, "a new field is tested above"
    mixed = replace(config, microbatch_size=2)
    mixes = replace(mixed, microbatch_mixes=2)
    assert mixes.settings() != mixed.settings()
    assert replace(mixes, microbatch_keep=False).settings() == {**mixes.settings(), "microbatch_keep": False}
    assert differing(config, replace(config, bank_views=2, bank_augmentations=(Flip(),))) == banks
