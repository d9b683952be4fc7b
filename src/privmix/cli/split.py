"""``privmix split``: part a share of a private dataset off as public records."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from privmix import data as readers
from privmix.cli.app import app, err, out, plain, print_json
from privmix.cli.options import Classes, Data, Json
from privmix.cli.verb import Take, verb
from privmix.errors import InvalidInput, check_choice
from privmix.jobs.columns import Columns, class_list
from privmix.jobs.places import check_unpublished

_HOW = ("per-class", "uniform")


# A table's texts are among its columns: no extractor says here what they are.
_COLUMNS = Take(
    "label_column", "image_column", "feature_column", "image_size", "colour", "number_columns", "feature_length"
)


@verb(app)
def split(
    data: Data,
    public: Annotated[Path, typer.Option(help="New file for the records that become public (.npz; tables: .jsonl).")],
    private: Annotated[Path, typer.Option(help="New file for the records that stay private, yours alone.")],
    columns: Annotated[Columns, _COLUMNS],
    share: Annotated[float | None, typer.Option(help="Share of all records that becomes public, as 0.04.")] = None,
    count: Annotated[int | None, typer.Option(help="In its place: how many, of each class (uniform: in all).")] = None,
    how: Annotated[
        str, typer.Option(help="per-class: equally many of each class; uniform: drawn from all records alike.")
    ] = "per-class",
    part: Annotated[str, typer.Option("--split", help="Which part of the dataset.")] = "train",
    classes: Classes = None,
    text_column: Annotated[str | None, typer.Option(help="The texts' column.")] = None,
    table_columns: Annotated[
        str | None,
        typer.Option(help="Columns of a table, with commas, which may hold texts; those of its tabular: file."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of the draw. Default: unpredictable.")] = None,
    json_output: Json = False,
) -> None:
    """Part a random share of a private dataset off as PUBLIC records, for --public and --pool of privmix train.

    The records in --public are public by your act: nothing protects them from then on, and no later guarantee is about
    them. Ask the people they are about. The draw looks at nothing but classes, so the public file says nothing of the
    records that stay but this: per-class, that every class has as many; uniform, about what share each class has.

    Part before the first release, once, and use --private as your dataset from then on, with a budget of its own in
    the ledger. A second draw makes more records public; what was released from the whole dataset also told of them all.

    Example: privmix split --data mnist --share 0.04 --public PUBLIC.npz --private PRIVATE.npz
    """
    from privmix.data.public_share import PublicShare, split_off

    check_choice("how", how, _HOW)
    for field, path in (("public", public), ("private", private)):
        check_unpublished(field, path)
    if text_column is not None and table_columns is not None:
        raise InvalidInput("text_column, table_columns", "both", "one of them or neither")
    wanted = PublicShare(share, count, how == "per-class", seed)
    source = readers.open_dataset(
        data,
        split=part,
        classes=class_list(classes),
        label_column=columns.label_column,
        image_column=columns.image_column,
        feature_column=columns.feature_column,
        text_column=text_column,
        columns=_names(table_columns),
        number_columns=columns.number_names,
        feature_length=columns.feature_length,
        image_size=columns.image_size,
        colour=columns.colour,
    )
    given, kept = split_off(source, wanted, public, private, label_column=columns.label_column)
    if json_output:
        print_json({"public": str(public), "public_records": given, "private": str(private), "private_records": kept})
    else:
        out.print(f"public: {plain(public)}, {given:,} records", soft_wrap=True)
        out.print(f"private: {plain(private)}, {kept:,} records", soft_wrap=True)
    err.print(
        "The public records are protected by nothing. Use the private file in place of the whole dataset from now on.",
        soft_wrap=True,
    )


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",")]
