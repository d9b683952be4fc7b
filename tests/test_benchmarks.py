"""Benchmarks are listed, and no result lies where nobody finds it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
LISTED = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
ENDED = ROOT / "benchmarks" / "results" / "ended.md"
PAGES = sorted(set((ROOT / "benchmarks" / "results").glob("*.md")) - {ENDED})
FRONTIER = json.loads((ROOT / "benchmarks" / "results" / "frontier.json").read_text(encoding="utf-8"))
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

    assert [link for link in re.findall(r"\]\(([^)#:]+)\)", text) if not (page.parent / link).exists()] == []
    # One run has no spread: it is called one run, and not a deviation of zero.
    assert re.findall(r"\(0\.0+, 1\)", text) == []


def left_out(lines: list[dict[str, Any]]) -> set[tuple[str, str, str, float]]:
    """Data set, benchmark, method and epsilon of every kept run with a valid bound that is in none of the lines."""
    datasets = {line["dataset"] for line in FRONTIER["results"]}
    epsilons = {float(epsilon) for line in FRONTIER["results"] for epsilon in line["accuracy"]}
    found = set()
    for place in (ROOT / "benchmarks" / "results").glob("*_runs.json"):
        source, kept = place.stem.removesuffix("_runs"), json.loads(place.read_text(encoding="utf-8"))
        for run in kept.values() if isinstance(kept, dict) else kept:
            dataset = (run.get("dataset") or run.get("data")) if isinstance(run, dict) else None
            if dataset not in datasets or run.get("epsilon") not in epsilons:
                continue
            name = str(run.get("how") or run.get("design") or run.get("method") or "")
            bound = run.get("proven_epsilon") or run.get("honest_epsilon") or run["epsilon"]
            setting = name + str(run.get("setting", ""))
            invalid = re.search("published|not protected|without privacy", setting)
            has_rows = dataset != "adult" or "quality" in run
            if bound <= 1.001 * run["epsilon"] and not invalid and has_rows:
                found.add((dataset, source, name, float(run["epsilon"])))
    named = {source for _, source, _, _ in found if f"not those of {source}:" in FRONTIER["settings"]["lines"]}
    return {
        run
        for run in found
        if run[1] not in named
        and not any(
            (line["dataset"], line["runs"]) == run[:2]
            and run[2] in line["line"]
            and run[3] in map(float, line["accuracy"])
            for line in lines
        )
    }


def test_the_frontier_has_every_line_that_any_record_has_of_its_data() -> None:
    assert left_out(FRONTIER["results"]) == set()
    for method in ("DP-CDA", "Gaussian Mixing", "DP-MERF", "DP-SGD", "aim"):
        others = [line for line in FRONTIER["results"] if method not in line["line"]]
        assert left_out(others) != set(), f"a line of {method} that is missing is reported"
