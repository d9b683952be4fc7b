"""``privmix attack inversion`` and ``collapse`` from the command line, on small real digits."""

import json
import stat
from pathlib import Path

import pytest

from privmix.reports.records import read_records
from tests.cli.helpers import Outcome, privmix, refused
from tests.cli.test_path import digits, released

__all__ = ["digits", "released"]

QUICK = ("--steps", "12", "--images", "2", "--features", "pixels")


def invert(data: Path, *more: str) -> Outcome:
    return privmix("attack", "inversion", "--data", str(data), *more)


def test_inversion_writes_figures_a_picture_and_a_private_record(digits: Path, tmp_path: Path) -> None:
    picture, run = tmp_path / "picture.png", tmp_path / "run"
    flags = ("--mixup-degrees", "1,3", "--epsilons", "none,8", "--records", "60000", "--delta", "1e-5")
    outcome = invert(digits, *QUICK, *flags, "--figure", str(picture), "--record", str(run), "--json")
    assert outcome.code == 0, outcome.err
    content = json.loads(outcome.out)
    assert [(case["m"], case["epsilon"]) for case in content["cases"]] == [(1, None), (1, 8.0), (3, None), (3, 8.0)]
    assert content["images"]["shape"] == [6, 2, 8, 8]
    assert set(content["baseline"]) >= {"mse", "ssim"}
    (record,) = read_records(run)
    assert (record.kind, record.private, record.subject["kind"]) == ("inversion", True, "design")
    assert record.settings["plans"][1]["plan"]["records"] == 60_000
    # What shows private images is its owner's.
    for file in (picture, *(run / "records").iterdir()):
        assert stat.S_IMODE(file.stat().st_mode) & 0o077 == 0


def test_a_release_says_what_is_attacked(digits: Path, released: Path, tmp_path: Path) -> None:
    line = ("attack", "inversion", str(released), "--data", str(digits), "--steps", "12", "--images", "2")
    assert "--records" in privmix(*line, "--records", "10").err
    outcome = privmix(*line, "--record", str(tmp_path), "--public-data", "--json")
    assert outcome.code == 0, outcome.err
    cases = json.loads(outcome.out)["cases"]
    certificate = json.loads((released / "certificate.json").read_text())
    assert [(case["m"], case["epsilon"]) for case in cases] == [(32, None), (32, certificate["guarantee"]["epsilon"])]
    assert cases[1]["noise_std"] == pytest.approx(certificate["noise_std"]["x"])
    (record,) = read_records(tmp_path)
    assert record.subject == {"kind": "release", "id": certificate["id"]}
    assert record.private is False


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--features", "identity"), "gradients"),
        (("--mixup-degrees", "1,x"), "--mixup-degrees"),
        (("--epsilons", "8,8"), "--epsilons"),
        (("--figure", "picture.txt"), "--figure"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else None,
)
def test_bad_input_to_inversion(digits: Path, tmp_path: Path, flags: tuple[str, ...], message: str) -> None:
    refused(invert(digits, "--steps", "2", "--record", str(tmp_path / "run"), *flags), message)
    assert not (tmp_path / "run").exists()


def test_collapse_of_declared_plans(digits: Path, tmp_path: Path) -> None:
    line = ("--features", "pixels", "--epsilon", "8", "--records", "50000", "--json")
    picture = tmp_path / "labels.png"
    outcome = privmix(
        "attack", "collapse", "--data", str(digits), *line, "--figure", str(picture), "--record", str(tmp_path)
    )
    assert outcome.code == 0, outcome.err
    content = json.loads(outcome.out)
    assert [one["design"] for one in content["histograms"]] == ["poisson", "hierarchical"]
    assert content["labels"] == 10
    assert content["neural_collapse"] > 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    (record,) = read_records(tmp_path)
    assert (record.kind, record.private) == ("collapse", False)
