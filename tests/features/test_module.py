"""Networks from files: exported programs, linear layers; none that mixes records."""

import contextlib
import hashlib
import io
import json
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from privmix.errors import InvalidInput
from privmix.features.base import parse_features
from privmix.features.module import ModuleEncoder
from privmix.features.spec import from_spec, wanted_model
from tests.features.models import check_per_record
from tests.hostile.planted import Payload
from tests.refusals import refuses

X = np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32)
IMAGES = np.random.default_rng(0).integers(0, 256, size=(7, 8, 9, 3), dtype=np.uint8)
IMAGE, VECTOR = (3, 8, 9), (5,)


def program(network: nn.Module, path: Path, shape: tuple[int, ...] = VECTOR) -> Path:
    """A file of the network for any number of records."""
    example = torch.zeros(2, *shape)
    dynamic = ({0: torch.export.Dim.DYNAMIC},)
    torch.export.save(torch.export.export(network.eval(), (example,), dynamic_shapes=dynamic), path)
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


def test_a_program_on_images(tmp_path: Path) -> None:
    network = convolutions()
    encoder = parse_features(f"module:{program(network, tmp_path / 'net.pt2', IMAGE)}")
    features = encoder.transform(IMAGES)
    assert features.shape == (7, 16) == (7, encoder.output_dim((8, 9, 3)))
    with torch.inference_mode():
        expected = network.eval()(torch.from_numpy(IMAGES / np.float32(255)).permute(0, 3, 1, 2)).flatten(1)
    assert np.allclose(features, expected, atol=1e-6)
    assert encoder.transform(IMAGES[:0]).shape == (0, 16)


@pytest.mark.parametrize("batch_size", [1, 4])
def test_per_record_to_the_bit(tmp_path: Path, batch_size: int) -> None:
    path = program(convolutions(), tmp_path / "net.pt2", IMAGE)
    check_per_record(ModuleEncoder(str(path), batch_size=batch_size), IMAGES)


def test_a_program_for_single_records(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("network", [Centred(), Noisy()])
def test_a_network_that_mixes_records_or_draws_numbers_is_refused(tmp_path: Path, network: nn.Module) -> None:
    path = program(network, tmp_path / "net.pt2")
    with refuses("module"):
        ModuleEncoder(str(path)).output_dim((5,))


def test_spec(tmp_path: Path) -> None:
    path = program(nn.Linear(5, 3), tmp_path / "net.pt2")
    spec = json.loads(json.dumps(ModuleEncoder(str(path)).spec()))
    assert spec["options"] == {"model": "net.pt2", "precision": "float32"}
    assert spec["weights_sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    rebuilt = from_spec(spec, model_path=f"{path}:trust")
    assert rebuilt.spec() == spec
    other = program(nn.Linear(5, 4), tmp_path / "other.pt2")
    with refuses("weights_sha256 of the model"):
        from_spec(spec, model_path=f"{other}:trust")


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".ts", ".torchscript"])
def test_torchscript_is_refused_in_a_certificate_too(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"net{suffix}"
    path.write_bytes(b"a program")
    spec = {"name": "module", "version": 1, "options": {"model": path.name}}
    for read in (lambda: ModuleEncoder(str(path)), lambda: from_spec(spec, model_path=f"{path}:trust")):
        with pytest.raises(InvalidInput, match="TorchScript is not read"):
            read()


def test_programs_of_a_spec_run_only_when_trusted_and_layers_need_no_trust(tmp_path: Path) -> None:
    path, layers = tmp_path / "net.pt2", tmp_path / "net.safetensors"
    path.write_bytes(b"a program")
    spec = ModuleEncoder(str(path)).spec()
    with pytest.raises(InvalidInput, match="FILE:trust"):
        from_spec(spec, model_path=path)
    assert from_spec(spec, model_path=f"{path}:trust").spec() == spec
    assert ":trust" in str(wanted_model(spec))
    save_file({"0.weight": torch.ones(2, 3)}, layers)
    spec = ModuleEncoder(str(layers)).spec()
    assert from_spec(spec, model_path=layers).spec() == spec


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("way", ["absolute", "relative", "home", "bare", "above", "windows"])
def test_a_spec_names_no_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, there: bool) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(tmp_path))
    named = {"absolute": str(tmp_path / "net.safetensors"), "bare": "net.safetensors", "above": "../net.safetensors"}
    named |= {"home": "~/net.safetensors", "relative": "./net.safetensors", "windows": "..\\net.safetensors"}
    if there:
        for place in (folder, tmp_path):
            save_file({"0.weight": torch.ones(2, 3)}, place / "net.safetensors")
    spec = {"name": "module", "version": 1, "options": {"model": named[way]}}
    # The same refusal whether the file exists or not: it was not even looked for.
    with pytest.raises(InvalidInput, match="a copy of the file" if way == "bare" else "a name without a path"):
        from_spec(spec)


def exported(path: Path, changes: dict[str, Any]) -> Path:
    """A program of torch.export, with entries of its archive replaced."""
    network = nn.Linear(5, 3).eval()
    torch.export.save(torch.export.export(network, (torch.zeros(1, 5),)), path.with_name("honest.pt2"))
    with zipfile.ZipFile(path.with_name("honest.pt2")) as old, zipfile.ZipFile(path, "w") as new:
        top = old.namelist()[0].partition("/")[0]
        for name in old.namelist():
            inside = name.partition("/")[2]
            change = changes.pop(inside, None)
            new.writestr(name, old.read(name) if change is None else change(old.read(name)))
        for inside, change in changes.items():
            new.writestr(f"{top}/{inside}", change(b""))
    return path


def pickled(what: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(what, buffer)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "place", ["sample inputs", "weights", "constants", "object", "opaque", "old weights", "compiled", "doubled"]
)
def test_a_trusted_program_is_still_not_unpickled(tmp_path: Path, place: str) -> None:
    proof = tmp_path / "proof"
    payload = (Payload(proof),)

    def weights(content: bytes) -> bytes:
        found = json.loads(content)
        found["config"]["weight"].update(use_pickle=True)
        return json.dumps(found).encode()

    def constants(name: str) -> Any:
        entry = {"path_name": name, "is_param": False, "use_pickle": True, "tensor_meta": None}
        return lambda _: json.dumps({"config": {"c": entry}}).encode()

    config = "data/constants/model_constants_config.json"
    unpickled = {"data/constants/" + name: lambda _: pickled(payload) for name in ("tensor_0", "custom_obj_0")}
    changes: dict[str, dict[str, Any]] = {
        "sample inputs": {"data/sample_inputs/model.pt": lambda _: pickled(payload)},
        "weights": {
            "data/weights/model_weights_config.json": weights,
            "data/weights/weight_0": lambda _: pickled(payload),
        },
        "constants": {config: constants("tensor_0"), **unpickled},
        "object": {config: constants("custom_obj_0"), **unpickled},
        "opaque": {config: constants("opaque_obj_0"), "data/constants/opaque_obj_0": lambda _: pickle.dumps(payload)},
        "old weights": {"data/weights/model.pt": lambda _: pickled(payload)},
        "compiled": {"data/aotinductor/model/a.so": lambda _: b""},
        "doubled": {"../other/data/sample_inputs/model.pt": lambda _: pickled(payload)},
    }
    path = exported(tmp_path / "net.pt2", changes[place])
    with refuses("module"):
        ModuleEncoder(str(path)).transform(X)
    assert not proof.exists()
    if place == "sample inputs":
        # The payload is one: torch by itself runs it.
        with contextlib.suppress(Exception):
            torch.export.load(path)
        assert proof.exists()


@pytest.mark.parametrize("shape", [(4,), (8, 8), (2, 2, 2, 2)])
def test_inputs_that_do_not_fit(tmp_path: Path, shape: tuple[int, ...]) -> None:
    encoder = ModuleEncoder(str(program(nn.Linear(5, 3), tmp_path / "net.pt2")))
    with pytest.raises(InvalidInput):
        encoder.output_dim(shape)


@pytest.mark.parametrize("name", ["net.pt2", "net.safetensors"])
def test_damaged_files(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"not a network")
    encoder: Any = parse_features(f"module:{tmp_path / name}")
    with refuses("module"):
        encoder.output_dim((5,))
