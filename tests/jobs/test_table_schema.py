"""Table Schemas that data portals publish become entries of a specification."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import privmix as pm
from privmix.errors import InvalidInput
from privmix.jobs.table_words import schema_entries
from tests.refusals import refuses


def field(name: str, type_: str, more: Any = None, **constraints: Any) -> dict[str, Any]:
    return {"name": name, "type": type_, **(more or {}), **({"constraints": constraints} if constraints else {})}


SCHEMA: dict[str, Any] = {
    "missingValues": ["", "NA"],
    "fields": [
        field("id", "string", unique=True),
        field("age", "integer", minimum=0, maximum=110, required=True),
        field("paid", "number", {"groupChar": ","}, minimum=0, maximum=9000),
        field("ward", "string", enum=["A", "B"]),
        field("stage", "string", {"categories": ["I", "II"], "categoriesOrdered": True}),
        field("smoker", "boolean", {"trueValues": ["J"], "falseValues": ["N"]}),
        field("day", "date", {"format": "%d.%m.%Y"}, minimum="2021-01-01", maximum="2021-12-31"),
        field("note", "string"),
        field("ill", "string", enum=["no", "yes"]),
    ],
}
INDICATED = {"missing": "indicator", "missing_tokens": ["NA"]}
ENTRIES: dict[str, Any] = {
    "id": {"ignore": True},
    "age": {"range": [0, 110], "integer": True},
    "paid": {"range": [0.0, 9000.0], "thousands": ",", **INDICATED},
    "ward": {"categories": ["A", "B"], "missing_tokens": ["NA"]},
    "stage": {"ordinal": ["I", "II"], **INDICATED},
    "smoker": {"boolean": {"true": ["J"], "false": ["N"]}, **INDICATED},
    "day": {"date": ["2021-01-01", "2021-12-31"], "format": "%d.%m.%Y", **INDICATED},
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
    cells = {"age": "54", "paid": "1,200", "ward": "NA", "stage": "II", "smoker": "J", "day": "03.02.2021"}
    row = [cells.get(name, "x") for name in found.extractor().columns]
    assert found.extractor().transform(np.array([row], object)).shape[0] == 1


def test_columns_without_bounds_stay_to_be_declared() -> None:
    table = pd.DataFrame({"note": ["a"], "dose": [1.0], "ill": ["no"]})
    schema = {"fields": [field("note", "string"), field("dose", "number")]}
    assert set(pm.spec(table, label="ill", schema=schema).undeclared) == {"note", "dose"}
    # Bounds that are none are refused as in a specification.
    schema = {"fields": [field("a", "integer", minimum=9, maximum=1)]}
    with pytest.raises(InvalidInput, match="a"):
        pm.spec(pd.DataFrame({"a": [1], "ill": ["no"]}), label="ill", schema=schema)


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
