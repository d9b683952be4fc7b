"""Benchmarks are listed, and no result lies where nobody finds it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LISTED = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
ENDED = ROOT / "benchmarks" / "results" / "ended.md"
PAGES = sorted(set((ROOT / "benchmarks" / "results").glob("*.md")) - {ENDED})
SCRIPTS = sorted((ROOT / "benchmarks").glob("bench_*.py"))
DOCS = "".join(page.read_text(encoding="utf-8") for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")])


def test_scripts_are_listed_or_ended() -> None:
    ended = set(re.findall(r"^\| `(bench_\w+\.py)", ENDED.read_text(encoding="utf-8"), re.MULTILINE))
    assert {script.name for script in SCRIPTS} == set(re.findall(r"^\| `(bench_\w+\.py)", LISTED, re.MULTILINE))
    assert ended.isdisjoint(script.name for script in SCRIPTS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_result_is_kept_listed_and_concluded_from(page: Path) -> None:
    """Its record has date and commit of its runs; the list of benchmarks links it, and so does a page of the docs."""
    machine = json.loads(page.with_suffix(".json").read_text(encoding="utf-8"))["machine"]
    text = page.read_text(encoding="utf-8")
    assert f"- date: {machine['date']}\n- commit: {machine['commit']}\n" in text
    assert f"(results/{page.name})" in LISTED
    assert f"benchmarks/results/{page.name})" in DOCS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_between_results_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_single_run_passes_for_a_spread(page: Path) -> None:
    """One run has no spread: it is called one run, and not a deviation of zero."""
    assert re.findall(r"\(0\.0+, 1\)", page.read_text(encoding="utf-8")) == []
