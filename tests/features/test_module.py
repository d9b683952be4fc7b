"""Networks from files: TorchScript, exported programs, linear layers; none that mixes records."""

from __future__ import annotations

import hashlib
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from privmix.errors import InvalidInput
from privmix.features import ModuleEncoder, from_spec, parse_features

X = np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32)
IMAGES = np.random.default_rng(0).integers(0, 256, size=(7, 8, 9, 3), dtype=np.uint8)


def script(network: nn.Module, path: Path) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.script(network).save(str(path))
    return path


class Centred(nn.Module):
    """Subtracts the batch's mean: a record's output depends on the others."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x - x.mean(0, keepdim=True)


class Noisy(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand(1)


def convolutions() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(2))


def test_torchscript_on_images(tmp_path: Path) -> None:
    network = convolutions()
    encoder = parse_features(f"module:{script(network, tmp_path / 'net.pt')}")
    features = encoder.transform(IMAGES)
    assert features.shape == (7, 16) == (7, encoder.output_dim((8, 9, 3)))
    with torch.inference_mode():
        expected = network.eval()(torch.from_numpy(IMAGES / np.float32(255)).permute(0, 3, 1, 2)).flatten(1)
    assert np.allclose(features, expected, atol=1e-6)
    assert encoder.transform(IMAGES[:0]).shape == (0, 16)


@pytest.mark.parametrize("batch_size", [1, 4])
def test_per_record_to_the_bit(tmp_path: Path, batch_size: int) -> None:
    encoder = ModuleEncoder(str(script(convolutions(), tmp_path / "net.pt")), batch_size=batch_size)
    whole = encoder.transform(IMAGES)
    for rows in ([3], [6, 0], [5, 4, 3, 2, 1, 0], [2] * 5):
        assert np.array_equal(encoder.transform(IMAGES[rows]), whole[rows])


def test_an_exported_program(tmp_path: Path) -> None:
    network = nn.Sequential(nn.Linear(5, 3), nn.Tanh()).eval()
    torch.export.save(torch.export.export(network, (torch.zeros(1, 5),)), tmp_path / "net.pt2")
    features = ModuleEncoder(str(tmp_path / "net.pt2")).transform(X)
    assert np.allclose(features, network(torch.from_numpy(X)).detach(), atol=1e-6)


@pytest.mark.parametrize("bias", [True, False])
def test_linear_layers(tmp_path: Path, bias: bool) -> None:
    layers = [nn.Linear(5, 4, bias=bias), nn.Linear(4, 6, bias=bias)]
    tensors = {f"{i}.{key}": value for i, layer in enumerate(layers) for key, value in layer.state_dict().items()}
    save_file(tensors, tmp_path / "net.safetensors")
    expected = layers[1](torch.relu(layers[0](torch.from_numpy(X)))).detach().numpy()
    assert np.allclose(ModuleEncoder(str(tmp_path / "net.safetensors")).transform(X), expected, atol=1e-6)


@pytest.mark.parametrize(
    "shapes",
    [{"0.weight": (3, 5), "1.weight": (2, 4)}, {"weight": (3, 5)}, {"0.weight": (5,)}, {"1.weight": (3, 5)}, {}],
)
def test_tensors_that_are_no_layers(tmp_path: Path, shapes: dict[str, tuple[int, ...]]) -> None:
    save_file({key: torch.zeros(shape) for key, shape in shapes.items()}, tmp_path / "net.safetensors")
    with pytest.raises(InvalidInput):
        ModuleEncoder(str(tmp_path / "net.safetensors")).transform(X)


def test_a_network_that_mixes_records_is_refused(tmp_path: Path) -> None:
    path = script(Centred(), tmp_path / "net.pt")
    with pytest.raises(InvalidInput, match="outputs depend on other records in the batch"):
        ModuleEncoder(str(path)).output_dim((5,))


def test_a_network_that_draws_numbers_is_refused(tmp_path: Path) -> None:
    path = script(Noisy(), tmp_path / "net.pt")
    with pytest.raises(InvalidInput, match=r"outputs depend on other|same output for the same record"):
        ModuleEncoder(str(path)).transform(X)


def test_dropout_and_batch_norm_are_off(tmp_path: Path) -> None:
    network = nn.Sequential(nn.BatchNorm1d(5), nn.Dropout(0.5)).train()
    encoder = ModuleEncoder(str(script(network, tmp_path / "net.pt")))
    assert np.allclose(encoder.transform(X), X, atol=1e-4)


def test_spec(tmp_path: Path) -> None:
    path = script(nn.Linear(5, 3), tmp_path / "net.pt")
    spec = json.loads(json.dumps(ModuleEncoder(str(path)).spec()))
    assert spec["options"] == {"model": "net.pt", "precision": "float32"}
    assert spec["weights_sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    rebuilt = from_spec(spec, model_path=path)
    assert rebuilt.spec() == spec
    other = script(nn.Linear(5, 3), tmp_path / "other.pt")
    with pytest.raises(InvalidInput, match="weights_sha256 of the model"):
        from_spec(spec, model_path=other)
    with pytest.raises(InvalidInput, match=r"module: got 'net.pt'"):
        from_spec(spec)


@pytest.mark.parametrize("shape", [(4,), (8, 8), (2, 2, 2, 2)])
def test_inputs_that_do_not_fit(tmp_path: Path, shape: tuple[int, ...]) -> None:
    encoder = ModuleEncoder(str(script(nn.Linear(5, 3), tmp_path / "net.pt")))
    with pytest.raises(InvalidInput):
        encoder.output_dim(shape)


@pytest.mark.parametrize("name", ["net.pt", "net.pt2", "net.safetensors"])
def test_damaged_files(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"not a network")
    encoder: Any = parse_features(f"module:{tmp_path / name}")
    with pytest.raises(InvalidInput, match="module"):
        encoder.output_dim((5,))
