"""Fitting a classifier to a release: post-processing, at no cost of privacy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.data.dataset import Schema
from privmix.errors import InvalidInput, check_choice, check_number
from privmix.features.base import Extractor, parse_features
from privmix.features.identity import Pixels
from privmix.features.spec import from_spec
from privmix.jobs.class_texts import class_prior
from privmix.jobs.columns import Columns
from privmix.jobs.features import features_in_memory
from privmix.jobs.models import Model, open_for_model, split_of
from privmix.jobs.options import AUTO, FitOptions
from privmix.learning.base import LEARNERS, ReleaseFacts, ReleaseLearner
from privmix.learning.discriminant import DiscriminantClassifier
from privmix.learning.kl import GeneralizedKLClassifier
from privmix.learning.model_io import MODEL_FOLDER
from privmix.plans.named import plan_from_dict
from privmix.plans.registry import design_named
from privmix.progress import Progress, silent
from privmix.publication.dataset import HasDataset, RecordTransform, ReleasedDataset
from privmix.publication.second_moments import shares_in_words
from privmix.releases.series_chain import dataset_of

# Longer than any features are: nothing is clipped any more.
_UNCLIPPED: Final = 1e30


def encoded(release: ReleasedDataset, extractor: Extractor, progress: Progress | None = None) -> ReleasedDataset:
    """Return the rows of a release of pixels, as images through an extractor (DPMix with ScatteringNet)."""
    # Li et al. 2022, appendix E.3. The noise of such rows is neither Gaussian nor of known size: learners that
    # correct for it cannot use them. Images that were clipped before mixing are darker in the rows than raw ones.
    shape, name = tuple(release.input_shape), release.extractor.get("name")
    if name != Pixels.name or len(shape) not in (2, 3) or math.prod(shape) != release.dim:
        raise InvalidInput("features", extractor.name, f"no extractor here: rows of {name} features are not images")
    extractor.check_schema(Schema(release.rows, shape, tuple(release.classes)))
    found = np.empty((release.rows, extractor.output_dim(shape)), np.float32)
    centre = release.transform.centre
    for start in range(0, release.rows, extractor.step):
        part = slice(start, min(start + extractor.step, release.rows))
        pixels = release.x[part] if centre is None else release.x[part] + centre
        found[part] = extractor.transform(pixels.reshape(-1, *shape).astype(np.float32))
        if progress is not None:
            progress(f"features ({extractor.name})", part.stop, release.rows)
    return replace(
        release,
        x=found,
        # Unknown, and no learner may take it for what it was.
        noise_std_x=math.nan,
        transform=RecordTransform(_UNCLIPPED),
        extractor=extractor.spec(),
        beside=None,
    )


def fitted(
    release: HasDataset | ReleasedDataset | str | Path, asked: FitOptions | None = None, tell: Progress = silent
) -> Model:
    how = FitOptions() if asked is None else asked
    learner, augment = how.learner, how.augment
    if not isinstance(learner, ReleaseLearner):
        check_choice("learner", learner, [AUTO, *LEARNERS])
    if how.out is not None:
        # Before the fit, which may take minutes.
        replace(MODEL_FOLDER, field="out").check_target(Path(how.out), overwrite=how.overwrite)
    dataset = dataset_of(release)
    given = {"features": how.features, "augment": augment, "validation": how.validation}
    given = {name: value for name, value in given.items() if value is not None}
    if not isinstance(learner, ReleaseLearner):
        name = _name(dataset, learner, given, told=how.class_descriptions is not None)
        settings: dict[str, Any] = {
            "regularisation": _strength(how.regularisation),
            "model": how.model,
            "epochs": how.epochs,
        }
        settings |= {"seed": how.seed, "augment": augment, "standardise": how.features is not None}
        learner = _made(name, settings)
    elif augment is not None:
        raise InvalidInput("augment", augment, "no augmentations with an estimator, which has its own")
    if given and not learner.in_epochs:
        raise InvalidInput(next(iter(given)), f"learner {learner.name}", f"learner {GeneralizedKLClassifier.name}")
    if how.features is not None:
        if augment is not None:
            raise InvalidInput("augment", augment, "no augmentations with `features`, which reads each image once")
        dataset = encoded(dataset, parse_features(how.features), tell)
    prior = held = None
    if how.class_descriptions is not None or how.validation is not None:
        extractor = from_spec(dataset.extractor, how.features_model)
        if how.class_descriptions is not None:
            prior = class_prior(dataset, how.class_descriptions, extractor)
        if how.validation is not None:
            held = _watched(dataset, extractor, how.validation, how.validation_split, how.as_columns())
    watched = {"validation": held} if learner.in_epochs else {}
    learner.fit(dataset, progress=tell, prior=prior, **watched)
    known = dataset.certificate
    told = () if known is None else shares_in_words(plan_from_dict(known["plan"]), dataset.beside)
    found = Model(learner, how.features_model, told)
    if how.out is not None:
        found.save(how.out, overwrite=how.overwrite)
    return found


def _name(release: ReleasedDataset, learner: str, asked: Mapping[str, Any], *, told: bool) -> str:
    """Return the learner's name: for ``"auto"``, the one that takes the given options, or that the design names."""
    if learner != AUTO:
        return learner
    if asked:
        return GeneralizedKLClassifier.name
    return DiscriminantClassifier.name if told else design_named(release.design).learner


def _watched(
    release: ReleasedDataset, extractor: Extractor, data: Any, split: str | None, columns: Columns
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Features and labels of data, as a learner of the release takes them; errors as :func:`open_for_model`."""
    opened = open_for_model(ReleaseFacts.of(release), extractor, data, split_of(data, split), columns)
    records = features_in_memory(opened.source, extractor, silent)
    return records.features, records.labels


def _made(name: str, settings: Mapping[str, Any]) -> ReleaseLearner:
    """Return the learner of that name, with those of the settings that it has."""
    kind = LEARNERS[name]
    own = kind().get_params()
    if "regularisation" not in own and settings["regularisation"] != AUTO:
        allowed = f"auto for learner {name}, which has no regularisation"
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
