"""A folder says one figure of an even bet, wherever it is shown."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privmix as pm
from privmix.rounding import percent_up
from privmix.studio.folders import OpenFolder, shown_of
from tests.cli.helpers import privmix
from tests.cli.training import certificate
from tests.releases.helpers import replant

RNG = np.random.default_rng(0)
RECORDS = RNG.normal(0, 0.1, (300, 3)), RNG.integers(0, 2, 300)
GIVEN: dict[str, Any] = {"classes": 2, "features": "identity", "epsilon": 4.0, "delta": 1e-3}


@pytest.mark.parametrize("kind", ["release", "model"])
def test_every_output_of_a_folder_has_one_figure(kind: str, tmp_path: Path) -> None:
    folder, page = tmp_path / "F", tmp_path / "page.html"
    if kind == "release":
        pm.release(RECORDS, design="moments", rows=20, **GIVEN, out=folder)
        card = (folder / "README.md").read_text()
        assert "# A differentially private release (design: moments)\n" in card
        assert "mixup" not in card
    else:
        pm.train(RECORDS, epochs=1, **GIVEN, out=folder)
    privmix("report", folder, "--out", page).passed()
    texts = [(folder / "certificate.json").read_text(), page.read_text(), privmix("inspect", folder).passed().out]
    figure = r"right at most (?:<strong>)?([0-9.]+%)"
    found = [set(re.findall(figure, " ".join(text.split()))) for text in texts]
    assert found == [{percent_up(shown_of(OpenFolder(folder)).right)}] * 3


def test_a_forecast_that_no_planner_made_is_not_shown(tmp_path: Path) -> None:
    pm.release(RECORDS, design="moments", **GIVEN, out=tmp_path / "REL")
    replant(tmp_path / "REL", {**certificate(tmp_path / "REL"), "choice": {"chosen": "moments"}})
    with pytest.raises(pm.InvalidInput):
        pm.inspect(tmp_path / "REL")
