"""What is called public must not be the private data: compared by records, once these are paid for."""

from __future__ import annotations

from collections.abc import Mapping

from privmix.data import Source
from privmix.data.overlap import Contents, Sketch
from privmix.errors import WITHHELD, InvalidInput


def refuse_overlap(given: Mapping[str, Contents], source: Source, made_of: Mapping[str, Sketch] | None = None) -> None:
    """Raise :class:`InvalidInput` where public records are in large part private ones, in whatever format.

    It reads the private records, so budget is charged before it is called, and its answer is for the owner: nothing
    is published after it is no.

    Args:
        given: public records, by the field that names them.
        source: the private ones.
        made_of: what synthetic records were made of, by the field that names these.
    """
    if not given and not made_of:
        return
    private = Contents.of(source)
    for flag, contents in given.items():
        if contents.overlaps(private):
            raise InvalidInput(flag, WITHHELD, "public records; many of these are records of the private dataset")
    for flag, sketch in (made_of or {}).items():
        if sketch.overlaps(private):
            allowed = (
                "images made of public ones; many of those that these were made of are records of the private dataset"
            )
            raise InvalidInput(flag, WITHHELD, allowed)
