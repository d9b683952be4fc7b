"""A verb and a panel of another package: found by its entry points, and used as privmix's own are."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import privmix as pm
from privmix.cli.app import VERBS, app
from privmix.reports.panel import PANELS
from privmix.reports.records import RunRecord
from tests.cli.helpers import privmix, refused
from tests.processes import run_in

DOCS = Path(__file__).parents[2] / "docs"
PARTS = ("row_norms", "row_norms_panel")
POINTS = """[privmix.verbs]
row-norms = row_norms:RowNorms
attack.none = no_such_module
verify = row_norms
ledger.broken = broken

[privmix.panels]
row-norms = row_norms_panel
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of packages with what the docs show, as pip would leave it."""
    site = tmp_path / "site"
    (site / "row_norms-1.0.dist-info").mkdir(parents=True)
    (site / "row_norms-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: row-norms\nVersion: 1.0\n")
    (site / "row_norms-1.0.dist-info" / "entry_points.txt").write_text(POINTS)
    (site / "broken.py").write_text("def nothing(:\n")
    for part in PARTS:
        shutil.copy(DOCS / f"{part}.py", site)
    PANELS.all()
    monkeypatch.syspath_prepend(site)
    monkeypatch.setattr(PANELS, "_known", dict(PANELS._known))
    monkeypatch.setattr(PANELS, "_looked", False)
    yield site
    app.registered_commands = [one for one in app.registered_commands if one.callback.__module__ != "row_norms"]
    for part in PARTS:
        sys.modules.pop(part, None)


@pytest.fixture
def release(tmp_path: Path) -> Path:
    data = np.random.default_rng(0).random((200, 5)), np.arange(200) % 2
    how = {"design": "poisson", "features": "identity", "classes": 2, "clip_norm": 2.0}
    pm.release(data, epsilon=8.0, delta=1e-3, out=tmp_path / "REL", **how)
    return tmp_path / "REL"


def test_it_measures_and_the_report_shows_it(installed: Path, release: Path, tmp_path: Path) -> None:
    found = privmix("row-norms", release, "--record", tmp_path / "RUN", "--json").json()
    assert 0 < found["median"] <= found["largest"]
    again = sys.modules["row_norms"].row_norms(release).measurement
    assert again.content == found
    privmix("report", tmp_path / "RUN", release, "--out", tmp_path / "page.html").passed()
    written = (tmp_path / "page.html").read_text()
    assert "How long rows are" in written
    assert f"{found['largest']:.4g}" in written
    assert "How long rows are" in pm.report([release, again.record()]).page
    # Its figures are private where they say so.
    private = RunRecord(**{**vars(again.record()), "private": True})
    assert "How long rows are" not in pm.report([release, private]).page
    assert "privmix row-norms RELEASE" in pm.report(release, audience="owner").page
    # No package replaces a verb.
    privmix("verify", release, "--json").passed()


def test_help_lists_it_and_imports_nothing_of_it(installed: Path) -> None:
    def said(*words: str) -> str:
        program = "import sys\nfrom privmix.cli import main\nmain.run(sys.argv[1:])\nprint(*sys.modules)"
        return run_in(Path(), program, *words, timeout=60).stdout

    text, _, modules = said("--help").rpartition("\n\n")
    assert "Row norms" in text
    assert "Measure how long the rows of a release are." in text
    assert "row_norms" not in modules
    assert "torch" not in modules
    # What can't be read has no line of help, and is no trouble to others.
    assert "broken" in said("ledger", "--help")
    assert "none" in said("attack", "--help")


def test_a_package_replaces_no_verb_and_a_module_that_registers_nothing_is_named(installed: Path) -> None:
    assert "verify" in VERBS
    assert privmix("--help").out.count(" verify ") == 1
    (installed / "row_norms.py").write_text('"""Nothing."""\n')
    refused(privmix("row-norms", "REL"), "a module that registers it")


def test_the_docs_show_these_very_files() -> None:
    for part in PARTS:
        assert f"```py\n{(DOCS / part).with_suffix('.py').read_text()}```" in (DOCS / "extending.md").read_text()
