"""Released rows of pixels as features: they are images, and public, so any extractor of images may go over them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

import numpy as np

from privmix.data import Schema
from privmix.errors import InvalidInput
from privmix.features import Extractor, Pixels
from privmix.progress import Progress
from privmix.publication import RecordTransform, ReleasedDataset

# Longer than any features are: nothing is clipped any more.
_UNCLIPPED: Final = 1e30


def encoded(release: ReleasedDataset, extractor: Extractor, progress: Progress | None = None) -> ReleasedDataset:
    """Return the rows of a release of pixels, as images through an extractor (DPMix with ScatteringNet)."""
    # Li et al. 2022, appendix E.3. The noise of such rows is neither Gaussian nor of known size: learners that
    # correct for it cannot use them. Images that were clipped before mixing are darker in the rows than raw ones.
    shape, name = tuple(release.input_shape), release.extractor.get("name")
    if name != Pixels.name or len(shape) not in (2, 3) or math.prod(shape) != release.dim:
        raise InvalidInput("features", extractor.name, f"no extractor here: rows of {name} features are not images")
    extractor.check_schema(Schema(release.rows, shape, tuple(release.classes)))
    found = np.empty((release.rows, extractor.output_dim(shape)), np.float32)
    centre = release.transform.centre
    for start in range(0, release.rows, extractor.step):
        part = slice(start, min(start + extractor.step, release.rows))
        pixels = release.x[part] if centre is None else release.x[part] + centre
        found[part] = extractor.transform(pixels.reshape(-1, *shape).astype(np.float32))
        if progress is not None:
            progress(f"features ({extractor.name})", part.stop, release.rows)
    return replace(
        release,
        x=found,
        # Unknown, and no learner may take it for what it was.
        noise_std_x=math.nan,
        transform=RecordTransform(_UNCLIPPED),
        extractor=extractor.spec(),
        extractor_arrays=extractor.arrays(),
        beside=None,
    )
