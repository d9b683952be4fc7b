"""Texts that are published show every character that they have."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privmix as pm
from privmix.certificate.about import About
from privmix.certificate.certificate import content_hash
from privmix.errors import InvalidInput
from privmix.features.identity import Identity
from privmix.features.tabular import Tabular
from privmix.fields import is_printable, looks, printable
from privmix.ledger.ledger import Ledger
from privmix.mechanisms.plan import check_classes
from privmix.untrusted import check_texts

# Zero-width, bidirectional, control, separators, private use, unassigned, half a pair, fillers, a joiner in Latin.
HIDDEN = [
    *("a\u200bb", "\u202elliw", "\u2066a\u2069", "a\nb", "a\tb", "a\x00", "a\u2028b", "a\u2029b", "a\u00adb"),
    *("\ufeffa", "\ue000", "a\u0378", "\ud800", "a\u3164", "a\u2800", "we\u200dll", "a\u200c", "\u200da"),
]  # fmt: skip
SEEN = [
    *("naïve", "a\u00a0b", "😍", "❤️", "🇺🇸", "1️⃣", "👩‍🔬", "👩🏽‍⚕️", "❤️‍🔥", "🏳️‍🌈", "می\u200cخواهم", "क्\u200dष"),
    "葛\U000e0100城",
]
# Of a public set of tweets that are labelled by emoji.
EMOJI = [
    "❤", "😍", "😂", "💕", "🔥", "😊", "😎", "✨", "💙", "😘", "📷", "🇺🇸", "☀", "💜", "😉", "💯", "😁",
    "🎄", "📸", "😜",
]  # fmt: skip


def test_characters_that_show_are_told_from_others() -> None:
    assert [text for text in HIDDEN if is_printable(text)] == []
    assert [text for text in SEEN + EMOJI if not is_printable(text)] == []
    assert [printable(text) for text in SEEN] == SEEN
    assert all(is_printable(printable(text)) for text in HIDDEN)
    assert looks("❤️") == "❤"
    assert looks("می\u200cخواهم") == "میخواهم"


def _ledger(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Ledger.create(f"sqlite:///{folder}/l.db").add_dataset(text, epsilon=1.0, delta=1e-5)


PLACES: dict[str, Callable[[str], object]] = {
    "classes": lambda text: check_classes(["no", text]),
    "columns": lambda text: Identity(["a", text]),
    "table column": lambda text: Tabular({text: {"range": [0, 1]}}),
    "category": lambda text: Tabular({"a": {"categories": ["b", text]}}),
    "token": lambda text: Tabular({"a": {"boolean": {"true": ["y"], "false": [text]}}}),
    "missing token": lambda text: Tabular({"a": {"range": [0, 1], "missing": 0, "missing_tokens": [text]}}),
    "title": lambda text: About(title=text),
    "dataset": _ledger,
    "certificate": lambda text: check_texts({"a": [{"b": text}]}, "certificate"),
    "certificate key": lambda text: check_texts({"a": [{text: 1}]}, "certificate"),
}


@pytest.mark.parametrize("place", PLACES)
def test_every_published_text_shows(place: str) -> None:
    for text in SEEN[:6]:
        PLACES[place](text)
    # A certificate's text may have lines, which are looked at one by one.
    for text in [text for text in HIDDEN if "\n" not in text or not place.startswith("certificate")]:
        with pytest.raises(InvalidInput):
            PLACES[place](text)


def test_names_that_look_the_same_are_one_name() -> None:
    for pair in (["❤", "❤️"], ["میخواهم", "می\u200cخواهم"]):
        with pytest.raises(InvalidInput):
            check_classes(pair)
        with pytest.raises(InvalidInput):
            Identity(pair)
        with pytest.raises(InvalidInput):
            Tabular({name: {"range": [0, 1]} for name in pair})


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root, rng = tmp_path_factory.mktemp("texts"), np.random.default_rng(0)
    records = rng.normal(size=(200, 3)), rng.integers(0, 20, 200)
    given: dict[str, Any] = {"classes": EMOJI, "features": "identity", "epsilon": 8.0, "delta": 1e-3}
    released = pm.release(records, out=root / "REL", design="moments", rows=20, **given)
    pm.train(records, out=root / "TRAINED", epochs=1, **given)
    pm.fit(released, out=root / "FITTED")
    return {name: root / name for name in ("REL", "TRAINED", "FITTED")}


@pytest.mark.parametrize("name", ["REL", "TRAINED", "FITTED"])
def test_what_a_stranger_sends_shows_all_its_characters(name: str, folders: dict[str, Path]) -> None:
    path = folders[name] / ("model.json" if name == "FITTED" else "certificate.json")
    before = path.read_text()
    try:
        for old, new in ((EMOJI[1], f"{EMOJI[0]}\u200b"), ("identity", "iden\u2060tity")):
            content = json.loads(json.dumps(json.loads(before)).replace(json.dumps(old)[1:-1], json.dumps(new)[1:-1]))
            if "content_sha256" in content:
                content["content_sha256"] = content_hash(content)
            path.write_text(json.dumps(content, indent=2) + "\n")
            with pytest.raises(InvalidInput, match="visible"):
                pm.verify(folders[name])
    finally:
        path.write_text(before)
