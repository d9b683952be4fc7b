"""Image folders."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from privmix.data import open_dataset
from privmix.errors import InvalidInput
from tests.data.helpers import png

IMAGES = np.random.default_rng(0).integers(0, 256, size=(3, 5, 6, 3), dtype=np.uint8)


def fill(folder: Path, images: np.ndarray = IMAGES) -> Path:
    for name, image in zip(["dog/b.png", "dog/a.PNG", "cat/z.png"], images, strict=True):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(image))
    (folder / "dog" / "notes.txt").write_text("not an image")
    (folder / ".cache").mkdir(exist_ok=True)
    return folder


def test_classes_by_folder_in_alphabetical_order(tmp_path: Path) -> None:
    source = open_dataset(fill(tmp_path))
    assert source.schema.classes == ("cat", "dog")
    assert (source.schema.records, source.schema.input_shape) == (3, (5, 6, 3))
    data = source.read()
    assert data.y.tolist() == [0, 1, 1]
    assert np.array_equal(data.x, IMAGES[[2, 1, 0]])


def test_grey(tmp_path: Path) -> None:
    assert open_dataset(fill(tmp_path, IMAGES[..., 0])).schema.input_shape == (5, 6)


def test_splits_are_sub_folders(tmp_path: Path) -> None:
    fill(tmp_path / "train")
    fill(tmp_path / "test")
    (tmp_path / "test" / "dog" / "b.png").unlink()
    assert open_dataset(tmp_path).schema.records == 3
    assert open_dataset(tmp_path, split="test").schema.records == 2
    with pytest.raises(InvalidInput, match="split"):
        open_dataset(tmp_path, split="val")


def test_a_folder_without_splits_is_the_training_split(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="split"):
        open_dataset(fill(tmp_path), split="test")


def test_declared_classes_may_be_wider_but_not_narrower(tmp_path: Path) -> None:
    fill(tmp_path)
    assert open_dataset(tmp_path, classes=["bee", "cat", "dog"]).read().y.tolist() == [1, 2, 2]
    with pytest.raises(InvalidInput, match="sub-folder of"):
        open_dataset(tmp_path, classes=["dog"])


def test_other_modes_become_colour(tmp_path: Path) -> None:
    fill(tmp_path)
    Image.fromarray(IMAGES[0]).convert("RGBA").save(tmp_path / "dog" / "b.png")
    Image.fromarray(IMAGES[1]).convert("L").save(tmp_path / "dog" / "a.PNG")
    data = open_dataset(tmp_path).read()
    assert np.array_equal(data.x[2], IMAGES[0])
    assert data.x.shape == (3, 5, 6, 3)


@pytest.mark.parametrize("content", [b"", b"Smith", png(IMAGES[0])[:60], png(IMAGES[0][:2])])
def test_damaged_and_odd_images_are_refused_silently(tmp_path: Path, content: bytes) -> None:
    fill(tmp_path)
    (tmp_path / "dog" / "b.png").rename(tmp_path / "dog" / "Smith.png")
    (tmp_path / "dog" / "Smith.png").write_bytes(content)
    with pytest.raises(InvalidInput) as caught:
        open_dataset(tmp_path).read()
    assert "Smith" not in str(caught.value)


def test_more_than_8_bits_are_refused(tmp_path: Path) -> None:
    fill(tmp_path)
    Image.fromarray(np.full((5, 6), 40_000, dtype=np.uint16)).save(tmp_path / "cat" / "z.png")
    with pytest.raises(InvalidInput, match="8 bits a channel"):
        open_dataset(tmp_path)


def test_no_images(tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    with pytest.raises(InvalidInput, match="no image"):
        open_dataset(tmp_path)
