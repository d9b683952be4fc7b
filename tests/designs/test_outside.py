"""A design from a file outside the package: everything that is done with a design is done with it."""

import json
import sys
from importlib import util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from privmix import _registry
from privmix.learning.base import LEARNERS
from privmix.planning import ReleaseConfig, choose_design
from privmix.plans.registry import DESIGNS, design_named
from tests.cli.helpers import privmix
from tests.designs import test_contract as contract
from tests.releases.helpers import CLASSES, make_records

DOCS = Path(__file__).parents[2] / "docs"
FILE = DOCS / "two_class.py"
CHOICES: dict[str, Any] = {"design": "two-class"}


@pytest.fixture
def two_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found as the designs of installed packages are: where one is first asked for."""

    def load() -> None:
        # Two entry points name one module.
        if "two_class" not in sys.modules:
            spec: Any = util.spec_from_file_location("two_class", FILE)
            module = util.module_from_spec(spec)
            monkeypatch.setitem(sys.modules, "two_class", module)
            spec.loader.exec_module(module)

    for registry in (DESIGNS, LEARNERS):
        # Those of privmix's own files register once.
        registry.all()
        monkeypatch.setattr(registry, "_known", dict(registry._known))
        monkeypatch.setattr(registry, "_looked", False)
    point = SimpleNamespace(load=load, module="two_class")
    here = {"privmix.designs": [point], "privmix.learners": [point]}
    monkeypatch.setattr(_registry, "entry_points", lambda group: here.get(group, []))


def test_it_keeps_the_contract(two_class: None, tmp_path: Path) -> None:
    """And the docs show this very file."""
    assert f"```py\n{FILE.read_text()}```" in (DOCS / "extending.md").read_text()
    kind = design_named("two-class")
    contract.test_it_says_what_it_is(kind)
    contract.test_its_doors_lead_to_what_they_say(kind)
    contract.test_options_of_other_designs_are_refused(kind)
    contract.test_it_plans_and_prices(CHOICES)
    contract.test_it_releases_resumes_verifies_and_fits(CHOICES, tmp_path)
    contract.test_the_planner_can_judge_it(CHOICES)
    contract.test_rows_hold_what_the_design_says(CHOICES)
    contract.test_its_worst_case_is_known(CHOICES)
    config = ReleaseConfig(records=2000, dim=8, classes=CLASSES)
    assert "two-class" in {item.name for item in choose_design(config, 1.0, 1e-4, curve=False).candidates}


def test_the_command_line_knows_it(two_class: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Pictures of an evaluation are drawn where one is.
    monkeypatch.chdir(tmp_path)
    records, folder = make_records(300, 5), str(tmp_path / "REL")
    for split in ("train", "test"):
        np.savez(tmp_path / f"{split}.npz", x=records.features, y=records.labels)
    data = ["--data", str(tmp_path), "--classes", ",".join(CLASSES)]
    options = ["--design", "two-class:mixup_degree=16"]
    budget = ["--epsilon", "8", "--delta", "1e-3"]
    lines = [
        ["account", *options, "--records", "300", "--classes", "3", *budget],
        ["release", *data, "--features", "identity", *options, *budget, "--out", folder],
        ["verify", folder],
        ["inspect", folder],
        ["fit", folder, "--out", str(tmp_path / "MODEL")],
        ["evaluate", str(tmp_path / "MODEL"), *data[:2], "--split", "test"],
        ["fit", folder, "--learner", "class-means", "--out", str(tmp_path / "MEANS")],
        ["evaluate", str(tmp_path / "MEANS"), *data[:2], "--split", "test", "--json"],
        ["audit", folder, "--runs", "200", "--seed", "0"],
    ]
    for line in lines:
        outcome = privmix(*line)
        assert outcome.code == 0, (line, outcome.err)
        if "--json" in line:
            # Class means lie twice a deviation apart; a guess is right in a third.
            assert json.loads(outcome.out)["accuracy"] > 0.5
    certificate = json.loads((tmp_path / "REL" / "certificate.json").read_text())
    assert certificate["plan"]["design"] == "two-class"
    assert "each row holds records of two classes" in (tmp_path / "REL" / "README.md").read_text()
