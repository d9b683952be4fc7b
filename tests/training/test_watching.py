"""Callbacks are told public figures alone, and change nothing."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privmix as pm
from privmix.training.run import Watch, Watched
from tests.refusals import refuses


def records(seed: int = 0, count: int = 300) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 4))
    return x, (x[:, 0] > 0).astype(int)


def trained(data: Any = None, **options: Any) -> pm.Model:
    given = {"classes": range(2), "features": "identity", "epsilon": 4.0, "delta": 1e-4, "epochs": 6, "seed": 3}
    return pm.train(records() if data is None else data, **{**given, **options})


def test_steps_and_epsilon_so_far_are_told() -> None:
    seen: list[Watched] = []
    model = trained(callbacks=seen.append, batch_size=10)
    steps = [one.step for one in seen]
    assert steps == sorted(set(steps))
    assert steps[0] == 1
    assert steps[-1] == seen[0].steps == model.certificate["plan"]["steps"]
    assert 15 <= len(seen) <= 30
    epsilons = [one.epsilon for one in seen]
    assert epsilons == sorted(epsilons)
    assert epsilons[-1] == pytest.approx(model.certificate.epsilon)
    assert all(one.metrics == {} and one.delta == 1e-4 for one in seen)


def test_metrics_are_those_of_the_public_records_for_the_model_as_it_would_be() -> None:
    seen: list[Watched] = []
    public = records(seed=1)
    model = trained(callbacks=[seen.append], validation=public)
    assert seen[-1].metrics["validation/accuracy"] == pytest.approx(model.score(*public))
    assert seen[-1].metrics["validation/loss"] < seen[0].metrics["validation/loss"]


def test_nothing_that_is_told_depends_on_a_private_record_but_through_the_weights() -> None:
    # Noise so large that weights of two datasets can't be told apart would still show a figure of private records.
    told: list[list[tuple[Any, ...]]] = []
    for label in (0, 1):
        seen: list[Watched] = []
        trained((records()[0], np.full(300, label)), callbacks=seen.append)
        told.append([(one.step, one.steps, one.epsilon, one.delta, dict(one.metrics)) for one in seen])
    assert told[0] == told[1]


def test_callbacks_change_no_bit() -> None:
    x = records()[0]
    alone = trained().predict_proba(x)
    assert np.array_equal(alone, trained(callbacks=lambda seen: None, validation=records(seed=1)).predict_proba(x))


def test_private_records_are_no_validation_data() -> None:
    data = records()
    for validation in (data, tuple(part.copy() for part in data)):
        with refuses("validation"):
            trained(data, callbacks=print, validation=validation)
    with refuses("validation"):
        trained(validation=records(seed=1))


@pytest.mark.parametrize("wrong", ["curves", 3, [print, 3]])
def test_others_are_refused(wrong: Any) -> None:
    with refuses("callbacks"):
        Watch(wrong)


def test_an_error_of_a_callback_ends_the_run_which_can_go_on(tmp_path: Path) -> None:
    def fails(seen: Watched) -> None:
        raise RuntimeError("disk full")

    with pytest.raises(RuntimeError, match="disk full"):
        trained(callbacks=fails, out=tmp_path / "model")
    assert trained(out=tmp_path / "model", resume=True).predict(records()[0]).shape == (300,)
