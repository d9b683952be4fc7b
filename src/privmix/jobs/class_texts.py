"""Texts of a text release's classes, given by a user as a public prior: their names, or descriptions of them."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.data.source import Schema
from privmix.errors import InvalidInput
from privmix.features.base import Extractor
from privmix.learning.class_statistics import ClassPrior
from privmix.publication.dataset import ReleasedDataset
from privmix.untrusted import MEBIBYTE, parse_json, read_plain

NAMES: Final = "names"
FIELD: Final = "class_descriptions"
# A name alone is put into these, whose embeddings are averaged: what they share with every class goes with the mean.
_TEMPLATES: Final = ("{}", "{}.", "About {}.", "It is about {}.", "A text about {}.", "An example of {}.")
# Encoders cut texts long before; what is longer is another file.
_LONGEST: Final = 2000
_MOST: Final = 100
_LARGEST_FILE: Final = 16 * MEBIBYTE
_CSV_COLUMNS: Final = ("class", "description")
# A capital after a small letter begins a word.
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

Texts = dict[str, tuple[str, ...]]


def class_prior(release: ReleasedDataset, given: Any, extractor: Extractor) -> ClassPrior:
    """Return expected points of class means, from names or descriptions of the classes; per class the mean."""
    # Each text takes the way of the release's records: extractor, clips, private centre. No private record is read.
    try:
        extractor.check_schema(Schema(records=1, input_shape=(1,), classes=release.classes, columns=("text",)))
    except InvalidInput:
        raise InvalidInput(FIELD, f"a release of {extractor.name} features", "a release of texts") from None
    texts = class_texts(given, release.classes)
    every = [text for own in texts.values() for text in own]
    records = release.transform(extractor.extract(column_of(every)))
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
        return _of_names(classes)
    found = given if isinstance(given, Mapping) else _read(given)
    unknown = [name for name in found if name not in classes]
    missing = [name for name in classes if name not in found]
    if unknown:
        raise InvalidInput(FIELD, unknown[0], f"a class of the release: {', '.join(classes):.200}")
    if missing:
        raise InvalidInput(FIELD, f"no text for class {missing[0]}", f"a description of each of {len(classes)} classes")
    return {name: _checked(name, found[name]) for name in classes}


def _of_names(classes: Sequence[str]) -> Texts:
    words = {name: " ".join(re.sub(r"[\W_]+", " ", _HUMP.sub(" ", name)).split()).lower() for name in classes}
    if not any(any(letter.isalpha() for letter in spoken) for spoken in words.values()):
        allowed = "descriptions: the class names of this release are numbers"
        raise InvalidInput(FIELD, NAMES, allowed)
    # A name of signs alone is used as it is.
    return {name: tuple(form.format(words[name] or name) for form in _TEMPLATES) for name in classes}


def _checked(name: str, given: Any) -> tuple[str, ...]:
    """One text or several of a class."""
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


def column_of(texts: Sequence[str]) -> NDArray[np.object_]:
    """(n, 1) texts, as extractors of texts take them."""
    column = np.empty((len(texts), 1), dtype=object)
    column[:, 0] = texts
    return column


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
