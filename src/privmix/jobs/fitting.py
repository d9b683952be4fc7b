"""Fitting a classifier to a release: post-processing, at no cost of privacy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from privmix.designs import design_named
from privmix.errors import InvalidInput, check_choice, check_number
from privmix.jobs.fit_options import AUTO
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
from privmix.learning.model_io import MODEL_FOLDER
from privmix.releases import ReleasedDataset, load_release

LEARNERS: Final = (AUTO, "discriminant", "noise-aware-ridge", "second-moments", "generalized-kl")


def fit(
    release: Release | ReleasedDataset | str | Path,
    learner: str | ReleaseLearner = AUTO,
    *,
    regularisation: float | str = AUTO,
    model: str = "linear",
    epochs: int = 200,
    seed: int = 0,
    out: str | Path | None = None,
    overwrite: bool = False,
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
        out: a folder to create for the model; None creates none.
        overwrite: replace a model at ``out``.
        progress: called with (steps done, steps in all).

    Returns:
        a model that takes raw inputs.

    Raises:
        InvalidInput: a setting is out of range, ``out`` exists, or the folder is no release as it was certified.
        StorageError: a file of it is missing or can't be read, or ``out`` can't be written.
    """
    if not isinstance(learner, ReleaseLearner):
        check_choice("learner", learner, LEARNERS)
    if out is not None:
        replace(MODEL_FOLDER, field="out").check_target(Path(out), overwrite=overwrite)
    if isinstance(release, Release):
        dataset = release.dataset
    else:
        dataset = release if isinstance(release, ReleasedDataset) else load_release(release)
    if not isinstance(learner, ReleaseLearner):
        learner = _made(learner_for(dataset, learner), regularisation, model, epochs, seed)
    fitted = Model(learner.fit(dataset, progress=progress))
    if out is not None:
        fitted.save(out, overwrite=overwrite)
    return fitted


def _made(learner: str, regularisation: float | str, model: str, epochs: int, seed: int) -> ReleaseLearner:
    """The learner of that name, with those of the settings that it has."""
    if learner == "generalized-kl":
        return GeneralizedKLClassifier(model=model, epochs=epochs, seed=seed)
    strength = _strength(regularisation)
    if learner == "discriminant":
        if strength != AUTO:
            raise InvalidInput("regularisation", regularisation, "auto for learner discriminant: it finds its own")
        return DiscriminantClassifier()
    if learner == "second-moments":
        return SecondMomentsClassifier(regularisation=strength)
    return NoiseAwareRidgeClassifier(regularisation=strength)


def _strength(given: float | str) -> float | str:
    """``"auto"``, or the number that is meant."""
    if given == AUTO:
        return AUTO
    try:
        number = float(given) if isinstance(given, str) else given
        return check_number("regularisation", number, low=0, low_open=True)
    except ValueError:
        raise InvalidInput("regularisation", given, "auto, or a number > 0") from None


def learner_for(release: ReleasedDataset, learner: str) -> str:
    """The learner meant by ``learner``: for ``"auto"`` the one that the release's design is best learnt from by."""
    check_choice("learner", learner, LEARNERS)
    return design_named(release.design).learner if learner == AUTO else learner
