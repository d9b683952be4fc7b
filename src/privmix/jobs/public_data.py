"""Public data: checked not to be the private data, before and after the charge, and parted off a private dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix import data as readers
from privmix.data.dataset import Source
from privmix.data.overlap import InputHashes as RecordHashes
from privmix.data.overlap import PersonsContents as PersonsHashes
from privmix.data.overlap import Sketch, made_of, same_files, same_place
from privmix.data.public_share import PublicShare, split_off
from privmix.errors import WITHHELD, InvalidInput, check_choice, in_terms_of
from privmix.features.base import Extractor
from privmix.jobs.columns import Columns, class_list, listed
from privmix.jobs.dataset import Dataset
from privmix.jobs.options import SplitOptions
from privmix.jobs.persons import said_of
from privmix.jobs.places import check_unpublished
from privmix.shown import Shown

if TYPE_CHECKING:
    from privmix.training.facts import ModelFacts


_PRIVATE = "public records: this is the private dataset"
_PERSON: Final = "person"
_HOW: Final = ("per-class", "uniform")
_PUBLIC: Final = "without any protection: from now on use the private file instead of the whole dataset"


def refuse_private(given: Mapping[str, Any], data: Any, split: str) -> None:
    """Raise :class:`InvalidInput` where data called public are the private data, by place or files."""
    # Public data are read as a training split. Another split of the same place may be private: there files are
    # compared, not places. `refuse_overlap` compares data in memory.
    for flag, place in given.items():
        if place is None:
            continue
        if split == "train" and _same_objects(place, data):
            raise InvalidInput(flag, WITHHELD, _PRIVATE)
        if isinstance(place, str | Path) and isinstance(data, str | Path):
            with in_terms_of(part=flag):
                same = split == "train" and same_place(str(place), str(data))
                same = same or same_files(str(place), str(data), split)
            if same:
                raise InvalidInput(flag, str(place), _PRIVATE)


def _same_objects(public: Any, private: Any) -> bool:
    """Whether data in memory are the same: as a whole, or the inputs of two pairs (inputs, labels)."""
    pairs = isinstance(public, tuple) and isinstance(private, tuple) and public and private
    return public is private or bool(pairs and public[0] is private[0])


def sources_of(
    given: Mapping[str, Any], extractor: Extractor, facts: ModelFacts, columns: Columns
) -> dict[str, Source]:
    """Each public dataset of ``privmix train``, opened, by its flag."""
    from privmix.training.examples import open_source

    found = {}
    options = pool_options(extractor, columns)
    for flag, place in given.items():
        if place is not None:
            with in_terms_of(part=flag):
                found[flag] = open_source(place, facts.classes, "train", {"input_shape": facts.input_shape, **options})
    return found


def contents_of(sources: Mapping[str, Source]) -> dict[str, RecordHashes]:
    """Hashes of the records of public datasets, by the flags that name them."""
    found = {}
    for flag, source in sources.items():
        with in_terms_of(part=flag):
            found[flag] = RecordHashes.of(source)
    return found


def origins_of(sources: Mapping[str, Source]) -> list[tuple[str, Sketch]]:
    """Return the origins of public datasets that are pools of synthetic images with their cards."""
    found = []
    for flag, source in sources.items():
        with in_terms_of(part=flag):
            sketches = [made_of(file) for file in source.files]
        found += [(flag, sketch) for sketch in sketches if sketch is not None]
    return found


def refuse_overlap(
    given: Mapping[str, RecordHashes],
    source: Source,
    made_of: Iterable[tuple[str, Sketch]],
    whose: Callable[[], NDArray[np.int64] | None] = lambda: None,
) -> None:
    """Raise :class:`InvalidInput` where public records are in large part private ones, in any format."""
    # It reads private records, so budget is charged first, and its answer is for the owner: after a refusal nothing
    # is published. `whose`: each person counts with one record.
    sketches = list(made_of)
    if not given and not sketches:
        return
    persons = whose()
    private = RecordHashes.of(source) if persons is None else PersonsHashes.of(source, persons)
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
        "dialect": columns.dialect(getattr(reads, "number_columns", ()), needed=False),
    }


@dataclass(frozen=True, repr=False)
class Parted(Shown):
    """Two files of one dataset: the records that are public from now on, and those that stay private."""

    public: Path
    public_records: int
    private: Path
    private_records: int

    def shown(self) -> tuple[str, Mapping[str, object]]:
        files = {"public": (self.public, self.public_records), "private": (self.private, self.private_records)}
        told = {name: f"{path}, {count:,} records" for name, (path, count) in files.items()}
        return "Parted", {**told, "the public records": _PUBLIC}

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "public": str(self.public), "private": str(self.private), "warning": _PUBLIC}


def parted(data: Any, asked: SplitOptions) -> Parted:
    """Split a random share of a private dataset off as PUBLIC records; see :mod:`privmix.data.public_share`."""
    check_choice("how", asked.how, _HOW)
    public, private = Path(asked.public), Path(asked.private)
    for field, path in (("public", public), ("private", private)):
        check_unpublished(field, path)
    persons, columns = said_of(asked, data)
    wanted = PublicShare(asked.share, asked.count, asked.how == "per-class", asked.seed)
    with in_terms_of({"columns": "columns" if asked.table_columns is None else "table_columns"}):
        source = _opened(data, columns, asked)
    whose = None
    if persons.declared(columns.person):
        place = str(data) if isinstance(data, str | Path) else None
        dataset = Dataset(source, place, asked.split, columns, data)
        persons.check(dataset)
        whose = "_".join(columns.person_names) or _PERSON, persons.read(dataset)
    given, kept = split_off(source, wanted, public, private, label_column=columns.label, persons=whose)
    return Parted(public, given, private, kept)


def _opened(data: Any, columns: Columns, asked: SplitOptions) -> Source:
    table = asked.table_columns
    wanted = None if table is None else listed(table)
    numbers = columns.number_names
    if wanted is not None and columns.csv_said["decimal"] == ",":
        # Both parts are written with a decimal point, and a text that looks like a number is still a text.
        if numbers is None or not set(numbers) <= set(wanted):
            allowed = "columns of table_columns in which `csv` converts the decimal mark; other cells stay as they are"
            raise InvalidInput("columns", numbers, allowed)
        dialect = columns.dialect(numbers)
        numbers = None
    else:
        dialect = columns.dialect()
    return readers.open_dataset(
        data,
        split=asked.split,
        classes=class_list(asked.classes) if isinstance(asked.classes, str) else asked.classes,
        label_column=columns.label,
        columns=wanted,
        number_columns=numbers,
        feature_length=columns.feature_length,
        image_size=columns.image_size,
        colour=columns.colour,
        person_columns=columns.person_names,
        dialect=dialect,
    )
