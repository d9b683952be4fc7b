"""Models: sizes as in the papers, weights from a seed alone, specs that rebuild, records apart."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

from privmix.errors import InvalidInput, MissingExtra
from privmix.training.examples import ImageLayout
from privmix.training.models.base import Classifier, build_model, model_from_spec
from privmix.training.models.hf import PretrainedClassifier
from privmix.training.models.layers_check import check_independence, check_model
from privmix.training.models.networks import LinearHead, ReluCNN, ResNet9, StandardisedConv2d, TanhCNN, WideResNet
from tests.features.models import save_vision
from tests.refusals import refuses
from tests.training.runs import weights_made

NAMES = ["linear", "cnn", "cnn-relu", "resnet-9", "wrn-10-1"]
# ResNet's batch normalisation is refused later, by the check.
PRETRAINED = ["vit", "convnext", "dinov2", "clip", "resnet"]


def make(name: str, *, shape: tuple[int, ...] = (16, 16, 3), seed: int = 0, classes: int = 4) -> Classifier:
    return build_model(name, input_shape=shape, dim=ImageLayout.of_input(shape).dim, classes=classes, seed=seed)


def inputs(model: Classifier, records: int = 3, shape: tuple[int, ...] = (16, 16, 3)) -> Tensor:
    layout = ImageLayout.of_input(shape)
    x = torch.rand(records, layout.dim, generator=torch.Generator().manual_seed(7))
    return layout.to_images(x) if model.takes_images else x


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        pytest.param(lambda: WideResNet(channels_in=3, classes=10), 2_748_890, id="wrn-16-4"),
        pytest.param(lambda: WideResNet(channels_in=3, classes=10, depth=40), 8_949_210, id="wrn-40-4"),
        pytest.param(lambda: ResNet9(channels_in=3, classes=100), 6_619_300, id="resnet-9"),
        pytest.param(lambda: TanhCNN(channels_in=1, height=28, width=28, classes=10), 26_010, id="cnn-mnist"),
        pytest.param(lambda: TanhCNN(channels_in=3, height=32, width=32, classes=10), 550_570, id="cnn-cifar"),
        pytest.param(lambda: ReluCNN(channels_in=1, height=32, width=32, classes=10), 357_690, id="cnn-relu"),
        pytest.param(lambda: LinearHead(dim=512, classes=10), 5_130, id="linear"),
    ],
)
def test_sizes_are_those_of_the_papers(model: Any, expected: int) -> None:
    """Park et al. 2024, Tables 5 and 6 (2.74M, 8.94M, 6.62M, 0.55M, cut or rounded); Li et al. 2022, Table 5."""
    assert sum(parameter.numel() for parameter in model().parameters()) == expected


@pytest.mark.parametrize("name", NAMES)
def test_weights_come_from_the_seed_alone(name: str) -> None:
    made = []
    for seed, own in ((1, 5), (2, 5), (3, 6)):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        made.append(make(name, seed=own).state_dict())
        assert torch.equal(torch.get_rng_state(), before)
    first, *others = made
    alike = [all(torch.equal(first[key], other[key]) for key in first) for other in others]
    assert alike == [True, name == "linear"]


@pytest.mark.parametrize("shape", [(16, 16, 3), (20, 18)], ids=["colour", "grey"])
@pytest.mark.parametrize("name", NAMES)
def test_specs_rebuild_the_architecture(name: str, shape: tuple[int, ...]) -> None:
    model = make(name, shape=shape)
    spec = json.loads(json.dumps(model.spec()))
    before = torch.get_rng_state()
    again = model_from_spec(spec)
    assert torch.equal(torch.get_rng_state(), before)
    again.load_state_dict(model.state_dict())
    assert type(again) is type(model)
    assert again.spec() == spec
    x = inputs(model, shape=shape)
    assert model(x).shape == (3, 4)
    assert torch.equal(again(x), model(x))


@pytest.mark.parametrize(("name", "layer"), [("wrn-10-1", "stem"), ("resnet-9", "layer0.0")])
def test_images_are_centred(name: str, layer: str) -> None:
    """A constant image of 1/2 is zero inside: the first convolution, which has no bias, gives zero."""
    model, seen = make(name), list[Tensor]()
    model.get_submodule(layer).register_forward_hook(lambda module, args, out: seen.append(args[0]))
    for grey in (0.5, 1.0, 0.0):
        model(torch.full((1, 3, 16, 16), grey))
    assert [float(x.min()) for x in seen] == [float(x.max()) for x in seen] == [0.0, 1.0, -1.0]


def test_standardised_filters() -> None:
    """Mean 0 and norm 1 whatever the weights' shift and scale; the naive formula agrees."""
    torch.manual_seed(0)
    conv = StandardisedConv2d(6, 4, 3, groups=2)
    filters = conv.standardise(conv.weight)
    rows = conv.weight.flatten(1)
    naive = (rows - rows.mean(1, keepdim=True)) / (rows.var(1, unbiased=False, keepdim=True) * rows.shape[1]).sqrt()
    assert torch.allclose(filters.flatten(1), naive, atol=1e-5)
    assert torch.allclose(conv.standardise(3 * conv.weight + 1), filters, atol=1e-5)
    x = torch.rand(2, 6, 5, 5)
    assert torch.allclose(conv(x), functional.conv2d(x, filters, conv.bias, groups=2))
    assert all(isinstance(m, StandardisedConv2d) for m in make("wrn-16-1").modules() if isinstance(m, nn.Conv2d))


@pytest.mark.parametrize("length", [1e-30, 1e-3, 1.0, 1e30])
def test_linear_scales_each_record_to_the_norm(length: float) -> None:
    head = LinearHead(dim=8, classes=2, norm=3.0)
    x = torch.randn(4, 8) * length
    x[1] = 0
    scaled = head.scaled(x)
    assert torch.allclose(scaled.norm(dim=1), torch.tensor([3.0, 0.0, 3.0, 3.0]), rtol=1e-5)
    assert not any(parameter.any() for parameter in head.parameters())
    assert torch.equal(LinearHead(dim=8, classes=2).scaled(x), x)


@pytest.mark.parametrize("name", ["vgg", "wrn-", "wrn-16-4x", "hf:", "HF:x", "", None, 3], ids=str)
def test_unknown_names_list_the_known(name: Any) -> None:
    with refuses("model"):
        make(name)


@pytest.mark.parametrize(
    ("name", "shape", "norm", "field"),
    [
        ("wrn-17-4", (32, 32, 3), None, "depth"),
        ("wrn-4-4", (32, 32, 3), None, "depth"),
        ("wrn-16-0", (32, 32, 3), None, "width"),
        ("wrn-16-1", (784,), None, "input shape"),
        ("cnn", (6, 6), None, "input shape"),
        ("cnn-relu", (3, 32), None, "input shape"),
        ("resnet-9", (7, 32), None, "input shape"),
        ("cnn", (28, 28), 1.0, "norm"),
        ("linear", (28, 28), 0.0, "norm"),
    ],
)
def test_what_does_not_fit_is_refused(name: str, shape: tuple[int, ...], norm: float | None, field: str) -> None:
    with pytest.raises(InvalidInput, match=f"^{field}: "):
        build_model(name, input_shape=shape, dim=784, classes=2, seed=0, norm=norm)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    pytest.importorskip("transformers")
    root = tmp_path_factory.mktemp("models")
    return {kind: save_vision(kind, root / f"tiny-{kind}") for kind in PRETRAINED}


def pretrained(folders: dict[str, Path], kind: str, prefix: str = "hf", **options: Any) -> PretrainedClassifier:
    if kind == "convnext":
        # The configuration has no size; the file that has it comes with the model.
        (folders[kind] / "preprocessor_config.json").write_text(json.dumps({"size": {"shortest_edge": 32}}))
    model = make(f"{prefix}:{folders[kind]}", **options)
    assert isinstance(model, PretrainedClassifier)
    return model


@pytest.mark.parametrize("kind", PRETRAINED)
def test_pretrained_models(folders: dict[str, Path], kind: str) -> None:
    """The folder's weights, zero logits at first, a spec without paths that rebuilds it all, a trainable backbone."""
    model, saved = pretrained(folders, kind), load_file(folders[kind] / "model.safetensors")
    # Libraries rename weights between file and memory: random tensors are known by what they hold.
    backbone = [tensor for name, tensor in model.model.state_dict().items() if not name.startswith("classifier.")]
    assert len(backbone) > 5
    assert all(any(torch.equal(one, tensor) for one in saved.values()) for tensor in backbone)
    x = inputs(model, 2)
    assert model(x).tolist() == [[0.0] * 4] * 2
    assert str(folders[kind]) not in json.dumps(model.spec())
    again = rebuilt(model)
    assert torch.equal(again.eval()(x), model.eval()(x))
    assert again.spec() == model.spec()
    names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    assert [name for name, parameter in again.named_parameters() if parameter.requires_grad] == names
    gradients = torch.autograd.grad(model(x).square().sum(), [model.get_parameter(name) for name in names])
    assert len(gradients) > 2


def shapes_of(model: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}


def rebuilt(model: PretrainedClassifier) -> Classifier:
    """From the specification and the weights, which are others than at the start."""
    jitter(model)
    again = model_from_spec(json.loads(json.dumps(model.spec())), shapes_of(model))
    again.load_state_dict(model.state_dict())
    return again


CODE = {
    "auto_map": {"AutoModelForImageClassification": "evil/model--net.Net"},
    **dict.fromkeys(("attn_implementation", "_attn_implementation", "_attn_implementation_internal"), "evil/kernel"),
    "experts_implementation": "evil/kernel",
    **dict.fromkeys(("trust_remote_code", "use_pretrained_backbone", "use_kernels"), True),
    "_name_or_path": "/etc/passwd",
    "name_or_path": "evil/model",
    "quantization_config": {"quant_method": "evil"},
    "backbone": "evil/backbone",
}


@pytest.mark.parametrize("kind", PRETRAINED)
def test_what_names_code_or_addresses_is_left_out(folders: dict[str, Path], kind: str) -> None:
    model = pretrained(folders, kind)
    spec = json.loads(json.dumps(model.spec()))
    honest = json.dumps(spec["config"])
    spec["config"].update(CODE)
    for half in ("vision_config", "text_config"):
        if half in spec["config"]:
            spec["config"][half].update(CODE)
    assert json.dumps(model_from_spec(spec, shapes_of(model)).spec()["config"]) == honest


HOSTILE: dict[str, list[Any]] = {
    "model_type": ["../vit", None],
    "hidden_act": ["evil/kernel", "torch.nn.ReLU"],
    "hidden_size": ["8" * 100, [8] * 1000, {"a": 1}],
    "num_hidden_layers": [65_000, 10**9, -1],
    "num_attention_heads": [0],
    "patch_size": [0],
    # Of the images, not of the configuration.
    "side": [10**9, 4097],
    "height": [10**9],
    "mean": [[1]],
    "model": [{}],
}
HOSTILE_CONFIGS: list[dict[str, Any]] = [
    *({key: value} for key, values in HOSTILE.items() for value in values),
    {"model_type": "timm_wrapper", "architecture": "hf-hub:evil/model"},
    {"hidden_size": 10**6, "intermediate_size": 10**6},
    {"image_size": 60_000, "patch_size": 1},
    {"width": 60_000, "height": 60_000},
]


@pytest.mark.parametrize("changes", HOSTILE_CONFIGS, ids=lambda changes: str(changes)[:50])
def test_configurations_of_strangers_are_refused_without_memory(
    folders: dict[str, Path], changes: dict[str, Any]
) -> None:
    model = pretrained(folders, "vit")
    spec = json.loads(json.dumps(model.spec()))
    (spec if {"side", "height", "mean", "model"} & set(changes) else spec["config"]).update(changes)
    with weights_made() as taken, pytest.raises(InvalidInput):
        model_from_spec(spec, shapes_of(model))
    assert sum(taken) == 0
    assert len(taken) <= len(shapes_of(model)) + 2


@pytest.mark.parametrize("name", NAMES)
def test_every_architecture_fits_its_own_weights_and_no_others(name: str) -> None:
    model = make(name)
    spec, shapes = json.loads(json.dumps(model.spec())), shapes_of(model)
    assert model_from_spec(spec, shapes).spec() == spec
    wrong = [(spec, {**shapes, "more": (1,)}), (spec, dict(list(shapes.items())[1:]))]
    for key, value in spec.items():
        if isinstance(value, int):
            # More groups than a layer can have are as many as it can have.
            others = (10**5, 10**30, -1, *([] if key == "groups" else [value + 7]))
            wrong += [({**spec, key: other}, shapes) for other in others]
    for other, fitting in wrong:
        with pytest.raises(InvalidInput):
            model_from_spec(other, fitting)


def jitter(model: nn.Module) -> None:
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=generator)


def test_pretrained_preprocessing_is_the_librarys(folders: dict[str, Path]) -> None:
    """Stretched as torch does, and normalised by the constants of the model's file; grey gets three channels."""
    file, means, stds = folders["vit"] / "preprocessor_config.json", [0.1, 0.2, 0.3], [0.5, 0.6, 0.7]
    file.write_text(json.dumps({"size": 32, "image_mean": means, "image_std": stds}))
    model = pretrained(folders, "vit")
    seen: list[Tensor] = []
    model.model.register_forward_hook(
        lambda module, args, kwargs, out: seen.append(kwargs["pixel_values"]), with_kwargs=True
    )
    x = inputs(model, 2)
    model(x)
    big = functional.interpolate(x, size=(32, 32), mode="bicubic", antialias=True, align_corners=False).clamp(0, 1)
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (means, stds))
    assert torch.allclose(seen[0], (big - mean) / std, atol=1e-5)
    file.unlink()
    grey = pretrained(folders, "vit", shape=(40, 36))
    assert grey(inputs(grey, 2, (40, 36))).shape == (2, 4)


def test_frozen_backbones_train_the_head(folders: dict[str, Path]) -> None:
    model = pretrained(folders, "vit", "hf-head")
    trained = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    assert trained == ["model.classifier.weight", "model.classifier.bias"]


@pytest.mark.parametrize("kind", ["vit", "convnext", "dinov2", "clip"])
def test_pretrained_records_apart(folders: dict[str, Path], kind: str) -> None:
    model = pretrained(folders, kind)
    check_model(model)
    check_independence(model, (3, 16, 16))
    with pytest.raises(InvalidInput, match="BatchNorm2d"):
        check_model(pretrained(folders, "resnet"))


def test_pretrained_dropout_is_off(folders: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(folders["vit"], tmp_path / "vit")
    file, chances = tmp_path / "vit" / "config.json", ("hidden_dropout_prob", "attention_probs_dropout_prob")
    file.write_text(json.dumps({**json.loads(file.read_text()), **dict.fromkeys(chances, 0.5)}))
    model = make(f"hf:{tmp_path / 'vit'}")
    check_model(model)
    check_independence(model, (3, 16, 16))


def test_pretrained_refusals(folders: dict[str, Path], tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "none"):
        with refuses("model"):
            make(f"hf:{place}")
    with refuses("channels"):
        pretrained(folders, "vit", shape=(16, 16, 2))
    (tmp_path / "config.json").write_text((folders["vit"] / "config.json").read_text())
    weights = load_file(folders["vit"] / "model.safetensors")
    weights.pop("vit.embeddings.cls_token")
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with refuses("model") as error:
        make(f"hf:{tmp_path}")
    assert str(tmp_path.parent) not in str(error.value)


def test_low_rank_changes_train_little_and_come_back(folders: dict[str, Path]) -> None:
    pytest.importorskip("peft")
    whole, model = pretrained(folders, "vit"), pretrained(folders, "vit", "hf-lora")
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert {name for name in trained if ".lora_" not in name} == {"model.classifier.weight", "model.classifier.bias"}
    assert any(".lora_A." in name for name in trained)
    # The second factor is zero: at first nothing is changed, and what is frozen is the pretrained model's.
    frozen = dict(whole.named_parameters())
    kept = {name.replace(".base_layer", ""): one for name, one in model.named_parameters() if name not in trained}
    assert all(torch.equal(one, frozen[name]) for name, one in kept.items())
    assert set(frozen) == {*kept, "model.classifier.weight", "model.classifier.bias"}
    check_model(model)
    check_independence(model, inputs(model, 1).shape[1:])
    again, x = rebuilt(model), inputs(model, 2)
    assert torch.equal(again.eval()(x), model.eval()(x))


def test_low_rank_changes_name_their_extra(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(MissingExtra, match=r"\.\[lora\]"):
        pretrained(folders, "vit", "hf-lora")
