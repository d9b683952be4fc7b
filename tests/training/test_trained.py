"""Trained models: loaded ones predict the same bits, and edited ones are refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from privmix.errors import InvalidInput, StorageError
from privmix.mechanisms.streams import SecretStreams
from privmix.training.examples import ModelFacts
from privmix.training.models.base import build_model
from privmix.training.trained import TrainedModel, load_trained
from tests.hostile.corpus import certify, edit
from tests.refusals import refuses
from tests.training.runs import FACTS, config_of, job_of, private, weights_made, weights_of


@pytest.fixture(scope="module")
def linear() -> TrainedModel:
    return job_of().run(private(), streams=SecretStreams.from_seed(0))


@pytest.fixture
def folder(linear: TrainedModel, tmp_path: Path) -> Path:
    linear.write(tmp_path)
    return tmp_path


def test_an_edited_certificate_and_edited_weights_are_refused(folder: Path) -> None:
    content = (folder / "weights.safetensors").read_bytes()
    (folder / "weights.safetensors").write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with refuses("weights.safetensors"):
        load_trained(folder)
    edit(folder / "certificate.json", lambda content: content["guarantee"].update(epsilon=0.1))
    with refuses("certificate.json"):
        load_trained(folder)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda content: content["classes"].reverse(), "classes"),
        (lambda content: content.update(classes=["a"]), "classes"),
        (lambda content: content.update(extractor={"name": "scattering"}), "extractor"),
        (lambda content: content.update(format="other"), "privmix-trained-model"),
        (lambda content: content.update(schema_version=2), "version 1"),
        (lambda content: content.update(network="linear"), "network"),
        (lambda content: content["network"].update(architecture="vgg"), "architecture"),
        (lambda content: content["network"].update(layers=3), "as in the certificate"),
        (lambda content: content["network"].update(dim=63), "network"),
        (lambda content: content.pop("dim"), "dim"),
    ],
    ids=["order", "few", "extractor", "format", "version", "network", "vgg", "options", "width", "dim"],
)
def test_an_edited_description_is_refused(change: Any, named: str, folder: Path) -> None:
    edit(folder / "model.json", change)
    with pytest.raises(InvalidInput, match=named):
        load_trained(folder)


@pytest.mark.parametrize("name", ["model.json", "certificate.json", "weights.safetensors"])
def test_a_missing_or_damaged_file_is_named(name: str, folder: Path) -> None:
    for content in (b"", b"{", b"\xff\xfe\x00", b"[]"):
        (folder / name).write_bytes(content)
        with pytest.raises((StorageError, InvalidInput), match=name.removesuffix(".json")):
            load_trained(folder)
    (folder / name).unlink()
    with pytest.raises(StorageError, match=name.removesuffix(".json")):
        load_trained(folder)


@pytest.mark.parametrize("shape", [(5, 63), (5, 65), (64,), (5, 8, 8)])
def test_other_features_are_refused(shape: tuple[int, ...], linear: TrainedModel) -> None:
    with refuses("features"):
        linear.predict(np.zeros(shape))
    with refuses("features"):
        linear.predict(np.full((1, 64), np.nan))
    assert linear.predict(np.zeros((0, 64))).shape == (0,)


def test_facts_are_checked() -> None:
    for classes in ((), ("a",), (1, 2)):
        with pytest.raises(InvalidInput, match="classes"):
            ModelFacts(classes, {}, (4,), 4)
    with pytest.raises(InvalidInput, match="dim"):
        ModelFacts(("a", "b"), {}, (4,), 0)
    assert FACTS.layout is not None
    assert ModelFacts(FACTS.classes, {"name": "identity"}, (8, 8), 64).layout is None


def test_another_run_of_the_job_leaves_the_model_alone() -> None:
    job = job_of()
    first = job.run(private(), streams=SecretStreams.from_seed(0))
    before = weights_of(first).clone()
    for seed in (1, 0):
        other = job.run(private(), streams=SecretStreams.from_seed(seed))
        assert torch.equal(weights_of(first), before)
        # Each run begins with the job's initial weights.
        assert torch.equal(weights_of(other), before) is (seed == 0)


def hostile(folder: Path, network: dict[str, Any]) -> None:
    """Another network in the description and in a certificate with a new hash; the weights stay."""
    edit(folder / "model.json", lambda content: content.update(network=network))
    certify(folder, lambda content: content["settings"].update(network=network))


@pytest.mark.parametrize(
    "network",
    [
        {"architecture": "linear", "dim": 10**6, "classes": 10**5, "norm": None},
        {"architecture": "linear", "dim": 640, "classes": 1, "norm": None},
        {"architecture": "linear", "dim": 2**62, "classes": 2**62, "norm": None},
        {"architecture": "tanh-cnn", "channels_in": 60_000, "height": 60_000, "width": 60_000, "classes": 60_000},
        {"architecture": "relu-cnn", "channels_in": 1, "height": 50_000, "width": 50_000, "classes": 10},
        {"architecture": "resnet-9", "channels_in": 1, "classes": 10, "width": 60_000, "groups": 1},
        {"architecture": "wide-resnet", "channels_in": 1, "classes": 10, "depth": 60_004, "width": 1, "groups": 1},
        {"architecture": "wide-resnet", "channels_in": 1, "classes": 10, "depth": 10, "width": 60_000, "groups": 1},
    ],
    ids=lambda network: "-".join(map(str, list(network.values())[:3])),
)
def test_a_network_larger_than_its_weights_is_refused_without_memory(network: dict[str, Any], folder: Path) -> None:
    hostile(folder, network)
    with weights_made() as made, pytest.raises(InvalidInput, match="network"):
        load_trained(folder)
    assert sum(made) == 0
    assert len(made) <= 10


@pytest.mark.parametrize(
    "changes",
    [
        {"input_shape": [4, 15]},
        {"input_shape": [10**9, 10**9]},
        {"dim": 63},
        {"classes": ["a", "b"]},
        {"input_shape": [[8], 8]},
    ],
    ids=str,
)
def test_facts_that_do_not_fit_the_network_are_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    job_of(config_of("cnn-relu", epochs=0.2)).run(private(), streams=SecretStreams.from_seed(0)).write(tmp_path)
    edit(tmp_path / "model.json", lambda content: content.update(changes))
    if "classes" in changes:
        hostile(tmp_path, json.loads((tmp_path / "model.json").read_text())["network"])
    with pytest.raises(InvalidInput):
        load_trained(tmp_path)


def test_a_batch_is_smaller_where_the_model_sees_larger_images() -> None:
    network = build_model("linear", input_shape=(64,), dim=64, classes=10, seed=0)
    sizes: list[int] = []
    network.register_forward_hook(lambda module, given, _: sizes.append(len(given[0])))
    model = TrainedModel(network, FACTS, {})
    model.predict(np.zeros((600, 64), np.float32))
    network.values_a_record = lambda dim: 2**23  # type: ignore[method-assign]
    model.predict(np.zeros((6, 64), np.float32))
    assert sizes == [512, 88, 4, 2]
