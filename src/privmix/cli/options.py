"""Options that several verbs share, so that a flag means and says the same everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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

Json = Annotated[bool, typer.Option("--json", help="For machines.")]
