"""The whole path from the command line: release, verify, inspect, fit, evaluate, on small real digits."""

import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from privmix.data import embedded_digits
from tests.cli.helpers import Outcome, privmix
from tests.data.helpers import write_mnist

pytestmark = pytest.mark.usefixtures("fixed_keys", "own_folder")


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """scikit-learn's digits in the MNIST file layout."""
    folder = tmp_path_factory.mktemp("digits")
    for split, name in (("train", "train"), ("test", "t10k")):
        records = embedded_digits(split).read()
        write_mnist(folder, name, records.x, records.y.astype(np.uint8))
    return folder


@pytest.fixture(scope="module")
def released(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("release") / "REL"
    outcome = privmix(*release_line(digits, out), "--seed", "1").passed()
    assert "NOT private" in outcome.err
    return out


def release_line(source: Path, out: Path, **changes: str) -> list[str]:
    flags = {
        "data": str(source),
        "features": "pixels",
        "design": "poisson:mixup_degree=32",
        "rows": "5000",
        "epsilon": "8",
        "delta": "1e-4",
        "out": str(out),
        **changes,
    }
    return ["release", *(part for name, value in flags.items() for part in (f"--{name}", value))]


def test_release_fit_evaluate(digits: Path, released: Path, tmp_path: Path) -> None:
    model, data = tmp_path / "MODEL", ("--data", digits)
    privmix("fit", released, "--learner", "noise-aware-ridge", "--out", model).passed()
    before = set(os.listdir(model))
    result = privmix("evaluate", model, *data, "--figure", "confusion-test.png", "--reference", digits, "--json").json()
    assert result["reference"]["accuracy"] > result["accuracy"] > 0.75
    assert (result["n"], Path(result["figure"])) == (360, Path("confusion-test.png"))
    assert Path("confusion-test.png").stat().st_mode & 0o077 == 0
    # The model's folder may be handed on: nothing of private records goes there.
    for option in (f"--figure={model / 'shown.png'}", f"--record={model / 'RUN'}"):
        assert privmix("evaluate", model, *data, option).code == 2
    assert set(os.listdir(model)) == before
    assert privmix("inspect", model, "--json").json()["learner"] == "noise-aware-ridge"


def test_names_that_a_terminal_would_take_for_markup_are_shown(digits: Path, released: Path) -> None:
    shutil.copytree(released, "[bold] REL")
    assert "'[b] M'" in privmix("fit", "[bold] REL", "--out", "[b] M").passed().out
    shown = privmix("evaluate", "[b] M", "--data", digits, "--figure", "[i] confusion.png")
    assert "picture: [i] confusion.png" in shown.out


def test_verify_and_inspect(released: Path) -> None:
    outcome = privmix("verify", released).passed()
    assert outcome.out.startswith("FAIL: not private, since the noise came from a seed")
    assert len(privmix("inspect", released).out.splitlines()) <= 15
    result = privmix("verify", released, "--json").json()
    assert result["recomputed_epsilon"] <= result["epsilon"] * (1 + 1e-9) <= 8
    shown = privmix("inspect", released, "--full").passed()
    assert all(words in shown.out for words in ("poisson", "add_remove", "insecure_seed", "taken as public"))


def test_defects_do_not_print_private_values(digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from privmix.mechanisms import mixing

    def fail(*_: object) -> None:
        raise ZeroDivisionError("secret Zq7")

    monkeypatch.delenv("PRIVMIX_DEBUG", raising=False)
    monkeypatch.setattr(mixing, "add_rows", fail)
    outcome = privmix(*release_line(digits, tmp_path / "REL"))
    assert outcome.code == 70
    assert "ZeroDivisionError" in outcome.err
    assert "Zq7" not in outcome.err + outcome.out
    # A defect of ours is no reason to pay for a run twice.
    assert [path.name for path in tmp_path.iterdir()] == [".REL.run"]
    monkeypatch.setenv("PRIVMIX_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        privmix(*release_line(digits, tmp_path / "REL"), "--resume")
    monkeypatch.undo()
    assert privmix(*release_line(digits, tmp_path / "REL"), "--resume").code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["REL"]


def test_a_declared_count_is_the_only_one_that_shows(digits: Path, tmp_path: Path) -> None:
    line = release_line(digits, tmp_path / "REL", records="1500", rows="1500")
    assert privmix(*line).code == 0
    text = (tmp_path / "REL" / "certificate.json").read_text() + (tmp_path / "REL" / "README.md").read_text()
    assert "1500" in text
    assert not re.search(r"(?<![\w.])1437(?![\w.])", text)  # as a number of its own, not within a hash


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    """Where a demo's results are, and what it said."""
    out = tmp_path_factory.mktemp("demonstrated") / "demo"
    return out, privmix("demo", "--out", out)


def test_demo(demo: tuple[Path, Outcome]) -> None:
    out, outcome = demo
    for words in ("guarantee", "(2, 1e-05)-differential privacy", "without privacy", "AUC", "release/", "report.html"):
        assert words in outcome.passed().out
    page = (out / "report.html").read_text()
    for words in ("Accuracy on split test", "Accuracy against ε", "For the owner only"):
        assert (words in page) != (words == "For the owner only")
    kinds = sorted(path.name.split("-")[0] for path in (out / "records").iterdir())
    assert kinds == ["audit", "evaluation", "membership", "utility"]
    assert privmix("verify", out / "release").code == 0
    assert privmix("demo", "--out", out).code == 2
