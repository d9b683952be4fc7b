"""How results show themselves: short, escaped, drawn without anything from elsewhere, readable on black and white."""

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import privmix as pm
from privmix.training.verify import plan_of

X = np.clip(np.random.default_rng(0).normal(0.5, 0.2, size=(300, 6)), 0, 1)
Y = np.arange(300) % 2
NAMES = ["<script>alert(1)</script>", 'no" onload="x&']
MADE: dict[str, Any] = {"classes": NAMES, "features": "identity", "epsilon": 2.0, "delta": 1e-4}
pytestmark = pytest.mark.filterwarnings("ignore:.*(plain numbers|delta)")


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("kinds"))
        data = (X, Y)
        planned = pm.plan(data, **MADE)
        release = pm.release(data, pm.plan(data, design="poisson", **MADE))
        model, trained = pm.fit(release), pm.train(data, epochs=1, **MADE)
        checked, audit, noise = pm.verify(release), pm.audit(release, runs=400), pm.audit(release, "noise")
        found = pm.evaluate(model, data, reference=data, reference_split="train")
        book = pm.Ledger.create("sqlite:///book.db")
        book.add_dataset(NAMES[0], epsilon=2, delta=1e-4)
        return {
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
        }


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
        assert ("svg" in page) is (name not in ("model", "report", "check")), name
        for drawn in tree.iter("svg"):
            assert drawn.get("role") == "img"
            assert drawn.get("aria-label")
            assert len(list(drawn.iter())) > 4
        assert not [name for part in tree.iter() for name in part.attrib if name.startswith("on") or name == "href"]
    assert "&lt;script&gt;" in kinds["predictions"]._repr_html_()


def test_no_card_names_a_record(kinds: dict[str, Any], tmp_path: Path) -> None:
    """Formal guarantee of plans: their cards say public facts alone, whatever the records are."""
    data = X.copy()
    data[7] = 1.0
    planned = pm.plan((data, Y), **MADE)
    assert planned._repr_html_() == kinds["planned"]._repr_html_()
