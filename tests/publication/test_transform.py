import numpy as np
import pytest

from privmix.engine.tiles import lattice_steps
from privmix.mechanisms.clipping import clip_l1, clip_l2
from privmix.mechanisms.noise import Lattice
from privmix.publication.dataset import RecordTransform
from tests.refusals import refuses


def test_a_centre_of_another_length_is_refused() -> None:
    transform = RecordTransform(1.0, "l2", np.zeros(7, np.float32), 0.5)
    for columns in (1, 6):
        with refuses("features"):
            transform(np.ones((3, columns)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("centred", [False, True])
def test_steps_are_what_is_said_of_them_one_operation_after_another(norm: str, centred: bool, dtype: type) -> None:
    generator, lattice = np.random.default_rng(0), Lattice(16)
    features = generator.normal(size=(300, 7)).astype(dtype)
    centre = generator.normal(size=7).astype(np.float32) if centred else None
    transform = RecordTransform(2.0, norm, centre, 0.7 if centred else None)
    clip = clip_l2 if norm == "l2" else clip_l1
    before, expected = features.copy(), clip(features, 2.0)
    if centre is not None:
        expected = clip(expected - centre, 0.7)
    shares = expected / transform.final_clip_norm

    np.testing.assert_array_equal(transform(features), expected)
    np.testing.assert_array_equal(transform.shares(features), shares)
    np.testing.assert_array_equal(lattice_steps(lattice, transform, features), lattice.quantise(shares))
    np.testing.assert_array_equal(features, before)
