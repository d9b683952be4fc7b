"""Views of a record: the set of Algorithm 1, the laws of its mixes, and that a record's views are its own."""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from privmix.errors import InvalidInput
from privmix.training.examples import ImageLayout, PublicData
from privmix.training.views.augment import Flip, Noise, parse_augmentations
from privmix.training.views.augmentation import RecordRandom
from privmix.training.views.config import ViewConfig
from privmix.training.views.pipeline import MicrobatchMixer, Mixing, ViewPipeline
from tests.refusals import refuses

CLASSES = 4
LAYOUT = ImageLayout(3, 8, 8)


def batch(count: int, *shape: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(count)
    x = torch.rand(count, *shape, generator=generator)
    labels = torch.randint(CLASSES, (count,), generator=generator)
    return x, labels, torch.randint(2**62, (count,), generator=generator)


def pool_of(examples: int, dim: int) -> PublicData:
    generator = np.random.default_rng(examples)
    return PublicData.of(generator.random((examples, dim)), generator.integers(0, CLASSES, examples), CLASSES)


def images(config: ViewConfig) -> ViewPipeline:
    pool = pool_of(7, LAYOUT.dim) if config.k_diff else None
    return ViewPipeline(config, LAYOUT, classes=CLASSES, pool=pool)


def vectors(config: ViewConfig, dim: int = 6) -> ViewPipeline:
    return ViewPipeline(config, classes=CLASSES, pool=pool_of(7, dim) if config.k_diff else None)


EVERYTHING = ViewConfig(5, 6, 2, parse_augmentations("crop,all,noise,flip"))
CASES: dict[str, tuple[Callable[[ViewConfig], ViewPipeline], ViewConfig, tuple[int, ...]]] = {
    "plain": (images, ViewConfig.plain(), (192,)),
    "self aug": (images, ViewConfig.self_aug(4), (192,)),
    "mix self": (images, ViewConfig.dp_mix_self(4, 5), (192,)),
    "mix diff": (images, ViewConfig.dp_mix_diff(4, 5, 2), (192,)),
    "pure diff": (images, ViewConfig.pure_diff(4, 5), (192,)),
    "everything": (images, EVERYTHING, (192,)),
    "cutmix": (images, dataclasses.replace(EVERYTHING, mixing="cutmix", keep_first=True), (192,)),
    "image bank": (images, EVERYTHING, (6, 192)),
    "vectors": (vectors, ViewConfig(2, 5, 2), (6,)),
    "vector bank": (vectors, ViewConfig(3, 5, 0), (5, 6)),
}


@pytest.mark.parametrize("name", CASES)
def test_own_record_only(name: str) -> None:
    make, config, shape = CASES[name]
    pipeline = make(config)
    x, labels, seeds = batch(9, *shape)
    views, targets = pipeline(x, labels, seeds)
    assert views.shape[:2] == (9, config.views)
    assert targets.shape == (9, config.views, CLASSES)
    other_x, other_labels, other_seeds = 1 - x, (labels + 1) % CLASSES, seeds + 1
    other_x[4], other_labels[4], other_seeds[4] = x[4], labels[4], seeds[4]
    changed, changed_targets = pipeline(other_x, other_labels, other_seeds)
    assert torch.equal(changed[4], views[4])
    assert torch.equal(changed_targets[4], targets[4])
    if name != "pure diff":
        assert not torch.equal(changed[3], views[3])
    for index in ([4], [8, 4, 0], []):
        part, part_targets = pipeline(x[index], labels[index], seeds[index])
        assert torch.equal(part, views[index])
        assert torch.equal(part_targets, targets[index])


@pytest.mark.parametrize("name", CASES)
def test_views_stay_in_range_and_targets_are_distributions(name: str) -> None:
    make, config, shape = CASES[name]
    views, targets = make(config)(*batch(30, *shape))
    assert 0 <= views.min() <= views.max() <= 1
    assert targets.min() >= 0
    assert (targets.sum(dim=2) - 1).abs().max() < 1e-6


def test_plain_is_the_record() -> None:
    x, labels, seeds = batch(5, LAYOUT.dim)
    views, targets = images(ViewConfig.plain())(x, labels, seeds)
    assert torch.equal(views[:, 0], LAYOUT.to_images(x))
    assert torch.equal(targets[:, 0].argmax(dim=1), labels)
    copies, _ = vectors(ViewConfig(k_base=3), LAYOUT.dim)(x, labels, seeds)
    assert torch.equal(copies, x[:, None].expand(-1, 3, -1))


def test_keep_first_leaves_the_first_copy_alone() -> None:
    x, labels, seeds = batch(5, LAYOUT.dim)
    config = ViewConfig(3, 0, 0, (Noise(),))
    plain, _ = images(config)(x, labels, seeds)
    kept, _ = images(dataclasses.replace(config, keep_first=True))(x, labels, seeds)
    assert torch.equal(kept[:, 0], LAYOUT.to_images(x))
    assert torch.equal(kept[:, 1:], plain[:, 1:])
    assert not torch.equal(plain[:, 0], kept[:, 0])


def test_bank_views_are_drawn_without_replacement() -> None:
    bank = torch.arange(4.0)[None, :, None].expand(400, -1, 1)
    labels, seeds = torch.zeros(400, dtype=torch.int64), torch.arange(400)
    drawn = vectors(ViewConfig(k_base=2), 1)(bank, labels, seeds)[0][..., 0].sort(dim=1).values.unique(dim=0)
    assert len(drawn) == 6
    assert (drawn[:, 0] < drawn[:, 1]).all()
    with refuses("views in the bank"):
        vectors(ViewConfig(k_base=5), 1)(bank, labels, seeds)


def test_pool_examples_are_distinct_and_carry_their_labels() -> None:
    pool = PublicData.of(np.arange(5.0)[:, None], np.array([3, 1, 0, 2, 1]), CLASSES)
    x, labels, seeds = torch.full((600, 1), 9.0), torch.zeros(600, dtype=torch.int64), torch.arange(600)
    views, targets = of(1, 0, 2, pool=pool)(x, labels, seeds)
    assert (views[:, 0] == 9).all()
    drawn = views[:, 1:, 0].long()
    assert torch.equal(targets[:, 1:], pool.targets[drawn])
    kinds = drawn.sort(dim=1).values.unique(dim=0)
    assert len(kinds) == 10
    assert (kinds[:, 0] < kinds[:, 1]).all()


def test_mixes_are_of_the_records_own_pairs_and_weights() -> None:
    """Of unit vectors, so that a mix shows its pair and weight. Their laws: test_record_random.py."""
    random, coded = RecordRandom(torch.arange(400)), torch.eye(4).expand(400, -1, -1)
    mixed, targets = Mixing(alpha=0.4)(coded, coded, 3, random)
    assert torch.equal(mixed, targets)
    assert (mixed.sum(dim=2) - 1).abs().max() < 1e-6
    first, second = random.pairs("pair", 4, 3)
    weight = random.beta("weight", 0.4, 3)
    # A naive loop, one mix after the other.
    for place in range(0, 400, 20):
        for mix in range(3):
            expected = torch.zeros(4)
            expected[first[place, mix]] += weight[place, mix]
            expected[second[place, mix]] += 1 - weight[place, mix]
            assert torch.equal(mixed[place, mix], expected)
    assert ((mixed > 1e-6).sum(dim=2) <= 2).all()


def test_mixes_are_of_the_views_before_them() -> None:
    x, labels, seeds = batch(6, LAYOUT.dim)
    config = dataclasses.replace(EVERYTHING, k_base=2, k_diff=1, k_self=8)
    views, targets = images(config)(x, labels, seeds)
    flat = views.flatten(start_dim=2).double()
    for record in range(6):
        members, own = flat[record, :3], targets[record, :3].double()
        for mix, target in zip(flat[record, 3:], targets[record, 3:].double(), strict=True):
            shares = np.linalg.lstsq(members.T.numpy(), mix.numpy(), rcond=None)[0]
            np.testing.assert_allclose(members.T.numpy() @ shares, mix, atol=1e-5)
            assert abs(shares.sum() - 1) < 1e-4
            assert np.sort(np.abs(shares))[0] < 1e-4  # one of three takes no part
            np.testing.assert_allclose(shares @ own.numpy(), target, atol=1e-4)


def test_cutmix_boxes_and_labels_by_area() -> None:
    height, width, sets = 6, 9, 3000
    members = torch.tensor([0.0, 1.0])[None, :, None, None, None].expand(sets, -1, 2, height, width)
    targets = torch.eye(2).expand(sets, -1, -1)
    random = RecordRandom(torch.arange(sets))
    mixed, mixed_targets = Mixing("cutmix", 1.0)(members, targets, 1, random)
    first, _ = random.pairs("pair", 2, 1)
    weight = random.beta("weight", 1.0, 1)
    clipped = 0
    for place in range(sets):
        box = (mixed[place, 0, 0] != float(first[place, 0])).numpy()
        assert torch.equal(mixed[place, 0, 0], mixed[place, 0, 1])
        area = box.mean()
        np.testing.assert_allclose(mixed_targets[place, 0, first[place, 0]], 1 - area, atol=1e-6)
        if area == 0:
            continue
        rows, columns = np.flatnonzero(box.any(axis=1)), np.flatnonzero(box.any(axis=0))
        assert box[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1].all()
        side = (1 - float(weight[place, 0])) ** 0.5
        full = round(side * height), round(side * width)
        assert len(rows) <= full[0]
        assert len(columns) <= full[1]
        if rows[0] > 0 and rows[-1] < height - 1 and columns[0] > 0 and columns[-1] < width - 1:
            assert (len(rows), len(columns)) == full
        clipped += (len(rows), len(columns)) != full
    assert clipped > 0


def test_pure_diff_knows_nothing_of_the_record() -> None:
    pipeline = images(ViewConfig.pure_diff(3, 4))
    x, labels, seeds = batch(5, LAYOUT.dim)
    found, other = pipeline(x, labels, seeds), pipeline(torch.rand_like(x), (labels + 1) % CLASSES, seeds)
    assert all(map(torch.equal, found, other))
    assert not torch.equal(found[0], pipeline(x, labels, seeds + 1)[0])


def of(*counts: int, classes: int = CLASSES, pool: PublicData | None = None, **how: str) -> ViewPipeline:
    return ViewPipeline(ViewConfig(*counts, **how), classes=classes, pool=pool)


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: ViewConfig(0), "k_base, k_diff"),
        (lambda: ViewConfig(1, 1), "k_self"),
        (lambda: ViewConfig(0, 1, 1), "k_self"),
        (lambda: ViewConfig(augmentations=(Flip(), Flip())), "augmentations"),
        (lambda: ViewPipeline(ViewConfig.self_aug(), classes=2), "augmentations"),
        (lambda: of(2, 1, mixing="cutmix"), "mixing"),
        (lambda: of(1, 0, 2), "pool"),
        (lambda: of(pool=pool_of(3, 2)), "pool"),
        (lambda: of(1, 0, 4, pool=pool_of(3, 2)), "k_diff"),
        (lambda: of(1, 0, 1, classes=9, pool=pool_of(3, 2)), "classes of the pool"),
        (
            lambda: ViewPipeline(ViewConfig(1, 0, 1), LAYOUT, classes=CLASSES, pool=pool_of(3, 2)),
            "features of the pool",
        ),
        (lambda: vectors(ViewConfig(1, 0, 1), 6)(*batch(3, 5)), "features of the pool"),
        # Equal copies are not mixed.
        (lambda: images(ViewConfig(2, 1)).check_records((LAYOUT.dim,)), "k_self"),
        (lambda: vectors(ViewConfig(2, 1)).check_records((LAYOUT.dim,)), "k_self"),
    ],
)
def test_parts_must_fit_together(make: Callable[[], object], field: str) -> None:
    with refuses(field):
        make()


def test_no_message_holds_the_size_of_a_batch() -> None:
    x, labels, seeds = batch(7321, LAYOUT.dim)
    pipeline = images(ViewConfig.plain())
    wrong = [{"x": x[:, :-1]}, {"x": x[:, 0]}, {"x": x.to(torch.uint8)}]
    wrong += [{"labels": labels[:-1]}, {"labels": labels.int()}, {"seeds": seeds[:-1]}, {"seeds": seeds.int()}]
    for changes in wrong:
        with pytest.raises(InvalidInput) as caught:
            pipeline(*{"x": x, "labels": labels, "seeds": seeds, **changes}.values())
        assert "732" not in str(caught.value)


def test_microbatch_mixes_distinct_records() -> None:
    x, labels = torch.eye(4), torch.arange(4)
    mixer = MicrobatchMixer(CLASSES, mixes=3)
    views, targets = mixer(x, labels, seed=5)
    assert torch.equal(views[:4], x)
    assert torch.equal(views, targets)
    assert ((views[4:] > 0).sum(dim=1) <= 2).all()
    assert torch.equal(views, mixer(x, labels, seed=5)[0])
    assert not torch.equal(views, mixer(x, labels, seed=6)[0])
    only = dataclasses.replace(mixer, keep=False)(x, labels, seed=5)
    assert all(map(torch.equal, only, (views[4:], targets[4:])))
    pairs = torch.stack([mixer(x, labels, seed)[0][4] for seed in range(200)])
    assert ((pairs > 0).sum(dim=1) == 2).float().mean() > 0.8
    assert (pairs.amax(dim=1) < 0.99).any()


def test_microbatch_of_one_stays_itself() -> None:
    image = torch.rand(1, LAYOUT.dim)
    for keep in (True, False):
        views, targets = MicrobatchMixer(CLASSES, LAYOUT, keep=keep)(image, torch.tensor([2]), seed=1)
        assert torch.equal(views, LAYOUT.to_images(image))
        assert targets.tolist() == [[0, 0, 1, 0]]
