"""``privmix attack membership`` on small digits: figures, records, and what is refused before any work."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from privmix.accounting import Gaussian, event_to_dict
from privmix.certificate.certificate import content_hash
from privmix.reports.records import public_records, read_records
from tests.cli.helpers import Outcome, privmix, refused
from tests.cli.training import line, save, write_own

MEMBERS, OTHERS = 300, 300


@pytest.fixture(scope="module", autouse=True)
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The current folder: data, a release with a model, another release, and a trained model."""
    root = tmp_path_factory.mktemp("membership")
    write_own(root, MEMBERS, OTHERS)
    release = "release --data own --classes 10 --features pixels --design moments --rows 40 --epsilon 20 --delta 1e-4"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        for name in ("REL", "OTHER"):
            privmix(*release.split(), "--out", name).passed()
        privmix("fit", "REL", "--out", "MODEL").passed()
        privmix(*line(out="TRAINED")).passed()
        yield


def attack(*more: str, model: str = "MODEL") -> Outcome:
    return privmix("attack", "membership", model, "--data", "own", *more)


def result(*more: str, model: str = "MODEL") -> dict[str, Any]:
    return attack(*more, "--json", model=model).json()


def test_all_attacks_on_a_release(tmp_path: Path) -> None:
    options = ("--attack", "loss,lira,rmia", "--references", "4", "--release", "REL")
    found = result(*options, "--record", str(tmp_path))
    assert (found["members"], found["nonmembers"], found["reference_models"]) == (MEMBERS, OTHERS, 4)
    assert found["gap"] == pytest.approx(found["train_accuracy"] - found["test_accuracy"])
    assert [entry["name"] for entry in found["attacks"]] == ["loss", "lira", "rmia"]
    for entry in found["attacks"]:
        assert all(point["fpr"] <= point["bound"] <= 1 for point in entry["tpr_at"])
    (record,) = read_records(tmp_path)
    assert (record.kind, record.private, record.subject["kind"]) == ("membership", True, "release")
    assert record.subject["id"] == json.loads(Path("REL/certificate.json").read_text())["id"]
    assert record.content["attacks"] == found["attacks"]
    assert len(record.content["highest_risk"]) == 10
    assert any("owner only" in sentence for sentence in record.statements)
    assert public_records([record]) == []


def test_public_data_lists_no_record(tmp_path: Path) -> None:
    found = result("--public-data", "--record", str(tmp_path))
    (record,) = read_records(tmp_path)
    assert not record.private
    assert "highest_risk" not in {*found, *record.content}
    assert "highest risk" not in attack("--public-data").out


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    refused(attack("--release", "OTHER"), "release", "fitted on")
    refused(attack("--attack", "lira"), "--release", "lira")
    refused(attack("--release", "REL", model="TRAINED"), "--release", "no release")
    refused(attack("--release", "TRAINED"), "--release", "not of a trained model")
    refused(attack("--nonmembers", "train"), "--nonmembers")
    refused(attack("--release", "nowhere"), "certificate", code=1)
    (tmp_path / "file").write_text("")
    refused(attack("--record", str(tmp_path / "file")), "--record", code=1)


def test_a_certificate_that_promises_too_much_is_refused(tmp_path: Path) -> None:
    """With another event in it, attacks would be held against a bound that nothing keeps."""
    (tmp_path / "REL").mkdir()
    certificate = json.loads(Path("REL/certificate.json").read_text())
    certificate["event"] = event_to_dict(Gaussian(1000.0))
    certificate["content_sha256"] = content_hash(certificate)
    (tmp_path / "REL" / "certificate.json").write_text(json.dumps(certificate))
    refused(attack("--release", str(tmp_path / "REL")), "event")


def test_noise_from_a_seed_bounds_nothing(tmp_path: Path) -> None:
    made = line(out=str(tmp_path / "SEEDED"))
    assert privmix(*made, "--seed", "1").code == 0
    found = result(model=str(tmp_path / "SEEDED"))
    assert all("bound" not in point for point in found["attacks"][0]["tpr_at"])
    assert "bound" not in found["attacks"][0]["roc"]
    assert all("bound" in point for point in result(model="TRAINED")["attacks"][0]["tpr_at"])


def test_other_members_than_the_certificate_counts_are_refused(tmp_path: Path) -> None:
    save(tmp_path / "train.npz", 0, MEMBERS - 1)
    save(tmp_path / "test.npz", MEMBERS, MEMBERS + OTHERS)
    for model, release in (("MODEL", ["--release", "REL"]), ("TRAINED", [])):
        outcome = privmix("attack", "membership", model, "--data", tmp_path, *release)
        refused(outcome, "members", f"the {MEMBERS} records")
        assert str(MEMBERS - 1) not in outcome.err
