"""The owner's words: hashed with the certificate, shown as the owner's, and unable to pass for anything else."""

import json
import shutil
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import privmix as pm
from privmix.certificate.about import About, about_of, check_about, licence_metadata
from privmix.releases.verify import verify_release
from tests.cli.helpers import privmix
from tests.refusals import refuses

RNG = np.random.default_rng(0)
X, Y = RNG.normal(0, 0.3, (200, 3)).astype(np.float32), RNG.integers(0, 2, 200)
WISHES: dict[str, Any] = {
    "classes": 2, "features": "identity", "design": "moments", "rows": 20, "epsilon": 8, "delta": 1e-3,
}  # fmt: skip
SAID = {
    "title": "Visits *2025*",
    "owner": "St. `label` Elsewhere",
    "contact": "<data@example.org>",
    "licence": "CC-BY-4.0",
    "purpose": "Teaching: # no heading",
    "date": "2026-01-31",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("about")
    (root / "text.txt").write_text("Use it well.\n\tAlways.\n")
    pm.release((X, Y), **WISHES, metadata={**SAID, "licence_file": root / "text.txt"}, out=root / "REL")
    return root / "REL"


def test_words_stand_in_certificate_card_metadata_and_report(folder: Path) -> None:
    assert pm.verify(folder)
    content = json.loads((folder / "certificate.json").read_text())
    assert content["about"] == {**SAID, "licence_file": "LICENSE.txt"}
    assert (folder / "LICENSE.txt").read_text() == "Use it well.\n\tAlways.\n"
    card = (folder / "README.md").read_text()
    assert 'pretty_name: "Visits *2025*"\nlicense: cc-by-4.0\nlicense_link: LICENSE.txt\n' in card
    assert "\n# Visits \\*2025\\*\n" in card
    assert "- purpose: Teaching\\: \\# no heading" in card
    assert "nobody checked them" in card
    metadata = json.loads((folder / "croissant.json").read_text())
    assert (metadata["name"], metadata["license"]) == (SAID["title"], SAID["licence"])
    assert (metadata["creator"]["name"], metadata["datePublished"]) == (SAID["owner"], SAID["date"])
    page = folder.parent / "page.html"
    assert privmix("report", str(folder), "--out", str(page)).code == 0
    shown = page.read_text()
    assert "<title>Privacy report: Visits *2025*</title>" in shown
    assert "&lt;data@example.org&gt;" in shown
    assert SAID["owner"] in privmix("inspect", str(folder)).out


def test_cards_state_the_guarantee_to_programs(folder: Path) -> None:
    yaml = pytest.importorskip("yaml")
    card = yaml.safe_load((folder / "README.md").read_text().split("---\n")[1])
    stated = card["differential_privacy"]
    assert stated["epsilon"] >= pm.verify(folder).subject.epsilon
    assert (stated["delta"], stated["adjacency"], stated["unit"]) == (1e-3, "add_remove", "record")
    assert "differential-privacy" in card["tags"]
    own = yaml.safe_load(licence_metadata("My own licence"))
    assert own == {"license": "other", "license_name": "My own licence"}


@pytest.mark.parametrize(
    ("name", "word", "refused"),
    [
        ("LICENSE.txt", "Use", r"LICENSE\.txt"),
        ("README.md", "Elsewhere", r"README\.md"),
        ("certificate.json", "Elsewhere", "content_sha256"),
    ],
)
def test_words_are_part_of_what_verification_hashes(
    folder: Path, tmp_path: Path, name: str, word: str, refused: str
) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "REL"))
    (copy / name).write_text((copy / name).read_text().replace(word, "Nowhere"))
    with pytest.raises(pm.InvalidInput, match=refused):
        verify_release(copy)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("title = 3", "title"),
        ("titel = 'x'", "metadata"),
        ("title", "metadata"),
        ('title = "a\\u0007"', "title"),
        ("date = '1.2.2026'", "date"),
        ("[title]", "title"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, text: str, field: str) -> None:
    (tmp_path / "words.toml").write_text(text)
    with pytest.raises(pm.InvalidInput) as caught:
        About.of(tmp_path / "words.toml")
    assert caught.value.field == field


def test_a_run_goes_on_with_its_own_words_and_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {**WISHES, "out": tmp_path / "REL"}
    with monkeypatch.context() as patch:
        patch.setattr("privmix.releases.run.data_card", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            pm.release((X, Y), **given, metadata={"title": "Visits", "date": "2025-12-31"})
    with refuses("`resume` with about.title"):
        pm.release((X, Y), **given, metadata={"title": "Others"}, resume=True)
    resumed = pm.release((X, Y), **given, metadata={"title": "Visits"}, resume=True)
    assert about_of(resumed.certificate)["date"] == "2025-12-31"


@pytest.mark.parametrize(
    "wrong", [{}, [], {"titel": "x"}, {"licence_file": "/etc/passwd"}, {"title": 3}, {"contact": "\x1b[2J"}]
)
def test_what_a_certificate_may_not_say(wrong: Any) -> None:
    with pytest.raises(pm.InvalidInput):
        check_about("about", wrong)
