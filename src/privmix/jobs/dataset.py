"""The private dataset of a job, opened, and its identity; opening datasets for an extractor."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from privmix import data as readers
from privmix.data.columns import first_of
from privmix.data.dataset import Schema, Source
from privmix.data.fingerprint import content_hashes, fingerprint, listing_hash, origin_files, records_hash
from privmix.data.frames import may_have_splits, settled
from privmix.data.remote import is_remote
from privmix.data.source import reads_places
from privmix.errors import InvalidInput
from privmix.features.base import Extractor
from privmix.features.identity import Identity, Pixels
from privmix.features.tabular import Tabular
from privmix.features.text import TextEncoder
from privmix.jobs.columns import Columns, class_list
from privmix.mechanisms.plan import ALL_RECORDS

_LATER: Final = ("separator", "decimal", "encoding", "person", "header", "no_header")
PUBLISHED_NAMES: Final = "published names"
# Settings that decide which values of a file are inputs and labels, and that are in no schema.
_READ_BY: Final = ("label_column", "number_columns", "separator", "decimal", "encoding", "header", "no_header")


@dataclass(frozen=True, eq=False)
class Dataset:
    """The private dataset of a job; make it with :func:`open_dataset`."""

    # Hashes and places are private: they go to the owner's ledger, run folder and feature store. `place` is None in
    # memory.
    source: Source
    place: str | None
    split: str
    columns: Columns
    data: Any = field(default=None, repr=False)

    @property
    def schema(self) -> Schema:
        return self.source.schema

    @property
    def published_names(self) -> dict[str, list[str]]:
        """Names in the data that a release or model states, apart from those that its extractor calls features."""
        columns = self.schema.columns or self.source.number_names or ()
        classes = self.schema.classes if self.schema.num_classes > 1 else ()
        return {"columns": list(columns), "classes": list(classes)}

    def identity(self) -> dict[str, Any]:
        """Return the identity that an interrupted run is bound to, as JSON values."""
        # A run from before these options is bound to an identity without them.
        said = self.columns.to_dict().items()
        columns = {name: value for name, value in said if name not in _LATER or value is not None}
        found = records_hash(self.source) if self.place is None else fingerprint(self.place)
        return {"fingerprint": found, "split": self.split, "columns": columns}

    def contents(self) -> tuple[str, ...]:
        """Return hashes by which a ledger knows the records; see :func:`privmix.data.content_hashes`."""
        return content_hashes(self.source)

    def listings(self) -> tuple[str, ...]:
        """Return hashes by which earlier versions' ledgers may know the same records."""
        return () if self.place is None else listings_of(self.place, self.contents())

    def origin(self) -> Mapping[str, Any]:
        """Origin of a store's features: the split, every file's path and SHA-256, and the declared columns."""
        # Not size and time: a record that was changed or taken out may leave both as they were.
        columns, usual = self.columns.to_dict(), Columns().to_dict()
        read = {name: columns[name] for name in _READ_BY if columns[name] != usual[name]}
        # Earlier versions took numbers for places there.
        labels = {} if reads_places(self.schema.classes) else {"labels": "by name"}
        files = origin_files(self.source, self.place)
        return {"split": self.split, "files": files, **({"columns": read} if read else {}), **labels}

    def check_unchanged(self, made_from: Mapping[str, Any]) -> None:
        """Raise if files differ by now from those of this origin; untouched files are not hashed again."""
        self.source.check_unchanged()
        self._check_same(self.origin, made_from)

    def check_charged(self, files: tuple[str, ...]) -> None:
        """Raise unless files that were read still have these hashes, which a budget was charged for."""
        if files:
            self._check_same(self.contents, files)

    def _check_same(self, now: Callable[[], object], then: object) -> None:
        # A source at an address compares versions itself while it is read.
        if self.place is not None and not is_remote(self.place) and now() != then:
            raise InvalidInput("data", self.place, "files that do not change while they are read")


def shown_names(names: Mapping[str, Sequence[str]]) -> str:
    return "; ".join(f"{kind} {first_of(some)}" for kind, some in names.items() if some)


def listings_of(place: str, files: Sequence[str]) -> tuple[str, ...]:
    """Return hashes by which earlier versions' ledgers may know the records at a place with these file hashes."""
    return (fingerprint(place), *(listing_hash([one]) for one in files))


def open_dataset(
    data: Any,
    extractor: Extractor,
    *,
    split: str = "train",
    classes: Any = None,
    columns: Columns | None = None,
    input_shape: tuple[int, ...] | None = None,
    labelled: bool = True,
) -> Dataset:
    """Open the dataset of a job as its extractor takes it: a table, texts or arrays. No record is looked into."""
    # `input_shape`: a model's or another dataset's, where shapes are not declared; otherwise the extractor's, if it
    # has one. `classes`: also what `class_list` reads. For `data` and `labelled` see `privmix.data.open_dataset`.
    columns, classes = columns or Columns(), class_list(classes)
    # A query runs once here: persons and records are of one run.
    data = settled(data)
    reads, names = extractor.reads, columns.number_names
    if labelled and columns.label is None:
        if classes is not None and not (isinstance(classes, list) and classes == list(ALL_RECORDS)):
            shown = classes if isinstance(classes, int | str) else type(classes).__name__
            raise InvalidInput("classes", shown, "no value without a label; with one, its column in `label`")
        classes, labelled = list(ALL_RECORDS), False
    table: Sequence[str] | None = None
    if isinstance(reads, Tabular):
        table = reads.columns
        if names is not None:
            allowed = "no columns with a tabular extractor: its specification names them"
            raise InvalidInput("columns", columns.columns, allowed)
    elif isinstance(reads, TextEncoder):
        table = names or ["text"]
        if len(table) > 1:
            raise InvalidInput("columns", columns.columns, "one column, of texts, with a text extractor")
    options: dict[str, Any] = {
        "split": split,
        "classes": classes,
        "label_column": columns.label or "",
        "columns": table,
        "number_columns": names if table is None else None,
        "feature_length": columns.feature_length,
        "image_size": columns.image_size,
        "colour": columns.colour,
        "input_shape": reads.image_shape if input_shape is None else input_shape,
        "labelled": labelled,
        "decoder": reads.decoder,
        "person_columns": columns.person_names,
        "values": reads.values if isinstance(reads, Tabular) else (),
        "dialect": columns.dialect(reads.number_columns if isinstance(reads, Tabular) else ()),
    }
    named = reads.feature_names if isinstance(reads, Identity) else ()
    try:
        source = readers.open_dataset(data, **options)
    except InvalidInput as error:
        if not named or error.field != "columns":
            raise
        # There are other columns than those that were released, or no header lists the columns.
        source = readers.open_dataset(data, **{**options, "number_columns": list(named)})
    if isinstance(reads, Pixels) and source.number_names is not None and input_shape is None:
        allowed = (
            "images for pixels, the default. For plain numbers use `features` identity; for other tables use "
            "`features` tabular:SPEC.json (privmix spec drafts the file)"
        )
        raise InvalidInput("features", reads.name, allowed)
    if named and source.number_names not in (None, named):
        # The columns that were released, in their order, at any place in the data.
        source = readers.open_dataset(data, **{**options, "number_columns": list(named)})
    extractor.check_schema(source.schema)
    if columns.label is None and classes == list(ALL_RECORDS) != list(source.schema.classes):
        raise InvalidInput("label", None, "the default: these data have labels of their own")
    return Dataset(source, str(data) if isinstance(data, str | Path) else None, split, columns, data)


def open_unlabelled(
    data: Any,
    extractor: Extractor,
    input_shape: Sequence[int],
    classes: Sequence[str],
    *,
    split: str | None,
    columns: Columns,
) -> Dataset:
    # `split` None: `test` where there is one, else all that names no part.
    shape = tuple(input_shape)
    if not may_have_splits(data):
        data = settled(data)
    # New records mostly have no parts: what is not named for one is taken for the training part elsewhere.
    # `test` first: where there are both, a model is to be used on records that it was not made of.
    for part in ("test", "train") if split is None else (split,):
        try:
            found = open_dataset(
                data, extractor, split=part, classes=list(classes), columns=columns, input_shape=shape, labelled=False
            )
        except InvalidInput as error:
            if error.field != "split" or part != "test" or split is not None:
                raise
        else:
            break
    if tuple(found.schema.input_shape) != shape:
        raise InvalidInput("data", found.schema.input_shape, f"inputs of shape {shape}")
    return found
