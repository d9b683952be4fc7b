"""Options that several verbs share, so that a flag means and says the same everywhere."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final

import typer

from privmix.data import Source, open_dataset
from privmix.designs import design_named
from privmix.errors import InvalidInput, MissingExtra, StorageError, check_choice, check_integer, check_number
from privmix.features import Extractor, Tabular, TextEncoder

Data = Annotated[
    str,
    typer.Option(
        help="Private dataset: file, folder, pattern such as 'part-*.parquet', or address such as s3://bucket/x; "
        "idx, npz, npy, safetensors, Parquet, Arrow, CSV, JSON lines, images by class, saved Hugging Face datasets."
    ),
]
Features = Annotated[
    str,
    typer.Option(
        help="Public extractor: pixels, scattering (scattering:ycbcr,mirror for photographs), identity, minilm "
        "(texts), text:MODEL, vision:MODEL, tabular:SPEC.json or module:FILE. MODEL is a local folder or OWNER/NAME on "
        "the hub."
    ),
]
Classes = Annotated[
    str | None,
    typer.Option(
        help="Class list: a number K, names with commas, or @FILE with one name a line. Needed unless a schema says it."
    ),
]
LabelColumn = Annotated[str, typer.Option(help="The labels' column.")]
ImageColumn = Annotated[str, typer.Option(help="The column of encoded images.")]
FeatureColumn = Annotated[str | None, typer.Option(help="The column of number lists, where there are several.")]
TextColumn = Annotated[str | None, typer.Option(help="The texts' column. Default for text extractors: text.")]
ImageSize = Annotated[
    int | None, typer.Option(help="Encoded images: the side, in pixels, that each is scaled and cropped to; needed.")
]
Colour = Annotated[str | None, typer.Option(help="Encoded images: grey or rgb, which each is converted to; needed.")]
NumberColumns = Annotated[
    str | None,
    typer.Option(
        "--columns", help="Columns of numbers, with commas. Default: all but the label's; needed for JSON lines."
    ),
]
FeatureLength = Annotated[
    int | None, typer.Option(help="How many numbers each list has; needed where the file's schema does not fix it.")
]
FeaturesModel = Annotated[
    Path | None,
    typer.Option(
        "--features-model",
        help="Your copy of the extractor's model, where it is a file or folder: none is opened unless you name it.",
    ),
]
TrustFeaturesModel = Annotated[
    bool,
    typer.Option(
        "--trust-features-model", help="The file of --features-model is a program (TorchScript, .pt2): let it run."
    ),
]

ENGINES: Final = ("local", "ray")
AUTO: Final = "auto"
"""In place of a design: the planner chooses."""
# Every folder that is made to be handed on has one of these.
_PUBLISHED: Final = ("certificate.json", "model.json")
_PICTURES: Final = (".svg", ".png", ".pdf")


def class_list(text: str | None) -> int | list[str] | None:
    """``"10"`` means ten classes "0".."9"; ``"cat,dog"`` names them; ``"@FILE"`` names a file with one a line."""
    if text is None:
        return None
    if text.startswith("@"):
        try:
            names = Path(text[1:]).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            raise StorageError(f"--classes: can't read {text[1:]} as text") from None
        names = [name.strip() for name in names if name.strip()]
    else:
        try:
            return int(text)
        except ValueError:
            names = [name.strip() for name in text.split(",")]
    if len(names) < 2 or not all(names):
        raise InvalidInput("--classes", text, "a number of classes, or at least two names separated by commas")
    return names


@dataclass(frozen=True)
class Columns:
    """Which columns and images of a dataset are meant, and what is declared of them."""

    label: str
    image: str
    feature: str | None
    text: str | None
    image_size: int | None
    colour: str | None = None
    numbers: str | None = None
    feature_length: int | None = None

    @property
    def number_names(self) -> list[str] | None:
        """Names of the columns of numbers, where they are declared."""
        return None if self.numbers is None else [name.strip() for name in self.numbers.split(",")]

    def elsewhere(self) -> Columns:
        """For another dataset of the same inputs, whose format may differ: its shape is declared by the first's."""
        return replace(self, image_size=None, colour=None, feature_length=None)


def check_engine(
    engine: str, design: str, memory_gb: float | None, workers: int | None, ray_address: str | None
) -> None:
    """Raise unless a release can run so: asked before budget is charged, and not when the first row is due.

    Raises:
        InvalidInput: an option is out of range, or does not go with the others.
        MissingExtra: ray is asked for and not installed.
    """
    check_choice("--engine", engine, ENGINES)
    if memory_gb is not None:
        check_number("--memory-gb", memory_gb, low=0, low_open=True)
    if workers is not None:
        check_integer("--workers", workers, low=1)
    if engine != "ray":
        if ray_address is not None:
            raise InvalidInput("--ray-address", ray_address, "an address with --engine ray")
    elif design != AUTO and engine not in design_named(design).engines:
        raise InvalidInput("--engine", engine, f"local for design {design}, which reads records once and in blocks")
    elif find_spec("ray") is None:
        raise MissingExtra("ray", "ray")


def check_writable(field: str, path: Path) -> None:
    """Raise :class:`StorageError` where a folder ``path`` can't be made or written in, as far as can be told."""
    place = next(place for place in (path.absolute(), *path.absolute().parents) if place.exists())
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        raise StorageError(f"{field}: can't write {path}: {place} is no folder that may be written")


def check_figure(path: Path | None) -> None:
    """Raise :class:`InvalidInput` unless a picture of that name can be drawn; asked before the work, not after it."""
    if path is not None and path.suffix not in _PICTURES:
        raise InvalidInput("--figure", str(path), "a file name that ends in " + ", ".join(_PICTURES))
    if path is not None:
        check_unpublished("--figure", path)


def check_unpublished(field: str, path: Path) -> None:
    """Raise :class:`InvalidInput` where ``path`` is in a release or a model: such folders are handed to others, whole.

    A file's mode does not survive that.
    """
    place = path.resolve()
    if any((above / mark).is_file() for above in (place, *place.parents) for mark in _PUBLISHED):
        raise InvalidInput(field, str(path), "a place outside of releases and models, which are handed to others")


def open_for(
    extractor: Extractor,
    data: str,
    split: str,
    classes: int | list[str] | None,
    columns: Columns,
    input_shape: tuple[int, ...] | None = None,
) -> Source:
    """Open a dataset as the extractor takes it: tables with its columns, texts, or arrays.

    Args:
        extractor: decides between texts, tables and arrays.
        data: file, folder, pattern or address.
        split: which part of it.
        classes: number or names of the classes, where they are declared.
        columns: what is declared of columns and images.
        input_shape: a model's or another dataset's, where shapes are not declared.

    Raises:
        InvalidInput: the dataset, its columns and the extractor do not fit.
        StorageError: it cannot be read.
    """
    text = columns.text
    if isinstance(extractor, TextEncoder):
        text = text or "text"
    elif text is not None:
        raise InvalidInput("--text-column", text, "an extractor of texts: minilm or text:MODEL")
    table = extractor.columns if isinstance(extractor, Tabular) else None
    if columns.numbers is not None and (text is not None or table is not None):
        raise InvalidInput("--columns", columns.numbers, "none with an extractor of texts or tables")
    source = open_dataset(
        data,
        split=split,
        classes=classes,
        label_column=columns.label,
        image_column=columns.image,
        feature_column=columns.feature,
        text_column=text,
        columns=table,
        number_columns=columns.number_names,
        feature_length=columns.feature_length,
        image_size=columns.image_size,
        colour=columns.colour,
        input_shape=input_shape,
    )
    extractor.check_schema(source.schema)
    return source
