"""Exported networks give the same numbers in torch alone."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import privmix as pm
from tests.refusals import refuses

SIDE, CLASSES = 8, 3


def module() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, CLASSES))


def images() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.random((60, SIDE, SIDE), np.float32), rng.integers(0, CLASSES, 60)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    above = tmp_path_factory.mktemp("models")
    given: dict[str, Any] = {"classes": range(CLASSES), "epsilon": 8.0, "delta": 1e-3, "epochs": 1, "batch_size": 20}
    for name, model in {"own": module(), "cnn-relu": "cnn-relu", "linear": "linear"}.items():
        pm.train(images(), model=model, features="pixels", out=above / name, **given)
    return {name: above / name for name in ("own", "cnn-relu", "linear")}


def loaded(folders: dict[str, Path], name: str = "own") -> pm.Model:
    return pm.load(folders[name], module=module() if name == "own" else None)


@pytest.mark.parametrize("name", ["own", "cnn-relu", "linear"])
def test_a_network_loads_in_torch_alone(folders: dict[str, Path], name: str, tmp_path: Path) -> None:
    model = loaded(folders, name)
    file = model.export(tmp_path / "net.pt2")
    x = images()[0]
    given = torch.from_numpy(x)[:, None] if name != "linear" else torch.from_numpy(x).flatten(1)
    network = torch.export.load(file).module()
    found = network(given).softmax(1).detach().numpy()
    assert np.allclose(found, model.predict_proba(x), atol=1e-5)
    assert network(given[:1]).shape == (1, CLASSES)


def test_it_needs_no_privmix(folders: dict[str, Path], tmp_path: Path) -> None:
    file = loaded(folders).export(tmp_path / "net.pt2")
    code = f"""
import sys, torch
sys.modules["privmix"] = None
print(tuple(torch.export.load({str(file)!r}).module()(torch.zeros(4, 1, {SIDE}, {SIDE})).shape))
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"(4, {CLASSES})"


def test_weights_have_the_names_of_the_module(folders: dict[str, Path], tmp_path: Path) -> None:
    model = loaded(folders)
    file = model.export(tmp_path / "net.safetensors")
    net = module()
    assert net.load_state_dict(load_file(file)).missing_keys == []
    x = images()[0]
    found = net(torch.from_numpy(x)[:, None]).softmax(1).detach().numpy()
    assert np.allclose(found, model.predict_proba(x), atol=1e-5)


def test_files_are_refused_where_they_do_not_belong(folders: dict[str, Path], tmp_path: Path) -> None:
    model = pm.load(folders["linear"])
    with refuses("out"):
        model.export(folders["linear"] / "net.pt2")
    with refuses("ending of out"):
        model.export(tmp_path / "net.pt")
    (tmp_path / "net.pt2").write_bytes(b"mine")
    with refuses("out"):
        model.export(tmp_path / "net.pt2")
    assert (tmp_path / "net.pt2").read_bytes() == b"mine"
