"""Fitting a classifier to a release: post-processing, at no cost of privacy."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from privmix.designs import design_named
from privmix.errors import InvalidInput, check_choice
from privmix.jobs.models import Model
from privmix.jobs.released import Release
from privmix.learning import (
    DiscriminantClassifier,
    GeneralizedKLClassifier,
    NoiseAwareRidgeClassifier,
    Progress,
    SecondMomentsClassifier,
)
from privmix.learning.base import ReleaseLearner
from privmix.releases import ReleasedDataset, load_release

AUTO: Final = "auto"
LEARNERS: Final = (AUTO, "discriminant", "noise-aware-ridge", "second-moments", "generalized-kl")


def fit(
    release: Release | ReleasedDataset | str | Path,
    learner: str | ReleaseLearner = AUTO,
    *,
    regularisation: float | str = AUTO,
    model: str = "linear",
    epochs: int = 200,
    seed: int = 0,
    progress: Progress | None = None,
) -> Model:
    """Train a classifier on a release. No private data is read and no privacy is spent, however often you do it.

    Args:
        release: a release, or its folder.
        learner: ``"auto"``: discriminant for moments and Poisson rows, else noise-aware-ridge; or one of these two,
            ``"second-moments"`` for releases that have them, ``"generalized-kl"`` (the papers'); or an estimator of
            your own settings.
        regularisation: noise-aware-ridge, second-moments: ``"auto"``, or a share of the largest eigenvalue.
        model: generalized-kl: ``"linear"``, or ``"cnn"`` on pixel releases.
        epochs: generalized-kl: passes over the rows.
        seed: generalized-kl: initial weights and order of rows.
        progress: called with (steps done, steps in all).

    Returns:
        a model that takes raw inputs.

    Raises:
        InvalidInput: a setting is out of range, or the folder is no release as it was certified.
        StorageError: a file of it is missing or can't be read.
    """
    if isinstance(release, Release):
        dataset = release.dataset
    else:
        dataset = release if isinstance(release, ReleasedDataset) else load_release(release)
    if isinstance(learner, ReleaseLearner):
        return Model(learner.fit(dataset, progress=progress))
    learner = learner_for(dataset, learner)
    chosen: ReleaseLearner
    if learner == "discriminant":
        if regularisation != AUTO:
            raise InvalidInput("regularisation", regularisation, "auto for learner discriminant: it finds its own")
        chosen = DiscriminantClassifier()
    elif learner == "generalized-kl":
        chosen = GeneralizedKLClassifier(model=model, epochs=epochs, seed=seed)
    elif learner == "second-moments":
        chosen = SecondMomentsClassifier(regularisation=regularisation)
    else:
        chosen = NoiseAwareRidgeClassifier(regularisation=regularisation)
    return Model(chosen.fit(dataset, progress=progress))


def learner_for(release: ReleasedDataset, learner: str) -> str:
    """The learner meant by ``learner``: for ``"auto"`` the one that the release's design is best learnt from by."""
    check_choice("learner", learner, LEARNERS)
    return design_named(release.design).learner if learner == AUTO else learner
