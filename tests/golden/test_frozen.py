"""Results that a change of the code's shape must not change; see :mod:`tests.golden.freeze`."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.helpers import privmix
from tests.golden.freeze import CASES, FROZEN, TRAININGS, digests, release_digests, training_digests


@pytest.fixture(scope="module")
def frozen() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FROZEN.read_text(encoding="utf-8"))
    assert set(found["releases"]) == set(CASES)
    assert set(found["trainings"]) == set(TRAININGS)
    return found


@pytest.mark.parametrize("name", CASES)
def test_releases(name: str, frozen: dict[str, Any], tmp_path: Path) -> None:
    assert digests(tmp_path, CASES[name]) == frozen["releases"][name]
    # What `inspect --json` prints is the certificate, whose parts are frozen, in its order.
    shown, certificate = privmix("inspect", str(tmp_path / "REL"), "--json"), tmp_path / "REL" / "certificate.json"
    assert json.dumps(json.loads(shown.out)) == json.dumps(json.loads(certificate.read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", CASES)
def test_interrupted_releases(name: str, frozen: dict[str, Any], tmp_path: Path) -> None:
    found = release_digests(tmp_path / "REL", CASES[name], interrupted=True)
    assert {part: frozen["releases"][name][part] for part in found} == found


@pytest.mark.parametrize("name", TRAININGS)
def test_trainings(name: str, frozen: dict[str, Any]) -> None:
    expected = dict(frozen["trainings"][name])
    weights = pytest.approx(expected.pop("weights"), rel=1e-3, abs=1e-4)
    found = training_digests(name)
    assert found.pop("weights") == weights
    assert found == expected
