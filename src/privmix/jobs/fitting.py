"""Fitting a classifier to a release: post-processing, at no cost of privacy."""

import csv
import hashlib
import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from privmix.data.source import Schema
from privmix.errors import InvalidInput, check_choice, check_number
from privmix.features.base import Extractor, parse_features
from privmix.features.identity import Pixels
from privmix.features.spec import from_spec
from privmix.jobs.features import features_in_memory
from privmix.jobs.models import Model, open_for_model, split_of
from privmix.jobs.options import AUTO, FitOptions
from privmix.learning.base import LEARNERS, ReleaseFacts, ReleaseLearner
from privmix.learning.class_statistics import ClassPrior
from privmix.learning.discriminant import DiscriminantClassifier
from privmix.learning.kl import GeneralizedKLClassifier
from privmix.learning.model_io import MODEL_FOLDER
from privmix.plans.registry import design_named, plan_from_dict
from privmix.progress import Progress, silent
from privmix.publication.dataset import HasDataset, RecordTransform, ReleasedDataset
from privmix.publication.second_moments import shares_in_words
from privmix.releases.series_chain import dataset_of
from privmix.untrusted import MEBIBYTE, parse_json, read_plain

# Longer than any features are: nothing is clipped any more.
_UNCLIPPED: Final = 1e30
NAMES: Final = "names"
FIELD: Final = "class_descriptions"
# A name alone is put into these, whose embeddings are averaged: what they share with every class goes with the mean.
_TEMPLATES: Final = ("{}", "{}.", "About {}.", "It is about {}.", "A text about {}.", "An example of {}.")
# Encoders cut texts long before; what is longer is another file.
_LONGEST: Final = 2000
_MOST: Final = 100
_LARGEST_FILE: Final = 16 * MEBIBYTE
_CSV_COLUMNS: Final = ("class", "description")
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

Texts = dict[str, tuple[str, ...]]


def encoded(release: ReleasedDataset, extractor: Extractor, progress: Progress = silent) -> ReleasedDataset:
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
    release: HasDataset | ReleasedDataset | str | Path, how: FitOptions | None = None, tell: Progress = silent
) -> Model:
    how = how or FitOptions()
    learner, augment = how.learner, how.augment
    if how.out is not None:
        # Before the fit, which may take minutes. Named by the option: the folder's own errors name a model.
        replace(MODEL_FOLDER, field="out").check_target(Path(how.out), overwrite=how.overwrite)
    dataset = dataset_of(release)
    given = {"features": how.features, "augment": augment, "validation": how.validation}
    given = {name: value for name, value in given.items() if value is not None}
    if not isinstance(learner, ReleaseLearner):
        learner = _learner(check_choice("learner", learner, [AUTO, *LEARNERS]), how, dataset, given)
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
            facts, split = ReleaseFacts.of(dataset), split_of(how.validation, how.validation_split)
            opened = open_for_model(facts, extractor, how.validation, split, how.as_columns())
            records = features_in_memory(opened.source, extractor, silent)
            held = records.features, records.labels
    watched = {"validation": held} if learner.in_epochs else {}
    learner.fit(dataset, progress=tell, prior=prior, **watched)
    known = dataset.certificate
    told = () if known is None else shares_in_words(plan_from_dict(known["plan"]), dataset.beside)
    found = Model(learner, how.features_model, told)
    if how.out is not None:
        found.save(how.out, overwrite=how.overwrite)
    return found


def _learner(name: str, how: FitOptions, release: ReleasedDataset, given: Mapping[str, Any]) -> ReleaseLearner:
    """Return the named learner; for ``"auto"`` the one that takes the `given` options, or that the design names."""
    if name == AUTO:
        described = how.class_descriptions is not None
        name = DiscriminantClassifier.name if described else design_named(release.design).learner
        name = GeneralizedKLClassifier.name if given else name
    kind, strength = LEARNERS[name], how.regularisation
    own = kind().get_params()
    if strength != AUTO:
        try:
            number = float(strength) if isinstance(strength, str) else strength
            strength = check_number("regularisation", number, low=0, low_open=True)
        except ValueError:
            raise InvalidInput("regularisation", strength, "auto, or a number > 0") from None
        if "regularisation" not in own:
            raise InvalidInput("regularisation", strength, f"auto for learner {name}, which has no regularisation")
    settings = {setting: getattr(how, setting) for setting in ("model", "epochs", "seed", "augment")}
    # Features of an extractor have scales of their own, unlike pixels.
    settings |= {"regularisation": strength, "standardise": how.features is not None}
    return kind(**{setting: value for setting, value in settings.items() if setting in own})


def class_prior(release: ReleasedDataset, given: Any, extractor: Extractor) -> ClassPrior:
    """Return expected points of class means, from names or descriptions of the classes; per class the mean."""
    # Each text takes the way of the release's records: extractor, clips, private centre. No private record is read.
    try:
        extractor.check_schema(Schema(records=1, input_shape=(1,), classes=release.classes, columns=("text",)))
    except InvalidInput:
        raise InvalidInput(FIELD, f"a release of {extractor.name} features", "a release of texts") from None
    texts = class_texts(given, release.classes)
    every = [text for own in texts.values() for text in own]
    records = release.transform(extractor.extract(np.array(every, dtype=object)[:, None]))
    ends = np.cumsum([len(own) for own in texts.values()])[:-1]
    source = {
        "from": NAMES if given == NAMES else "descriptions",
        "texts": len(every),
        # Sorted: the order of the classes is no part of the texts.
        "sha256": hashlib.sha256(json.dumps(texts, sort_keys=True).encode()).hexdigest(),
    }
    return ClassPrior(np.stack([own.mean(axis=0) for own in np.split(records, ends)]), source)


def class_texts(given: Any, classes: Sequence[str]) -> Texts:
    # `given` is "names" (the names in a few plain sentences), a mapping or a file. A mapping has one text or several
    # for every class. A file is a JSON object, or CSV with the columns `class` and `description`, where a class may
    # have several lines.
    if isinstance(given, str) and given == NAMES:
        words = {name: " ".join(re.sub(r"[\W_]+", " ", _HUMP.sub(" ", name)).split()).lower() for name in classes}
        if not any(any(letter.isalpha() for letter in spoken) for spoken in words.values()):
            raise InvalidInput(FIELD, NAMES, "descriptions: the class names of this release are numbers")
        return {name: tuple(form.format(words[name] or name) for form in _TEMPLATES) for name in classes}
    found = given if isinstance(given, Mapping) else _read(given)
    unknown = [name for name in found if name not in classes]
    missing = [name for name in classes if name not in found]
    if unknown:
        raise InvalidInput(FIELD, unknown[0], f"a class of the release: {', '.join(classes):.200}")
    if missing:
        raise InvalidInput(FIELD, f"no text for class {missing[0]}", f"a description of each of {len(classes)} classes")
    return {name: _checked(name, found[name]) for name in classes}


def _checked(name: str, given: Any) -> tuple[str, ...]:
    texts = (given,) if isinstance(given, str) else given
    if not isinstance(texts, list | tuple) or not 1 <= len(texts) <= _MOST:
        raise InvalidInput(FIELD, given, f"a text, or a list of 1 to {_MOST} texts, for class {name:.50}")
    for text in texts:
        if not isinstance(text, str) or not text.strip() or len(text) > _LONGEST:
            raise InvalidInput(FIELD, text, f"texts of 1 to {_LONGEST:,} characters for class {name:.50}")
    return tuple(texts)


def _read(given: Any) -> Mapping[str, Any]:
    if not isinstance(given, str | Path):
        raise InvalidInput(FIELD, type(given).__name__, "'names', a mapping from classes to texts, or a file with one")
    path = Path(given)
    content = read_plain(path, FIELD, _LARGEST_FILE)
    if path.suffix.lower() == ".csv":
        return _read_csv(content)
    found = parse_json(content, FIELD)
    if not isinstance(found, dict):
        raise InvalidInput(FIELD, type(found).__name__, "a JSON object from classes to texts, or a .csv file")
    return found


def _read_csv(content: bytes) -> Mapping[str, Any]:
    try:
        rows = list(csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True))
    except (UnicodeDecodeError, csv.Error):
        raise InvalidInput(FIELD, "other bytes", "a CSV file in UTF-8") from None
    header = tuple(word.strip() for word in rows[0]) if rows else ()
    if sorted(header) != sorted(_CSV_COLUMNS):
        raise InvalidInput(FIELD, ", ".join(header), f"a CSV file with the columns {' and '.join(_CSV_COLUMNS)}")
    name, text = (header.index(column) for column in _CSV_COLUMNS)
    found: dict[str, list[str]] = {}
    for number, row in enumerate(rows[1:], start=2):
        if row and len(row) != len(header):
            raise InvalidInput(FIELD, f"{len(row)} values in row {number}", f"{len(header)} values a row")
        if row:
            found.setdefault(row[name], []).append(row[text])
    return found
