"""``privmix account``: the documented lines, every design, and bad input."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privmix.engine.rows import PrivateRecords
from privmix.planning import ReleaseConfig
from tests.cli.helpers import privmix, refused
from tests.releases.helpers import write_release

PURE = ("add_remove", "replace_one")


def account(line: str) -> dict[str, Any]:
    return privmix(*line.split()).json()


@pytest.mark.parametrize(
    ("line", "key", "expected"),
    [
        ("poisson:mixup_degree=64 --records 50000 --rows 50000 --noise-multiplier 0.531", "epsilon", 9.20),
        (
            "hierarchical:mixup_degree=64,expected_classes=3 --classes 100 --records 50000 --rows 50000 "
            "--noise-multiplier 1.260",
            "epsilon",
            7.62,
        ),
        ("poisson:mixup_degree=64 --records 60000 --rows 60000 --epsilon 1", "noise_multiplier", 1.187),
    ],
)
def test_documented_lines(line: str, key: str, expected: float) -> None:
    result = account(f"account --design {line} --delta 1e-5 --json")
    assert round(result[key], 2 if key == "epsilon" else 3) == expected
    assert (result["is_upper_bound"], result["accountant"], result["adjacency"]) == (True, "pld", "add_remove")


def test_laplace_noise_has_a_pure_price_under_both_relations() -> None:
    line = "account --design fixed:mixup_degree=4,noise=laplace --records 500 --noise-multiplier 2 --json"
    found = {one: account(f"{line} --delta 0 --accountant pure --adjacency {one}") for one in PURE}
    assert [found[one]["adjacency"] for one in PURE] == list(PURE)
    assert found["add_remove"]["epsilon"] == found["replace_one"]["epsilon"]
    assert account(f"{line} --delta 0 --accountant pure")["adjacency"] == "replace_one"


@pytest.mark.parametrize("design", ["poisson", "fixed", "hierarchical", "moments", "random-weight"])
def test_no_other_design_is_priced_for_a_relation_that_is_not_its_own(design: str) -> None:
    line = f"account --design {design} --records 5000 --epsilon 2 --json"
    own = account(line)["adjacency"]
    assert account(f"{line} --adjacency {own}")["adjacency"] == own
    (other,) = set(PURE) - {own}
    words = f"--adjacency: got '{other}'; allowed: one of {own}"
    refused(privmix(*f"{line} --adjacency {other}".split()), words)


def test_table_over_accountants() -> None:
    line = "account --design poisson:mixup_degree=64 --records 50000 --noise-multiplier 1.26 --accountant=all"
    outcome = privmix(*line.split()).passed()
    assert all(name in outcome.out for name in ("pld", "rdp", "moments", "pure", "gdp_clt", "as_published", "NO"))


def test_poisoning_is_bounded_and_says_for_whom() -> None:
    line = "account poisoning --epsilon 0.5 --delta 0 --poisoned 1 --clean-success 0.01"
    changed, inserted = account(f"{line} --json"), account(f"{line} --how inserted --json")
    assert changed["success_bound"] == pytest.approx(0.01 * math.exp(1.0))
    assert inserted["success_bound"] == pytest.approx(0.01 * math.exp(0.5))
    assert "at most 0.02719" in privmix(*line.split()).out  # 0.027182..., rounded up
    refused(privmix(*f"{line} --adjacency replace_one --how inserted".split()), "other sizes")


def test_poisoning_follows_from_what_ran() -> None:
    line = "account poisoning --design poisson --records 5000 --epsilon 1 --poisoned 4 --clean-success 0.01"
    found = account(f"{line} --json")
    assert found["whole_curve"]
    assert found["success_bound"] < 0.6 * found["by_guarantee"]
    assert found["success_bound"] <= found["by_points"] <= found["by_guarantee"] * (1 + 1e-6)
    assert "from epsilon and delta only: at most" in privmix(*line.split()).out
    measured = line.replace("--clean-success 0.01", "--clean-success 0/100")
    assert account(f"{measured} --json")["clean_success"] == pytest.approx(1 - 0.05**0.01)
    pure = "account poisoning --design fixed:mixup_degree=4,noise=laplace --records 5000 --epsilon 8 --delta 0"
    found = account(f"{pure} --poisoned 1 --clean-success 0.01 --json")
    assert found["success_bound"] < 0.1 < found["by_guarantee"]


POISONING = "account poisoning --poisoned 2"
DRAWN = "--design poisson --records 100 --epsilon 1 --clean-success 0.1"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("account --noise-multiplier 1", ["--records", "record count"]),
        ("account --records 100", ["exactly one"]),
        ("account --design magic --records 100 --epsilon 1", ["design", "poisson"]),
        ("account --accountant magic --records 100 --epsilon 1", ["accountant", "pld"]),
        ("account --records many --epsilon 1", ["records"]),
        ("nonsense", ["nonsense"]),
        (f"{POISONING} --clean-success 0.1", ["--epsilon"]),
        (f"{POISONING} --epsilon 1 --clean-success some", ["--clean-success"]),
        (f"{POISONING} --epsilon 1 --clean-success 6/5", ["--clean-success"]),
        (f"{POISONING} --epsilon 1 --clean-success 0.1 --records 8", ["--records"]),
        (f"{POISONING} --design poisson --epsilon 1 --clean-success 0.1", ["--records"]),
        (f"{POISONING} {DRAWN} --adjacency add_remove", ["--adjacency"]),
        (f"{POISONING} --design poisson --release RELEASE --clean-success 0.1", ["--release"]),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(line: str, words: list[str]) -> None:
    refused(privmix(*line.split()), *words)


def test_a_release_is_priced_whole(tmp_path: Path) -> None:
    """Its mean query too, by its own certificate; beside another plan it is refused."""
    place = a_release(tmp_path / "REL", centre="private")
    found = account(f"account --release {place} --json")
    assert 3.9 < found["epsilon"] <= 4
    alone = "account --design moments --records 60 --classes 2 --delta 1e-3 --json --noise-multiplier"
    assert account(f"{alone} {found['noise_multiplier']}")["epsilon"] < found["epsilon"]
    assert len(privmix("account", "--release", place, "--accountant=all", "--json").json()) > 3
    assert privmix("account", "--release", place, "--records", "300").code == 2
    assert privmix("account", "--release", tmp_path).code != 0


def test_the_price_for_a_record_is_said_for_somebody_with_several() -> None:
    line = "account --design poisson:mixup_degree=64 --records 5000 --noise-multiplier 6 --delta 1e-5"
    alone, found = account(line + " --json"), account(line + " --records-per-person 3 --json")
    assert found == {**alone, "records_per_person": 3, "person_epsilon": found["person_epsilon"]}
    assert found["person_epsilon"] > 3 * found["epsilon"]
    shown = privmix(*line.split(), "--records-per-person", "3", "--accountant", "all").out
    assert "group privacy" in shown
    for more in ("--records-per-person 0", "--records-per-person 3 --accountant as_published"):
        refused(privmix(*line.split(), *more.split()))


def a_release(folder: Path, **options: Any) -> Path:
    features = np.random.default_rng(0).normal(size=(60, 3))
    persons = None if options.get("per_person") is None else np.arange(60) % 40
    records = PrivateRecords(features, np.arange(60) % 2, persons)
    options = {"centre": "none", **options}
    config = ReleaseConfig(60 if persons is None else 40, 3, ("a", "b"), design="moments", **options)
    write_release(folder, config.calibrate(4.0, 1e-3), records, seed=None)
    return folder


def test_a_release_is_priced_for_somebody_with_several_records(tmp_path: Path) -> None:
    records, persons = a_release(tmp_path / "RECORDS"), a_release(tmp_path / "PERSONS", per_person=1)
    said = account(f"account --release {records} --records-per-person 4 --json")
    assert said["person_epsilon"] > 4 * said["epsilon"]
    said = account(f"account --release {persons} --records-per-person 4 --json")
    assert said["person_epsilon"] == said["epsilon"]
    counted = a_release(tmp_path / "COUNTED", records_noise_multiplier=20.0)
    refused(privmix("account", "--release", counted, "--records-per-person", "4"), "private count")
