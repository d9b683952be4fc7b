"""A small mixer for the learners' tests: releases made openly from arrays, without the release engine."""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from privmix.publication.dataset import RecordTransform, ReleasedDataset

Records = tuple[NDArray[np.float64], NDArray[np.int64]]


@cache
def digits() -> tuple[Records, Records]:
    """scikit-learn's digits with pixels in [0, 1]: 1437 records to release and 360 to test on."""
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    x, y = x[order] / 16, y[order].astype(np.int64)
    return (x[:1437], y[:1437]), (x[1437:], y[1437:])


def mix(
    x: NDArray[np.float64],
    y: NDArray[np.int64],
    *,
    rows: int,
    degree: int = 64,
    noise: float = 1.0,
    label_noise: float | None = None,
    design: str = "poisson",
    centred: bool = False,
    clip_norm: float = 4.0,
    input_shape: tuple[int, ...] | None = None,
    seed: int = 0,
) -> ReleasedDataset:
    """Rows of ``x`` mixed with noise of ``noise`` times the clip norm, and of ``label_noise`` on the labels' sums."""
    rng = np.random.default_rng((seed, 2))
    transform = RecordTransform(clip_norm)
    if centred:
        centre = transform(x).mean(axis=0).astype(np.float32)
        transform = RecordTransform(clip_norm, centre=centre, residual_clip_norm=0.75 * clip_norm)
    classes = int(y.max()) + 1
    offset = 1 / classes if centred else 0.0
    std_x = noise * transform.final_clip_norm
    std_y = noise if label_noise is None else label_noise
    # (rows, records), of zeros and ones; class-wise, row t holds every record of class t mod K.
    drawn = np.random.default_rng((seed, 1)).random((rows, len(y)))
    who = {
        "poisson": drawn < degree / len(y),
        "fixed": drawn.argsort(axis=1).argsort(axis=1) < degree,
        "classwise": y == (np.arange(rows) % (y.max() + 1))[:, None],
    }[design].astype(np.float64)
    sums_x = who @ transform(x) + rng.normal(0, std_x, (rows, x.shape[1]))
    sums_y = who @ (np.eye(classes)[y] - offset) + rng.normal(0, std_y, (rows, classes))
    return ReleasedDataset(
        x=(sums_x / degree).astype(np.float32),
        y=(sums_y / degree).astype(np.float32),
        design=design,
        mixup_degree=degree,
        noise_std_x=std_x / degree,
        noise_std_y=std_y / degree,
        label_offset=offset,
        classes=tuple(f"class {k}" for k in range(classes)),
        transform=transform,
        extractor={"name": "identity", "version": 1},
        input_shape=input_shape or (x.shape[1],),
        release_id="test-release",
    )


def mixed_digits(rows: int = 300, **how: Any) -> ReleasedDataset:
    return mix(*digits()[0], rows=rows, **how)
