"""Fields become flags: in the words of the command that runs, and of no other."""

import pytest
import typer
from typer.main import get_command

from privmix.cli.flags import message
from privmix.errors import WITHHELD, InvalidInput, PrivmixError, StorageError, in_terms_of

app = typer.Typer()
group = typer.Typer()
app.add_typer(group, name="group")


@app.command()
def make(
    place: str = typer.Argument(),
    out_folder: str = typer.Option("", "--out"),
    records: int = typer.Option(3),
    number_columns: str = typer.Option("", "--columns"),
    overwrite: bool = typer.Option(False, "--overwrite"),
) -> None:
    """A verb."""


@group.command()
def other(ledger: str = typer.Option(""), dataset: str = typer.Option("")) -> None:
    """A verb of a group."""


FREE = "a folder that does not exist yet (or `overwrite`)"


@pytest.mark.parametrize(
    ("line", "error", "said"),
    [
        ("make X --out R", InvalidInput("out", "R", FREE), f"--out: got 'R'; allowed: {FREE}"),
        ("make X --out=R", InvalidInput("out_folder", "R", "none"), "--out: got 'R'; allowed: none"),
        ("make X", InvalidInput("number_columns", None, "`columns`"), "--columns: not given; needed: --columns"),
        ("make X", InvalidInput("place", "X", "another"), "PLACE: got 'X'; allowed: another"),
        ("make X --records 4", InvalidInput("records", 4, "3"), "--records: got 4; allowed: 3"),
        # Not what was given, but a field of a file, or the records themselves.
        ("make X", InvalidInput("records", 4, "3"), "records: got 4; allowed: 3"),
        ("make X --out R", InvalidInput("records of R", 4, "3"), "records of R: got 4; allowed: 3"),
        # Another command's option keeps its name; what the user wrote stays as it is.
        ("make X --out R", InvalidInput("out", "`out`", "`seed`"), "--out: got '`out`'; allowed: seed"),
        ("group other", InvalidInput("ledger, dataset", "x", "both"), "--ledger, --dataset: got 'x'; allowed: both"),
        ("group other", InvalidInput("out", "R", FREE), f"out: got 'R'; allowed: {FREE}"),
        ("make X --out R", StorageError("out: cannot write R"), "--out: cannot write R"),
        (
            "make X --out R",
            StorageError("run.json: damaged; start with `overwrite`"),
            "run.json: damaged; start with -",
        ),
        ("make X", PrivmixError("no more"), "no more"),
    ],
)
def test_fields_become_flags(line: str, error: PrivmixError, said: str) -> None:
    said = said.replace("`overwrite`", "overwrite" if line.startswith("group") else "--overwrite")
    assert message(error, get_command(app), line.split()).startswith(said)


def test_errors_of_a_part_keep_their_words() -> None:
    with pytest.raises(InvalidInput) as caught, in_terms_of(part="out"):
        raise InvalidInput("inputs", WITHHELD, "finite numbers")
    said = message(caught.value, get_command(app), ["make", "X", "--out", "R"])
    assert said == "--out: inputs: got a private value (hidden); allowed: finite numbers"


def test_private_values_are_of_no_number_that_was_given() -> None:
    error = InvalidInput("records", WITHHELD, "one label for each input")
    assert message(error, get_command(app), ["make", "X", "--records", "4"]).startswith("records: ")
    error = InvalidInput("out", WITHHELD, "as before")
    assert message(error, get_command(app), ["make", "X", "--out", "R"]).startswith("--out: ")
