"""Benchmarks are listed, and no result lies where nobody finds it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LISTED = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
PAGES = sorted((ROOT / "benchmarks" / "results").glob("*.md"))
SCRIPTS = sorted((ROOT / "benchmarks").glob("bench_*.py"))
DOCS = "".join(page.read_text(encoding="utf-8") for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")])


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_every_script_is_listed(script: Path) -> None:
    assert f"`{script.name}" in LISTED


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_result_is_kept_listed_and_concluded_from(page: Path) -> None:
    """Its record lies beside it, the list of benchmarks links it, and so does a page of the docs."""
    assert page.with_suffix(".json").exists()
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
