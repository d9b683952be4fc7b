"""What the planner says from the command line, and releases whose design it chose or that release second moments."""

import hashlib
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privmix.planning.choice import counted_error
from tests.cli.helpers import Outcome, privmix, refused
from tests.cli.training import certificate

pytestmark = pytest.mark.usefixtures("fixed_keys", "own_folder")

# So few records that one design needs a noise search of its own: plans are quick.
SMALL = {"records": "60", "dim": "4", "classes": "2", "epsilon": "4", "delta": "1e-3"}


def flags(verb: str, given: dict[str, str], **changes: str | None) -> list[str]:
    merged = {**given, **changes}
    return [verb, *(part for name, value in merged.items() if value is not None for part in (f"--{name}", value))]


def plan(*more: str, **changes: str | None) -> Outcome:
    return privmix(*flags("plan", SMALL, **changes), *more)


def clusters(count: int, seed: int, dim: int = 6, classes: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Records of classes that are easy to tell apart: (n, dim) of norm below 1, labels (n,)."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, count)
    x = np.eye(classes, dim)[labels] * 0.7 + rng.normal(0, 0.08, (count, dim))
    return (x / np.maximum(1, np.linalg.norm(x, axis=1, keepdims=True))).astype(np.float32), labels


def save(path: Path, count: int, seed: int, **shape: int) -> Path:
    x, y = clusters(count, seed, **shape)
    np.savez(path, x=x, y=y)
    return path


@pytest.fixture(scope="module")
def small() -> dict[str, Any]:
    outcome = plan("--json")
    assert outcome.err == ""
    return outcome.json()


def test_json_holds_what_a_program_wants(small: dict[str, Any]) -> None:
    assert (small["epsilon"], small["delta"]) == (4.0, 1e-3)
    assert small["chosen"] == min(small["predicted"], key=lambda name: counted_error(name, small["predicted"][name]))
    # The curve at the epsilon asked for is the prediction itself.
    at = small["epsilons"].index(4.0)
    assert {name: values[at] for name, values in small["curves"].items()} == small["predicted"]
    assert "no record of the private data was looked at" in small["reasons"][-1]


def test_the_table_says_the_same_with_flags_that_release_takes(small: dict[str, Any], tmp_path: Path) -> None:
    figure = tmp_path / "plan.svg"
    outcome = plan("--figure", str(figure)).passed()
    # Reasons in between repeat the forecasts of other designs.
    ends = small["reasons"][0], small["reasons"][-1]
    for text in [*ends, *(f"{100 * value:.1f}%" for value in small["predicted"].values())]:
        assert text in outcome.out
    assert b"<svg" in figure.read_bytes()[:1000]
    data = save(tmp_path / "own.npz", 60, 0, dim=4)
    given = {"data": str(data), "classes": "2", "features": "identity", "epsilon": "4", "delta": "1e-3"}
    for line in re.findall(r"--design.*", outcome.out):
        taken = line.split()
        privmix(*flags("release", given, out=str(tmp_path / "REL")), *taken, "--dry-run").passed()


def test_a_proxy_must_fit(tmp_path: Path) -> None:
    proxy = str(save(tmp_path / "public.npz", 100, 1, classes=3))
    refused(plan(assume=f"proxy={proxy}"), "--dim", "--assume proxy")
    refused(plan(dim=None, assume=f"proxy={proxy},spectrum_decay=1"), "--assume proxy")
    refused(plan(dim=None, assume=f"proxy={proxy}"), "label")
    fits, wide = save(tmp_path / "fits.npz", 200, 1, dim=4), save(tmp_path / "wide.npz", 100, 1, dim=7)
    found = plan("--json", dim=None, assume=f'proxy="{fits}"').json()
    assert found["model"] == "200 records that the owner declared public"
    outcome = release(fits, tmp_path / "REL", design="auto", assume=f"proxy={wide}")
    refused(outcome, "--assume proxy", "7 features", "4")
    assert not list(tmp_path.glob("*REL*"))


def release(data: Path, out: Path, *more: str, **changes: str | None) -> Outcome:
    given = {"data": str(data), "features": "identity", "classes": "2", "epsilon": "8", "delta": "1e-3"}
    return privmix(*flags("release", given, out=str(out), **changes), *more)


def test_auto_chooses_and_says_why(tmp_path: Path) -> None:
    out = tmp_path / "REL"
    proxy, own = save(tmp_path / "public.npz", 150, 1), save(tmp_path / "few.npz", 60, 3)
    outcome = release(own, out, design="auto", assume=f"proxy={proxy}", epsilon="20", seed="0").passed()
    found = certificate(out)
    choice = found["choice"]
    assert choice["model"] == "150 records that the owner declared public"
    shown = privmix("inspect", out, "--full")
    assert all(text in (out / "README.md").read_text() and text in shown.out for text in choice["reasons"])
    assert choice["reasons"][0] in outcome.out
    picture = (out / "predictions.svg").read_bytes()
    listed = {item["file"]: item["sha256"] for item in found["files"]}
    assert listed["predictions.svg"] == hashlib.sha256(picture).hexdigest()
    assert found["plan"]["design"] == choice["settings"][choice["chosen"]]["design"]
    assert privmix("verify", out, "--json").json()["epsilon"] <= 20
    # The picture is part of what was hashed.
    (out / "predictions.svg").write_bytes(picture + b" ")
    assert privmix("verify", out).code == 2
