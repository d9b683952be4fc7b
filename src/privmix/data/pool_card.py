"""The card next to a pool of synthetic images: facts about the public images that the pool was made from."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from privmix.data.files import is_here
from privmix.data.overlap import Sketch
from privmix.errors import InvalidInput
from privmix.untrusted import MEBIBYTE, read_json

KIND: Final = "synthetic images"
CARD: Final = "card.json"
IMAGES: Final = "train.npz"
_MADE_OF: Final = "made_of"
_SKETCH: Final = "sketch"


def made_of(path: Path) -> Sketch | None:
    """Return the card's record of the public images behind a pool; None without a card or without such images."""
    if not is_here(path) or path.suffix != Path(IMAGES).suffix:
        return None
    images = path.resolve()
    if images.name != IMAGES or not images.with_name(CARD).is_file():
        return None
    try:
        card = read_json(images.with_name(CARD), CARD, MEBIBYTE)
    except InvalidInput:
        # Others have files of that name, too.
        return None
    if not isinstance(card, dict) or card.get("kind") != KIND:
        return None
    given = card.get(_MADE_OF, {})
    if not isinstance(given, dict):
        raise InvalidInput(f"{CARD} {_MADE_OF}", "another value", "an object")
    return Sketch.from_dict(given[_SKETCH]) if _SKETCH in given else None
