"""Releases as an argument: one, or the newest of a series."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privmix as pm
from privmix.errors import InvalidInput, StorageError
from privmix.releases import series_chain
from privmix.releases.folder import load_release
from privmix.releases.series_chain import dataset_of, load_series
from tests.cli.helpers import privmix
from tests.jobs.test_series import GIVEN, STEPS, month

pytestmark = pytest.mark.filterwarnings("ignore:`seed`")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("series")
    for seed, name in enumerate(("visits", "other")):
        pm.series.begin(root / name, month(1), seed=seed, **GIVEN)
        for step in range(2, STEPS + 1):
            pm.series.step(root / name, month(step))
    return root


@pytest.fixture
def visits(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made / "visits", tmp_path / "visits"))


def test_a_series_is_its_newest_release(visits: Path) -> None:
    newest, found = load_release(visits / "step-003"), load_series(visits)
    assert found.certificate == newest.certificate
    np.testing.assert_array_equal(found.x, newest.x)
    assert found.moments.records == sum(80 + step for step in range(1, STEPS + 1))
    # A release of its own stays what it is.
    for given in (visits, visits / "step-003", str(visits / "step-003"), pm.load(visits / "step-003"), newest):
        np.testing.assert_array_equal(dataset_of(given).moments.second, newest.moments.second)
    # Steps that were not made yet are missing from nothing.
    shutil.rmtree(visits / "step-003")
    assert load_series(visits).moments.records == 80 + 1 + 80 + 2


def test_whoever_learns_from_a_folder_of_a_series_learns_from_the_newest(visits: Path) -> None:
    x, y = month(9)
    fitted = pm.fit(visits)
    assert (fitted.predict(x) == y).mean() > 0.5
    privmix("fit", visits, "--out", visits.parent / "model").passed()
    for other in (pm.fit(visits / "step-003"), pm.load(visits.parent / "model")):
        np.testing.assert_array_equal(fitted.predict_proba(x), other.predict_proba(x))


def test_cards_of_series_by_earlier_builds_verify(visits: Path) -> None:
    card = visits / "step-001" / "README.md"
    said = card.read_text()
    old = said.replace(
        "of one series.\n",
        "of one series. Who has them all gets less noise than\nthe newest has: `privmix fit` weighs them where it is "
        "given the folder that they are in.\n",
    )
    assert old != said
    card.write_text(old)
    assert pm.verify(visits).series is not None
    card.write_text(old.replace("less noise", "no noise"))
    with pytest.raises(InvalidInput):
        pm.verify(visits)


def spoilt_number(visits: Path) -> None:
    place = visits / "step-003" / "moments.safetensors"
    content = bytearray(place.read_bytes())
    content[-1] ^= 1
    place.write_bytes(content)


def edited(visits: Path) -> None:
    place = visits / "step-002" / "certificate.json"
    before = place.read_bytes()
    assert b'"records": 163' in before
    place.write_bytes(before.replace(b'"records": 163', b'"records": 164', 1))


def single(visits: Path) -> None:
    shutil.rmtree(visits / "step-001")
    design: dict[str, Any] = {**GIVEN, "design": "moments"}
    del design["steps"]
    pm.release(month(1), out=visits / "step-001", **design)


@pytest.mark.parametrize("spoil", [spoilt_number, edited, single])
def test_what_is_no_series_as_it_was_certified_is_refused(visits: Path, spoil: Any) -> None:
    spoil(visits)
    with pytest.raises(InvalidInput):
        pm.fit(visits)


def test_a_release_that_takes_another_ones_place_meanwhile(
    visits: Path, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = series_chain.linked(visits)
    monkeypatch.setattr(series_chain, "linked", lambda _: chain)
    shutil.rmtree(visits / "step-003")
    shutil.copytree(made / "other" / "step-003", visits / "step-003")
    with pytest.raises(StorageError, match="meanwhile"):
        load_series(visits)
