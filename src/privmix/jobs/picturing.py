"""Images of a release's class means, or the public texts nearest to them, from released numbers and public texts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.data.source import Schema
from privmix.errors import InvalidInput
from privmix.features.base import Extractor
from privmix.features.identity import Pixels
from privmix.jobs.class_texts import column_of
from privmix.jobs.public_texts import public_texts as read_texts
from privmix.jobs.recording import Measured, Measurement
from privmix.jobs.sampling import plan_of
from privmix.learning.class_means import COARSE, NOTHING, ClassMeans, class_scores
from privmix.learning.inverse import InverseConfig, inverse_images
from privmix.progress import Progress
from privmix.publication.dataset import ReleasedDataset
from privmix.reports.blocks import data_uri, side_for, small_image, stored_images
from privmix.reports.pictures import draw_class_pictures
from privmix.shown import Bar, Bars, ImageStrip

KIND: Final = "classes"
NEAREST: Final = 3
"""Default number of texts that are shown for a class."""
ROWS: Final = ("class mean", "as likely")
# Values of an image that are put back; larger ones are no thing to look at, and a stranger's file states the size.
_MOST_VALUES: Final = 2**20
_MOST_IN_ALL: Final = 2**25

STATEMENTS: Final = (
    "Made from the released numbers only: no private record was read, no privacy was spent, and the release's "
    "guarantee covers the pictures.",
    "A class mean shows features that its records share. With few records and a large epsilon it can reveal much of "
    "each record: the guarantee bounds how much, and no picture shows more.",
)
_OF_IMAGES: Final = (
    "Each column shows the likeliest class mean and another one that is as likely under the noise. Differences between "
    "them are unknown: the noise or the features hide them. Brightness is relative, since long records were clipped.",
)
_OF_TEXTS: Final = (
    "The user declared these texts as public; they are not records. A text is near to a class if the class means after "
    "noise make it far likelier there than in the other classes.",
)


@dataclass(frozen=True, eq=False, repr=False)
class PicturedClasses(Measured):
    """A picture of the classes and its certainty: `sure` (K,) is the share of what sets a class apart that is known."""

    classes: tuple[str, ...]
    sure: NDArray[np.float64]

    @property
    def words(self) -> tuple[str, ...]:
        """Visibility of each class: ``clear``, ``coarse``, ``nothing`` (noise), ``in part`` (little)."""
        return tuple(self.measurement.content["seen"])

    def to_dict(self) -> dict[str, Any]:
        """JSON values, images left out."""
        return {name: value for name, value in self.measurement.content.items() if name != "images"}

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warning if no class can be seen."""
        nothing = set(self.words) == {"nothing"}
        return ("nothing can be seen: the noise exceeds the differences between the classes",) if nothing else ()

    @property
    def details(self) -> tuple[str, ...]:
        """Lines about each class, and the caveats of the figures."""
        rows = zip(self.classes, self.sure, self.words, strict=True)
        lines = [
            f"{name}: {100 * share:.0f}% known, seen: {word}{self._nearest_of(name)}" for name, share, word in rows
        ]
        return (*lines, *self.measurement.statements)

    def _nearest_of(self, name: str) -> str:
        return ""

    def _facts(self) -> dict[str, object]:
        seen = np.array(self.words)
        counts = {word: int((seen == word).sum()) for word in _SEEN}
        return {
            "classes": len(self.classes),
            "can be seen": ", ".join(f"{count} {_SEEN[word]}" for word, count in counts.items() if count),
            "least sure": _named(self.classes, self.sure, int(self.sure.argmin())),
        }


@dataclass(frozen=True, eq=False, repr=False)
class ClassPictures(PicturedClasses):
    """Images of class means.

    Attributes:
        images: (K, *image shape) float32 in [0, 1], for the eye: the brightest point is 1.
        as_likely: (K, *image shape) the same of other means that fit the release as well.
        explained: (K,) share of the mean's difference, squared, that the features of the image have; 1 for pixels.
        figure: the picture's file, or None.
    """

    images: NDArray[np.float32]
    as_likely: NDArray[np.float32]
    explained: NDArray[np.float64]
    figure: Path | None = None

    def shown(self) -> tuple[str, Mapping[str, object]]:
        """How much can be seen."""
        where = {} if self.figure is None else {"picture": self.figure}
        return f"Pictures of {len(self.classes)} classes", {**self._facts(), **where}

    def picture(self) -> ImageStrip:
        """Return the images."""
        told = [f"{name} {100 * share:.0f}%" for name, share in zip(self.classes, self.sure, strict=True)]
        cells = [data_uri(small_image(one, side_for(len(self.images)))) for one in self.images]
        return ImageStrip("Class means and their certainty", list(zip(told, cells, strict=True)))


@dataclass(frozen=True, eq=False, repr=False)
class ClassTexts(PicturedClasses):
    """Public texts by how near they are to the classes.

    Attributes:
        texts: the n texts.
        probabilities: (K, n) of the classes, each text's summing to 1, were all classes equally likely.
        log_odds: (K, n) natural logarithm of the odds of the class against all others.
        count: texts of a class that are shown.
    """

    texts: tuple[str, ...]
    probabilities: NDArray[np.float64] = field(repr=False)
    log_odds: NDArray[np.float64] = field(repr=False)
    count: int = NEAREST

    def nearest(self, name: str, count: int | None = None) -> list[tuple[str, float]]:
        """Return the texts nearest to a class, and the probability of the class for each.

        Raises:
            InvalidInput: there is no such class.
        """
        if name not in self.classes:
            raise InvalidInput("class", name, ", ".join(self.classes))
        row = self.classes.index(name)
        most = self.count if count is None else count
        return _nearest(self.texts, self.log_odds[row], self.probabilities[row], most)

    def _nearest_of(self, name: str) -> str:
        return "".join(f"; {text} ({100 * chance:.0f}%)" for text, chance in self.nearest(name))

    def shown(self) -> tuple[str, Mapping[str, object]]:
        """Return the nearest text of each of the first classes."""
        first = {name: self.nearest(name, 1)[0][0] for name in self.classes[:_SHOWN]}
        return f"Nearest of {len(self.texts):,} public texts", {**self._facts(), **first}

    def picture(self) -> Bars:
        """How sure the first classes are."""
        bars = [Bar(name, share, f"{100 * share:.0f}%") for name, share in zip(self.classes, self.sure, strict=True)]
        return Bars("Known share of a class's differences", bars, full=1.0)


_SHOWN: Final = 8
_SEEN: Final = {"clear": "clearly", "coarse": "coarsely", "nothing": "not at all", "in part": "in part"}
# An image with less of what sets a class apart than this shows little of it.
_LIKE: Final = 0.25


def words_of(sure: float, explained: float = 1.0) -> str:
    """Words for the visible: `known` share of a difference, and the share of that which an image has.

    Example:
        >>> words_of(0.99), words_of(0.5), words_of(0.02), words_of(0.99, 0.1)
        ('clear', 'coarse', 'nothing', 'in part')
    """
    if sure < NOTHING:
        return "nothing"
    return "in part" if explained < _LIKE else "coarse" if sure < COARSE else "clear"


def centre_noise(dataset: ReleasedDataset) -> float:
    """Return the standard deviation of the noise in an entry of the released mean."""
    if dataset.certificate is None or dataset.transform.centre is None:
        return 0.0
    plan = plan_of(dataset)
    multiplier = getattr(plan, "centre_noise_multiplier", None)
    return 0.0 if multiplier is None else float(multiplier * plan.clip_norm / plan.records)


def takes_texts(extractor: Extractor, classes: Sequence[str]) -> bool:
    try:
        extractor.check_schema(Schema(records=1, input_shape=(1,), classes=tuple(classes), columns=("text",)))
    except InvalidInput:
        return False
    return True


def near_texts(dataset: ReleasedDataset, extractor: Extractor, found: ClassMeans, given: Any, count: int) -> ClassTexts:
    texts = read_texts(given)
    scores = class_scores(dataset, dataset.transform.rows(extractor.extract(column_of(texts))))
    rows = zip(scores.log_odds, scores.probabilities, strict=True)
    content = {
        **_content("texts", dataset.classes, found.sure),
        "texts": len(texts),
        "nearest": [
            [{"text": text, "probability": share} for text, share in _nearest(texts, odds, shares, count)]
            for odds, shares in rows
        ],
    }
    measurement = _measurement(dataset, content, {"nearest": count}, _OF_TEXTS, "public texts nearest to the classes")
    return ClassTexts(measurement, dataset.classes, found.sure, texts, scores.probabilities, scores.log_odds, count)


def _nearest(
    texts: Sequence[str], log_odds: NDArray[np.float64], probabilities: NDArray[np.float64], count: int
) -> list[tuple[str, float]]:
    """Return the ``count`` texts with the highest odds, and their probabilities."""
    order = np.argsort(-log_odds, kind="stable")[:count]
    return [(texts[place], float(probabilities[place])) for place in order]


def class_images(
    dataset: ReleasedDataset,
    extractor: Extractor,
    found: ClassMeans,
    config: InverseConfig,
    seed: int,
    place: Path | None,
    progress: Progress,
) -> ClassPictures:
    shape = _image_shape(dataset, extractor)
    both = np.concatenate([found.means, found.draw(np.random.default_rng(seed))])
    if isinstance(extractor, Pixels):
        pictures, explained = _one_scale(both.reshape(-1, *shape)), np.ones(dataset.num_classes)
    else:
        noise = found.noise + found.middle_error
        made = inverse_images(
            extractor.differentiable(shape), both, np.tile(noise, 2), shape, seed=seed, config=config, progress=progress
        )
        # Features that are blind to brightness and contrast leave them open.
        pictures = np.stack([_own_scale(one) for one in made.images])
        explained = _explained(found, made.distances[: dataset.num_classes], noise)
    images, as_likely = np.split(pictures, 2)
    side = side_for(len(images))
    stored = np.stack([[small_image(one, side) for one in line] for line in (images, as_likely)])
    content = {
        **_content("images", dataset.classes, found.sure, explained),
        "explained": explained.tolist(),
        "images": dict(stored_images(stored, ROWS, dataset.classes)),
    }
    settings = {"seed": seed, **({} if isinstance(extractor, Pixels) else {"steps": config.steps})}
    measurement = _measurement(dataset, content, settings, _OF_IMAGES, "pictures of class means")
    if place is not None:
        draw_class_pictures(stored, dataset.classes, [100 * share for share in found.sure], place)
    return ClassPictures(measurement, dataset.classes, found.sure, images, as_likely, explained, place)


def _image_shape(dataset: ReleasedDataset, extractor: Extractor) -> tuple[int, ...]:
    """Return the shape of raw inputs, if they are images that can be put back and have the release's features."""
    shape = tuple(dataset.input_shape)
    if len(shape) not in (2, 3) or shape[2:] not in ((), (1,), (3,)) or math.prod(shape) > _MOST_VALUES:
        raise InvalidInput("inputs of the release", shape, f"images of at most {_MOST_VALUES:,} values, grey or colour")
    if (values := dataset.num_classes * math.prod(shape)) > _MOST_IN_ALL:
        raise InvalidInput("images of all classes", f"{values:,} values", f"at most {_MOST_IN_ALL:,}")
    if (features := extractor.output_dim(shape)) != dataset.dim:
        raise InvalidInput("features of the release", dataset.dim, f"{features}, as its images have")
    return shape


def _explained(found: ClassMeans, distances: NDArray[np.float64], noise: NDArray[np.float64]) -> NDArray[np.float64]:
    """(K,) how far images have what sets classes apart: 0 for one of what all share, 1 as near as noise lets."""
    length = np.square(found.apart).sum(axis=1)
    room = np.maximum(length - np.minimum(noise, length / 2), np.finfo(float).tiny)
    return np.asarray(np.clip((length - distances) / room, 0, 1))


def _content(
    form: str, classes: Sequence[str], sure: NDArray[np.float64], explained: NDArray[np.float64] | None = None
) -> dict[str, Any]:
    shares = np.ones(len(sure)) if explained is None else explained
    seen = [words_of(*pair) for pair in zip(sure, shares, strict=True)]
    return {"form": form, "classes": list(classes), "sure": sure.tolist(), "seen": seen}


def _measurement(
    dataset: ReleasedDataset, content: dict[str, Any], settings: dict[str, Any], more: Sequence[str], title: str
) -> Measurement:
    own = None if dataset.certificate is None else dataset.certificate.id
    extractor = {"extractor": dataset.extractor.get("name")}
    subject = {"kind": "release", "id": own}
    statements = (*STATEMENTS, *more)
    return Measurement(KIND, subject, content, False, {**extractor, **settings}, title, statements)


def _one_scale(images: NDArray[np.float64]) -> NDArray[np.float32]:
    """All images on one scale, from black at 0 to white at the brightest point of any."""
    shown = np.clip(images, 0, None)
    return np.asarray(shown / max(float(shown.max(initial=0.0)), float(np.finfo(np.float32).tiny)), np.float32)


def _own_scale(image: NDArray[np.float32]) -> NDArray[np.float32]:
    low, high = float(image.min()), float(image.max())
    return np.asarray((image - low) / max(high - low, float(np.finfo(np.float32).tiny)), np.float32)


def _named(classes: Sequence[str], sure: NDArray[np.float64], place: int) -> str:
    return f"{classes[place]}: {100 * sure[place]:.0f}% of its differences from other classes are known"
