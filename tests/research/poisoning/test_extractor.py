"""Extractors for transfer learning: apart from the trainer's records, kept once, and frozen."""

from pathlib import Path

import numpy as np
import pytest
import torch

from privmix.research.poisoning.defences.mixup import Mixup
from privmix.research.poisoning.images import VictimImages
from privmix.research.poisoning.victims.extractor import held_apart, pretrained
from privmix.research.poisoning.victims.ordinary import Victim, VictimConfig
from tests.refusals import refuses

QUICK = VictimConfig(epochs=3, batch=16)


@pytest.fixture(scope="module")
def images() -> VictimImages:
    """Images of two classes that differ in brightness, each told apart from the others by one pixel."""
    rng = np.random.default_rng(0)
    labels = np.arange(120) % 2
    pixels = 0.5 * rng.random((120, 1, 8, 8)) + 0.4 * labels[:, None, None, None]
    pixels[:, 0, 0, 0] = np.arange(120) / 120
    return VictimImages.of(pixels, labels, classes=2)


def test_the_trainers_records_and_the_public_images_are_disjoint_and_classes_are_even(images: VictimImages) -> None:
    mine, public = held_apart(images, records=40, public=70)
    marks = mine.pixels[:, 0, 0, 0], public.pixels[:, 0, 0, 0]
    assert np.bincount(mine.labels).tolist() == [20, 20]
    assert [len(np.unique(part)) for part in marks] == [40, 70]
    assert not np.intersect1d(*marks).size


def test_what_is_kept_is_what_was_trained_and_other_settings_have_another_file(
    images: VictimImages, tmp_path: Path
) -> None:
    first = pretrained(images, QUICK, work=tmp_path)
    (kept,) = tmp_path.iterdir()
    before = kept.stat().st_mtime_ns
    again = pretrained(images, QUICK, work=tmp_path)
    assert kept.stat().st_mtime_ns == before
    np.testing.assert_array_equal(first.logits(images.pixels), again.logits(images.pixels))
    pretrained(images, QUICK, seed=1, work=tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
    # A kept file of other weights is refused.
    kept.write_bytes(kept.read_bytes()[:-4])
    with refuses("extractor.safetensors"):
        pretrained(images, QUICK, work=tmp_path)
    kept.unlink()
    kept.symlink_to("/dev/zero")
    with refuses("extractor.safetensors"):
        pretrained(images, QUICK, work=tmp_path)


@pytest.mark.parametrize("augmentation", [None, Mixup(2)])
def test_only_the_last_layer_is_trained_on_a_frozen_extractor(images: VictimImages, augmentation: Mixup | None) -> None:
    extractor = pretrained(images, QUICK)
    before = {name: value.clone() for name, value in extractor.network.state_dict().items()}
    made = Victim(QUICK, extractor).fit(images, seed=3, augmentation=augmentation)
    for name, value in made.network.body.state_dict().items():
        assert torch.equal(value, before[f"body.{name}"])
    assert not torch.equal(made.network.head.weight, before["head.weight"])
    assert (made.predict(images.pixels) == images.labels).mean() > 0.9
