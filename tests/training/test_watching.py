"""Callbacks are told public figures alone, and change nothing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privmix as pm
from privmix.errors import MissingExtra
from privmix.training.watching import MLflow, TensorBoard, Watch, Watched
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
        x, _ = records()
        seen: list[Watched] = []
        trained((x, np.full(len(x), label)), callbacks=seen.append)
        told.append([(one.step, one.steps, one.epsilon, one.delta, dict(one.metrics)) for one in seen])
    assert told[0] == told[1]


def test_callbacks_change_no_bit() -> None:
    x = records()[0]
    alone = trained().predict_proba(x)
    assert np.array_equal(alone, trained(callbacks=lambda seen: None, validation=records(seed=1)).predict_proba(x))


def test_private_records_are_no_validation_data() -> None:
    data = records()
    with refuses("validation"):
        trained(data, callbacks=print, validation=data)
    copied = tuple(part.copy() for part in data)
    with refuses("validation"):
        trained(data, callbacks=print, validation=copied)


@pytest.mark.parametrize("wrong", ["tensorboard:", "mlflow:", "wandb:x", 3, ["tensorboard:x", 3]])
def test_others_are_refused(wrong: Any) -> None:
    with refuses("callbacks"):
        Watch(wrong)


def test_validation_without_callbacks_is_refused() -> None:
    with refuses("validation"):
        trained(validation=records(seed=1))


def test_an_error_of_a_callback_ends_the_run_which_can_go_on(tmp_path: Path) -> None:
    def fails(seen: Watched) -> None:
        raise RuntimeError("disk full")

    with pytest.raises(RuntimeError, match="disk full"):
        trained(callbacks=fails, out=tmp_path / "model")
    assert trained(out=tmp_path / "model", resume=True).predict(records()[0]).shape == (300,)


def test_tensorboard_has_the_figures(tmp_path: Path) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    seen: list[Watched] = []
    trained(callbacks=[seen.append, f"tensorboard:{tmp_path / 'runs'}"], validation=records(seed=1))
    found = events.EventAccumulator(str(tmp_path / "runs"))
    found.Reload()
    assert set(found.Tags()["scalars"]) == {"epsilon", "validation/accuracy", "validation/loss"}
    read = [(one.step, one.value) for one in found.Scalars("epsilon")]
    assert read == [(one.step, pytest.approx(one.epsilon, rel=1e-6)) for one in seen]


@pytest.mark.parametrize("own", [True, False], ids=["own store", "store of its settings"])
def test_mlflow_has_the_figures(own: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # What MLflow tells its makers by itself has no place in a test.
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    tracking = pytest.importorskip("mlflow.tracking")
    store = str(tmp_path / "store")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", str(tmp_path / "other") if own else store)
    told: list[Watched] = []
    trained(callbacks=[told.append, MLflow("digits", store) if own else "mlflow:digits"], validation=records(seed=1))
    client = tracking.MlflowClient(tracking_uri=store)
    (run,) = client.search_runs([client.get_experiment_by_name("digits").experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.params == {"steps": str(told[0].steps), "delta": "0.0001"}
    assert set(run.data.metrics) == {"epsilon", "validation/accuracy", "validation/loss"}
    for name in run.data.metrics:
        read = [(one.step, one.value) for one in client.get_metric_history(run.info.run_id, name)]
        of = {one.step: {"epsilon": one.epsilon, **one.metrics}[name] for one in told}
        assert dict(read) == pytest.approx(of)


@pytest.mark.parametrize(
    ("kind", "modules", "extra"),
    [(TensorBoard, ["torch.utils.tensorboard"], "tensorboard"), (MLflow, ["mlflow", "mlflow.tracking"], "mlflow")],
)
def test_a_missing_extra_is_named(kind: Any, modules: list[str], extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in modules:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=rf"\.\[{extra}\]"):
        kind("x")
