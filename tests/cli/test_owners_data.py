"""Release, fit and evaluate on whatever an owner has: texts, tables, images, shards, addresses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.datasets import (
    CLASSES,
    HELD_OUT,
    Data,
    columns_csv,
    evaluate,
    file_address,
    image_folder,
    release,
    table,
    tiny_texts,
)
from tests.cli.helpers import SECRET, privmix, refused

# Thresholds of a random result hold for these keys: no run fails by chance.
pytestmark = pytest.mark.usefixtures("fixed_keys")

FORMATS: list[Callable[[Path], Data]] = [tiny_texts, table, image_folder, file_address]


@pytest.mark.parametrize("make", FORMATS, ids=lambda make: make.__name__)
def test_release_fit_evaluate(make: Callable[[Path], Data], tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    data = make(source)
    out, model = tmp_path / "REL", tmp_path / "MODEL"
    outcome = release(data, out).passed()
    assert outcome.said == ""
    certificate = json.loads((out / "certificate.json").read_text())
    assert certificate["plan"]["classes"] == CLASSES
    assert certificate["plan"]["dim"] == data.dim
    assert privmix("verify", out).code == 0
    for name in ("certificate.json", "README.md", "croissant.json"):
        text = (out / name).read_text()
        assert SECRET not in text
        # Where private data and models lie is the owner's business.
        assert str(tmp_path) not in text
    assert privmix("fit", out, "--out", model).code == 0
    more: list[str] = []
    if "model" in data.notes:
        refused(evaluate(data, model), "model")
        more = ["--features-model", data.notes["model"]]
    outcome = evaluate(data, model, *more).passed()
    result = json.loads(outcome.out)
    assert result["accuracy"] > 0.85
    assert set(result["per_class"]) == set(CLASSES)
    assert result["n"] == HELD_OUT
    # Predictions ask for no label, and read none that is there.
    told = tmp_path / "told.jsonl"
    privmix("predict", model, "--data", data.test, *data.flags, *more, "--out", told).passed()
    said = [json.loads(line)["prediction"] for line in told.read_text().splitlines()]
    found = {name: said.count(name) for name in CLASSES}
    assert sum(found.values()) == result["n"]
    assert min(found.values()) > result["n"] / 5


def test_names_with_brackets_and_blanks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that a terminal's markup or a shell would take for its own are shown as they are, and work."""
    folder = tmp_path / "own [red] data"
    folder.mkdir()
    (folder / "train.csv").write_bytes(columns_csv("train"))
    (folder / "test.csv").write_bytes(columns_csv("test"))
    data, out, model = Data(str(folder), str(folder)), folder / "[bold] REL", folder / "[b] M"
    outcome = release(data, out).passed()
    assert f"'{out}'" in outcome.out
    fitted = privmix("fit", out, "--out", model)
    assert f"'{model}'" in fitted.out
    monkeypatch.chdir(tmp_path)
    shown = privmix("evaluate", model, "--data", data.test, "--figure", "[i] confusion.png")
    assert "picture: [i] confusion.png" in shown.out
    refused(release(data, out), "--overwrite")
