"""Pictures of inversions and mixed labels are drawn from a record's content alone."""

import base64
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from privmix.research.inversion.picture import draw_inversion, unpack_images
from tests.refusals import refuses


@pytest.mark.parametrize("shape", [(3, 2, 8, 9, 3), (3, 2, 8, 8, 1)])
def test_pictures_are_drawn(shape: tuple[int, ...], tmp_path: Path) -> None:
    pictures = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    images = {"shape": list(shape), "uint8": base64.b64encode(pictures.tobytes()).decode()}
    images |= {"row_labels": ["raw", "no noise", "ε = 8"], "column_labels": ["image 1", "image 2"]}
    cases = [{"m": 1, "epsilon": None, "ssim": 0.9}, {"m": 1, "epsilon": 8.0, "ssim": 0.1}]
    record: dict[str, Any] = {"cases": cases, "images": images}
    assert unpack_images(record["images"]).shape == shape
    draw_inversion(record, tmp_path / "picture.png")
    # Black frame apart, the drawing shows many greys: the images are in it.
    assert len(np.unique(np.asarray(Image.open(tmp_path / "picture.png").convert("L")))) > 100
    draw_inversion(record, tmp_path / "picture.svg")
    assert "<svg" in (tmp_path / "picture.svg").read_text()
    record["images"]["shape"] = [*shape[:-1], shape[-1] + 1]
    with refuses("images"):
        draw_inversion(record, tmp_path / "other.png")
    assert not (tmp_path / "other.png").exists()
