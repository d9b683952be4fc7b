"""``privmix attack poisoning`` on small real digits: figures, records, and what is refused before any work."""

import json
from pathlib import Path
from typing import Any

import pytest

import privmix as pm
from privmix.data import embedded_digits
from privmix.reports.records import public_records, read_records
from privmix.research.poisoning.base import parse_attack
from privmix.research.poisoning.job import PoisoningJob
from privmix.research.poisoning.trials import PoisoningResult, TrialConfig
from privmix.research.poisoning.verb import poison
from privmix.research.poisoning.victims.ordinary import VictimConfig
from tests.cli.helpers import Outcome, privmix, refused
from tests.cli.test_path import digits

__all__ = ["digits"]

TINY = ("--records", "150", "--test-records", "100", "--trials", "2", "--epochs", "2")
KEYS = {"attack", "defence", "trials", "successes", "success_rate", "interval", "accuracy"}
KEYS |= {"certified_bound", "poisoned_records"}


def attack(data: Path, *more: str) -> Outcome:
    return privmix("attack", "poisoning", "--data", str(data), *TINY, *more)


def result(data: Path, *more: str) -> dict[str, Any]:
    outcome = attack(data, *more, "--json")
    assert outcome.code == 0, outcome.err
    found: dict[str, Any] = json.loads(outcome.out)
    return found


def test_one_defence_gives_one_object(digits: Path, tmp_path: Path) -> None:
    found = result(digits, "--attack", "patch-backdoor", "--defence", "cutmix", "--record", str(tmp_path / "RUN"))
    assert set(found) >= KEYS
    assert (found["attack"], found["defence"], found["trials"]) == ("patch-backdoor", "cutmix", 2)
    assert found["poisoned_records"] == 1
    assert found["success_rate"] == found["successes"] / 2
    assert found["interval"][0] <= found["success_rate"] <= found["interval"][1]
    assert found["certified_bound"] == 1
    assert [set(one) >= KEYS for one in found["results"]] == [True]
    (record,) = read_records(tmp_path / "RUN")
    assert (record.kind, record.private, record.subject["kind"]) == ("poisoning", True, "design")
    assert record.content["results"] == found["results"]
    assert any("owner only" in sentence for sentence in record.statements)
    assert public_records([record]) == []


def test_several_defences_meet_the_same_trials_and_go_on(digits: Path, tmp_path: Path) -> None:
    several = ("--defence", "none,mixup:4,noise:16,mixup:4+noise:16", "--work", str(tmp_path / "W"), "--poisoned", "8")
    found = result(digits, *several, "--public-data", "--record", str(tmp_path / "RUN"))
    assert [one["defence"] for one in found["results"]] == ["none", "mixup:4", "noise", "mixup:4+noise"]
    assert "defence" not in found
    assert result(digits, *several, "--public-data") == found
    assert found["results"][0] == result(digits, *several[2:], "--defence", "none")["results"][0]
    (record,) = read_records(tmp_path / "RUN")
    assert not record.private
    page = pm.report([tmp_path / "RUN"]).page
    assert "Poisoned records" in page
    assert "mixup:4+noise" in page


def test_a_release_is_attacked_beside_its_bound(digits: Path) -> None:
    budget = ("--design", "poisson", "--epsilon", "1", "--delta", "1e-5")
    found = result(digits, *budget, "--defence", "none", "--trials", "4")
    none, release = found["results"]
    assert (none["certified_bound"], none["guarantee"], none["base_successes"]) == (1.0, None, None)
    assert release["defence"] == "release"
    assert "epsilon 1" in release["guarantee"]
    assert release["base_successes"] / 4 <= release["certified_bound"] <= 1
    alone = result(digits, *budget)
    assert (alone["defence"], alone["trials"]) == ("release", 2)
    shown = attack(digits, *budget)
    assert "guarantees epsilon 1" in shown.out


def test_python_asks_the_same(digits: Path) -> None:
    few = {"records": 150, "test_records": 100, "trials": 2, "epochs": 2}
    found = poison(data=str(digits), defences=["none"], **few)
    assert json.loads(json.dumps(found.to_dict())) == result(digits)
    train, test = (embedded_digits(split).read() for split in ("train", "test"))
    held = poison(data=(train.x, train.y), held_out=(test.x, test.y), classes=10, **few)
    assert held.results == found.results


def test_records_for_the_public_name_no_place() -> None:
    found = PoisoningResult(
        "aimed:sums,vision:/home/ann/vit", "release:poisson,1,1e-5,vision:/home/ann/vit", "", 1, 2, 0, (0, 1), 0, 0, 0,
        1.0, "epsilon 1", 0, 0,
    )  # fmt: skip
    aimed = parse_attack(found.attack)
    for public in (True, False):
        job = PoisoningJob(data=None, public_data=public)
        made = job._measurement(aimed, [found], VictimConfig(), TrialConfig(), 100)
        told = json.dumps(made.content) + made.title
        assert ("/home" in told) != public
        assert made.private != public
        assert "vision:" in told


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--poisoned", "0"), "--poisoned"),
        (("--poisoned", "120"), "the attacked class"),
        (("--attack", "patch-backdoor", "--adaptive"), "--adaptive"),
        (("--defence", "nonsense"), "--defence: got 'nonsense'"),
        (("--design", "poisson"), "--epsilon"),
        (("--epsilon", "1"), "--design"),
        (("--records", "1438"), "--records"),
        (("--test-split", "other"), "--test-split: got 'other'"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else None,
)
def test_bad_input(digits: Path, tmp_path: Path, flags: tuple[str, ...], message: str) -> None:
    refused(attack(digits, "--record", str(tmp_path / "run"), "--work", str(tmp_path / "work"), *flags), message)
    assert list(tmp_path.iterdir()) == []
