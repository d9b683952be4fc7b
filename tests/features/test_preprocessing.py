"""What a model's files say of the images it wants, in all the forms they use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from privmix.errors import InvalidInput
from privmix.features.vision import FILE, Preprocessing

HALF = [0.5, 0.5, 0.5]


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
