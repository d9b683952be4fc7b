"""What every generator in the registry must do, whoever wrote it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from privmix.procedural.base import BLOCK, GENERATORS, get_generator
from tests.refusals import refuses

SHAPES = ((28, 28), (16, 24, 3))
every_generator = pytest.mark.parametrize("name", list(GENERATORS))


@every_generator
def test_images_have_the_shape_asked_for_and_labels_of_the_classes(name: str) -> None:
    for shape in SHAPES:
        generator = get_generator(name, shape)
        images = generator.draw(40, seed=1)
        assert images.x.shape == (40, *shape)
        assert images.x.dtype == np.uint8
        # Nothing is blank: every image says something.
        assert (images.x.reshape(40, -1).std(axis=1) > 1).all()
        assert (images.y is None) == (generator.classes is None)
        if images.y is not None and generator.classes is not None:
            assert images.y.shape == (40,)
            assert images.y.min() >= 0
            assert images.y.max() < len(generator.classes)


@every_generator
def test_a_seed_gives_its_images_again_and_a_longer_draw_begins_with_a_shorter_one(name: str) -> None:
    generator = get_generator(name, (28, 28))
    some, more, other = generator.draw(BLOCK, 3), get_generator(name, (28, 28)).draw(BLOCK + 9, 3), generator.draw(9, 4)
    np.testing.assert_array_equal(some.x, more.x[:BLOCK])
    assert not np.array_equal(some.x[:9], other.x)
    # Another block is another stream.
    assert not np.array_equal(more.x[BLOCK:], more.x[:9])
    if some.y is not None and more.y is not None:
        np.testing.assert_array_equal(some.y, more.y[:BLOCK])


@every_generator
def test_its_card_is_json_and_its_words_are_a_phrase(name: str) -> None:
    generator = get_generator(name, (28, 28))
    assert json.loads(json.dumps(generator.card())) == {
        "generator": name,
        "version": generator.version,
        "shape": [28, 28],
    }
    assert generator.words
    assert not generator.words.endswith(".")


def test_other_shapes_counts_and_names_are_refused() -> None:
    for shape in ((28,), (28, 28, 4), (4, 28), (28, 28, 3, 1), (1024, 28)):
        with refuses("shape of images for procedural:digits"):
            get_generator("digits", shape)
    with refuses("count"):
        get_generator("digits", (28, 28)).draw(0)
    with refuses("procedural"):
        get_generator("faces", (28, 28))


def test_characters_are_centred_as_in_mnist() -> None:
    images = get_generator("digits", (28, 28)).draw(200, seed=5).x.astype(float)
    places = np.arange(28) - 13.5
    mass = images.sum(axis=(1, 2))
    for axis in (1, 2):
        assert np.abs((images.sum(axis=3 - axis) * places).sum(axis=1) / mass).max() < 0.75
        along = images.max(axis=3 - axis) > 127
        span = 28 - along[:, ::-1].argmax(axis=1) - along.argmax(axis=1)
        assert span.max() <= 21
