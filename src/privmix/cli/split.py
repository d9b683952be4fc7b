"""``privmix split``: part a share of a private dataset off as public records."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from privmix import jobs
from privmix.cli.app import app
from privmix.cli.console import err, out, plain, print_json
from privmix.cli.options import Data, Json
from privmix.cli.verb import Take, verb
from privmix.jobs.columns import Columns
from privmix.jobs.options import SplitOptions
from privmix.jobs.persons import Persons

# A table's texts are among its columns: no extractor says here what they are.
_COLUMNS = Take(
    "label",
    "image_column",
    "feature_column",
    "image_size",
    "colour",
    "columns",
    "feature_length",
    "separator",
    "decimal",
    "encoding",
    "header",
    "no_header",
    "person",
)
_PERSONS = Take("person_pattern", "person_file", "person_missing")


@verb(app)
def split(
    data: Data,
    public: Annotated[Path, typer.Option(help="New file for the records that become public (.npz; tables: .jsonl).")],
    private: Annotated[Path, typer.Option(help="New file for the records that stay private, yours alone.")],
    columns: Annotated[Columns, _COLUMNS],
    asked: SplitOptions,
    persons: Annotated[Persons, _PERSONS],
    json_output: Json = False,
) -> None:
    """Set a random share of a private dataset apart as PUBLIC records, for --public and --pool of privmix train.

    The records in --public are public by your act: nothing protects them from then on, and no later guarantee is about
    them. Ask the people they are about. The draw looks at nothing but classes, so the public file says nothing of the
    records that stay but this: per-class, that every class has as many; uniform, about what share each class has.

    Split once, before the first release, and use --private as your dataset from then on, with a budget of its own in
    the ledger. A second draw makes more records public, and what was released from the whole dataset before is about
    all of them.

    With --person whole persons are drawn, each of the class of their first record: --share and --count are of persons,
    and --private says by numbers whose its records are, under the column's name.

    Example: privmix split --data mnist --share 0.04 --public PUBLIC.npz --private PRIVATE.npz
    """
    parted = jobs.split.split(data, public, private, columns, asked, persons)
    if json_output:
        print_json(parted.to_dict())
    else:
        out.print(f"public: {plain(public)}, {parted.public_records:,} records", soft_wrap=True)
        out.print(f"private: {plain(private)}, {parted.private_records:,} records", soft_wrap=True)
    err.print(
        "The public records are protected by nothing. Use the private file in place of the whole dataset from now on.",
        soft_wrap=True,
    )
