"""How results show themselves: short, escaped, drawn without anything from elsewhere, readable on black and white."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import privmix as pm
from privmix.accounting import PrivacyCost, price_picture
from privmix.jobs.recording import Measured
from privmix.shown import POINT, STRONG, Bar, Bars, Shown, spent_bars
from privmix.training.verify import plan_of

X = np.clip(np.random.default_rng(0).normal(0.5, 0.2, size=(300, 6)), 0, 1)
Y = np.arange(300) % 2
NAMES = ["<script>alert(1)</script>", 'no" onload="x&']
MADE: dict[str, Any] = {"classes": NAMES, "features": "identity", "epsilon": 2.0, "delta": 1e-4}
pytestmark = pytest.mark.filterwarnings("ignore:.*(plain numbers|delta)")


def all_kinds() -> Iterator[tuple[str, Any]]:
    data = (X, Y)
    planned = pm.plan(data, **MADE)
    release = pm.release(data, pm.plan(data, design="poisson", **MADE))
    model, trained = pm.fit(release), pm.train(data, epochs=1, **MADE)
    checked, audit, noise = pm.verify(release), pm.audit(release, runs=400), pm.audit(release, "noise")
    found = pm.evaluate(model, data, reference=data, reference_split="train")
    book = pm.Ledger.create("sqlite:///book.db")
    book.add_dataset(NAMES[0], epsilon=2, delta=1e-4)
    yield from {
        "planned": planned,
        "choice": planned.choice,
        "plan": planned.plan,
        "release": release,
        "certificate": release.certificate,
        "rows": release.dataset,
        "model": model,
        "trained": trained,
        "network": trained.classifier,
        "training plan": plan_of(trained.certificate),
        "checked": checked,
        "verification": checked.held,
        "audit": audit,
        "figures": audit.audit,
        "noise": noise,
        "evaluation": found,
        "quality": found.quality,
        "predictions": pm.predict(model, X),
        "budget": book.budget(NAMES[0]),
        "total": pm.ledger_total(book, NAMES[0]),
        "report": pm.report(release),
        "check": pm.check(data, classes=NAMES, features="identity"),
    }.items()


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    place = tmp_path_factory.mktemp("kinds")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        return dict(all_kinds())


DRAWN = [
    *("planned", "choice", "plan", "release", "certificate", "rows", "trained", "network", "checked", "verification"),
    *("training plan", "audit", "figures", "noise", "evaluation", "quality", "predictions", "budget", "total"),
]


def test_cards_are_short_and_have_nothing_from_elsewhere(kinds: dict[str, Any]) -> None:
    for name, one in kinds.items():
        bundle = one._repr_mimebundle_()
        page, text = bundle["text/html"], bundle["text/plain"]
        assert len(page) < 6_500, name
        assert text == repr(one), name
        assert len(text) < 1_500, name
        assert not re.search(r"(?i)<script|https?:|url\(|@import|<style|<img|<a ", page), name
        # One tree: whatever was in it is closed and escaped.
        tree = ElementTree.fromstring(page)
        assert ("svg" in page) is (name in DRAWN), name
        for drawn in tree.iter("svg"):
            assert drawn.get("role") == "img"
            assert drawn.get("aria-label")
            assert len(list(drawn.iter())) > 4
        assert not [name for part in tree.iter() for name in part.attrib if name.startswith("on") or name == "href"]


def test_names_that_somebody_wrote_are_text(kinds: dict[str, Any]) -> None:
    page = kinds["predictions"]._repr_html_()
    assert "&lt;script&gt;" in page
    assert ElementTree.fromstring(page).findall(".//script") == []


def test_no_card_names_a_record(kinds: dict[str, Any], tmp_path: Path) -> None:
    """Formal guarantee of plans: their cards say public facts alone, whatever the records are."""
    data = X.copy()
    data[7] = 1.0
    planned = pm.plan((data, Y), **MADE)
    assert planned._repr_html_() == kinds["planned"]._repr_html_()


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("paper", ["#ffffff", "#111111", "#1e1e1e"])
@pytest.mark.parametrize("colour", [STRONG, POINT])
def test_colours_can_be_told_from_any_paper(colour: str, paper: str) -> None:
    """By WCAG 2.2, 1.4.11: a contrast of 3 to 1; all else has the colour of the reader's text."""
    light, dark = sorted((luminance(colour), luminance(paper)), reverse=True)
    assert (light + 0.05) / (dark + 0.05) >= 3
    page = Bars("T", [Bar("a", 1, "1"), Bar("b", 0.5, "x", strong=False)], mark=0.7).svg()
    assert set(re.findall(r"#[0-9a-f]{6}", page)) <= {STRONG, POINT}
    assert 'fill="currentColor"' in page


def lengths(bars: Bars) -> list[float]:
    return [float(one.get("width", "")) for one in ElementTree.fromstring(str(bars.svg())).iter("rect")]


def test_bars_are_as_long_as_what_they_stand_for() -> None:
    assert lengths(Bars("T", [Bar("a", 0.5, ""), Bar("b", 1.0, "")])) == [61, 122]
    assert lengths(Bars("T", [Bar("a", 0.5, ""), Bar("b", 3.0, "")], full=1.0)) == [61, 122]
    assert lengths(Bars("T", [Bar("a", 0.0, ""), Bar("b", float("inf"), ""), Bar("c", -1.0, "")])) == [0, 122, 0]
    assert lengths(Bars("T", [Bar(str(place), 1.0, "") for place in range(20)])) == [122] * 8
    assert lengths(spent_bars(4.0, 1.0)) == [122, 30.5]


def test_a_guarantee_is_drawn_by_its_odds() -> None:
    """Guessing is right half the time; an attack on pure epsilon log 3 at most three times in four."""
    pure = price_picture(None, PrivacyCost(math.log(3), 0.0, pm.Adjacency.ADD_REMOVE, "pure", True))
    assert pure is not None
    assert [bar.length for bar in pure.bars] == [0.5, pytest.approx(0.75)]
    assert lengths(pure) == [61, 91.5]
    assert price_picture(None, PrivacyCost(math.inf, 0.0, pm.Adjacency.ADD_REMOVE, "pure", True)) is None


class Odd(Shown):
    def shown(self) -> tuple[str, Mapping[str, object]]:
        return "two\nlines", {"a\x07": "x" * 500, "b": 0.123456789, "c": "y\nz"}


def test_what_is_long_or_odd_is_cut_to_a_line() -> None:
    assert repr(Odd()) == f"two lines\n  a : {'x' * 197}...\n  b: 0.1235\n  c: y z"
    assert len(Odd()._repr_html_()) < 1_500


def test_what_was_measured_shows_its_figures(kinds: dict[str, Any]) -> None:
    assert isinstance(kinds["audit"], Measured)
    assert repr(kinds["audit"]).startswith("Audit: not refuted")
