"""The learner of second moments."""

from typing import Any

import numpy as np
import pytest

from privmix.designs.moments.learner import SecondMomentsClassifier
from tests.refusals import refuses
from tests.releases.helpers import make_plan, make_records, release


@pytest.mark.parametrize("plan", [{}, {"centre": "none"}], ids=["centred", "plain"])
def test_it_learns_the_classes(plan: dict[str, Any]) -> None:
    """Records lie 2 apart at deviation 1: the best possible is about 0.87."""
    test = make_records(seed=9)
    with refuses("release"):
        SecondMomentsClassifier().fit(release(make_plan(), test))
    model = SecondMomentsClassifier().fit(release(make_plan(design="moments", **plan), make_records()))
    assert (model.predict(test.features) == test.labels).mean() > 0.8


def test_matches_the_formula() -> None:
    rel = release(make_plan(design="moments"), make_records())
    spectrum = rel.moments.spectrum()
    basis, cross = spectrum.basis.astype(np.float64), rel.moments.cross.astype(np.float64)
    scatter = cross @ cross.T * (rel.num_classes / rel.moments.records)
    total = basis @ np.diag(spectrum.values + spectrum.ridge) @ basis.T + scatter
    plain = np.linalg.inv(basis @ np.diag(spectrum.values + spectrum.ridge) @ basis.T) @ cross
    expected = np.linalg.inv(total) @ cross
    expected *= np.trace(cross.T @ plain) / np.trace(cross.T @ expected)
    np.testing.assert_allclose(SecondMomentsClassifier().fit(rel).coef_, expected, rtol=1e-3, atol=1e-6)
    strong = SecondMomentsClassifier(regularisation=10.0).fit(rel).coef_
    assert np.linalg.norm(strong) < np.linalg.norm(expected)
