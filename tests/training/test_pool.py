"""Pools of public examples: classes by name, shapes, and errors that say what is wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from privmix.errors import InvalidInput
from privmix.features import Identity, Pixels
from privmix.training.layout import ImageLayout
from privmix.training.pool import Pool

CLASSES = ("zebra", "ant", "cat")


def write_images(folder: Path, values: dict[str, list[int]], size: tuple[int, int] = (4, 5), mode: str = "L") -> Path:
    for name, greys in values.items():
        (folder / name).mkdir(parents=True)
        for number, grey in enumerate(greys):
            Image.new(mode, (size[1], size[0]), (grey,) * 3 if mode == "RGB" else grey).save(
                folder / name / f"{number}.png"
            )
    return folder


def test_of_arrays() -> None:
    x = np.arange(24, dtype=np.uint8).reshape(2, 2, 2, 3)
    pool = Pool.of(x, np.array([2, 0]), classes=3)
    assert pool.input_shape == (2, 2, 3)
    assert torch.equal(pool.x, torch.arange(24.0).view(2, 12) / 255)
    assert pool.targets.tolist() == [[0, 0, 1], [1, 0, 0]]
    assert (len(pool), pool.dim, pool.classes) == (2, 12, 3)
    # Tensors, and vectors as they are.
    vectors = Pool.of(torch.tensor([[2.0, -1.0]]), torch.tensor([1]), classes=2)
    assert vectors.x.tolist() == [[2.0, -1.0]]
    assert vectors.input_shape is None


def test_folder_is_matched_by_name(tmp_path: Path) -> None:
    folder = write_images(tmp_path / "pool", {"ant": [10, 20], "zebra": [30]})
    pool = Pool.open(folder, Pixels(), CLASSES, input_shape=(4, 5))
    grey = (pool.x[:, 0] * 255).round().int().tolist()
    assert dict(zip(grey, pool.targets.argmax(dim=1).tolist(), strict=True)) == {10: 1, 20: 1, 30: 0}
    assert pool.classes == 3
    assert pool.input_shape == (4, 5)
    pool.check(classes=3, layout=ImageLayout(1, 4, 5))


def test_unknown_folders_are_refused(tmp_path: Path) -> None:
    folder = write_images(tmp_path / "pool", {"ant": [1], "wolf": [2], "yak": [3]})
    with pytest.raises(InvalidInput, match=r"pool labels .*outside the class list.*zebra, ant, cat"):
        Pool.open(folder, Pixels(), CLASSES, input_shape=(4, 5))


def test_unknown_classes_of_a_pool_with_a_list_are_named(tmp_path: Path) -> None:
    file = tmp_path / "pool.npz"
    np.savez(file, x=np.eye(3), y=np.arange(3), classes=np.array(["ant", "wolf", "yak"]))
    with pytest.raises(InvalidInput, match=r"class list.*'wolf', 'yak'.*zebra, ant, cat"):
        Pool.open(file, Identity(), CLASSES)


def test_classes_without_examples_do_not_matter(tmp_path: Path) -> None:
    file = tmp_path / "pool.npz"
    np.savez(file, x=np.eye(2), y=np.array([2, 1]), classes=np.array(["wolf", "cat", "ant"]))
    assert Pool.open(file, Identity(), CLASSES).targets.argmax(dim=1).tolist() == [1, 2]


def test_formats_without_a_class_list_use_the_private_one(tmp_path: Path) -> None:
    names, digits = tmp_path / "names.csv", tmp_path / "digits.npz"
    names.write_text("a,b,label\n1,2,cat\n3,4,zebra\n")
    assert Pool.open(names, Identity(), CLASSES).targets.argmax(dim=1).tolist() == [2, 0]
    np.savez(digits, x=np.eye(2), y=np.array([2, 0]))
    assert Pool.open(digits, Identity(), CLASSES).targets.argmax(dim=1).tolist() == [2, 0]
    names.write_text("a,b,label\n1,2,cat\n3,4,wolf\n")
    with pytest.raises(InvalidInput, match=r"pool labels .*outside the class list.*zebra, ant, cat"):
        Pool.open(names, Identity(), CLASSES)


def test_digits_are_places_in_the_class_list(tmp_path: Path) -> None:
    folder = write_images(tmp_path, {"0": [1], "2": [3]})
    pool = Pool.open(folder, Pixels(), CLASSES, input_shape=(4, 5))
    assert pool.targets.argmax(dim=1).tolist() == [0, 2]


def test_options_reach_the_reader(tmp_path: Path) -> None:
    file = tmp_path / "pool.csv"
    file.write_text("a,kind\n1,cat\n")
    assert Pool.open(file, Identity(), CLASSES, label_column="kind").x.tolist() == [[1.0]]
    folder = write_images(tmp_path / "images", {"ant": [10]}, size=(8, 10))
    assert Pool.open(folder, Pixels(), CLASSES, image_size=(4, 5), input_shape=(4, 5)).dim == 20


def test_other_images_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "pool.npz", x=np.ones((1, 5, 4), np.uint8), y=np.array([1]))
    with pytest.raises(InvalidInput, match=r"\(5, 4\); allowed: \(4, 5\) as the private inputs"):
        Pool.open(tmp_path / "pool.npz", Pixels(), CLASSES, input_shape=(4, 5))
    # Encoded images become such as the private ones are.
    folder = write_images(tmp_path / "grey", {"ant": [1]}, size=(5, 4))
    assert Pool.open(folder, Pixels(), CLASSES, input_shape=(4, 5)).input_shape == (4, 5)
    pool = Pool.open(folder, Pixels(), CLASSES, input_shape=(5, 4))
    # As many pixels, yet other images.
    with pytest.raises(InvalidInput, match="5 x 4 pixels in 1 channels'; allowed: 4 x 5 pixels in 1 channels"):
        pool.check(classes=3, layout=ImageLayout(1, 4, 5))
    folder = write_images(tmp_path / "colour", {"ant": [1]}, mode="RGB")
    colour = Pool.open(folder, Pixels(), CLASSES, input_shape=(4, 5, 3))
    with pytest.raises(InvalidInput, match="in 3 channels"):
        colour.check(classes=3, layout=ImageLayout(1, 4, 5))
    with pytest.raises(InvalidInput, match="classes of the pool: got 3; allowed: 2"):
        colour.check(classes=2, layout=None)


def test_values_beyond_the_unit_range_are_no_images() -> None:
    layout = ImageLayout(1, 1, 2)
    for values in ([[-0.1, 0.5]], [[0.5, 200.0]]):
        with pytest.raises(InvalidInput, match=r"outside \[0, 1\]"):
            Pool.of(np.array(values), np.array([0]), classes=1).check(classes=1, layout=layout)
    Pool.of(np.array([[0.0, 1.0]]), np.array([0]), classes=1).check(classes=1, layout=layout)
    with pytest.raises(InvalidInput, match="features of the pool: got '3 an example'"):
        Pool.of(np.zeros((1, 3)), np.array([0]), classes=1).check(classes=1, layout=layout)


@pytest.mark.parametrize(
    ("x", "labels", "words"),
    [
        (np.zeros((2, 3)), np.array([0, 5]), r"pool labels outside the class list: got \[5\]"),
        (np.zeros((2, 3)), np.array([0, -1]), r"pool labels outside the class list: got \[-1\]"),
        (np.zeros((2, 3)), np.array([0.0, 1.0]), "pool labels"),
        (np.zeros((2, 3)), np.array([0]), "pool labels"),
        (np.zeros(3), np.array([0, 1, 0]), "pool"),
        (np.zeros((0, 3)), np.zeros(0, dtype=int), "at least one"),
        (np.array([["a"]]), np.array([0]), "numbers"),
        (np.array([[np.nan]]), np.array([0]), "finite"),
    ],
    ids=["beyond", "negative", "fractions", "too few", "one axis", "empty", "texts", "nan"],
)
def test_arrays_are_checked(x: np.ndarray, labels: np.ndarray, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        Pool.of(x, labels, classes=2)


def test_targets_are_distributions() -> None:
    soft = Pool(torch.zeros(2, 3), torch.tensor([[0.5, 0.5], [0.1, 0.9]]))
    assert soft.take(torch.tensor([[1], [0]]))[1][0, 0].tolist() == pytest.approx([0.1, 0.9])
    for row in ([0.5, 0.6], [-0.5, 1.5]):
        with pytest.raises(InvalidInput, match="distributions"):
            Pool(torch.zeros(1, 3), torch.tensor([row]))


def test_fingerprint_is_of_the_content() -> None:
    x, y = np.eye(3, dtype=np.float32), np.array([0, 1, 1])
    base = Pool.of(x, y, classes=2)
    assert base.fingerprint() == Pool.of(x.astype(np.float64), torch.from_numpy(y), classes=2).fingerprint()
    assert len(base.fingerprint()) == 64
    others = [
        Pool.of(x + 1e-6, y, classes=2),
        Pool.of(x, y, classes=3),
        Pool.of(x, y[::-1].copy(), classes=2),
        Pool.of(x[::-1].copy(), y, classes=2),
        Pool.of(x[:2], y[:2], classes=2),
    ]
    assert len({pool.fingerprint() for pool in [base, *others]}) == 6
