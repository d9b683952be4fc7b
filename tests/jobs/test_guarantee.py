"""A folder says one figure of an even bet, wherever it is shown."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privmix as pm
from privmix.certificate.certificate import content_hash
from privmix.rounding import percent_up
from privmix.studio.folders import OpenFolder, shown_of
from tests.cli.helpers import privmix


@pytest.mark.parametrize("kind", ["release", "model"])
def test_every_output_of_a_folder_has_one_figure(kind: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    records, folder = (rng.normal(0, 0.1, (300, 3)), rng.integers(0, 2, 300)), tmp_path / "F"
    given: dict[str, Any] = {"classes": 2, "features": "identity", "epsilon": 4.0, "delta": 1e-3, "out": folder}
    if kind == "release":
        pm.release(records, design="moments", rows=20, **given)
        card = (folder / "README.md").read_text()
        assert "# A differentially private release (design: moments)\n" in card
        assert "mixup" not in card
    else:
        pm.train(records, epochs=1, **given)
    page = tmp_path / "page.html"
    assert privmix("report", folder, "--out", page).code == 0
    inspected = privmix("inspect", folder).passed()
    figure = r"right at most (?:<strong>)?([0-9.]+%)"
    found = [
        set(re.findall(figure, text))
        for text in ((folder / "certificate.json").read_text(), " ".join(page.read_text().split()), inspected.out)
    ]
    assert len(found[0]) == 1
    assert found == [found[0]] * 3
    right = shown_of(OpenFolder(folder)).right
    assert percent_up(right) == found[0].pop()


def test_a_forecast_that_no_planner_made_is_not_shown(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    given = {"classes": 2, "features": "identity", "design": "moments", "epsilon": 8, "delta": 1e-3}
    pm.release((rng.normal(size=(100, 3)), np.arange(100) % 2), out=tmp_path / "REL", **given)
    place = tmp_path / "REL" / "certificate.json"
    forged = {**json.loads(place.read_text()), "choice": {"chosen": "moments"}}
    place.write_text(json.dumps({**forged, "content_sha256": content_hash(forged)}))
    with pytest.raises(pm.InvalidInput):
        pm.inspect(tmp_path / "REL")
