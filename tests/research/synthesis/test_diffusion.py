"""Training: killed runs go on to the same model; blocks and augmentation change nothing that they must not."""

import resource
from pathlib import Path

import numpy as np
import pytest
import torch

from privmix.errors import StorageError
from privmix.research.synthesis.diffusion import DiffusionConfig, train_diffusion

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
