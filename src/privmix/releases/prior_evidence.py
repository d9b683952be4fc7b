"""Whether a whitening by a procedural prior is the one that its generator, version and seed make: it is made again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.audits.agreement import ROUNDING, UP_TO_ROUNDING, agree, eigenvectors
from privmix.audits.noise_tests import NoiseTest
from privmix.data.source import ArraySource
from privmix.errors import InvalidInput
from privmix.features.spec import from_spec, wanted_model
from privmix.features.whitened import DATA, Whitened, Whitening, WhiteningConfig, covariance_within

# Numbers of all images, and of all their features: half a GiB, or what takes longer than a minute.
_MOST: Final = 2**27
_NAME: Final = "whitening from its generator"


def obstacle(spec: Mapping[str, Any], input_shape: tuple[int, ...]) -> str | None:
    """Why the arrays that a spec carries can't be made again, in words; None where they can, or there are none."""
    if "arrays" not in spec:
        return None
    if spec["name"] != Whitened.name:
        return f"the arrays of the extractor {spec['name']}: only its own package could make them again"
    options = spec["options"]
    public = options["public"]
    if public["source"] == DATA:
        return (
            "the whitening: it was fitted to data that the owner says are public, and verification does not have them"
        )
    if (wanted := wanted_model(options["inner"])) is not None:
        return f"the whitening: to make it again takes {wanted}"
    if public["records"] * max(math.prod(input_shape), *spec["arrays"]["step"]) > _MOST:
        return f"the whitening: to make it again takes the features of {public['records']} images"
    return None


def whitening_tests(
    spec: Mapping[str, Any], arrays: Mapping[str, NDArray[np.float32]], input_shape: tuple[int, ...]
) -> list[NoiseTest]:
    """Make a procedural whitening again and compare it; nothing where there is none, or an :func:`obstacle`."""
    if not arrays or obstacle(spec, input_shape) is not None:
        return []
    options, stated = spec["options"], Whitening.of(arrays)
    features, labels = _public_features(options, input_shape)
    if features.shape[1] != stated.dims[0]:
        raise InvalidInput("arrays of the extractor", stated.dims[0], f"step of {features.shape[1]} features")
    config = WhiteningConfig(options["power"], options["ridge"], stated.dims[1], options["quantile"])
    again = Whitening.fit(features, labels, config, options["norm"])
    same = all(np.array_equal(again.arrays[name], stated.arrays[name]) for name in again.arrays)
    if not same:
        _check_whitening(stated, again, config, features, labels)
    count = sum(array.size for array in arrays.values())
    return [NoiseTest(_NAME if same else _NAME + UP_TO_ROUNDING, count, 0.0)]


def _public_features(
    options: Mapping[str, Any], input_shape: tuple[int, ...]
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    # Few releases have a prior.
    from privmix.data.fingerprint import records_hash
    from privmix.procedural.base import get_generator

    public = options["public"]
    generator = get_generator(public["source"].partition(":")[2], input_shape)
    if generator.version != public["version"]:
        raise InvalidInput("version of public data", public["version"], f"{generator.version}, of this privmix")
    images = generator.draw(public["records"], public["seed"])
    labels: NDArray[np.int64] = np.zeros(len(images), np.int64) if images.y is None else images.y
    source = ArraySource(images.x, labels, generator.classes or ("all",))
    found = records_hash(source), 0 if images.y is None else len(generator.classes or ())
    if found != (public["sha256"], public["classes"]):
        allowed = f"{found[0]} of {found[1]} classes, which {public['source']} makes with this NumPy and matplotlib"
        raise InvalidInput("sha256 of public data", public["sha256"], allowed)
    inner = from_spec(options["inner"])
    return inner.extract(images.x, inner.step), labels


def _check_whitening(
    stated: Whitening,
    again: Whitening,
    config: WhiteningConfig,
    features: NDArray[np.float32],
    labels: NDArray[np.int64],
) -> None:
    """By what defines it: eigenvectors of the covariance, weighted by their eigenvalues."""
    what = "whitening"
    for name in ("step", "width"):
        # Powers of two: a number at the edge of one may be on its other side.
        agree(f"{what}: {name}", np.log2(stated.arrays[name]), np.log2(again.arrays[name]), 1.0)
    mean, covariance = covariance_within(features, labels)
    rows = (stated.weights.astype(np.float64) * stated.width / stated.step.astype(np.float64)[:, None]).T
    lengths = np.linalg.norm(rows, axis=1)
    if not (lengths > 0).all():
        raise InvalidInput(what, "nothing but 0", "eigenvectors")
    grid = stated.width * np.linalg.norm(1 / stated.step.astype(np.float64))
    _, values = eigenvectors(what, rows, covariance, ROUNDING + grid / lengths)
    most, ridge = float(values.max()), config.ridge * float(np.trace(covariance)) / len(covariance)
    agree(f"{what}: its order", values, -np.sort(-values), ROUNDING * most)
    # One number scales all.
    scale = lengths * (values.clip(min=0) + ridge) ** (config.power / 2)
    other = np.linalg.norm(again.matrix(), axis=0) * (values.clip(min=0) + ridge) ** (config.power / 2)
    agree(
        f"{what}: its scale",
        scale,
        float(np.median(other)),
        (100 * ROUNDING + grid / lengths) * float(np.median(other)),
    )
    offset = rows @ mean
    agree(f"{what}: offset", stated.offset, offset, ROUNDING * (np.abs(offset).max() + lengths * np.linalg.norm(mean)))
