"""Table Schemas that data portals publish become entries of a specification."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import privmix as pm
from privmix.errors import InvalidInput
from privmix.jobs.table_words import schema_entries
from tests.refusals import refuses

SCHEMA: dict[str, Any] = {
    "missingValues": ["", "NA"],
    "fields": [
        {"name": "id", "type": "string", "constraints": {"unique": True}},
        {"name": "age", "type": "integer", "constraints": {"minimum": 0, "maximum": 110, "required": True}},
        {"name": "paid", "type": "number", "groupChar": ",", "constraints": {"minimum": 0, "maximum": 9000}},
        {"name": "ward", "type": "string", "constraints": {"enum": ["A", "B"]}},
        {"name": "stage", "type": "string", "categories": ["I", "II"], "categoriesOrdered": True},
        {"name": "smoker", "type": "boolean", "trueValues": ["J"], "falseValues": ["N"]},
        {
            "name": "day",
            "type": "date",
            "format": "%d.%m.%Y",
            "constraints": {"minimum": "2021-01-01", "maximum": "2021-12-31"},
        },
        {"name": "note", "type": "string"},
        {"name": "ill", "type": "string", "constraints": {"enum": ["no", "yes"]}},
    ],
}
ENTRIES: dict[str, Any] = {
    "id": {"ignore": True},
    "age": {"range": [0, 110], "integer": True},
    "paid": {"range": [0.0, 9000.0], "thousands": ",", "missing": "indicator", "missing_tokens": ["NA"]},
    "ward": {"categories": ["A", "B"], "missing_tokens": ["NA"]},
    "stage": {"ordinal": ["I", "II"], "missing": "indicator", "missing_tokens": ["NA"]},
    "smoker": {"boolean": {"true": ["J"], "false": ["N"]}, "missing": "indicator", "missing_tokens": ["NA"]},
    "day": {
        "date": ["2021-01-01", "2021-12-31"],
        "format": "%d.%m.%Y",
        "missing": "indicator",
        "missing_tokens": ["NA"],
    },
}


@pytest.mark.parametrize("wrapped", [lambda one: one, lambda one: {"resources": [{"name": "visits", "schema": one}]}])
def test_fields_become_entries(wrapped: Any, tmp_path: Path) -> None:
    place = tmp_path / "schema.json"
    place.write_text(json.dumps(wrapped(SCHEMA)))
    for given in (wrapped(SCHEMA), place, str(place)):
        found = schema_entries(given)
        assert found.pop("ill") == {"categories": ["no", "yes"], "missing_tokens": ["NA"]}
        assert found == ENTRIES


def test_a_specification_takes_the_schema_and_options_come_first() -> None:
    names = [one["name"] for one in SCHEMA["fields"]]
    table = pd.DataFrame([dict.fromkeys(names, "1")])
    found = pm.spec(table, label="ill", schema=SCHEMA, number={"age": (0, 120)}, ignore=["note"])
    assert found.undeclared == ()
    assert found.columns == {**ENTRIES, "age": {"range": [0, 120]}, "note": {"ignore": True}}
    cells = pd.DataFrame(
        {
            **{name: ["x"] for name in names},
            "age": ["54"],
            "paid": ["1,200"],
            "ward": ["NA"],
            "stage": ["II"],
            "smoker": ["J"],
            "day": ["03.02.2021"],
        }
    )
    columns = list(found.extractor().columns)
    assert found.extractor().transform(cells[columns].to_numpy(object)).shape[0] == 1


def test_columns_without_bounds_stay_to_be_declared() -> None:
    table = pd.DataFrame({"note": ["a"], "dose": [1.0], "ill": ["no"]})
    schema = {"fields": [{"name": "note", "type": "string"}, {"name": "dose", "type": "number"}]}
    assert set(pm.spec(table, label="ill", schema=schema).undeclared) == {"note", "dose"}


@pytest.mark.parametrize(
    "schema", [{}, {"fields": "age"}, {"fields": [{"type": "integer"}]}, {"resources": [{}, {}]}, [], "absent.json"]
)
def test_other_files_are_refused(schema: Any) -> None:
    with refuses("schema") if schema != "absent.json" else pytest.raises(pm.StorageError):
        schema_entries(schema)


@pytest.mark.parametrize(
    "more",
    [
        {"constraints": "none"},
        {"constraints": {"minimum": "low", "maximum": 2}},
        {"constraints": {"enum": 3}},
        {"categories": [{"label": "a"}]},
        {"missingValues": 3},
        {"missingValues": "NA"},
        {"constraints": {"minimum": 0, "maximum": float("inf")}},
        {"type": "boolean", "trueValues": ["J"]},
    ],
)
def test_fields_of_another_form_are_refused(more: dict[str, Any]) -> None:
    with refuses("schema of column a"):
        schema_entries({"fields": [{"name": "a", "type": "integer", **more}]})


def test_bounds_that_are_none_are_refused_as_in_a_specification() -> None:
    schema = {"fields": [{"name": "a", "type": "integer", "constraints": {"minimum": 9, "maximum": 1}}]}
    with pytest.raises(InvalidInput, match="a"):
        pm.spec(pd.DataFrame({"a": [1], "ill": ["no"]}), label="ill", schema=schema)
