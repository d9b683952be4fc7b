"""Filters find what is planted and keep what is clean."""

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from privmix.research.poisoning.base import Case, DefenceFilter
from privmix.research.poisoning.defences.clustering import ActivationClustering
from privmix.research.poisoning.defences.deep_knn import DeepKNN
from privmix.research.poisoning.defences.spectral import SpectralSignatures
from privmix.research.poisoning.images import VictimImages
from privmix.research.poisoning.scene import PoisoningScene
from privmix.research.poisoning.victims.ordinary import Victim

EACH, POISONS, WIDTH = 60, 9, 20


@dataclass(frozen=True)
class Flat:
    """A network whose features are the pixels."""

    def features(self, pixels: NDArray[np.float32]) -> NDArray[np.float32]:
        return pixels.reshape(len(pixels), -1)


@dataclass(frozen=True, eq=False)
class FlatVictim(Victim):
    """Trains nothing."""

    def fit(self, *_: object, **__: object) -> Flat:  # type: ignore[override]
        return Flat()


def planted(*, shift: float, nearer: float = 0.0) -> tuple[Case, NDArray[np.bool_]]:
    """Three classes around three centres; some records of class 1 lie ``shift`` aside, and ``nearer`` to class 2."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(3), EACH)
    centres = np.zeros((3, WIDTH))
    centres[np.arange(3), np.arange(3)] = 0.3
    pixels = 0.3 + centres[labels] + rng.normal(0, 0.02, (3 * EACH, WIDTH))
    poisoned = np.isin(np.arange(3 * EACH), rng.choice(np.flatnonzero(labels == 1), POISONS, replace=False))
    pixels[poisoned, 5] += shift
    pixels[poisoned] += nearer * (centres[2] - centres[1])
    images = VictimImages.of(pixels.reshape(-1, 1, 4, 5), labels, classes=3)
    return Case(images, PoisoningScene(images, images, 1, 0, 0, FlatVictim(), (0, 0)), POISONS), poisoned


@pytest.mark.parametrize(
    ("filter_", "moved", "clean_kept"),
    [
        # 13 of 60 records of each class are dropped, 9 of which are the poisons of one.
        (SpectralSignatures(), {"shift": 0.3}, 1 - (3 * 13 - POISONS) / (3 * EACH)),
        (ActivationClustering("relative-size"), {"shift": 0.3}, 0.6),
        (ActivationClustering("silhouette"), {"shift": 0.3}, 0.9),
        (ActivationClustering("smaller"), {"shift": 0.3}, 0.5),
        (DeepKNN(), {"shift": 0.0, "nearer": 0.9}, 1.0),
    ],
    ids=str,
)
def test_a_planted_cluster_is_dropped(filter_: DefenceFilter, moved: dict[str, float], clean_kept: float) -> None:
    case, poisoned = planted(**moved)
    kept = filter_.keep(case)
    assert not kept[poisoned].any()
    assert kept[~poisoned].sum() >= clean_kept * (3 * EACH) - POISONS
    assert np.array_equal(kept, filter_.keep(case))
