"""Small scenes of real digits, and victims that learn them in a fraction of a second."""

from functools import cache

import pytest

from privmix.data import embedded_digits
from privmix.errors import MissingExtra
from privmix.research.poisoning.images import VictimImages
from privmix.research.poisoning.scene import PoisoningScene
from privmix.research.poisoning.toolbox import require_toolbox
from privmix.research.poisoning.victims.ordinary import TrainedNetwork, Victim, VictimConfig

QUICK = VictimConfig(epochs=4, batch=32)


def needs_toolbox() -> None:
    """Skip a test where ART is not installed; importing it is for :func:`toolbox` alone, which shields logging."""
    try:
        require_toolbox()
    except MissingExtra as missing:
        pytest.skip(str(missing))


@cache
def digits(split: str, records: int, first: int = 0) -> VictimImages:
    """Images of 8 x 8 pixels in ten classes."""
    held = embedded_digits(split).read()
    part = slice(first, first + records)
    return VictimImages.of(held.x[part, None] / 255, held.y[part], classes=10)


@cache
def extractor() -> TrainedNetwork:
    """What other images than those of :func:`scene` taught a network."""
    return Victim(QUICK).fit(digits("train", 300, first=800), seed=0)


def scene(*, transfer: bool = False, number: int = 0, records: int = 300) -> PoisoningScene:
    """A trial."""
    victim = Victim(QUICK, extractor() if transfer else None)
    return PoisoningScene.draw(digits("train", records), digits("test", 200), victim, seed=0, number=number)
