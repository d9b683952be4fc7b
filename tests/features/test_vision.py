"""Image encoders: an image's embedding is its own, and the library's."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from privmix.errors import InvalidInput
from privmix.features.base import parse_features
from privmix.features.spec import from_spec
from privmix.features.vision import FILE, Preprocessing, VisionEncoder
from tests.features.models import check_per_record, save_vision
from tests.refusals import refuses

pytest.importorskip("transformers")

DIMS = {"vit": 32, "clip": 16, "dinov2": 32, "convnext": 24, "resnet": 24}
IMAGES = np.random.default_rng(0).integers(0, 256, size=(6, 20, 24, 3), dtype=np.uint8)
HALF = [0.5, 0.5, 0.5]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("vision")
    return {kind: save_vision(kind, root / f"tiny-{kind}") for kind in DIMS}


def build(folders: dict[str, Path], kind: str, **options: Any) -> VisionEncoder:
    return VisionEncoder(str(folders[kind]), image_size=56 if kind == "dinov2" else 32, **options)


@pytest.mark.parametrize("kind", list(DIMS))
def test_shapes_and_types(folders: dict[str, Path], kind: str) -> None:
    encoder = build(folders, kind)
    features = encoder.transform(IMAGES)
    assert features.shape == (6, DIMS[kind]) == (6, encoder.output_dim(IMAGES.shape[1:]))
    assert features.dtype == np.float32
    assert np.ptp(features, axis=0).max() > 0
    assert np.allclose(encoder.transform(IMAGES.astype(np.float32) / 255), features, atol=1e-6)
    assert encoder.transform(IMAGES[:0]).shape == (0, DIMS[kind])
    unit = build(folders, kind, normalize=True).transform(IMAGES)
    assert np.allclose(unit, features / np.linalg.norm(features, axis=1, keepdims=True), atol=1e-6)


@pytest.mark.parametrize("batch_size", [1, 4])
@pytest.mark.parametrize("kind", list(DIMS))
def test_per_record_to_the_bit(folders: dict[str, Path], kind: str, batch_size: int) -> None:
    check_per_record(build(folders, kind, batch_size=batch_size), IMAGES)


def test_the_library_agrees(folders: dict[str, Path]) -> None:
    """On images of the model's own size: normalised by ImageNet's or CLIP's constants, pooled as documented."""
    import transformers

    images = np.random.default_rng(1).random((2, 32, 32, 3), dtype=np.float32)
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    pixels = torch.from_numpy(((images - mean) / std).transpose(0, 3, 1, 2).astype(np.float32))
    with torch.inference_mode():
        vit = transformers.ViTModel.from_pretrained(folders["vit"]).eval()(pixels).last_hidden_state[:, 0]
        convnext = transformers.AutoModel.from_pretrained(folders["convnext"]).eval()(pixels).pooler_output
    assert np.allclose(build(folders, "vit").transform(images), vit, atol=1e-5)
    assert np.allclose(build(folders, "convnext").transform(images), convnext, atol=1e-5)
    mean, std = np.array([0.48145466, 0.4578275, 0.40821073]), np.array([0.26862954, 0.26130258, 0.27577711])
    pixels = torch.from_numpy(((images - mean) / std).transpose(0, 3, 1, 2).astype(np.float32))
    with torch.inference_mode():
        clip = transformers.CLIPModel.from_pretrained(folders["clip"]).eval().get_image_features(pixels)
    embeds = clip if isinstance(clip, torch.Tensor) else clip.pooler_output
    assert np.allclose(build(folders, "clip").transform(images), embeds, atol=1e-5)


def test_grey_images_have_three_equal_channels(folders: dict[str, Path]) -> None:
    encoder = build(folders, "vit")
    grey = IMAGES[..., 0]
    expected = encoder.transform(np.repeat(grey[..., None], 3, axis=3))
    assert np.array_equal(encoder.transform(grey), expected)
    assert np.array_equal(encoder.transform(grey[..., None]), expected)
    for shape in ((3,), (8, 8, 4), (2, 8, 8, 3)):
        with refuses("input shape for vision"):
            encoder.output_dim(shape)


def test_preprocessing_is_the_models(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = save_vision("convnext", tmp_path / "model")
    (folder / FILE).write_text(json.dumps({"size": 40, "image_mean": HALF, "image_std": HALF}))
    encoder = VisionEncoder(str(folder))
    assert encoder._preprocessing == Preprocessing(40, (0.5,) * 3, (0.5,) * 3)
    assert encoder.fingerprint() != VisionEncoder(str(folders["convnext"])).fingerprint()


def of(folder: Path, config: Any, model_type: str = "vit", *sizes: Any) -> Preprocessing:
    (folder / FILE).write_text(config if isinstance(config, str) else json.dumps(config))
    return Preprocessing.of(folder, model_type=model_type, sizes=sizes)


@pytest.mark.parametrize(
    ("config", "side"),
    [
        ({"crop_size": {"height": 40}, "size": 48}, 40),
        ({"crop_size": 40, "do_center_crop": False, "size": [48, 48]}, 48),
        ({"size": {"shortest_edge": 48}}, 48),
        ({"size": "large"}, 96),
        ({}, 96),
    ],
)
def test_side_is_the_first_that_is_stated(config: dict[str, Any], side: int, tmp_path: Path) -> None:
    assert of(tmp_path, config, "vit", None, 96).side == side


def test_constants_are_the_models_or_those_of_its_kind(tmp_path: Path) -> None:
    assert of(tmp_path, {"image_mean": HALF, "image_std": HALF}).mean == tuple(HALF)
    assert of(tmp_path, {"do_normalize": False, "image_mean": HALF}).std == (1.0, 1.0, 1.0)
    plain, clip = of(tmp_path, {}), of(tmp_path, {}, "clip_vision_model")
    assert plain.mean != clip.mean
    assert plain.side == clip.side == 224


@pytest.mark.parametrize("config", ["{", "[]", {"image_std": [1, 0, 1]}, {"image_mean": [1, 2]}, {"image_mean": "x"}])
def test_damaged_files_are_refused(config: Any, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput):
        of(tmp_path, config)


def test_spec(folders: dict[str, Path]) -> None:
    encoder = build(folders, "vit")
    spec = json.loads(json.dumps(encoder.spec()))
    assert spec["options"]["model"] == "tiny-vit"
    assert str(folders["vit"].parent) not in json.dumps(spec)
    # The checkpoint's pooler is absent and drawn anew at every load: it is no part of the digest.
    rebuilt = from_spec(spec, model_path=folders["vit"])
    assert rebuilt.fingerprint() == encoder.fingerprint()
    assert np.array_equal(rebuilt.transform(IMAGES), encoder.transform(IMAGES))
    with refuses("weights_sha256 of the model"):
        from_spec(spec, model_path=folders["dinov2"])
    assert parse_features(f"vision:{folders['vit']}").spec()["weights_sha256"] == spec["weights_sha256"]


def test_models_that_do_not_fit(folders: dict[str, Path], tmp_path: Path) -> None:
    with refuses("model"):
        VisionEncoder(str(folders["vit"]), image_size=40).output_dim((8, 8))
    # The checkpoint lacks a pooler.
    with refuses("model"):
        build(folders, "vit", pooling="pooler").transform(IMAGES)
    (tmp_path / "empty").mkdir()
    with refuses("model"):
        parse_features(f"vision:{tmp_path / 'empty'}").output_dim((8, 8))
    with refuses("pooling"):
        build(folders, "vit", pooling="max")
