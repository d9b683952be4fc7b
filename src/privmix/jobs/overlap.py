"""What is called public must not be the private data: compared by records, once these are paid for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from privmix.data import Source
from privmix.data.overlap import Contents, Sketch
from privmix.errors import WITHHELD, InvalidInput


def refuse_overlap(given: Mapping[str, Contents], source: Source, made_of: Iterable[tuple[str, Sketch]]) -> None:
    """Raise :class:`InvalidInput` where public records are in large part private ones, in whatever format.

    It reads the private records, so budget is charged before it is called, and its answer is for the owner: nothing
    is published after it is no.

    Args:
        given: public records, by the field that names them.
        source: the private ones.
        made_of: (the field that names synthetic records, what these were made of).
    """
    sketches = list(made_of)
    if not given and not sketches:
        return
    private = Contents.of(source)
    for flag, contents in given.items():
        if contents.overlaps(private):
            raise InvalidInput(flag, WITHHELD, "public records; many of these are records of the private dataset")
    for flag, sketch in sketches:
        if sketch.overlaps(private):
            allowed = (
                "a pool made of public images; many of those that this one was made of are records of the private "
                "dataset, and pool and card tell of them"
            )
            raise InvalidInput(flag, WITHHELD, allowed)
