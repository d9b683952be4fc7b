"""Public images in memory, and how synthetic ones compare with them: figures and pictures for a pool's card."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privmix.data.dataset import Schema, Source
from privmix.features.base import Extractor, parse_features
from privmix.features.projected import Projected
from privmix.research.synthesis.metrics import (
    LinearClassifier,
    SynthesisQuality,
    classification_accuracy,
    frechet_distance,
    inception_score,
    near_copies,
    precision_recall,
)
from privmix.research.synthesis.pool import contact_sheet, copies_sheet

# FID takes eigenvalues of a matrix with this many rows; wider features are projected.
_WIDEST: Final = 512


@dataclass(frozen=True, eq=False)
class LabelledImages:
    """Images in memory: (n, H, W) or (n, H, W, C) uint8, and (n,) labels in [0, classes)."""

    pixels: NDArray[np.uint8]
    labels: NDArray[np.int64]
    classes: int

    @classmethod
    def of(cls, source: Source) -> "LabelledImages":
        content = source.read()
        x = np.asarray(content.x)
        if x.dtype != np.uint8:
            x = np.rint(255 * np.clip(x, 0, 1)).astype(np.uint8)
        return cls(np.ascontiguousarray(x), content.y.astype(np.int64), source.schema.num_classes)

    @property
    def shape(self) -> tuple[int, int, int]:
        height, width, *channels = self.pixels.shape[1:]
        return (channels or [1])[0], height, width

    @property
    def scaled(self) -> NDArray[np.float32]:
        """(n, C, H, W) in [0, 1]."""
        images = self.pixels[..., None] if self.pixels.ndim == 3 else self.pixels
        return np.ascontiguousarray(images.transpose(0, 3, 1, 2), dtype=np.float32) / np.float32(255)


@dataclass(frozen=True, eq=False)
class Measure:
    """Named features, at most 512 numbers an image, in which images are compared."""

    name: str
    extractor: Extractor

    @classmethod
    def of(cls, features: str, shape: tuple[int, ...], classes: tuple[str, ...]) -> "Measure":
        extractor = parse_features(features)
        extractor.check_schema(Schema(1, shape, classes))
        if extractor.output_dim(shape) > _WIDEST:
            extractor = Projected(extractor, _WIDEST)
        named = shown(features)
        return cls(named if extractor.name == named else f"{named}, {extractor.name}", extractor)

    def labels(self, known: LabelledImages, images: NDArray[np.uint8]) -> NDArray[np.int64]:
        """(n,) the classes that a linear classifier of ``known`` takes images for."""
        if len(np.unique(known.labels)) < 2:
            return np.full(len(images), known.labels[0], dtype=np.int64)
        found = LinearClassifier.of(self.extractor.transform(known.pixels), known.labels)
        return found.labels(self.extractor.transform(images))

    def quality(
        self, drawn: LabelledImages, given: LabelledImages | None, reference: LabelledImages | None
    ) -> tuple[SynthesisQuality, dict[str, NDArray[np.uint8]]]:
        """Figures, and pictures by file name; `drawn` against `reference`, else against the model's own images."""
        sheets = {"contact.png": contact_sheet(drawn.pixels, drawn.labels, drawn.classes)}
        beside = reference or given
        if beside is None:
            return SynthesisQuality(self.name), sheets
        theirs, real = self.extractor.transform(drawn.pixels), self.extractor.transform(beside.pixels)
        copies = None
        if given is not None:
            found = near_copies(self.extractor.transform(given.pixels), theirs)
            copies = found.rate
            sheets["copies.png"] = copies_sheet(drawn.pixels, given.pixels, found.nearest, found.distance)
        manifold = precision_recall(real, theirs)
        return SynthesisQuality(
            self.name,
            frechet_distance(real, theirs),
            manifold.precision,
            manifold.recall,
            copies,
            _score(real, beside.labels, theirs),
            _accuracy(theirs, drawn.labels, real, reference),
        ), sheets


def _score(real: NDArray[np.float32], labels: NDArray[np.int64], drawn: NDArray[np.float32]) -> float | None:
    if len(np.unique(labels)) < 2:
        return None
    return inception_score(LinearClassifier.of(real, labels).logits(drawn))


def _accuracy(
    drawn: NDArray[np.float32], labels: NDArray[np.int64], real: NDArray[np.float32], reference: LabelledImages | None
) -> float | None:
    """On images that the model did not see, of a linear classifier of the drawn ones."""
    if reference is None or len(np.unique(labels)) < 2:
        return None
    return classification_accuracy(drawn, labels, real, reference.labels)


def shown(features: str) -> str:
    """Return the extractor as a card names it: files and folders of this machine without their path.

    Example:
        >>> shown("vision:/home/someone/models/vit"), shown("scattering:ycbcr,mirror")
        ('vision:vit', 'scattering:ycbcr,mirror')
    """
    name, colon, argument = features.partition(":")
    place = Path(argument).expanduser()
    return f"{name}{colon}{place.name if place.is_absolute() or place.exists() else argument}"
