"""What results follow from is what it was when pages were written, or they state that they were not rebuilt."""

import json
from pathlib import Path

import pytest
from benchmarks import editions

from tests.golden.substance import AREAS, differs

PAGES = editions.pages()


@pytest.mark.parametrize("area", AREAS)
def test_areas_are_of_the_edition_that_is_kept(area: str) -> None:
    found, kept = AREAS[area](), editions.read()[area]["values"]
    assert not differs(found, kept), "run python -m tests.golden.substance"
    assert found.keys() == kept.keys(), "run python -m tests.golden.substance"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_pages_state_what_changed_since_their_runs(page: Path) -> None:
    assert page.read_text(encoding="utf-8") == editions.with_head(page), "run python -m tests.golden.substance"


def test_scripts_depend_on_what_they_import() -> None:
    found = {script.stem: editions.areas_of(script) for script in editions.BENCHMARKS.glob("bench_*.py")}
    assert set(found["bench_designs"]) >= {"prices", "learners", "plans"}
    assert "trainings" in found["bench_training_linear"]
    assert "tables" in found["bench_tables"]
    assert found["bench_house"] == []


def test_a_changed_area_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = editions.read()
    kept["learners"]["edition"] += 1
    later = tmp_path / "substance.json"
    later.write_text(json.dumps(kept), encoding="utf-8")
    monkeypatch.setattr(editions, "KEPT", later)
    page, record = tmp_path / "designs.md", tmp_path / "designs.json"
    machine = {"date": "2026-11-30", "commit": "0" * 8}
    record.write_text(json.dumps({"machine": machine, "editions": {"learners": 1}}), encoding="utf-8")
    page.write_text("# Title\n\nText\n", encoding="utf-8")
    text = editions.with_head(page)
    assert "not rebuilt: learners" in text
    page.write_text(text, encoding="utf-8")
    assert editions.with_head(page) == text


def test_differences_beyond_rounding_are_seen() -> None:
    assert not differs({"a": [1.0, 2.0]}, {"a": [1.0005, 2.0]})
    assert differs({"a": [1.0, 2.0]}, {"a": [1.05, 2.0]})
    assert differs({"a": ["x"]}, {"a": ["y"]})
    assert differs({"a": [1.0]}, {"a": [1.0], "b": [1.0]})
    assert not differs({"a": [1.0], "b": [1.0]}, {"a": [1.0]})
