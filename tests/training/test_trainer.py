"""Whole jobs on a tiny problem: every scenario runs, everything wrong is found early, and nothing private is shown."""

import random
import re
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from privmix.errors import InvalidInput
from privmix.mechanisms.streams import SecretStreams
from privmix.training.config import OptimiserConfig, TrainingConfig
from privmix.training.dp_sgd import StepObserver, TrainingRecords
from privmix.training.examples import ModelFacts, PublicData
from privmix.training.gradients.config import ExecutionConfig
from privmix.training.models.base import Classifier
from privmix.training.public.config import ExtendedConfig, WarmUpConfig
from privmix.training.public.warmup import warm_up
from privmix.training.run import TrainingRun
from privmix.training.trained import TrainedModel, load_trained
from privmix.training.trainer import Trainer
from privmix.training.verify import verify_trained
from privmix.training.views.augment import Crop, Flip
from privmix.training.views.config import ViewConfig
from tests.refusals import refuses
from tests.training.runs import (
    CLASSES,
    FACTS,
    RECORDS,
    config_of,
    digits,
    job_of,
    private,
    public,
    public_pool,
    run_to,
    weights_of,
)

WARM = WarmUpConfig(epochs=1, batch_size=20)
MIX = ViewConfig(2, 2, 0, (Flip(), Crop()))


def extended(method: str, **given: Any) -> dict[str, Any]:
    found = ExtendedConfig(method, batch_size=8, perturbations=1, **given)
    return {"scenario": "extended", "warm_up": WARM, "extended": found}


PUBLIC = {"public": public()}
SYNTHETIC = {"scenario": "warm-synthetic", "warm_up": WARM}
SCENARIOS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "cold": ("linear", {}, {}),
    "warm": ("linear", {"scenario": "warm", "warm_up": WARM}, PUBLIC),
    "synthetic": ("linear", SYNTHETIC, {"synthetic": public()}),
    "both": ("linear", SYNTHETIC, {**PUBLIC, "synthetic": public(1100)}),
    "dope": ("linear", extended("dope", max_norm=1.0), PUBLIC),
    "mirror": ("cnn-relu", extended("mirror"), PUBLIC),
    "adadps": ("linear", extended("adadps"), PUBLIC),
    "multiplicity": ("cnn-relu", extended("multiplicity+dope"), PUBLIC),
    "self mix": ("cnn-relu", {"views": MIX}, {}),
    "pool mix": ("cnn-relu", {"views": ViewConfig(1, 2, 2)}, {"pool": public_pool()}),
    "vectors": ("linear", {"views": ViewConfig(1, 2, 2)}, {"pool": public_pool()}),
    "groups": ("linear", {"microbatch_size": 4}, {}),
    "mixed groups": ("cnn-relu", {"microbatch_size": 4, "microbatch_mixes": 2}, {}),
    "mixes alone": ("linear", {"microbatch_size": 4, "microbatch_mixes": 2, "microbatch_keep": False}, {}),
    "adam": ("linear", {"optimiser": OptimiserConfig("adam", 0.01)}, {}),
    "automatic": ("linear", {"clipping": "automatic"}, {}),
    "augmented public": ("cnn-relu", {**extended("dope"), "views": MIX}, PUBLIC),
}


@pytest.fixture
def untouched() -> Iterator[None]:
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002
    random.seed(5)
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()  # noqa: NPY002
    yield
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (np.random.get_state()[1] == before[1]).all()  # noqa: NPY002
    assert random.getstate() == before[2]


@pytest.mark.parametrize("name", SCENARIOS)
def test_no_trace_of_any_scenario(name: str, untouched: None, tmp_path: Path) -> None:
    model, changes, given = SCENARIOS[name]
    if model != "linear":
        # Named: the fastest may be another one the next time.
        changes = {"execution": ExecutionConfig("vmap"), "optimiser": OptimiserConfig(learning_rate=0.1), **changes}
    trained = run_to(tmp_path / "out", job_of(config_of(model, **changes), **given))
    assert weights_of(trained).isfinite().all()
    assert trained.certificate["guarantee"]["epsilon"] <= 8.0
    assert set(trained.certificate["public_data"]) == set(given)
    x, _ = digits(500, 20)
    assert np.array_equal(load_trained(tmp_path / "out").predict_proba(x), trained.predict_proba(x))
    for seed in (1, 2):
        again = job_of(config_of(model, **changes), **given).run(private(), streams=SecretStreams.from_seed(seed))
        assert torch.equal(weights_of(again), weights_of(trained)) is (seed == 1)


def test_a_warm_up_is_where_private_steps_begin() -> None:
    config = config_of(scenario="warm", warm_up=WarmUpConfig(epochs=20, batch_size=10, learning_rate=0.5))
    x, y = digits(1200, 400)
    cold, warm = (
        (job.run(private(), streams=SecretStreams.from_seed(0)).predict(x) == y).mean()
        for job in (job_of(), job_of(config, public=public(600, 500)))
    )
    assert warm > max(0.7, cold)


class Normalised(Classifier):
    architecture = "normalised"
    takes_images = True

    def __init__(self) -> None:
        super().__init__(CLASSES)
        self.norm = nn.BatchNorm2d(1)

    def options(self) -> dict[str, Any]:
        return {}

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x).flatten(1)


def pool_of(dim: int = 64, classes: int = CLASSES) -> PublicData:
    return PublicData.of(np.zeros((5, dim)), np.zeros(5, int), classes)


WARM_ALONE = {"scenario": "warm"}
MANY = {"scenario": "extended", "extended": ExtendedConfig("multiplicity", batch_size=8, perturbations=2)}
WRONG: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "batch norm": ({}, {"network": Normalised()}, "layer norm of the model"),
    "pool": ({"views": ViewConfig(1, 0, 1)}, {"pool": pool_of(classes=9)}, "classes of the pool"),
    "epsilon": ({"epsilon": 1e-9, "delta": 1e-12}, {}, "epsilon"),
    "batch": ({"batch_size": 201}, {}, "batch_size"),
    "no public data": (WARM_ALONE, {}, "public"),
    "public width": (WARM_ALONE, {"public": pool_of(dim=63)}, "public"),
    "public classes": (WARM_ALONE, {"public": pool_of(classes=9)}, "public"),
    "public batch": (extended("dope"), {"public": public(count=4)}, "public_method batch_size"),
    "perturbations": (MANY, {"public": public()}, "perturbations"),
    "model": ({"model": "vgg", "feature_norm": None}, {}, "model"),
}


@pytest.mark.parametrize("name", WRONG)
def test_refused_early(name: str) -> None:
    changes, given, field = WRONG[name]
    with refuses(field):
        job_of(TrainingConfig(**{**vars(config_of()), **changes}), **given)


@pytest.mark.parametrize("value", [-0.5, 255.0, 1e6])
def test_an_image_model_needs_values_from_0_to_1(value: float) -> None:
    """Others are mistakes, and so large ones that rounding could take a record beyond its bound."""
    x, y = digits()
    x[7, 3] = value
    records = TrainingRecords.of(x, y, classes=10)
    with refuses("images"):
        job_of(config_of("cnn-relu")).check(records)
    job_of().check(records)
    with refuses("model"):
        Trainer(config_of("cnn-relu"), ModelFacts(FACTS.classes, {"name": "scattering"}, (8, 8), 64), RECORDS)


def test_records_that_do_not_fit_are_refused_before_a_batch_is_drawn(tmp_path: Path) -> None:
    (x, y), job = digits(), job_of()
    for features, labels, classes in ((x[:, :63], y, 10), (x, y, 11), (x[:-1], y[:-1], 10)):
        records = TrainingRecords.of(features, labels, classes=classes)
        with pytest.raises(InvalidInput) as checked:
            job.check(records)
        assert "199" not in str(checked.value)
        with refuses("records"):
            run_to(tmp_path / "out", job, records=records)
        assert list(tmp_path.iterdir()) == [], "records that are refused leave no run"
    job.check(private())
    with refuses("k_self"):
        job_of(config_of("cnn-relu", views=ViewConfig(2, 2))).check(private())


def test_what_observers_look_into_is_no_model() -> None:
    """They see the steps of the very training, and what comes of it has no certificate."""
    made = job_of().run(private(), streams=SecretStreams.from_seed(3))
    seen = job_of().observed(private(), [StepObserver()], streams=SecretStreams.from_seed(3))
    assert not isinstance(seen, TrainedModel)
    assert not hasattr(seen, "certificate")
    assert torch.equal(torch.cat([tensor.reshape(-1) for tensor in seen.parameters()]), weights_of(made))


def test_epsilon_0_takes_no_records(tmp_path: Path) -> None:
    """Guarantee: its model is that of the warm-up alone, also from a run's folder that was left and taken up again."""
    warm = {"scenario": "warm", "warm_up": WarmUpConfig(epochs=2, batch_size=20)}
    job = job_of(config_of(epsilon=0.0, **warm), public=public())
    with refuses("records"):
        job.run(private())
    made = job.run(None)
    network = job_of(config_of(**warm), public=public()).network
    warm_up(network, public(), job.config.warm_up, 0)
    assert torch.equal(weights_of(made), torch.cat([tensor.detach().reshape(-1) for tensor in network.parameters()]))
    TrainingRun(tmp_path / "out", job.settings()).__exit__(None, None, None)
    with TrainingRun(tmp_path / "out", job.settings(), resume=True) as run:
        assert torch.equal(weights_of(job.run(None, run=run)), weights_of(made))
    assert verify_trained(tmp_path / "out").epsilon == 0
    for changes in ({"scenario": "cold"}, {**warm, "warm_up": WarmUpConfig(epochs=0)}):
        with refuses("epsilon"):
            config_of(epsilon=0.0, **changes).plan(200)


@pytest.mark.parametrize(("model", "rate"), [("linear", 3e38), ("cnn-relu", 1e12)], ids=["weights", "outputs"])
def test_divergence_names_the_learning_rate(model: str, rate: float, tmp_path: Path) -> None:
    config = config_of(model, optimiser=OptimiserConfig(learning_rate=rate, momentum=0.9), clip_norm=100.0)
    with refuses("learning_rate"):
        run_to(tmp_path / "out", job_of(config), seed=0)
    assert not (tmp_path / "out").exists()


def test_progress_carries_public_figures_alone() -> None:
    config = config_of(scenario="warm", warm_up=WarmUpConfig(epochs=2, batch_size=20), epochs=3.0)
    job = job_of(config, public=public())

    def shown(records: TrainingRecords, seed: int) -> list[tuple[str, int, int]]:
        calls: list[tuple[str, int, int]] = []
        job.run(records, streams=SecretStreams.from_seed(seed), progress=lambda *call: calls.append(call))
        return calls

    calls, other = shown(private(), 1), TrainingRecords.of(1 - digits(700)[0], digits(300)[1], classes=10)
    assert calls == shown(other, 2), "other records and another key show the same"
    warm, steps = calls[:2], calls[2:]
    assert [call[1:] for call in warm] == [(1, 2), (2, 2)]
    assert all(re.fullmatch(r"warm-up \(public loss \d+\.\d{3}\)", stage) for stage, *_ in warm)
    assert [call[1:] for call in steps] == [(step, 30) for step in range(31)]
    for stage, done, _ in steps[1:]:
        found = re.fullmatch(r"private steps \(ε ([\d.e-]+) after (\d+)\)", stage)
        spent, at = float(found[1]), int(found[2])
        assert at <= done
        assert job.plan.cost(at).epsilon <= spent <= 1.0101 * job.plan.cost(at).epsilon
    assert f"after {job.plan.steps}" in steps[-1][0]


def test_streams_serve_one_run_and_are_gone_after_it() -> None:
    config = config_of(optimiser=OptimiserConfig(learning_rate=3e38), clip_norm=100.0)
    for job, end in ((job_of(), nullcontext()), (job_of(config), pytest.raises(InvalidInput))):
        streams = SecretStreams.from_seed(0)
        with end:
            job.run(private(), streams=streams)
        with pytest.raises(RuntimeError, match="destroyed"):
            streams.generator("a")
    used = SecretStreams.from_seed(0)
    used.claim()
    with pytest.raises(RuntimeError, match="served a run"):
        job_of().run(private(), streams=used)


def test_fresh_keys_give_other_noise() -> None:
    first, second = (job_of().run(private()) for _ in range(2))
    assert not torch.equal(weights_of(first), weights_of(second))
    assert not first.certificate["insecure_seed"]


def test_no_loss_of_private_records_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the closed form the only inputs that the network itself sees are public; a loss would show it others."""
    job, seen = job_of(), []
    job.network.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0].numpy().tobytes()))
    monkeypatch.setattr("privmix.training.run.fitting_chunk", lambda *args: 64)
    job.run(private())
    public_inputs = torch.rand(4, 64, generator=torch.Generator().manual_seed(0)).numpy().tobytes()
    assert set(seen) == {public_inputs}


def test_public_until_run(monkeypatch: pytest.MonkeyPatch) -> None:

    for kind in (SecretStreams, TrainingRecords):
        monkeypatch.setattr(kind, "__init__", lambda *args, **kwargs: pytest.fail("it is made"))
    job = job_of(config_of(**extended("adadps")), public=public())
    assert job.settings()["public_data"] == {"public": public().fingerprint()}


@pytest.mark.parametrize(
    "changes",
    [
        {"public": public(1100)},
        {"facts": ModelFacts(FACTS.classes[::-1], FACTS.extractor, (8, 8), 64)},
        {"facts": ModelFacts(FACTS.classes, {"name": "x"}, (8, 8), 64)},
        {"records": RECORDS + 1},
        {"config": config_of("cnn-relu", scenario="warm", warm_up=WARM)},
        {"records_declared": True},
    ],
    ids=["public", "classes", "extractor", "records", "network", "declared"],
)
def test_settings_hold_all_that_a_job_was_given(changes: dict[str, Any]) -> None:
    given = {"config": config_of(scenario="warm", warm_up=WARM), "facts": FACTS, "records": RECORDS, "public": public()}
    settings = Trainer(**given).settings()
    assert Trainer(**{**given, **changes}).settings() != settings
    assert Trainer(**given).settings() == settings
