"""What verification says of missing noise is what it would notice, and what it can't see it says."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privmix.audits.noise_tests import NoiseTest
from privmix.engine import rows as engine
from privmix.releases.verify import _PARTS, UNCHECKED, excluded_below, missing_noise, verify_release
from privmix.research.rivals.embedding import engine as embedding_engine
from tests.refusals import refuses
from tests.releases.helpers import EVERY_DESIGN, design_name
from tests.releases.test_nothing_free import made


@pytest.mark.parametrize("choices", EVERY_DESIGN, ids=design_name)
def test_every_release_says_what_noise_may_be_missing(choices: dict[str, Any], tmp_path: Path) -> None:
    found = verify_release(made(tmp_path / "REL", **choices))
    assert found.unchecked[4].startswith("noise that is too small: ")
    for test in found.tests:
        # Rows as a whole are features and labels together.
        assert test.lowest is None or test.about or test.name in _PARTS or test.name == "noise of each row", test.name


def test_noise_below_what_is_said_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All noises of a release times a share that is below the largest of its parts: the same data, less noise."""
    choices: dict[str, Any] = {"design": "poisson", "rows": 400}
    tests = verify_release(made(tmp_path / "REL", **choices)).tests
    said = max(excluded_below(test) or 0.0 for test in tests if _PARTS.get(test.name) == "features of rows")
    assert said > 0.2
    real = engine.gaussian_on_lattice
    monkeypatch.setattr(engine, "gaussian_on_lattice", lambda *args: np.rint(0.7 * said * real(*args)))
    with refuses("noise of each column of x"):
        verify_release(made(tmp_path / "LESS", **choices))


def test_noise_that_data_hide_is_said_to_be_not_excluded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Class embeddings are many times their noise: without any of it they hold, and that is what is said."""
    monkeypatch.setattr(embedding_engine, "gaussian_on_lattice", lambda key, shape, std: np.zeros(shape))
    folder = made(tmp_path / "REL", design="merf", frequencies=24)
    said = verify_release(folder).unchecked[4]
    assert "noise of 0 is not excluded in the class embeddings" in said


def test_a_share_follows_from_what_was_measured() -> None:
    """With f of the noise, the signal's part of the energy stays: the test then finds its threshold."""
    one = NoiseTest("noise of x", 1, 5e-11, lowest=1.2, caught=0.9)
    share = excluded_below(one)
    assert (1.2**2 - 1 + share**2) ** 0.5 == pytest.approx(0.9)
    assert excluded_below(replace(one, lowest=3.0)) == 0
    assert "features of rows (below 0.6 " in missing_noise([one])
    assert "noise of 0 is not excluded in features of rows" in missing_noise([one], laplace=True)


def test_what_no_test_sees_is_said_of_every_release(tmp_path: Path) -> None:
    found = verify_release(made(tmp_path / "REL")).unchecked
    assert set(UNCHECKED) < set(found)
    for words in ("Sun and He 2025", "the order of rows", "features and labels of a row belong together"):
        assert any(words in text for text in found)
