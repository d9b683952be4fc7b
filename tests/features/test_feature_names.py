"""What features are called follows from an extractor's settings alone, and is typed and small."""

from __future__ import annotations

from typing import Any

import pytest

from privmix.features import Identity, Pixels, Tabular, from_spec
from privmix.features.base import extractor_kinds
from privmix.features.spec import check_spec, feature_names, stated_names
from tests.refusals import refuses

COLUMNS: dict[str, Any] = {
    "age": {"bins": [25, 35.5, 50]},
    "id": {"ignore": True},
    "income": {"range": [0, 1e6], "log": True, "missing": 0},
    "sex": {"categories": ["F", "M"], "missing_token": "?"},
}
NAMES = ("age < 25", "25 <= age < 35.5", "35.5 <= age < 50", "age >= 50", "income", "sex=F", "sex=M", "sex missing")


def test_columns_and_categories_name_a_tables_features() -> None:
    table = Tabular(COLUMNS)
    assert table.feature_names == NAMES
    assert stated_names(table.spec(), len(NAMES)) == NAMES
    assert len(NAMES) == table.output_dim((len(COLUMNS) - 1,))


def test_columns_of_numbers_keep_their_names() -> None:
    named = Identity().with_columns(("age", "dose"))
    assert named.feature_names == ("age", "dose")
    assert from_spec(named.spec()).feature_names == ("age", "dose")
    check_spec(named.spec())
    # What a certificate has no room for is left out, and no release fails for it.
    for columns in (None, ("a" * 201, "b"), tuple(f"{number:0200}" for number in range(400))):
        assert Identity().with_columns(columns).options() == {}
    assert Pixels().with_columns(("age", "dose")).feature_names == ()
    with refuses("input shape for identity"):
        named.output_dim((3,))


def test_others_are_numbered() -> None:
    assert feature_names(Pixels().spec(), 3) == ("feature 0", "feature 1", "feature 2")
    for kind in extractor_kinds().values():
        assert kind.names_of({}) == () if kind is not Tabular else True


def test_names_differ_and_stay_small() -> None:
    # A column may be named like a category of another one.
    clash = Tabular({"a": {"categories": ["b=c", "d"]}, "a=b": {"categories": ["c", "d"]}, "a=d": {"range": [0, 1]}})
    found = stated_names(clash.spec(), 5)
    assert found == ("a=b=c", "a=d", "a=b=c (2)", "a=b=d", "a=d (2)")
    wide = Tabular({"x" * 200: {"categories": list(range(9000))}})
    check_spec(wide.spec())
    assert stated_names(wide.spec(), 9000) == ()


@pytest.mark.parametrize("columns", [5, "ab", [], ["a", "a"], ["a", 1], [""], ["a" * 201], {"a": 1}, [["a"]]])
def test_a_strangers_columns_are_names(columns: Any) -> None:
    spec = {"name": "identity", "version": 1, "options": {"columns": columns}}
    for read in (check_spec, from_spec):
        with refuses("columns of identity"):
            read(spec)
    with refuses("extractor"):
        stated_names({"name": "identity", "options": {"columns": ["a", "b"]}}, 3)
