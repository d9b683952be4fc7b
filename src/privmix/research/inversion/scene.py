"""The subject of an inversion study: the images, who owns which of them, and which rows they are in."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privmix.errors import InvalidInput
from privmix.features.base import Extractor
from privmix.features.identity import unit_range
from privmix.plans.rows import ReleasePlan
from privmix.publication.dataset import RecordTransform
from privmix.research.known_rows import draw_members


@dataclass(frozen=True)
class InversionScene:
    """Images in [0, 1], their labels and extractor; the numbers of those attacked and of those the attacker owns."""

    images: NDArray[np.float32]
    labels: NDArray[np.integer[Any]]
    extractor: Extractor
    private: NDArray[np.int64]
    public: NDArray[np.int64]

    @classmethod
    def of(
        cls,
        images: NDArray[Any],
        labels: NDArray[np.integer[Any]],
        extractor: Extractor,
        generator: np.random.Generator,
    ) -> "InversionScene":
        """Split the images into two halves at random."""
        if images.ndim not in (3, 4) or len(images) < 2 or len(labels) != len(images):
            raise InvalidInput("images", images.shape, "at least two (H, W) or (H, W, colours), and a label for each")
        order = generator.permutation(len(images))
        half = len(images) // 2
        return cls(unit_range(images), np.asarray(labels), extractor, order[:half], order[half:])

    @property
    def shape(self) -> tuple[int, ...]:
        return self.images.shape[1:]

    def features(self, which: NDArray[np.int64]) -> NDArray[np.float32]:
        return self.extractor.extract(self.images[which])


@dataclass(frozen=True)
class RowMembers:
    """Members of the rows of one degree, (rows, degree, image shape) each."""

    # `targets` are attacked, `trials` are public ones to practise on, `others` are in no row (the baseline).
    # `shown`: how many members of a row are judged and shown.
    targets: NDArray[np.float32]
    trials: NDArray[np.float32]
    others: NDArray[np.float32]
    mean: NDArray[np.float32]
    brightest: float
    shown: int

    @classmethod
    def draw(
        cls, scene: InversionScene, plan: ReleasePlan, degree: int, originals: int, generator: np.random.Generator
    ) -> "RowMembers":
        """Choose rows enough for `originals` images, none of which is in two places."""
        rows = -(-originals // degree)

        def pick(pool: NDArray[np.int64], count: int) -> NDArray[np.int64]:
            return pool[np.array(draw_members(plan, scene.labels[pool], count, degree, generator))]

        public = pick(scene.public, 2 * rows)
        return cls(
            targets=scene.images[pick(scene.private, rows)],
            trials=scene.images[public[:rows]],
            others=scene.images[public[rows:]],
            mean=scene.images[scene.public].mean(axis=0),
            brightest=float(scene.images[scene.public].reshape(len(scene.public), -1).max(axis=1).mean()),
            shown=min(originals, degree),
        )

    def judged(self, members: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the members of each row that figures are about."""
        return members[:, : self.shown]


def transform_of(
    scene: InversionScene, plan: ReleasePlan, centre: NDArray[np.float32] | None, generator: np.random.Generator | None
) -> RecordTransform:
    """Return the plan's map from features to what is summed; without a released mean, one is made as the plan would."""
    if not plan.centred:
        return RecordTransform(plan.clip_norm, plan.norm)
    if centre is None:
        clipped = RecordTransform(plan.clip_norm, plan.norm).clip(scene.features(np.arange(len(scene.images))))
        mean = clipped.mean(axis=0)
        if generator is not None and plan.centre_noise_multiplier is not None:
            mean += generator.normal(0, plan.clip_norm * plan.centre_noise_multiplier / plan.records, plan.dim)
        centre = mean.astype(np.float32)
    return RecordTransform(plan.clip_norm, plan.norm, centre, plan.residual_clip_norm)
