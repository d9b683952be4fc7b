"""Records aimed at the sums that releases are made of: the strongest simple attack on one target."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, ClassVar, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from privmix.errors import InvalidInput
from privmix.fields import Choice, Positive
from privmix.optimisers import Adam
from privmix.research.poisoning.base import ATTACKS, Attack, Defence
from privmix.research.poisoning.feature_cache import cached_features, input_shape
from privmix.research.poisoning.images import Poisoned, VictimImages
from privmix.research.poisoning.scene import PoisoningScene
from privmix.research.poisoning.threat import ThreatModel

AIMS: Final = ("moments", "sums")
_CLIP: Final = 1.0
_RESIDUAL: Final = 0.55
# Shares of the largest eigenvalue, from the direction that decoders weigh most to the target's own.
_SHRINKAGES: Final = (1e-3, 1e-2, 1e-1, 1.0)
_STEPS, _RATE = 60, 0.05

Reals = NDArray[np.float64]


@ATTACKS.register
@dataclass(frozen=True)
class Aimed(Attack):
    """Equal images whose features point where linear decoders of a release move most at the target.

    Such decoders are W = (S + r I)^-1 B with S = sum x x' and B = sum x y' over clipped, centred records. So l records
    of features u and the wanted label w add l u u' to S and l u to column w of B. By Sherman and Morrison's formula the
    margin of w over the victim's class s at the target's features t grows by

        l t'Au (1 - u'(W_w - W_s)) / (1 + l u'Au),   A = (S + r I)^-1.

    If u'(W_w - W_s) is small, its stationary points within the clipping norm are u proportional to (S + tau I)^-1 t
    with tau >= r. The attacker knows the clean records and tries a few tau. For each direction it makes the image with
    the nearest features (gradient ascent through the public extractor), and it takes the one with the largest growth.
    For class sums alone t is the best direction: aim ``sums`` is copies of the target with the wanted label.
    """

    # Changed are the records of the victim's class that speak most for it at the target. `ridge`: r as a share of
    # S's largest eigenvalue.
    aim: Annotated[str, Choice(*AIMS)] = "moments"
    features: str = "pixels"
    ridge: Positive = 0.01
    name: ClassVar[str] = "aimed"
    about: ClassVar[str] = "equal records along the direction that linear decoders of releases weigh most at the target"

    def threat(self, scene: PoisoningScene, records: int, *, knows_defence: bool) -> ThreatModel:
        if records > np.sum(scene.train.labels != scene.wanted):
            raise InvalidInput("poisoned", records, "at most the records of other classes than the wanted one")
        return ThreatModel(records, clean_label=False, knows_defence=knows_defence)

    def craft(self, scene: PoisoningScene, threat: ThreatModel, defence: Defence | None) -> Poisoned:
        known, target = _known(self.features, scene.train), scene.targets
        direction = known.residuals(target)[0]
        image, inverse = target.pixels, known.inverse(direction, self.ridge)
        if self.aim == "moments":
            wishes = np.stack([known.inverse(direction, share) for share in _SHRINKAGES])
            tried = np.concatenate([image, self._images(known, image, wishes)])
            gains = [self._gain(known, one, inverse, scene, threat.records) for one in tried]
            image = tried[[int(np.argmax(gains))]]
        # Records of the victim's class first, and never those that have the wanted label already.
        own = scene.train.labels
        order = np.lexsort((-known.rows @ inverse, own != scene.source))
        chosen = np.sort(order[own[order] != scene.wanted][: threat.records])
        label = np.full(len(chosen), scene.wanted, np.int64)
        records = scene.train.with_changed(chosen, np.repeat(image, len(chosen), axis=0), label)
        return Poisoned(records, chosen, target)

    def _images(self, known: _Known, start: NDArray[np.float32], wishes: Reals) -> NDArray[np.float32]:
        """(J, C, H, W) images whose features come near the directions ``wishes``, (J, d)."""
        extract = cached_features(self.features).extractor.differentiable(input_shape(start.shape[1:]))
        wanted = functional.normalize(torch.from_numpy(wishes).float())
        mean = torch.from_numpy(known.mean).float()
        pixels = torch.from_numpy(np.repeat(start, len(wishes), axis=0)).clone().requires_grad_(True)
        optimiser = Adam([pixels], _RATE)
        for _ in range(_STEPS):
            rest = _shortened(extract(_inputs(pixels)), _CLIP) - mean
            loss = -(_shortened(rest, _RESIDUAL) * wanted).sum()
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            with torch.no_grad():
                pixels.clamp_(0, 1)
        return pixels.detach().numpy()

    def _gain(
        self, known: _Known, image: NDArray[np.float32], inverse: Reals, scene: PoisoningScene, records: int
    ) -> float:
        """How much the margin grows at the target, by the formula above."""
        u = known.residuals(VictimImages(image[None], np.zeros(1, np.int64), scene.train.classes))[0]
        per_record = known.inverse(u, self.ridge)
        margin = per_record @ (known.sums[:, scene.wanted] - known.sums[:, scene.source])
        return float(records * (u @ inverse) * (1 - margin) / (1 + records * (u @ per_record)))


class _Known:
    """The attacker's statistics of the clean records: clipped, centred features, their moments and class sums."""

    def __init__(self, features: str, train: VictimImages) -> None:
        self._cache = cached_features(features)
        clipped = _clipped(self._cache.features(train.pixels), _CLIP)
        self.mean: Reals = clipped.mean(axis=0)
        self.rows: Reals = _clipped(clipped - self.mean, _RESIDUAL)
        self.values, self.basis = np.linalg.eigh(self.rows.T @ self.rows)
        self.sums: Reals = self.rows.T @ np.eye(train.classes)[train.labels]

    def residuals(self, images: VictimImages) -> Reals:
        """(n, d): as the release sees them."""
        return _clipped(_clipped(self._cache.features(images.pixels), _CLIP) - self.mean, _RESIDUAL)

    def inverse(self, vector: Reals, share: float) -> Reals:
        """(S + share of its largest eigenvalue I)^-1 times ``vector``."""
        gains = 1 / (np.maximum(self.values, 0) + share * max(float(self.values[-1]), 1e-12))
        return np.asarray(self.basis @ (gains * (self.basis.T @ vector)))


# All budgets and trials of a study have the same clean records.
_known = lru_cache(maxsize=2)(_Known)


def _clipped(rows: NDArray[np.floating], bound: float) -> Reals:
    values: Reals = np.asarray(rows, dtype=np.float64)
    short: Reals = np.minimum(1.0, bound / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-12))
    return values * short


def _shortened(rows: Tensor, bound: float) -> Tensor:
    lengths: Tensor = rows.norm(dim=1, keepdim=True)
    return rows * (bound / lengths.clamp_min(bound))


def _inputs(pixels: Tensor) -> Tensor:
    return pixels[:, 0] if pixels.shape[1] == 1 else pixels.permute(0, 2, 3, 1)
