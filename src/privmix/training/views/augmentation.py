"""Augmentations: random changes of one image that keep its label, alone or several in turn."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from privmix.errors import InvalidInput, check_number
from privmix.training.views.record_random import RecordRandom


@dataclass(frozen=True, kw_only=True)
class Augmentation(ABC):
    """A random change of one image that keeps its label.

    Formal guarantees:
        * Own view only: a view depends on its image, its record's seed and its number among the record's views.
        * In range: values stay in [0, 1].

    Attributes:
        channels: numbers of channels of the images that it takes; empty: any.
        probability: with which a view is changed at all.
    """

    name: ClassVar[str]
    channels: ClassVar[tuple[int, ...]] = ()
    probability: float = 1.0

    def __post_init__(self) -> None:
        check_number(f"{self.name} probability", self.probability, low=0, high=1)

    def __call__(self, images: Tensor, random: RecordRandom) -> Tensor:
        """(b, K, C, H, W) images in [0, 1] and the b records' randomness -> as many changed images."""
        return augment(images, (self,), random)

    def check_channels(self, channels: int) -> None:
        """Raise :class:`InvalidInput` unless images of ``channels`` channels can be changed; known before any image."""
        if self.channels and channels not in self.channels:
            allowed = " or ".join(map(str, self.channels))
            raise InvalidInput(f"channels of images for {self.name}", channels, allowed)

    @abstractmethod
    def change(self, images: Tensor, random: RecordRandom) -> Tensor:
        """(n, C, H, W) images -> the same images changed, each by its own one of n generators."""

    def change_some(self, images: Tensor, random: RecordRandom) -> Tensor:
        """:meth:`change`, but for those images that chance leaves as they are."""
        changed = self.change(images, random)
        if self.probability == 1:
            return changed
        chosen = random.uniform("chosen") < self.probability
        return torch.where(chosen[:, None, None, None], changed, images)

    def spec(self) -> dict[str, Any]:
        """Name and settings as JSON values."""
        return {"name": self.name, **asdict(self)}


def augment(images: Tensor, augmentations: Sequence[Augmentation], random: RecordRandom) -> Tensor:
    """Apply augmentations in order to every view (b, K, C, H, W) in [0, 1]; at most one of each kind."""
    views = random.views(images.shape[1])
    flat = images.flatten(end_dim=1)
    for augmentation in augmentations:
        flat = augmentation.change_some(flat, views.derive(augmentation.name))
    return flat.reshape(images.shape)


def check_channels(augmentations: Sequence[Augmentation], channels: int) -> None:
    """Raise :class:`InvalidInput` unless all of them take images of this number of channels."""
    for augmentation in augmentations:
        augmentation.check_channels(channels)


def check_augmentations(augmentations: Sequence[Augmentation]) -> None:
    """Raise :class:`InvalidInput` where a kind of augmentation is there twice: both would draw the same numbers."""
    names = [augmentation.name for augmentation in augmentations]
    if len(set(names)) != len(names):
        raise InvalidInput("augmentations", ",".join(names), "each name at most once")
