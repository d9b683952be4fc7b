"""The interface of a source: public facts first, then validated records."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.data.manifest import Manifest
from privmix.errors import WITHHELD, InvalidInput, PrivmixError, check_integer

# A record larger than this is a broken header, not data: refuse it before memory is asked for.
MAX_RECORD_VALUES: Final = 2**26
# Kinds of NumPy types that are numbers.
NUMERIC: Final = "biuf"
_DECLARE: Final = "`classes`"
CLASS_LABEL: Final = "ClassLabel"
"""Instead of a class list: the label names of a Hugging Face dataset are public."""
ONE_LABEL: Final = (
    "Only single-label classification is supported: bin a real-valued target first, and make one release for each label"
)
CELLS: Final = (
    "texts, finite numbers, truth values, dates or missing values. Convert a list or struct to such columns, or leave "
    'the column out ({"ignore": true} in a specification)'
)
_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_LONGEST_NUMBER: Final = 400
# Words for False and True.
_TRUTHS: Final = (("false", "true"), ("no", "yes"), ("n", "y"), ("f", "t"))
# The labels that a source yields where none are requested.
NO_LABELS: Final = np.empty(0, dtype=object)

DECODER: Final = 2
"""The rule by which images are read now; releases and models without a rule were made with 1."""


@dataclass(frozen=True)
class Schema:
    """Public facts of a dataset, known before a private row is used.

    Attributes:
        input_shape: of one input, e.g. ``(28, 28)``, ``(32, 32, 3)`` or ``(64,)``.
        classes: class names in label order, declared or from public metadata; never inferred from labels.
        columns: names of a table's columns; None where inputs are arrays of numbers.
    """

    records: int
    input_shape: tuple[int, ...]
    classes: tuple[str, ...]
    columns: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        check_integer("number of records", self.records, low=1)
        if self.columns is not None and self.input_shape != (len(self.columns),):
            raise InvalidInput("input shape", self.input_shape, f"({len(self.columns)},), one value for each column")
        if not self.input_shape:
            raise InvalidInput("input shape", self.input_shape, "at least one axis")
        size = 1
        for side in self.input_shape:
            size *= check_integer("input shape", side, low=1)
        check_integer("values in one record", size, low=1, high=MAX_RECORD_VALUES)

    @property
    def num_classes(self) -> int:
        return len(self.classes)


@dataclass(frozen=True)
class LabelledArray:
    """Records in memory. Private.

    Attributes:
        x: ``(n, *input_shape)``; uint8 where the source holds uint8, else finite float32. Tables: (n, columns) objects,
            each a str, a float or None where the value is missing.
        schema: of the whole source, so ``schema.records`` may exceed n in a batch.
    """

    x: NDArray[Any]
    y: NDArray[np.int64]
    schema: Schema

    def __len__(self) -> int:
        return len(self.x)


class Source(ABC):
    """A dataset on disk or in memory, read only on request.

    Attributes:
        files: the files that hold records, labels included; none in memory. Their places are private.
        unread: files next to these that are not read, by kind; for the owner alone.

    Formal guarantees:
        - Public facts first: ``schema`` comes from headers, names and metadata, not from labels or values.
        - Closed class list: a label outside ``schema.classes`` is refused, never added.
        - Silent: no error message holds a value, a label or a row number of a record.
    """

    files: tuple[Path, ...] = ()
    unread: str = ""
    travels: bool = False
    """Whether it goes to other processes as names of files, and no record with it."""
    anywhere: bool = False
    """Whether a reader can begin with any record."""
    number_names: tuple[str, ...] | None = None
    """Names of the columns, where inputs are columns of numbers that have names. Public."""
    _schema: Schema

    @property
    def schema(self) -> Schema:
        return self._schema

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the records, in order, where each is a file of its own; else None. Private."""
        return None

    @abstractmethod
    def _chunks(self, first: int, stop: int, size: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        """Yield raw (inputs, labels) of about ``size`` records from ``first`` on; records from ``stop`` on may come."""

    def manifest(self) -> Manifest:
        """Return where reading can begin, by what opening has found: no file is read for it."""
        file = self.files[0] if self.files else None
        return Manifest.of([(0, self.schema.records)], file=file, anywhere=self.anywhere)

    def check_unchanged(self) -> None:
        """Raise :class:`InvalidInput` where data read since the last call are known to have changed."""
        # Batches call it before their last one, so that no caller gets all records of data that changed meanwhile.
        return

    def batches(self, size: int, first: int = 0, stop: int | None = None) -> Iterator[LabelledArray]:
        """Yield validated batches of at most ``size`` of the records ``first`` to before ``stop``, in order."""
        for x, raw_y in self._checked(size, first, stop):
            # Records without a label are of one class.
            alone = self.schema.num_classes == 1 and not len(raw_y)
            y = np.zeros(len(x), np.int64) if alone else encode_labels(raw_y, self.schema.classes)
            if len(x) != len(y):
                raise InvalidInput("records", WITHHELD, "one label for each input")
            yield LabelledArray(x, y, self.schema)

    def inputs(self, size: int) -> Iterator[NDArray[Any]]:
        """Yield the inputs alone, as :meth:`batches` does; labels are not read."""
        return (x for x, _ in self._checked(size))

    def _checked(
        self, size: int, first: int = 0, stop: int | None = None
    ) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        """Yield validated inputs and raw labels, as many as the schema states, or the records before ``stop`` alone."""
        schema = self.schema
        most = schema.records if stop is None else check_integer("stop", stop, low=0, high=schema.records)
        seen = check_integer("first record", first, low=0, high=most)
        size = check_integer("batch size", size, low=1)
        if seen == most and (first or most < schema.records):
            return
        for raw_x, raw_y in self._silent_chunks(size, first, most):
            if most < schema.records and seen + len(raw_x) > most:
                raw_x, raw_y = raw_x[: most - seen], raw_y[: most - seen]
            x = as_inputs(raw_x, schema.input_shape) if schema.columns is None else as_table(raw_x, schema.columns)
            seen += len(x)
            if seen > schema.records:
                break
            if seen == most:
                self.check_unchanged()
            yield x, raw_y
            if seen == most < schema.records:
                return
        if seen != schema.records:
            raise InvalidInput("records", WITHHELD, "the number in the header")

    def _silent_chunks(
        self, size: int, first: int = 0, stop: int | None = None
    ) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        """Yield the chunks; an error of a decoder loses its message, which may quote a record."""
        try:
            yield from self._chunks(first, self.schema.records if stop is None else stop, size)
        except (PrivmixError, OSError, MemoryError):
            raise
        except Exception:
            raise InvalidInput("records", WITHHELD, "values of the declared types") from None

    def read(self) -> LabelledArray:
        parts = list(self.batches(4096))
        if len(parts) == 1:
            return parts[0]
        x = np.concatenate([part.x for part in parts])
        return LabelledArray(x, np.concatenate([part.y for part in parts]), self.schema)


class ArraySource(Source):
    """Arrays in memory, or memory-mapped; ``y`` is None where there are no labels."""

    anywhere = True

    def __init__(self, x: NDArray[Any], y: NDArray[Any] | None, classes: tuple[str, ...]) -> None:
        self._schema = array_schema(x.shape, x.dtype, None if y is None else y.shape, classes)
        self._x, self._y = x, NO_LABELS if y is None else y.reshape(-1)

    def _chunks(self, first: int, stop: int, size: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        for start in range(first, len(self._x), size):
            yield self._x[start : start + size], self._y[start : start + size]


def array_schema(
    x_shape: tuple[int, ...], x_type: np.dtype[Any], y_shape: tuple[int, ...] | None, classes: tuple[str, ...]
) -> Schema:
    """Return the schema of arrays of inputs and labels, from their headers alone; None without labels."""
    if x_type.kind not in NUMERIC:
        raise InvalidInput("type of x", x_type.type.__name__, "numbers")
    if len(x_shape) < 2:
        raise InvalidInput("shape of x", x_shape, "(records, ...) with at least two axes")
    if y_shape not in (None, (x_shape[0],), (x_shape[0], 1)):
        raise InvalidInput("shape of y", y_shape, f"({x_shape[0]},), one label for each record. {ONE_LABEL}")
    return Schema(records=x_shape[0], input_shape=x_shape[1:], classes=classes)


def resolve_classes(
    declared: Any, public: Sequence[str] | None = None, coded: Sequence[str] | None = None
) -> tuple[str, ...]:
    """Return the class list: the caller's declaration, else public metadata, else an error."""
    # declared: K (classes are then "0" to "K-1"); K names, integers or truth values; or "ClassLabel", which takes
    # `coded`. Names of a ClassLabel may stem from the records, so they need this request.
    if isinstance(declared, str) and declared == CLASS_LABEL:
        if coded is None:
            raise InvalidInput("classes", declared, "declared classes: the label's column has no ClassLabel")
        declared = list(coded)
    if declared is None and public is None:
        taken = "" if coded is None else ". If the label names in the data are public, use ClassLabel"
        allowed = f"the number of classes or their names, such as no,yes; they are never inferred from labels{taken}"
        raise InvalidInput("classes", None, allowed)
    if isinstance(declared, int | np.integer):
        return tuple(map(str, range(check_integer("classes", declared, low=1, high=2**20))))
    names: Any = public if declared is None else declared
    if isinstance(names, np.ndarray) and names.ndim == 1:
        names = names.tolist()
    listed = names if isinstance(names, Sequence) and not isinstance(names, str) else [None]
    named = [str(name) if isinstance(name, str | int | np.integer | np.bool_) else "" for name in listed]
    if not all(named):
        # A value that is no class list may be the labels, given by mistake: it is not quoted.
        shown = names if isinstance(names, str | float) else type(names).__name__
        raise InvalidInput("classes", shown, "an integer >= 1, or names (texts, integers, truth values)")
    if not named or len(set(named)) != len(named):
        raise InvalidInput("classes", "a name twice" if named else [], "one or more names without repetition")
    return tuple(named)


def as_inputs(raw: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Check raw inputs: (n, *shape) finite numbers, kept if uint8 and made float32 otherwise."""
    if raw.shape[1:] != shape:
        raise InvalidInput("shape of a record", WITHHELD, f"{shape}, as declared or as the model expects")
    if raw.dtype.kind not in NUMERIC:
        raise InvalidInput("inputs", WITHHELD, "numbers")
    if raw.dtype == np.uint8:
        return raw
    if raw.dtype.kind in "iu":
        # One fraction elsewhere makes a column of integers one of float64: the same record stays the same number.
        raw = raw.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        x = raw.astype(np.float32)
    if not np.isfinite(x).all():
        raise InvalidInput("inputs", WITHHELD, "finite numbers that fit float32")
    return x


def as_table(raw: NDArray[Any], columns: tuple[str, ...]) -> NDArray[np.object_]:
    """Check raw table rows: (n, columns) objects: str, finite number (made float), day (made str) or None."""
    if raw.ndim != 2 or raw.shape[1] != len(columns):
        raise InvalidInput("shape of a record", WITHHELD, f"{len(columns)} values, one for each column")
    table = np.empty(raw.shape, dtype=object)
    for place in range(len(columns)):
        table[:, place] = _cells(raw[:, place].tolist(), columns[place])
    return table


def _cells(values: list[Any], column: str) -> list[str | float | None]:
    kinds = set(map(type, values))
    # Whole columns of one type are the rule, and judging them one cell at a time is slow.
    if kinds <= {str, type(None)} or (kinds == {float} and bool(np.isfinite(values).all())):
        return values
    return [_cell(value, column) for value in values]


def _cell(value: Any, column: str) -> str | float | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool | int | float | np.integer | np.floating | np.bool_ | Decimal):
        try:
            number = float(value)
        except (OverflowError, TypeError, ValueError):
            number = math.inf
        if math.isfinite(number):
            return number
    if isinstance(value, date | np.datetime64):
        # Not-a-time is equal to no value, itself included.
        return None if value != value else str(value)
    raise InvalidInput(f"column {column}", WITHHELD, CELLS)


def encode_labels(raw: NDArray[Any], classes: tuple[str, ...]) -> NDArray[np.int64]:
    """Turn labels into class indices, each by itself: an array of objects may mix texts and numbers."""
    # A label whose text is a class name is that class; 1, 1.0 and "1" are one text, as are True and "true". Other
    # numbers, and texts of their digits, are places from 0 to K - 1 where `reads_places`.
    if raw.dtype.kind in "iuf" and reads_places(classes):
        return check_places(raw, classes)
    if raw.dtype.kind not in NUMERIC + "OUS":
        raise outside_classes(classes)
    try:
        if raw.dtype.kind not in NUMERIC:
            return np.array([_place(label, classes) for label in raw.tolist()], dtype=np.int64)
        values, places = np.unique(raw, return_inverse=True)
        if len(values) > len(classes):
            raise KeyError
        return np.array([_place(value, classes) for value in values.tolist()], dtype=np.int64)[places]
    except (KeyError, ValueError, TypeError):
        raise outside_classes(classes) from None


def check_places(raw: NDArray[Any], classes: tuple[str, ...]) -> NDArray[np.int64]:
    """Numbers that are class indices, as such."""
    # Comparing before the cast keeps NaN, fractions and integers beyond int64 out.
    if raw.dtype.kind not in NUMERIC or not np.logical_and(raw >= 0, raw < len(classes)).all():
        raise outside_classes(classes)
    y = raw.astype(np.int64)
    if not (y == raw).all():
        raise outside_classes(classes)
    return y


@lru_cache(64)
def reads_places(classes: tuple[str, ...]) -> bool:
    """Whether a number among labels is a place in the list: no name is a number, or each is its place."""
    # One number makes numbers of a whole array of truth values. So a name that means one stands where that number is.
    values = [name for name in map(_same_text, classes) if name in ("true", "false") or _NUMBER.fullmatch(name)]
    if values:
        return classes == tuple(map(str, range(len(classes))))
    lower = [name.lower() for name in classes]
    # Letters mean truth values by themselves, not among others.
    means = {word: place for pair in _TRUTHS for place, word in enumerate(pair) if {*pair} == {*lower}}
    means |= {"no": 0, "yes": 1}
    return all(means.get(name, place) == place for place, name in enumerate(lower))


@lru_cache(64)
def _readings(classes: tuple[str, ...]) -> tuple[dict[str, int], dict[str, int], dict[bool, int]]:
    """Places of names as they are, of what :func:`_same_text` makes of them, and of truth values."""
    times = Counter(map(_same_text, classes))
    exact = {name: place for place, name in enumerate(classes)}
    same = {text: exact[name] for name in classes if times[text := _same_text(name)] == 1}
    if reads_places(classes):
        same = {str(place): place for place in range(len(classes))} | same
    lower = [name.lower() for name in classes]
    for pair in _TRUTHS:
        if all(lower.count(word) == 1 for word in pair):
            return exact, same, {value: lower.index(word) for value, word in zip((False, True), pair, strict=True)}
    return exact, same, {bool(place): place for place in range(min(2, len(classes)))} if reads_places(classes) else {}


def _place(label: object, classes: tuple[str, ...]) -> int:
    exact, same, truths = _readings(classes)
    if isinstance(label, bool | np.bool_):
        return truths[bool(label)]
    if isinstance(label, int | float | np.integer | np.floating | Decimal):
        return same[_same_text(str(label))]
    if not isinstance(label, bytes | str):
        raise ValueError("neither text nor a number")
    text = (label.decode() if isinstance(label, bytes) else label).strip()
    return exact[text] if text in exact else same[_same_text(text)]


def _same_text(text: str) -> str:
    """One text for all ways to write a number or truth value."""
    if text.lower() in ("true", "false"):
        return text.lower()
    if len(text) > _LONGEST_NUMBER or not _NUMBER.fullmatch(text):
        return text
    number = float(text)
    if not number.is_integer():
        return repr(number) if math.isfinite(number) else text
    # Beyond, floats are not every integer.
    return str(int(number)) if abs(number) < 2**53 else str(int(text)) if text.lstrip("+-").isdecimal() else text


def outside_classes(classes: tuple[str, ...]) -> InvalidInput:
    words = ", by its name: a number is no position in the list if a class name is a number or truth value"
    allowed = f"one of the {len(classes)} declared classes{'' if reads_places(classes) else words}. "
    numbered = classes == tuple(map(str, range(len(classes))))
    allowed += f"If labels are texts, list their names: {_DECLARE} no,yes" if numbered else f"List all in {_DECLARE}"
    return InvalidInput("label", WITHHELD, f"{allowed}. {ONE_LABEL}")
