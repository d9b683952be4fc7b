"""Fitting a classifier to a release: post-processing, at no cost of privacy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privmix.bars import Asked, callback, shows_bars
from privmix.errors import InvalidInput, check_choice, check_number
from privmix.features import Extractor, from_spec, parse_features
from privmix.jobs.class_texts import class_prior
from privmix.jobs.columns import Columns
from privmix.jobs.encoding import encoded
from privmix.jobs.features import features_in_memory
from privmix.jobs.model_data import open_for_model, split_of
from privmix.jobs.models import Model
from privmix.jobs.options import AUTO
from privmix.learning import LEARNERS, DiscriminantClassifier, GeneralizedKLClassifier
from privmix.learning.base import ReleaseFacts, ReleaseLearner
from privmix.learning.model_io import MODEL_FOLDER
from privmix.plans import design_named
from privmix.progress import silent
from privmix.publication import ReleasedDataset
from privmix.publication.dataset import HasDataset
from privmix.releases.at_hand import dataset_of


@shows_bars
def fit(
    release: HasDataset | ReleasedDataset | str | Path,
    learner: str | ReleaseLearner = AUTO,
    *,
    regularisation: float | str = AUTO,
    model: str = "linear",
    epochs: int = 200,
    features: str | Extractor | None = None,
    augment: str | None = None,
    validation: Any = None,
    validation_split: str | None = None,
    columns: Columns | str | Sequence[str] | None = None,
    label: str | None = None,
    seed: int = 0,
    class_descriptions: str | Path | Mapping[str, Any] | None = None,
    features_model: str | Path | None = None,
    trust_features_model: bool = False,
    out: str | Path | None = None,
    overwrite: bool = False,
    progress: Asked = None,
) -> Model:
    """Train a classifier on a release. No private data is read and no privacy is spent, however often you do it.

    Args:
        release: a release, or its folder. Of a series that may be the folder of all its releases: they are weighed as
            their noise asks, which leaves less of it than the newest has.
        learner: ``"auto"``: discriminant for moments, Poisson and class-wise rows, two-stage for releases in two
            stages, what another package's design names, else noise-aware-ridge; or one of these four,
            ``"second-moments"`` for releases that have them, ``"generalized-kl"`` (the papers'), one that another
            package brings; or an estimator of your own settings.
        regularisation: noise-aware-ridge, second-moments: ``"auto"``, or a share of the largest eigenvalue.
        model: generalized-kl: ``"linear"``, or ``"cnn"`` on pixel releases.
        epochs: generalized-kl: passes over the rows.
        features: generalized-kl, which ``"auto"`` then is, on a release of pixels: the released images go through this
            public extractor, and what it makes of them is learned from. See :func:`privmix.jobs.encoding.encoded`.
        augment: generalized-kl, which ``"auto"`` then is, on a release of pixels: ``"flip"``, ``"crop"`` or
            ``"flip,crop"`` of the released images, drawn anew in every epoch.
        validation: generalized-kl, which ``"auto"`` then is: labelled data, as :func:`privmix.evaluate` takes them, to
            look at after every epoch: ``model.classifier.accuracy_curve_``, ``.best_epoch``. They change nothing in
            the model. Where they are private, choosing an epoch by them is not covered by any guarantee.
        validation_split: which part of them; None: ``test``, or all of what is in memory.
        columns, label: what is declared of their columns; see :func:`privmix.evaluate`.
        seed: generalized-kl: initial weights, order of rows, augmentations.
        class_descriptions: discriminant on a release of texts, which ``"auto"`` then is: a public prior for the class
            means, trusted as far as the release bears it out. ``"names"``: the classes' own names; or a mapping from
            every class to one text or several; or a JSON or CSV file of that.
        features_model, trust_features_model: for an extractor whose model no package brings; see
            :class:`~privmix.jobs.models.Model`.
        out: a folder to create for the model; None creates none.
        overwrite: replace a model at ``out``.
        progress: called with (stage, done, total); True: bars; None: bars where somebody looks on.

    Returns:
        a model that takes raw inputs.

    Raises:
        InvalidInput: a setting is out of range, ``out`` exists, descriptions do
            not fit its classes, or the folder is no release as it was certified.
        StorageError: a file of it is missing or can't be read, or ``out`` can't be written.
    """
    tell = callback(progress)
    if not isinstance(learner, ReleaseLearner):
        check_choice("learner", learner, [AUTO, *LEARNERS])
    if out is not None:
        replace(MODEL_FOLDER, field="out").check_target(Path(out), overwrite=overwrite)
    dataset = dataset_of(release)
    asked = {"features": features, "augment": augment, "validation": validation}
    asked = {name: value for name, value in asked.items() if value is not None}
    if not isinstance(learner, ReleaseLearner):
        name = _name(dataset, learner, asked, told=class_descriptions is not None)
        settings = {"regularisation": _strength(regularisation), "model": model, "epochs": epochs, "seed": seed}
        learner = _made(name, {**settings, "augment": augment, "standardise": features is not None})
    elif augment is not None:
        raise InvalidInput("augment", augment, "none beside an estimator, which has its own")
    if asked and not learner.in_epochs:
        raise InvalidInput(next(iter(asked)), f"learner {learner.name}", f"learner {GeneralizedKLClassifier.name}")
    if features is not None:
        if augment is not None:
            raise InvalidInput("augment", augment, "none beside `features`, which goes over the images once")
        dataset = encoded(dataset, parse_features(features), tell)
    prior = held = None
    if class_descriptions is not None or validation is not None:
        arrays, trusted = dataset.extractor_arrays, trust_features_model
        extractor = from_spec(dataset.extractor, features_model, trust_model=trusted, arrays=arrays)
        if class_descriptions is not None:
            prior = class_prior(dataset, class_descriptions, extractor)
        if validation is not None:
            held = _watched(dataset, extractor, validation, validation_split, Columns.declared(columns, label))
    watched = {"validation": held} if learner.in_epochs else {}
    learner.fit(dataset, progress=tell, prior=prior, **watched)
    fitted = Model(learner, features_model, trust_features_model)
    if out is not None:
        fitted.save(out, overwrite=overwrite)
    return fitted


def _name(release: ReleasedDataset, learner: str, asked: Mapping[str, Any], *, told: bool) -> str:
    """The learner that is meant: of ``"auto"`` the one that takes what is asked for, or is told of classes."""
    if learner == AUTO and asked:
        return GeneralizedKLClassifier.name
    return DiscriminantClassifier.name if learner == AUTO and told else learner_for(release, learner)


def _watched(
    release: ReleasedDataset, extractor: Extractor, data: Any, split: str | None, columns: Columns
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Features and labels of data, as a learner of the release takes them; errors as :func:`open_for_model`."""
    opened = open_for_model(ReleaseFacts.of(release), extractor, data, split_of(data, split), None, columns)
    records = features_in_memory(opened.source, extractor, silent)
    return records.features, records.labels


def _made(name: str, settings: Mapping[str, Any]) -> ReleaseLearner:
    """The learner of that name, with those of the settings that it has."""
    kind = LEARNERS[name]
    own = kind().get_params()
    if "regularisation" not in own and settings["regularisation"] != AUTO:
        allowed = f"auto for learner {name}, which takes none"
        raise InvalidInput("regularisation", settings["regularisation"], allowed)
    return kind(**{setting: value for setting, value in settings.items() if setting in own})


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
    check_choice("learner", learner, [AUTO, *LEARNERS])
    return design_named(release.design).learner if learner == AUTO else learner
