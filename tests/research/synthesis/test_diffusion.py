"""Training: killed runs go on to the same model; blocks and augmentation change nothing that they must not."""

from __future__ import annotations

import resource
from pathlib import Path

import numpy as np
import pytest
import torch

from privmix.errors import InvalidInput, StorageError
from privmix.research.synthesis import model
from privmix.research.synthesis.augment import NonLeaking
from privmix.research.synthesis.diffusion import DiffusionConfig, train_diffusion
from tests.refusals import refuses

pytest.importorskip("diffusers")

X = np.random.default_rng(0).random((40, 1, 8, 8)).astype(np.float32)
Y = np.arange(40) % 3


def tiny(steps: int, **others: object) -> DiffusionConfig:
    settings = {"network": "tiny", "batch_size": 8, "ramp_up": 32, "half_life": 64, **others}
    return DiffusionConfig(steps=steps, **settings)  # type: ignore[arg-type]


def weights(model: object) -> list[torch.Tensor]:
    return [*model.denoiser.parameters()]  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def whole():
    return train_diffusion(X, Y, 3, tiny(6))


def test_a_killed_run_goes_on_to_the_same_model(tmp_path: Path, whole: object) -> None:
    train_diffusion(X, Y, 3, tiny(4), checkpoint=tmp_path)
    resumed = train_diffusion(X, Y, 3, tiny(6), checkpoint=tmp_path)
    assert all(torch.equal(a, b) for a, b in zip(weights(whole), weights(resumed), strict=True))
    other = train_diffusion(X, Y, 3, tiny(6, seed=1))
    assert not torch.equal(weights(whole)[0], weights(other)[0])


def test_a_run_whose_time_was_up_is_done(tmp_path: Path) -> None:
    first = train_diffusion(X, Y, 3, tiny(50), minutes=1e-9, checkpoint=tmp_path)
    again = train_diffusion(X, Y, 3, tiny(50), minutes=1e-9, checkpoint=tmp_path)
    assert first.steps == again.steps == 1


def test_a_checkpoint_of_other_images_is_refused(tmp_path: Path) -> None:
    train_diffusion(X, Y, 3, tiny(1), checkpoint=tmp_path)
    with pytest.raises(StorageError, match="other images"):
        train_diffusion(X[::-1].copy(), Y, 3, tiny(1), checkpoint=tmp_path)
    (tmp_path / "diffusion.safetensors").write_bytes(b"short")
    with pytest.raises(StorageError, match="cannot be read"):
        train_diffusion(X, Y, 3, tiny(1), checkpoint=tmp_path)


def test_a_full_disk_is_said_in_a_line(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(StorageError, match="cannot write the checkpoint"):
            train_diffusion(X, Y, 3, tiny(1), checkpoint=tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    # What was written of it is no checkpoint.
    assert train_diffusion(X, Y, 3, tiny(1), checkpoint=tmp_path).steps == 1


def test_blocks_change_nothing(whole) -> None:
    labels = np.arange(6) % 3
    together = np.concatenate(list(whole.draw(labels, seed=3, batch_size=6)))
    apart = np.concatenate(list(whole.draw(labels, seed=3, batch_size=2)))
    later = np.concatenate(list(whole.draw(labels[4:], seed=3, first=4)))
    assert together.shape == (6, 8, 8)
    assert together.dtype == np.uint8
    # Rounding inside the network may move a pixel by one level.
    for one, other in ((together, apart), (together[4:], later)):
        assert np.abs(one.astype(int) - other.astype(int)).max() <= 1
    assert not np.array_equal(together, np.concatenate(list(whole.draw(labels, seed=4))))


def test_the_layout_of_the_weights_changes_nothing(whole, monkeypatch) -> None:
    drawn = {"labels": np.arange(6) % 3, "seed": 3, "sampler": whole.process.sampler(4)}
    (fast,) = whole.draw(**drawn)
    assert any(not weight.is_contiguous() for weight in weights(whole))
    monkeypatch.setattr(model, "layout", lambda precision, device: torch.contiguous_format)
    (plain,) = whole.draw(**drawn)
    assert all(weight.is_contiguous() for weight in weights(whole))
    # As for blocks, by rounding alone.
    assert np.abs(fast.astype(int) - plain.astype(int)).max() <= 1


def test_global_randomness_is_left_alone() -> None:
    before = torch.get_rng_state()
    train_diffusion(X, Y, 3, tiny(1))
    assert torch.equal(before, torch.get_rng_state())


def test_augmentation_tells_what_it_did() -> None:
    images = torch.from_numpy(X) * 2 - 1
    changed, told = NonLeaking(probability=0.5, mirror=True)(images, torch.Generator().manual_seed(0))
    moved = (changed != images).flatten(1).any(1)
    assert told.shape == (40, 9)
    assert torch.equal(moved, told.any(1))
    only_mirrored, told = NonLeaking(probability=0.0, mirror=True)(images, torch.Generator().manual_seed(0))
    left = told[:, 0] == 1
    assert torch.allclose(only_mirrored[left], images[left].flip(-1), atol=1e-5)
    assert 0 < left.sum() < 40
    assert torch.equal(only_mirrored[~left], images[~left])


def test_averaged_weights_forget_at_the_half_life() -> None:
    config = DiffusionConfig(batch_size=10, half_life=1000, ema_ramp=0.05)
    assert config.decay(10**6) == pytest.approx(0.5 ** (10 / 1000))
    assert config.decay(0) < config.decay(100) < config.decay(10**6)


@pytest.mark.parametrize(
    "wrong", [{"network": "huge"}, {"precision": "half"}, {"augment_probability": 2.0}, {"learning_rate": 0.0}]
)
def test_wrong_settings_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        train_diffusion(X, Y, 3, tiny(1, **wrong))


def test_images_that_do_not_fit_are_refused() -> None:
    with refuses("images"):
        train_diffusion(X[:, 0], Y, 3, tiny(1))
    with refuses("labels"):
        train_diffusion(X, Y + 2, 3, tiny(1))
    with refuses("images"):
        train_diffusion(X[:, :, :7], Y, 3, tiny(1))
