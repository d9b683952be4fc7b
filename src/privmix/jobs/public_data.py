"""Public data: checked not to be the private data, before and after the charge."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from privmix.data.dataset import Source
from privmix.data.overlap import InputHashes, PersonsContents, Sketch, made_of, same_files, same_place
from privmix.errors import WITHHELD, InvalidInput, in_terms_of
from privmix.features.base import Extractor
from privmix.jobs.columns import Columns

if TYPE_CHECKING:
    from privmix.training.examples import ModelFacts


_PRIVATE = "public records: this is the private dataset"


def refuse_private(given: Mapping[str, Any], data: Any, split: str) -> None:
    """Raise :class:`InvalidInput` where data called public are the private data, by place or files."""
    # Public data are read as a training split. Another split of the same place may be private: there files are
    # compared, not places. `refuse_overlap` compares data in memory.
    for flag, place in given.items():
        if place is None:
            continue
        # Data in memory: the same object, or the same inputs in two pairs (inputs, labels).
        pairs = isinstance(place, tuple) and isinstance(data, tuple) and place and data
        if split == "train" and (place is data or (pairs and place[0] is data[0])):
            raise InvalidInput(flag, WITHHELD, _PRIVATE)
        if isinstance(place, str | Path) and isinstance(data, str | Path):
            with in_terms_of(part=flag):
                same = split == "train" and same_place(str(place), str(data))
                same = same or same_files(str(place), str(data), split)
            if same:
                raise InvalidInput(flag, str(place), _PRIVATE)


def sources_of(
    given: Mapping[str, Any], extractor: Extractor, facts: ModelFacts, columns: Columns
) -> dict[str, Source]:
    """Each public dataset of ``privmix train``, opened, by its flag."""
    from privmix.training.examples import open_source

    found, options = {}, {"input_shape": facts.input_shape, **pool_options(extractor, columns)}
    for flag, place in given.items():
        if place is not None:
            with in_terms_of(part=flag):
                found[flag] = open_source(place, facts.classes, "train", options)
    return found


def contents_of(sources: Mapping[str, Source]) -> dict[str, InputHashes]:
    """Hashes of the records of public datasets, by the flags that name them."""
    found = {}
    for flag, source in sources.items():
        with in_terms_of(part=flag):
            found[flag] = InputHashes.of(source)
    return found


def origins_of(sources: Mapping[str, Source]) -> list[tuple[str, Sketch]]:
    """Return the origins of public datasets that are pools of synthetic images with their cards."""
    found = []
    for flag, source in sources.items():
        with in_terms_of(part=flag):
            found += [(flag, sketch) for file in source.files if (sketch := made_of(file)) is not None]
    return found


def refuse_overlap(
    given: Mapping[str, InputHashes],
    source: Source,
    origins: Iterable[tuple[str, Sketch]],
    whose: Callable[[], NDArray[np.int64] | None] = lambda: None,
) -> None:
    """Raise :class:`InvalidInput` where public records are in large part private ones, in any format."""
    # It reads private records, so budget is charged first, and its answer is for the owner: after a refusal nothing
    # is published. `whose`: each person counts with one record.
    sketches = list(origins)
    if not given and not sketches:
        return
    persons = whose()
    private = InputHashes.of(source) if persons is None else PersonsContents.of(source, persons)
    for flag, contents in given.items():
        if contents.overlaps(private.beside(contents.counts)):
            raise InvalidInput(flag, WITHHELD, "public records: many of these are records of the private dataset")
    for flag, sketch in sketches:
        if sketch.overlaps(private.beside(frozenset(sketch.digests))):
            allowed = (
                "a pool of public images: many sources of this pool are records of the private dataset, which pool "
                "and card would reveal"
            )
            raise InvalidInput(flag, WITHHELD, allowed)


def pool_options(extractor: Extractor, columns: Columns) -> dict[str, Any]:
    """Return options that open a job's public dataset; its shapes are the private dataset's."""
    reads, names = extractor.reads, columns.number_names
    texts = reads.name in ("minilm", "text")
    return {
        "label_column": columns.label,
        "columns": names or ["text"] if texts else getattr(reads, "columns", None),
        "number_columns": None if texts else names,
        "decoder": reads.decoder,
        # The public dataset may have a format without a dialect.
        "dialect": columns.dialect(getattr(reads, "number_columns", ()), needed=False),
    }
