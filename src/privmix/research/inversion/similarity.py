"""How alike two images are: mean squared error, structural similarity, and LPIPS where its package is installed.

Each original is matched with the recovered image of its row that is most like it, by each measure for itself: the best
case for the attacker. The same matching of images of other people is the baseline.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.errors import InvalidInput, MissingExtra

# Skimage's default; smaller images get the largest odd window that fits.
_WINDOW: Final = 7
# AlexNet's layers, which LPIPS compares, need at least this many pixels a side.
_LPIPS_SIDE: Final = 64


@dataclass(frozen=True)
class Similarity:
    """Means over originals: `mse` in [0, 1], `ssim` (Wang et al. 2004), `lpips` (Zhang et al. 2018) or None."""

    mse: float
    ssim: float
    lpips: float | None = None


def best_matches(originals: NDArray[Any], candidates: NDArray[Any], perceptual: bool = True) -> Similarity:
    """Match each original with the candidate of its row that is most like it, and average; (rows, any, image shape)."""
    if originals.shape[0] != candidates.shape[0] or originals.shape[2:] != candidates.shape[2:]:
        raise InvalidInput("candidates", candidates.shape, f"as many rows and the images' shape of {originals.shape}")
    if originals.ndim not in (4, 5) or not originals.size or not candidates.size:
        raise InvalidInput("originals", originals.shape, "(rows, images, H, W) or (rows, images, H, W, colours)")
    measures: list[Callable[[NDArray[Any], NDArray[Any]], float]] = [_squared_error, _dissimilarity]
    learned = _lpips() if perceptual else None
    pairs = list(zip(originals, candidates, strict=True))
    if learned is not None:
        measures.append(learned)
    means = [
        float(np.mean([min(measure(one, other) for other in row) for own, row in pairs for one in own]))
        for measure in measures
    ]
    return Similarity(means[0], 1 - means[1], means[2] if learned is not None else None)


def best_correlation(originals: NDArray[Any], candidates: NDArray[Any]) -> float:
    """Mean over originals of the largest correlation of pixels with a candidate of the same row."""
    # An attacker judges tries by it: unlike the error or structural similarity, flat or black images do not raise
    # it.

    def centred(images: NDArray[Any]) -> NDArray[np.float64]:
        flat = images.reshape(*images.shape[:2], -1).astype(np.float64)
        flat -= flat.mean(axis=2, keepdims=True)
        return np.asarray(flat / np.maximum(np.linalg.norm(flat, axis=2, keepdims=True), 1e-9))

    return float((centred(originals) @ centred(candidates).transpose(0, 2, 1)).max(axis=2).mean())


def match_order(originals: NDArray[Any], candidates: NDArray[Any]) -> NDArray[np.int64]:
    """(rows, a) number of the candidate that is structurally most like each original, to show them side by side."""
    return np.array(
        [
            [int(np.argmin([_dissimilarity(original, found) for found in row])) for original in own]
            for own, row in zip(originals, candidates, strict=True)
        ]
    )


def _squared_error(one: NDArray[Any], other: NDArray[Any]) -> float:
    return float(np.mean(np.square(one - other)))


def _dissimilarity(one: NDArray[Any], other: NDArray[Any]) -> float:
    try:
        from skimage.metrics import structural_similarity
    except ImportError:
        raise MissingExtra("scikit-image", "inversion") from None
    side = min(_WINDOW, *one.shape[:2])
    if side < 3:
        raise InvalidInput("image", one.shape, "at least 3 x 3 pixels")
    window = side if side % 2 else side - 1
    axis = -1 if one.ndim == 3 else None
    return 1 - float(structural_similarity(one, other, data_range=1.0, win_size=window, channel_axis=axis))


@cache
def _lpips() -> Callable[[NDArray[Any], NDArray[Any]], float] | None:
    """LPIPS on AlexNet, or None where the package is absent."""
    if find_spec("lpips") is None:
        return None
    import lpips
    import torch

    network = lpips.LPIPS(net="alex", verbose=False)

    def tensor(image: NDArray[Any]) -> torch.Tensor:
        colours = np.repeat(image[..., None], 3, axis=2) if image.ndim == 2 else image
        found = torch.from_numpy(np.ascontiguousarray(colours, np.float32)).permute(2, 0, 1)[None] * 2 - 1
        side = [max(_LPIPS_SIDE, length) for length in found.shape[2:]]
        return torch.nn.functional.interpolate(found, size=side, mode="bilinear", align_corners=False)

    def distance(one: NDArray[Any], other: NDArray[Any]) -> float:
        with torch.inference_mode():
            return float(network(tensor(one), tensor(other)))

    return distance
