"""Verdicts of reproductions follow from figures by rule; rows without training run, unknown names are refused."""

import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "benchmarks")]

import reproduce  # noqa: E402
import reproduction_rows as rows  # noqa: E402
from reproduction_rows import FAILS, HOLDS, NEARLY, PRICE_ONLY, UNDECIDED, UNTESTED, Gain, TrialGain  # noqa: E402


def gain(*points: float) -> Gain:
    return Gain([0.5 + one / 100 for one in points], [0.5] * len(points), ("a", "b"))


BETTER, WORSE, OPEN = gain(4, 5, 6), gain(-4, -5, -6), gain(-5, 1, 5)


def test_verdicts_follow_from_intervals() -> None:
    assert rows.by_gain(BETTER) == rows.by_gain(BETTER, WORSE) == HOLDS
    assert rows.by_gain(WORSE) == rows.by_gain(WORSE, BETTER) == FAILS
    assert rows.by_gain(OPEN, BETTER) == rows.by_gain(None, BETTER) == PRICE_ONLY
    assert rows.by_gain(OPEN) == rows.by_gain(OPEN, WORSE) == rows.by_gain(None, OPEN) == UNDECIDED
    assert rows.by_gain(None, WORSE) == FAILS
    assert [rows.by_price(1.0, true) for true in (0.9, 1.0, 1.04, 1.06)] == [HOLDS, HOLDS, NEARLY, FAILS]
    assert [rows.by_excess(low, high, 2) for low, high in ((-1, 2), (1, 3), (2.1, 3))] == [HOLDS, UNDECIDED, FAILS]
    # Trials that all agree leave room for chance.
    same, one = TrialGain([1.0] * 20, [0.0] * 20, ("a", "b")), TrialGain([1.0], [0.0], ("a", "b"))
    assert 50 < same.interval[0] < same.interval[1] == 100
    assert rows.by_gain(same) == HOLDS
    assert rows.by_gain(one) == UNDECIDED


def test_every_paper_has_rows_and_a_page_with_its_command() -> None:
    pages = {page.stem for page in (ROOT / "docs" / "reproductions").glob("*.md")} - {"index"}
    assert pages == set(rows.PAPERS)
    for paper, claims in rows.PAPERS.items():
        page = (ROOT / "docs" / "reproductions" / f"{paper}.md").read_text(encoding="utf-8")
        assert f"`python benchmarks/reproduce.py {paper}`" in page
        assert len(claims) >= 3
        for claim in claims.values():
            assert re.match(r"(Tables?|Figures?) \w*\d", claim.where)
            assert (ROOT / "benchmarks" / "results" / f"{claim.page}.md").exists()


def test_rows_without_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "rows.json"
    assert reproduce.main(["dp-instahide", "--row", "figure-1a", "--json", str(file)]) == 0
    (row,) = json.loads(file.read_text(encoding="utf-8"))["rows"]
    assert row["verdict"] == FAILS
    assert row["lines"]["claimed epsilon"][0] < 211 < 6e8 < row["lines"]["true epsilon"][0]
    text = capsys.readouterr().out
    assert "epsilon 210.6" in text
    assert "does not hold" in text
    assert max(map(len, text.splitlines())) <= 120
    assert reproduce.main(["public-synthesis", "--row", "table-1-synthesis"]) == 0
    assert f"{UNTESTED}: see benchmarks/results/synthesis.md" in capsys.readouterr().out
    assert reproduce.main([]) == 0
    text = capsys.readouterr().out
    assert all(name in text for paper, claims in rows.PAPERS.items() for name in (paper, *claims))


@pytest.mark.parametrize(
    ("line", "field"),
    [
        (["dp-mux"], "PAPER"),
        (["dp-mix", "--row", "table-9"], "--row"),
        (["dpfmix", "--json", "none/rows.json"], "--json"),
    ],
)
@pytest.mark.usefixtures("own_folder")
def test_wrong_words_are_refused_before_the_runs(
    line: list[str], field: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reproduce.main(line) == 2
    assert field in capsys.readouterr().err


@pytest.mark.thorough
def test_a_paper_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With fewer runs and a short search."""
    monkeypatch.setattr(rows, "SEEDS", range(2))
    monkeypatch.setattr(rows, "SEARCH_SEEDS", (100,))
    monkeypatch.setattr(rows, "LEARNER", {"rate": (0.03,), "epochs": (10,)})
    file = tmp_path / "rows.json"
    assert reproduce.main(["dpfmix", "--json", str(file)]) == 0
    found = {row["row"]: row for row in json.loads(file.read_text(encoding="utf-8"))["rows"]}
    assert set(found) == set(rows.PAPERS["dpfmix"])
    assert found["accounting"]["verdict"] == FAILS
    assert all(0.5 < max(shares) <= 1 for shares in found["table-3"]["lines"].values())
    assert {row["verdict"] for row in found.values()} <= set(rows.RULES)
