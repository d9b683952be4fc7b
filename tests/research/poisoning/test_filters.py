"""Filters find what is planted, agree with plain references, and look no better than they are when they don't."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import hypergeom

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


@dataclass(frozen=True)
class AtRandom(DefenceFilter):
    """What a filter must not be: as many records as spectral signatures drop, whichever."""

    name: ClassVar[str] = "at-random"
    about: ClassVar[str] = "drops records at random"

    def keep(self, case: Case) -> NDArray[np.bool_]:
        dropped = 3 * int(1.5 * case.budget)
        chosen = case.scene.generator("at-random").choice(len(case.records), dropped, replace=False)
        return ~np.isin(np.arange(len(case.records)), chosen)


def finds(filter_: DefenceFilter, case: Case, poisoned: NDArray[np.bool_]) -> bool:
    """Whether it dropped more poisons than as many random records would hold; wrongly so once in a million times."""
    dropped = ~filter_.keep(case)
    chance = hypergeom.sf((dropped & poisoned).sum() - 1, len(poisoned), poisoned.sum(), dropped.sum())
    return bool(chance < 1e-6)


def test_a_filter_that_drops_random_records_finds_nothing_and_the_others_do() -> None:
    case, poisoned = planted(shift=0.3)
    assert not finds(AtRandom(), case, poisoned)
    assert finds(ActivationClustering("silhouette"), case, poisoned)
    assert finds(DeepKNN(), *planted(shift=0.0, nearer=0.9))
    # Spectral signatures drop as many of each class; among those of the poisoned one they are told apart.
    inside = case.records.of_class(1)
    dropped, bad = ~SpectralSignatures().keep(case)[inside], poisoned[inside]
    assert hypergeom.sf((dropped & bad).sum() - 1, len(inside), bad.sum(), dropped.sum()) < 1e-6
