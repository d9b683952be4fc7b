"""``privmix audit``: designs, releases, models, and bad input."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privmix as pm
from privmix.certificate.certificate import CERTIFICATE_FILE
from privmix.engine import rows as engine
from privmix.errors import REFUTED
from privmix.planning import ReleaseConfig
from privmix.reports.records import public_records, read_records
from tests.cli.helpers import privmix, refused
from tests.releases.helpers import CLASSES, write_release


def audit(line: str) -> dict[str, Any]:
    outcome = privmix(*line.split())
    result: dict[str, Any] = json.loads(outcome.out or "{}")
    # Scripts look at nothing else.
    assert outcome.code == (REFUTED if result.get("violated") else 0), outcome.err
    return result


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("audit") / "rel"
    config = ReleaseConfig(records=600, dim=7, classes=CLASSES, mixup_degree=20, rows=40, centre="none")
    write_release(folder, config.calibrate(4.0, 1e-3), seed=None)
    return folder


def test_a_release_is_audited_from_its_certificate_and_kept(release: Path, tmp_path: Path) -> None:
    found = audit(f"audit {release} --runs 4000 --confidence 0.9999999999 --json --record {tmp_path / 'run'}")
    certificate = json.loads((release / CERTIFICATE_FILE).read_text())
    assert found["claimed_epsilon"] == certificate["guarantee"]["epsilon"]
    assert found["design"] == "poisson"
    assert found["violated"] is False
    record = public_records(read_records(tmp_path / "run"))[0]
    assert (record.kind, record.subject) == ("audit", {"kind": "release", "id": certificate["id"]})
    assert record.content == found
    assert record.settings["plan"] == certificate["plan"]
    points = record.content["points"]
    assert len(points["alpha"]) <= 60
    assert all(high >= rate for rate, high in zip(points["beta"], points["beta_high"], strict=True))


def test_a_trained_model_is_audited_from_its_certificate(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    data = rng.normal(size=(300, 2)), rng.integers(0, 2, 300)
    given = {"classes": 2, "features": "identity", "epsilon": 4.0, "delta": 1e-4, "epochs": 2}
    pm.train(data, **given, out=tmp_path / "model")
    outcome = privmix("audit", tmp_path / "model", "--runs", "800", "--confidence", "0.9999999999")
    assert (outcome.code, "design dp-sgd" in outcome.out) == (0, True), outcome.err
    noise = audit(f"audit {tmp_path / 'model'} --noise --json")
    assert [(one["name"], one["verdict"]) for one in noise["noises"]] == [("gradients", "as certified")]


def test_the_published_claim_for_laplace_noise_is_refuted() -> None:
    """Every record is in every row: what is claimed to be 1.5 is really 3, and the attack shows more than 1.5."""
    line = "audit --design fixed:noise=laplace,mixup_degree=2 --records 2 --rows 1 --epsilon 1.5 --delta 1e-3"
    found = audit(f"{line} --as-published --runs 1000 --seed 1 --json")
    assert found["violated"] is True
    assert found["published_epsilon"] == pytest.approx(1.5, rel=1e-2)
    assert found["priced_epsilon"] > 2.9


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("audit", "TARGET, --design"),
        ("audit --design poisson", "record count and its claim"),
        ("audit --design poisson --records 500 --epsilon 1 --runs 4", "at least 20 at confidence 0.95"),
        ("audit MODEL --data x --canaries many", "NUMBER:KEY=VALUE"),
        ("audit MODEL --data x --records 9 --canaries 9", "--records"),
        *(
            (f"audit RELEASE {wrong}", "")
            for wrong in ("--design poisson", "--epsilon 1", "--seconds 0", "--enough 2", "--seconds 1 --noise")
        ),
        ("audit RELEASE --enough 0.5 --data x --canaries 9", ""),
    ],
)
def test_bad_input(line: str, words: str, release: Path) -> None:
    refused(privmix(*line.replace("RELEASE", str(release)).split()), words)


def test_the_noise_of_a_release_is_measured_and_kept(release: Path, tmp_path: Path) -> None:
    found = audit(f"audit {release} --noise --json --record {tmp_path / 'run'}")
    assert found["violated"] is False
    assert found["false_alarm"] <= 1e-6
    assert [noise["name"] for noise in found["noises"]] == ["features", "labels"]
    stated = json.loads((release / CERTIFICATE_FILE).read_text())
    assert found["noises"][0]["certified"] == stated["noise_std"]["x"]
    assert found["noises"][0]["source"] == "noise_std.x"
    for noise in found["noises"]:
        assert noise["high"] - noise["low"] < 0.01 * noise["certified"]
    record = public_records(read_records(tmp_path / "run"))[0]
    assert (record.kind, record.subject["id"]) == ("noise-audit", stated["id"])
    assert record.content == found
    page = tmp_path / "page.html"
    assert privmix("report", tmp_path / "run", release, "--for", "public", "--out", page).code == 0
    for words in ("Noise of empty records", "Audit of the noise", "features"):
        assert words in page.read_text()


def test_a_noise_audit_of_too_little_noise_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    honest = engine.gaussian_on_lattice
    monkeypatch.setattr(engine, "gaussian_on_lattice", lambda *args: np.rint(0.95 * honest(*args)))
    line = f"audit --design poisson --records 500 --epsilon 1 --noise --record {tmp_path / 'run'}"
    outcome = privmix(*line.split())
    assert (outcome.code, "not as certified" in outcome.out) == (REFUTED, True)
    assert outcome.out.count("too little noise") == 2
    privmix("report", tmp_path / "run", "--for", "public", "--out", tmp_path / "page.html").passed()
    assert "The noise is not as certified" in (tmp_path / "page.html").read_text()


def test_an_audit_stops_when_enough_is_proven_or_a_time_is_over(release: Path) -> None:
    found = audit(f"audit {release} --enough 0.05 --confidence 0.9999999999 --seed 0 --json")
    assert found["proven_epsilon"] >= 0.05 * found["claimed_epsilon"]
    privmix("audit", release, "--seconds", "0.1", "--confidence", "0.9999999999").passed()
