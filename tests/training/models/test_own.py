"""Networks of the user's own: checked, trained as they are, kept without their code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import privmix as pm
from privmix.errors import InvalidInput, StorageError
from privmix.training.models.own import NETWORK_FILE, OwnNetwork, own_module
from privmix.training.trained import load_trained

SIDE, CLASSES = 6, 3


class Net(nn.Module):
    def __init__(self, *, norm: nn.Module | None = None) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 4, 3), norm or nn.GroupNorm(2, 4), nn.ReLU(inplace=True))
        self.head = nn.Linear(4 * 16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x).view(x.size(0), -1))


def made(seed: int = 0, **options: Any) -> Net:
    torch.manual_seed(seed)
    return Net(**options)


def images(records: int = 120) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = rng.integers(0, CLASSES, records)
    x = rng.random((records, SIDE, SIDE), np.float32) / 2
    x[np.arange(records), y] += 0.5
    return x, y


def trained(model: Any, **options: Any) -> pm.Model:
    given = {"classes": range(CLASSES), "features": "pixels", "epsilon": 8.0, "delta": 1e-4, "epochs": 4, "seed": 1}
    return pm.train(images(), model=model, batch_size=30, **{**given, **options})


def wrapped(module: nn.Module) -> OwnNetwork:
    return OwnNetwork.of(module, images=(1, SIDE, SIDE), dim=SIDE * SIDE, classes=CLASSES)


def test_a_module_is_trained_kept_verified_and_loaded_without_its_code(tmp_path: Path) -> None:
    module, x = made(), images()[0]
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    model = trained(module, out=tmp_path / "model")
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    assert pm.verify(tmp_path / "model").held is not None
    loaded = pm.load(tmp_path / "model")
    assert np.allclose(loaded.predict_proba(x), model.predict_proba(x), atol=1e-6)
    assert loaded.score(*images()) > 0.6
    assert model.certificate["settings"]["model"] == "module"


def test_strategies_give_the_same_weights() -> None:
    x = images()[0]
    first, *others = [trained(made(), strategy=name).predict_proba(x) for name in ("loop", "vmap", "ghost")]
    for other in others:
        assert np.allclose(first, other, atol=1e-3)


def test_vectors_are_taken_too() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(100, 5)), rng.integers(0, 2, 100)
    module = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 2))
    model = pm.train(
        (x, y), model=module, features="identity", classes=range(2), epsilon=8.0, delta=1e-4, epochs=1, batch_size=20
    )
    assert model.predict(x).shape == (100,)
    assert model.classifier.network.spec()["takes_images"] is False


class Centred(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(0, keepdim=True)


class Remembering(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("last", torch.zeros(4, 4, 4))

    def forward(self, x: Tensor) -> Tensor:
        self.last.copy_(x.mean(0).detach())
        return x


class Sorting(nn.Module):
    """Mixes records without any layer that is known to."""

    def forward(self, x: Tensor) -> Tensor:
        return x + 1e-3 * x.sort(0).values


@pytest.mark.parametrize(
    ("layer", "what"),
    [
        (nn.BatchNorm2d(4), "layer features.1 of the model: got 'BatchNorm2d'; allowed: GroupNorm"),
        (nn.Dropout2d(0.1), "layer features.1 of the model: got 'Dropout2d'; allowed: set its rate to 0"),
        (nn.InstanceNorm2d(4, track_running_stats=True), "track_running_stats=False"),
        (Centred(), "layer features.1 of the model: got 'Centred'; allowed: a layer that treats each record alone"),
        (Sorting(), "layer features.1 of the model: got 'Sorting'; allowed: a layer that treats each record alone"),
        (Remembering(), "layer features.1 of the model: got 'Remembering'.*keeps nothing"),
    ],
)
def test_layers_that_mix_records_or_keep_state_are_refused_by_name(layer: nn.Module, what: str) -> None:
    with pytest.raises(InvalidInput, match=what):
        wrapped(made(norm=layer))


@pytest.mark.parametrize("module", [nn.Linear(36, 2), nn.Conv2d(1, 3, 3), nn.Identity(), nn.LSTM(36, 3), "text", 3])
def test_what_gives_no_logits_is_refused(module: Any) -> None:
    with pytest.raises(InvalidInput, match="model"):
        wrapped(module)


class Shouting(nn.Module):
    """Fails for some batches, and says what it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(SIDE * SIDE, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] > 6:
            raise ValueError(f"I saw {x.shape[0]} records")
        return self.head(x.flatten(1))


def test_an_error_of_the_module_tells_nothing_of_its_input() -> None:
    network = wrapped(Shouting())
    with pytest.raises(InvalidInput, match="raised ValueError") as found:
        network(torch.rand(7, 1, SIDE, SIDE))
    assert "7" not in str(found.value)
    assert found.value.__cause__ is None
    assert found.value.__context__ is None


def test_a_resumed_run_has_the_weights_that_it_began_with(tmp_path: Path) -> None:
    # What is measured may be chosen otherwise another time.
    one = {"strategy": "vmap", "chunk": 30}

    def stop(stage: str, done: int, total: int) -> None:
        if stage.startswith("private") and done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trained(made(), out=tmp_path / "model", progress=stop, **one)
    with pytest.raises(InvalidInput, match="network"):
        trained(made(seed=1), out=tmp_path / "model", resume=True, **one)
    resumed = trained(made(), out=tmp_path / "model", resume=True, **one)
    whole = trained(made(), **one)
    assert np.array_equal(resumed.predict_proba(images()[0]), whole.predict_proba(images()[0]))


@pytest.mark.parametrize("file", [NETWORK_FILE, "weights.safetensors", "model.json"])
def test_a_folder_with_other_bytes_is_refused(tmp_path: Path, file: str) -> None:
    trained(made(), out=tmp_path / "model")
    content = (tmp_path / "model" / file).read_bytes()
    (tmp_path / "model" / file).write_bytes(content.replace(b"3", b"4", 1))
    with pytest.raises(InvalidInput):
        load_trained(tmp_path / "model")


def test_a_folder_without_the_network_or_with_more_is_refused(tmp_path: Path) -> None:
    trained(made(), out=tmp_path / "model")
    (tmp_path / "model" / "more.json").write_text("{}")
    with pytest.raises(InvalidInput, match="files"):
        pm.verify(tmp_path / "model")
    (tmp_path / "model" / "more.json").unlink()
    (tmp_path / "model" / NETWORK_FILE).unlink()
    with pytest.raises((InvalidInput, StorageError)):
        pm.verify(tmp_path / "model")


def test_the_folder_holds_no_code_and_no_place(tmp_path: Path) -> None:
    source = tmp_path / "secret_place"
    source.mkdir()
    (source / "net.py").write_text(CODE)
    trained(f"torch:{source / 'net.py'}:Net", out=tmp_path / "model")
    for file in (tmp_path / "model").iterdir():
        assert b"secret_place" not in file.read_bytes()
    assert json.loads((tmp_path / "model" / NETWORK_FILE).read_bytes())["format"] == "privmix-network"


CODE = f"""
from torch import nn

def Net():
    return nn.Sequential(nn.Flatten(), nn.Linear({SIDE * SIDE}, {CLASSES}))

ready = Net()
number = 3
"""


def test_modules_are_named_by_file_or_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_net.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))
    first, second = (own_module(f"torch:{place}:Net", 3) for place in (tmp_path / "own_net.py", "own_net"))
    assert torch.equal(first[1].weight, second[1].weight)
    assert isinstance(own_module("torch:own_net:ready", 3), nn.Module)
    for wrong in ("own_net:number", "own_net:none", "no_such_module_at_all:Net", "own_net"):
        with pytest.raises(InvalidInput, match="model"):
            own_module(f"torch:{wrong}", 3)
    with pytest.raises(StorageError, match="no file"):
        own_module(f"torch:{tmp_path / 'none.py'}:Net", 3)


def test_tied_weights_are_kept() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(SIDE * SIDE, SIDE * SIDE)
            self.second = nn.Linear(SIDE * SIDE, SIDE * SIDE)
            self.second.weight = self.first.weight
            self.head = nn.Linear(SIDE * SIDE, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.second(torch.tanh(self.first(x.flatten(1)))))

    model = trained(Tied(), epochs=1)
    assert model.predict(images()[0]).shape == (120,)
