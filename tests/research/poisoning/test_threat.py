"""A threat model catches every attack that does more than it says, and no other."""

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from privmix.errors import InvalidInput
from privmix.research.poisoning.images import Poisoned, VictimImages
from privmix.research.poisoning.threat import ThreatModel
from tests.refusals import refuses

CLEAN = VictimImages.of(np.full((6, 1, 8, 8), 0.5), [0, 1, 0, 1, 0, 1], classes=2)


def changed(*, square: int = 0, by: float = 0.0, label: int | None = None) -> Poisoned:
    """Records 0 and 2, moved by ``by`` everywhere and to white inside a square, and their labels if given."""
    where = np.array([0, 2])
    pixels = CLEAN.pixels[where] + np.float32(by)
    pixels[:, :, 3 : 3 + square, 2 : 2 + square] = 1
    return Poisoned(CLEAN.with_changed(where, pixels, label), where, CLEAN.take([1]))


@pytest.mark.parametrize(
    ("limits", "made", "complaint"),
    [
        ({"radius": 0.1}, {"by": 0.1}, None),
        ({"radius": 0.1}, {"by": 0.11}, "pixels"),
        ({"radius": 0, "clean_label": False}, {"label": 1}, None),
        ({"radius": 0, "clean_label": False}, {"by": 0.01, "label": 1}, "pixels"),
        ({"patch": 3}, {"square": 3}, None),
        ({"patch": 3}, {"square": 4}, "pixels"),
        ({"patch": 3}, {"square": 3, "by": 0.01}, "pixels"),
        ({"patch": 3, "radius": 0.1}, {"square": 3, "by": 0.1}, None),
        ({"patch": 3, "radius": 0.1}, {"square": 3, "by": 0.11}, "pixels"),
        ({"patch": 3, "radius": 0.1}, {"square": 4, "by": 0.1}, "pixels"),
        ({}, {"by": 0.4}, None),
        ({}, {"label": 1}, "labels"),
    ],
)
def test_changes_are_held_against_their_limits(
    limits: dict[str, Any], made: dict[str, Any], complaint: str | None
) -> None:
    threat = ThreatModel(2, **limits)
    with nullcontext() if complaint is None else refuses(complaint):
        threat.check(CLEAN, changed(**made))


def test_what_is_no_image_and_other_records_are_within_no_limit() -> None:
    """Comparisons with NaN are all false: nothing may slip through them."""
    for value in (np.nan, 7.0):
        pixels, where = CLEAN.pixels.copy(), np.array([0])
        pixels[0, 0, 4, 4] = value
        made = Poisoned(VictimImages(pixels, CLEAN.labels, 2), where, CLEAN.take([1]))
        for limits in ({"radius": 0.1}, {"patch": 3}, {}):
            with refuses("pixels"):
                ThreatModel(1, **limits).check(CLEAN, made)
    records = changed(by=0.1).records
    with refuses("goals"):
        ThreatModel(2).check(CLEAN, Poisoned(records, np.array([0, 2]), CLEAN.take([])))
    # More records, and others than those that are named.
    for count, made in ((1, changed()), (2, Poisoned(records, np.array([0]), CLEAN))):
        with refuses("poisoned records"):
            ThreatModel(count).check(CLEAN, made)


def test_inserted_records_have_nothing_to_be_near_to() -> None:
    for limit in ({"radius": 0.1}, {"patch": 2}):
        with pytest.raises(InvalidInput, match="inserted"):
            ThreatModel(1, "inserted", **limit)
    assert "pixels at will, labels at will" in ThreatModel(1, "inserted").describe()
