"""Scattering: equal to kymatio, to its definition, and a function of one record only."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from privmix.features.base import parse_features
from privmix.features.dense_scattering import MAX_PADDED, TILE
from privmix.features.scattering import _YCBCR, Scattering, scatter, scatter_fft
from privmix.features.spec import from_spec
from privmix.features.wavelets import filter_bank
from tests.refusals import refuses

REFERENCE = Path(__file__).with_name("scattering_reference.npz")
SHAPES = [(28, 28), (32, 32), (8, 8), (21, 30)]


@pytest.mark.parametrize(("height", "width"), SHAPES)
def test_equals_kymatio(height: int, width: int) -> None:
    with np.load(REFERENCE) as arrays:
        images, expected = arrays[f"images_{height}x{width}"], arrays[f"maps_{height}x{width}"]
    maps = scatter(torch.from_numpy(images).float() / 255).numpy()
    assert maps.shape == expected.shape
    # kymatio writes pi as 3.1415 in its normalisation, hence not closer than 2e-5.
    assert np.abs(maps - expected).max() < 1e-4
    # Most coefficients are far smaller than 1e-4 would show: compare each order by its own size too.
    for order in (slice(0, 1), slice(1, 17), slice(17, 81)):
        error = np.linalg.norm(maps[:, order] - expected[:, order]) / np.linalg.norm(expected[:, order])
        assert error < 2e-4


@pytest.mark.parametrize(("height", "width"), [*SHAPES, (5, 5), (40, 12), (9, 31), (60, 50)])
def test_dense_products_equal_the_definition_in_double_precision(height: int, width: int) -> None:
    """And large images, which take the FFT, agree with it across chunks."""
    images = torch.rand(13, height, width, generator=torch.Generator().manual_seed(1))
    bank = filter_bank(height, width)
    assert (max(bank.padded) > MAX_PADDED) == (height == 60)
    assert (scatter(images) - scatter_fft(images.double(), bank)).abs().max() < 2e-6


@pytest.mark.parametrize("extractor", [Scattering(), Scattering(ycbcr=True, mirror=True)], ids=["plain", "photographs"])
def test_per_record_bits_do_not_depend_on_the_other_records(extractor: Scattering) -> None:
    """Formal guarantee: an output row depends on its own input row only."""
    generator = np.random.default_rng(3)
    shape = (2 * TILE + 5, 28, 28, 3) if extractor.ycbcr else (2 * TILE + 5, 28, 28)
    images = generator.integers(0, 256, size=shape, dtype=np.uint8)
    together = extractor.transform(images)
    order = generator.permutation(len(images))
    assert np.array_equal(extractor.transform(images[order]), together[order])
    assert np.array_equal(extractor.transform(images[7:]), together[7:])
    others = images.copy()
    others[1:] = generator.integers(0, 256, size=others[1:].shape, dtype=np.uint8)
    assert np.array_equal(extractor.transform(others)[0], together[0])
    assert np.array_equal(extractor.extract(images, batch_size=17), together)


def test_group_normalisation_over_27_groups() -> None:
    images = np.random.default_rng(5).random((2, 16, 12, 3), dtype=np.float32)
    features = Scattering().transform(images)
    maps = torch.stack([scatter(torch.from_numpy(images[..., colour]).contiguous()) for colour in range(3)], dim=1)
    groups = maps.reshape(2, 27, -1).double()
    centred = groups - groups.mean(-1, keepdim=True)
    expected = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    assert features.shape == (2, Scattering().output_dim((16, 12, 3))) == (2, 81 * 3 * 4 * 3)
    assert np.abs(features - expected.reshape(2, -1).numpy()).max() < 1e-4


def test_luma_and_colour_differences_are_those_of_jpeg() -> None:
    """Pillow's conversion, whose numbers are whole, is the reference."""
    images = np.random.default_rng(6).integers(0, 256, size=(2, 8, 12, 3), dtype=np.uint8)
    pillow = np.stack([np.asarray(Image.fromarray(image).convert("YCbCr")) for image in images]).astype(np.float64)
    ours = (images / 255) @ _YCBCR.T.astype(np.float64) * 255 + [0, 128, 128]
    assert np.abs(ours - pillow).max() < 1.5
    planes = (images.astype(np.float32) / 255) @ _YCBCR.T
    assert np.abs(Scattering(ycbcr=True).transform(images) - _scattering_of(planes)).max() < 1e-5


def _scattering_of(planes: np.ndarray) -> np.ndarray:
    maps = torch.stack([scatter(torch.from_numpy(planes[..., one].copy())) for one in range(3)], dim=1)
    return torch.nn.functional.group_norm(maps.flatten(1, 2), 27, eps=1e-5).flatten(1).numpy()


@pytest.mark.parametrize("ycbcr", [False, True])
def test_mirrored_features_are_the_mean_of_both_and_do_not_tell_left_from_right(ycbcr: bool) -> None:
    images = np.random.default_rng(7).integers(0, 256, size=(3, 16, 12, 3), dtype=np.uint8)
    plain, mirrored = Scattering(ycbcr=ycbcr), Scattering(ycbcr=ycbcr, mirror=True)
    expected = (plain.transform(images) + plain.transform(images[:, :, ::-1])) / 2
    assert np.abs(mirrored.transform(images) - expected).max() < 1e-6
    assert np.abs(mirrored.transform(images) - mirrored.transform(images[:, :, ::-1])).max() < 1e-6
    assert np.abs(plain.transform(images) - plain.transform(images[:, :, ::-1])).max() > 0.1


def test_options_by_name_and_from_specs() -> None:
    found = parse_features("scattering:ycbcr,mirror")
    assert found.spec()["options"] == {"ycbcr": True, "mirror": True}
    assert from_spec(found.spec()).fingerprint() == found.fingerprint() != Scattering().fingerprint()
    assert Scattering().spec()["options"] == {}
    for text in ("scattering:", "scattering:hsv", "scattering:mirror,mirror", "scattering:mirror,"):
        with refuses("features"):
            parse_features(text)


@pytest.mark.parametrize(("shape", "dim"), [((28, 28), 3969), ((28, 28, 1), 3969), ((32, 32, 3), 15552), ((8, 8), 324)])
def test_output_dim(shape: tuple[int, ...], dim: int) -> None:
    assert Scattering().output_dim(shape) == dim
    assert Scattering().transform(np.zeros((1, *shape), dtype=np.uint8)).shape == (1, dim)


@pytest.mark.parametrize("shape", [(4, 28), (28,), (28, 28, 3, 1), (28, 28, 0)])
def test_shapes_that_are_not_images_are_refused(shape: tuple[int, ...]) -> None:
    with refuses("input shape for scattering"):
        Scattering().output_dim(shape)
    # Grey images have no colours to separate.
    with refuses("input shape for scattering:ycbcr"):
        Scattering(ycbcr=True).output_dim((28, 28))
