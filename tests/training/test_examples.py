"""Public examples: classes by name, shapes, batches that depend on their name alone, and errors that help."""

from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from privmix.errors import InvalidInput
from privmix.features.identity import Identity, Pixels
from privmix.training.examples import ImageLayout, PublicData
from tests.refusals import refuses
from tests.training.public.helpers import public_data

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
    pool = PublicData.of(x, np.array([2, 0]), classes=3)
    assert pool.input_shape == (2, 2, 3)
    assert torch.equal(pool.x, torch.arange(24.0).view(2, 12) / 255)
    assert pool.targets.tolist() == [[0, 0, 1], [1, 0, 0]]
    assert (pool.size, pool.dim, pool.classes) == (2, 12, 3)
    assert pool.x.dtype == pool.targets.dtype == torch.float32
    # Tensors, and vectors as they are.
    vectors = PublicData.of(torch.tensor([[2.0, -1.0]]), torch.tensor([1]), classes=2)
    assert vectors.x.tolist() == [[2.0, -1.0]]
    assert vectors.input_shape is None


def test_folder_is_matched_by_name(tmp_path: Path) -> None:
    folder = write_images(tmp_path / "pool", {"ant": [10, 20], "zebra": [30]})
    pool = PublicData.open(folder, Pixels(), CLASSES, input_shape=(4, 5))
    grey = (pool.x[:, 0] * 255).round().int().tolist()
    assert dict(zip(grey, pool.targets.argmax(dim=1).tolist(), strict=True)) == {10: 1, 20: 1, 30: 0}
    assert pool.classes == 3
    assert pool.input_shape == (4, 5)
    pool.check(classes=3, layout=ImageLayout(1, 4, 5))


def test_unknown_classes_of_a_pool_with_a_list_are_named(tmp_path: Path) -> None:
    file = tmp_path / "pool.npz"
    np.savez(file, x=np.eye(3), y=np.arange(3), classes=np.array(["ant", "wolf", "yak"]))
    with pytest.raises(InvalidInput, match=r"class list.*'wolf', 'yak'.*zebra, ant, cat"):
        PublicData.open(file, Identity(), CLASSES)
    # Classes without examples do not matter.
    np.savez(file, x=np.eye(2), y=np.array([2, 1]), classes=np.array(["wolf", "cat", "ant"]))
    assert PublicData.open(file, Identity(), CLASSES).targets.argmax(dim=1).tolist() == [1, 2]


def test_formats_without_a_class_list_use_the_private_one(tmp_path: Path) -> None:
    names, digits = tmp_path / "names.csv", tmp_path / "digits.npz"
    names.write_text("a,b,label\n1,2,cat\n3,4,zebra\n")
    assert PublicData.open(names, Identity(), CLASSES).targets.argmax(dim=1).tolist() == [2, 0]
    np.savez(digits, x=np.eye(2), y=np.array([2, 0]))
    assert PublicData.open(digits, Identity(), CLASSES).targets.argmax(dim=1).tolist() == [2, 0]
    names.write_text("a,b,label\n1,2,cat\n3,4,wolf\n")
    with pytest.raises(InvalidInput, match=r"public labels .*outside the class list.*zebra, ant, cat"):
        PublicData.open(names, Identity(), CLASSES)


def test_options_reach_the_reader(tmp_path: Path) -> None:
    file = tmp_path / "pool.csv"
    file.write_text("a,kind\n1,cat\n")
    assert PublicData.open(file, Identity(), CLASSES, label_column="kind").x.tolist() == [[1.0]]
    folder = write_images(tmp_path / "images", {"ant": [10]}, size=(8, 10))
    assert PublicData.open(folder, Pixels(), CLASSES, image_size=(4, 5), input_shape=(4, 5)).dim == 20


def test_other_images_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "pool.npz", x=np.ones((1, 5, 4), np.uint8), y=np.array([1]))
    with pytest.raises(InvalidInput, match=r"\(5, 4\); allowed: \(4, 5\) as the private inputs"):
        PublicData.open(tmp_path / "pool.npz", Pixels(), CLASSES, input_shape=(4, 5))
    # Encoded images become such as the private ones are.
    folder = write_images(tmp_path / "grey", {"ant": [1]}, size=(5, 4))
    assert PublicData.open(folder, Pixels(), CLASSES, input_shape=(4, 5)).input_shape == (4, 5)
    pool = PublicData.open(folder, Pixels(), CLASSES, input_shape=(5, 4))
    # As many pixels, yet other images.
    folder = write_images(tmp_path / "colour", {"ant": [1]}, mode="RGB")
    colour = PublicData.open(folder, Pixels(), CLASSES, input_shape=(4, 5, 3))
    for other in (pool, colour):
        with refuses("images of the pool"):
            other.check(classes=3, layout=ImageLayout(1, 4, 5))
    with refuses("classes of the pool"):
        colour.check(classes=2, layout=None)


def test_values_beyond_the_unit_range_are_no_images() -> None:
    for row, field in (
        ([-0.1, 0.5], "images of the pool"),
        ([0.5, 200.0], "images of the pool"),
        ([0.0, 0.0, 0.0], "features of the pool"),
        ([0.0, 1.0], None),
    ):
        with refuses(field) if field else nullcontext():
            PublicData.of(np.array([row]), np.array([0]), classes=2).check(classes=2, layout=ImageLayout(1, 1, 2))


def test_arrays_are_checked() -> None:
    for labels in ([0, 5], [0, -1], [0.0, 1.0], [0], [[0], [0]]):
        with pytest.raises(InvalidInput, match="public labels"):
            PublicData.of(np.zeros((2, 3)), np.array(labels), classes=2)
    for x in (np.zeros(1), np.zeros((0, 3)), np.array([["a"]]), np.array([[np.nan]])):
        with pytest.raises(InvalidInput):
            PublicData.of(x, np.zeros(len(x), dtype=int), classes=2)
    with refuses("classes"):
        PublicData.of([[0.0]], [0], classes=1)


def test_targets_are_distributions() -> None:
    soft = PublicData(torch.zeros(2, 3), torch.tensor([[0.5, 0.5], [0.1, 0.9]]))
    assert soft.take(torch.tensor([[1], [0]]))[1][0, 0].tolist() == pytest.approx([0.1, 0.9])
    for row in ([0.5, 0.6], [-0.5, 1.5], [float("nan"), 1.0]):
        with refuses("public targets"):
            PublicData(torch.zeros(1, 3), torch.tensor([row]))


def test_fingerprint_is_of_the_content() -> None:
    x, y = np.eye(3, dtype=np.float32), np.array([0, 1, 1])
    base = PublicData.of(x, y, classes=2)
    assert base.fingerprint() == PublicData.of(x.astype(np.float64), torch.from_numpy(y), classes=2).fingerprint()
    assert len(base.fingerprint()) == 64
    parts = [(x + 1e-6, y, 2), (x, y, 3), (x, y[::-1].copy(), 2), (x[::-1].copy(), y, 2), (x[:2], y[:2], 2)]
    others = [
        *(PublicData.of(features, labels, classes=classes) for features, labels, classes in parts),
        PublicData(base.x, base.targets.roll(1, dims=1)),
        PublicData(base.x.reshape(3, 3, 1), base.targets),
    ]
    assert len({pool.fingerprint() for pool in [base, *others]}) == 8


def test_join_puts_synthetic_records_after_the_real_ones() -> None:
    first, second = public_data(3), public_data(5, seed=1)
    both = first.join(second)
    assert torch.equal(both.x, torch.cat([first.x, second.x]))
    assert torch.equal(both.targets, torch.cat([first.targets, second.targets]))
    with refuses("joined data"):
        first.join(public_data(5, dim=6))


def rows_of(data: PublicData, x: Tensor) -> list[int]:
    return [int((data.x == row).all(dim=1).nonzero()) for row in x]


def test_a_batch_depends_on_seed_step_and_part_alone() -> None:
    data = public_data()
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    names = [(step, seed, part) for step in range(3) for seed in range(3) for part in range(3)]
    forward = [rows_of(data, data.batch(step, 6, seed, part)[0]) for step, seed, part in names]
    backward = [rows_of(data, data.batch(step, 6, seed, part)[0]) for step, seed, part in reversed(names)]
    assert forward == backward[::-1]
    assert len({tuple(rows) for rows in forward}) == len(names)
    x, targets = data.batch(0, data.size, seed=0)
    assert sorted(rows_of(data, x)) == list(range(data.size))
    assert torch.equal(targets, data.targets[rows_of(data, x)])
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (np.random.get_state()[1] == before[1]).all()  # noqa: NPY002


def test_the_augmentation_gets_seeds_that_name_the_batch() -> None:
    data, seen = public_data(), []

    def augment(x: Tensor, targets: Tensor, seeds: Tensor) -> tuple[Tensor, Tensor]:
        seen.append(seeds)
        return x + 1, targets

    plain, _ = data.batch(2, 6, seed=0)
    augmented, _ = data.batch(2, 6, seed=0, augment=augment)
    assert torch.equal(augmented, plain + 1)
    for step in (2, 3):
        data.batch(step, 6, seed=0, augment=augment)
    assert torch.equal(seen[0], seen[1])
    assert seen[0].dtype == torch.int64
    assert len(set(seen[0].tolist()) | set(seen[2].tolist())) == 12
    with refuses("augmented batch"):
        data.batch(0, 6, seed=0, augment=lambda x, targets, seeds: (x, targets[1:]))
