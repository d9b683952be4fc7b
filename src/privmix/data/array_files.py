"""Files of arrays x and y: .npz, safetensors, or two .npy files. Pickled objects are never loaded."""

import math
import zipfile
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, ClassVar, Final, cast

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open

from privmix.data.arrow_source import name_list
from privmix.data.files import CopyFirst, check_unpacked, decoding, is_here
from privmix.data.manifest import Manifest
from privmix.data.memory import plain
from privmix.data.reader import READERS, Reader, Request
from privmix.data.source import MAX_RECORD_VALUES, NO_LABELS, ArraySource, Source, array_schema, resolve_classes
from privmix.errors import WITHHELD, InvalidInput
from privmix.untrusted import parse_json

_PLAIN: Final = "numbers or text. Pickled objects are never loaded: save x.astype(float) and y.astype(str)"
_HEADER_READERS: Final = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


class NpzSource(Source):
    """Arrays ``x`` and ``y`` of an .npz archive, or ``x_train`` and ``y_train`` (``x_test``, ...) for a split."""

    def __init__(self, path: Path, split: str, classes: tuple[str, ...], labelled: bool = True) -> None:
        self._path = path
        with decoding(path, "an .npz archive"), zipfile.ZipFile(path) as archive:
            arrays = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
            self._names = [f"{name}.npy" for name in named_arrays(path, arrays, split, labelled, "array")]
            (x_shape, x_type), *labels = (_member_header(archive, name) for name in self._names)
        self._schema = array_schema(x_shape, x_type, labels[0][0] if labels else None, classes)

    travels = True

    def _chunks(self, first: int, stop: int, size: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        with decoding(self._path, "an .npz archive"), zipfile.ZipFile(self._path) as archive:
            x, *labels = (_load_member(archive, name) for name in self._names)
        return ArraySource(x, labels[0] if labels else None, self._schema.classes)._chunks(first, stop, size)


def npz_classes(path: Path) -> tuple[str, ...] | None:
    """Class names that an archive publishes as array ``classes`` (names, or one integer K), if any."""
    with decoding(path, "an .npz archive"), zipfile.ZipFile(path) as archive:
        if "classes.npy" not in archive.namelist():
            return None
        classes = _load_member(archive, "classes.npy")
    if classes.dtype.kind == "U" and classes.ndim == 1:
        return tuple(classes.tolist())
    # A bound on K: names for more classes than that would be made of one small file.
    if classes.dtype.kind in "iu" and classes.size == 1 and 1 <= classes.item() <= 2**20:
        return tuple(map(str, range(classes.item())))
    raise InvalidInput(f"classes in {path}", f"{classes.dtype} of shape {classes.shape}", "names or one integer >= 1")


def npz_member(path: Path, name: str, split: str) -> str | None:
    """Return the member that holds the array of this name, of the split where it has one; None: there is none."""
    with decoding(path, "an .npz archive"), zipfile.ZipFile(path) as archive:
        members = archive.namelist()
    return next((one for one in (f"{name}_{split}.npy", f"{name}.npy") if one in members), None)


def npz_values(path: Path, member: str) -> NDArray[Any]:
    """Return the array in a member that :func:`npz_member` names; pickled objects are refused."""
    with decoding(path, "an .npz archive"), zipfile.ZipFile(path) as archive:
        return _load_member(archive, member)


class NpySource(ArraySource):
    """A .npy file of inputs and one of labels, if any; memory-mapped in each process, read by ranges at an address."""

    travels = True

    def __init__(self, x_path: Path, y_path: Path | None, classes: tuple[str, ...]) -> None:
        super().__init__(_mapped(x_path), None if y_path is None else _mapped(y_path), classes)
        self._made_of = x_path, y_path, classes
        self.files: tuple[Path, ...] = tuple(path for path in (x_path, y_path) if path is not None)

    # A memory map does not travel: each process maps the files again.
    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._made_of


class _FileArray:
    """The rows of a .npy file at an address, as an array that is read by slices. Secret."""

    def __init__(self, path: Path, shape: tuple[int, ...], dtype: np.dtype[Any], start: int) -> None:
        self.shape, self.dtype = shape, dtype
        self._path, self._start = path, start

    def __len__(self) -> int:
        return self.shape[0]

    def reshape(self, *_: int) -> "_FileArray":
        return _FileArray(self._path, self.shape[:1], self.dtype, self._start)

    def __getitem__(self, part: slice) -> NDArray[Any]:
        first, stop, _ = part.indices(len(self))
        row = math.prod(self.shape[1:]) * self.dtype.itemsize
        # Without a buffer: a range is read once, and bytes around it would travel for nothing.
        with decoding(self._path, "an .npy file"), self._path.open("rb", 0) as file:
            file.seek(self._start + first * row)
            content = file.read((stop - first) * row)
        return np.frombuffer(content, self.dtype).reshape(-1, *self.shape[1:])


def _mapped(path: Path) -> NDArray[Any]:
    with decoding(path, "an .npy file"):
        with path.open("rb") as file:
            shape, dtype, header, by_columns = _read_header(file)
        _check_size(shape, dtype, path.stat().st_size - header)
        if not is_here(path):
            # A range of bytes then holds a column of all records, not a few records.
            if by_columns:
                raise CopyFirst()
            return cast(NDArray[Any], _FileArray(path, shape, dtype, header))
        found: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
        return found


def _member_header(archive: zipfile.ZipFile, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    with archive.open(name) as file:
        shape, dtype, header, _ = _read_header(file)
    member = archive.getinfo(name)
    _check_size(shape, dtype, member.file_size - header)
    # A small archive can unpack to more than the memory holds.
    check_unpacked(Path(str(archive.filename)), member.file_size, member.compress_size)
    return shape, dtype


def _load_member(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    _member_header(archive, name)
    with archive.open(name) as file:
        return np.asarray(np.lib.format.read_array(file, allow_pickle=False))


def _read_header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any], int, bool]:
    """Shape, type, size of the header of a .npy stream, and whether columns come one after the other."""
    version = np.lib.format.read_magic(file)
    shape, by_columns, dtype = _HEADER_READERS[version](file)
    return shape, dtype, file.tell(), by_columns


def _check_size(shape: tuple[int, ...], dtype: np.dtype[Any], size: int) -> None:
    # Objects are pickled, and unpickling runs code of the file.
    if dtype.hasobject:
        raise InvalidInput("type of array", str(dtype), _PLAIN)
    # A header states any shape: one that the content does not fill would still be allocated.
    if min(shape, default=0) < 0 or math.prod(shape[1:]) > MAX_RECORD_VALUES:
        raise InvalidInput("shape of array", shape, f"records of at most {MAX_RECORD_VALUES} values")
    if math.prod(shape) * dtype.itemsize != size:
        raise InvalidInput("size of array", WITHHELD, "the number of bytes in its header")


@READERS.register
class Npz(Reader):
    name: ClassVar[str] = "npz"
    words: ClassVar[str] = "npz"
    endings: ClassVar[str] = ".npz"
    suffixes: ClassVar[tuple[str, ...]] = ("npz",)

    @classmethod
    def open(cls, files: list[Path], request: Request) -> Source:
        request.selection.check_unnamed(".npz")
        request.selection.check_kind("arrays")
        classes = resolve_classes(request.classes, npz_classes(files[0]) if request.classes is None else None)
        labelled = request.selection.labelled
        return joined([NpzSource(file, request.split, classes, labelled) for file in files])

    @classmethod
    def holds_split(cls, file: Path, split: str) -> bool:
        with decoding(file, "an .npz archive"), zipfile.ZipFile(file) as archive:
            return f"x_{split}.npy" in archive.namelist()


@READERS.register
class Npy(Reader):
    """An array of inputs and one of labels, in a file each."""

    name: ClassVar[str] = "npy"
    words: ClassVar[str] = "npy"
    endings: ClassVar[str] = ".npy"
    suffixes: ClassVar[tuple[str, ...]] = ("npy",)
    in_place: ClassVar[bool] = True

    @classmethod
    def open(cls, files: list[Path], request: Request) -> Source:
        request.selection.check_unnamed(".npy")
        request.selection.check_kind("arrays")
        if not request.selection.labelled:
            inputs = files if len(files) == 1 else [file for file in files if file.name.startswith("x")]
            if len(inputs) != 1:
                raise InvalidInput("data", str(files[0].parent), "one file x.npy for each split")
            return NpySource(inputs[0], None, resolve_classes(request.classes))
        if len(files) == 1:
            files = [files[0], *cls.companions(files[0])]
        inputs, labels = ([file for file in files if file.name.startswith(letter)] for letter in "xy")
        if len(inputs) != 1 or len(labels) != 1:
            raise InvalidInput("data", str(files[0].parent), "one file x.npy and one y.npy for each split")
        return NpySource(inputs[0], labels[0], resolve_classes(request.classes))

    @classmethod
    def companions(cls, file: Path) -> list[Path]:
        return [file.with_name("y" + file.name[1:])]


_TENSORS: Final = "a safetensors file"
_TENSOR_TYPES: Final = {
    "BOOL": "?", "U8": "u1", "I8": "i1", "U16": "u2", "I16": "i2", "U32": "u4", "I32": "i4", "U64": "u8", "I64": "i8",
    # BF16 is widened: NumPy has none.
    "F16": "f2", "BF16": "f4", "F32": "f4", "F64": "f8",
}  # fmt: skip
PIECE_VALUES: Final = 2**24


class SafetensorsSource(Source):
    """Tensors ``x`` and ``y`` of a file, or ``x_train`` and ``y_train`` (``x_test``, ...) for a split."""

    def __init__(self, path: Path, split: str, classes: tuple[str, ...], labelled: bool = True) -> None:
        self._path = path
        with decoding(path, _TENSORS), safe_open(path, framework="numpy") as file:
            self._names = named_arrays(path, file.keys(), split, labelled, "tensor")
            (x_shape, x_type), *labels = (_tensor_header(file, name) for name in self._names)
            # NumPy has no bfloat16: torch reads such a file and widens it.
            narrow = any(file.get_slice(name).get_dtype() == "BF16" for name in self._names)
            self._framework = "pt" if narrow else "numpy"
        self._schema = array_schema(x_shape, x_type, labels[0][0] if labels else None, classes)

    travels = True

    def manifest(self) -> Manifest:
        return Manifest.of([(0, self._schema.records)], file=self._path, anywhere=True)

    def _chunks(self, first: int, stop: int, size: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        step = min(size, max(1, PIECE_VALUES // math.prod(self._schema.input_shape)))
        for start in range(first, self._schema.records, step):
            part = slice(start, min(start + step, self._schema.records))
            # Opened again for each slice: the pages of a long-lived map would all count as ours.
            with decoding(self._path, _TENSORS), safe_open(self._path, framework=self._framework) as file:
                x, *labels = (plain(file.get_slice(name)[part], name) for name in self._names)
            yield x, labels[0].reshape(-1) if labels else NO_LABELS


def safetensors_classes(path: Path) -> tuple[str, ...] | None:
    """Class names under the metadata key ``classes``, a JSON list."""
    with decoding(path, _TENSORS), safe_open(path, framework="numpy") as file:
        metadata = file.metadata() or {}
    if "classes" not in metadata:
        return None
    with decoding(path, "a JSON list of class names in its metadata"):
        return name_list(parse_json(metadata["classes"], str(path)))


def _tensor_header(file: Any, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    tensor = file.get_slice(name)
    shape, kind = tuple(tensor.get_shape()), str(tensor.get_dtype())
    if kind not in _TENSOR_TYPES:
        raise InvalidInput(f"type of {name}", kind, "one of " + ", ".join(_TENSOR_TYPES))
    if math.prod(shape[1:]) > MAX_RECORD_VALUES:
        raise InvalidInput(f"shape of {name}", shape, f"records of at most {MAX_RECORD_VALUES} values")
    return shape, np.dtype(_TENSOR_TYPES[kind])


@READERS.register
class Safetensors(Reader):
    name: ClassVar[str] = "safetensors"
    words: ClassVar[str] = "safetensors"
    endings: ClassVar[str] = ".safetensors"
    suffixes: ClassVar[tuple[str, ...]] = ("safetensors",)

    @classmethod
    def open(cls, files: list[Path], request: Request) -> Source:
        request.selection.check_unnamed(".safetensors")
        request.selection.check_kind("arrays")
        classes = resolve_classes(request.classes, safetensors_classes(files[0]) if request.classes is None else None)
        labelled = request.selection.labelled
        return joined([SafetensorsSource(file, request.split, classes, labelled) for file in files])

    @classmethod
    def holds_split(cls, file: Path, split: str) -> bool:
        with decoding(file, _TENSORS), safe_open(file, framework="numpy") as content:
            return f"x_{split}" in content.keys()  # noqa: SIM118 - it is no dictionary


class ShardedSource(Source):
    """The records of ``shards`` in order, one shard at a time; input shape, classes and columns must agree."""

    def __init__(self, shards: Sequence[Source]) -> None:
        if not shards:
            raise InvalidInput("shards", 0, "at least one")
        self._shards = list(shards)
        first = self._shards[0].schema
        for shard in self._shards:
            if replace(shard.schema, records=first.records) != first:
                raise InvalidInput(
                    "shards", "another input shape or list of classes", "files with one shape and one class list"
                )
        self._schema = replace(first, records=sum(shard.schema.records for shard in self._shards))

    def _chunks(self, first: int, stop: int, size: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        for shard in self._shards:
            records = shard.schema.records
            if first < records and stop > 0:
                yield from shard._chunks(first, min(stop, records), size)
            first, stop = max(0, first - records), stop - records

    @property
    def travels(self) -> bool:  # type: ignore[override]
        return all(shard.travels for shard in self._shards)

    def manifest(self) -> Manifest:
        return Manifest.joined(shard.manifest() for shard in self._shards)


def named_arrays(path: Path, names: Collection[str], split: str, labelled: bool, kind: str) -> list[str]:
    """Names of the inputs' and the labels' array: ``x_train`` and ``y_train`` (``x_test``, ...), else ``x``, ``y``."""
    suffix = f"_{split}" if f"x_{split}" in names else ""
    # Arrays of other splits exist: to take x for this one would mix them.
    if not suffix and {"x_train", "x_test"} & set(names):
        raise InvalidInput("split", split, f"a split of {path}")
    wanted = [f"{letter}{suffix}" for letter in ("xy" if labelled else "x")]
    for name in wanted:
        if name not in names:
            raise InvalidInput(str(path), f"no {kind} {name}", f"{kind}s x and y")
    return wanted


def joined(shards: Sequence[Source]) -> Source:
    return shards[0] if len(shards) == 1 else ShardedSource(shards)
