"""Options made of dataclasses: what is shown, what is taken, and what a command gets."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from dataclasses import KW_ONLY, MISSING, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer
from typer.main import get_command

from privmix.cli.verb import add_command
from privmix.commands.base import Command, Facts
from privmix.options import option
from privmix.progress import Progress

if TYPE_CHECKING:
    from privmix.features.base import Extractor


@dataclass(frozen=True, kw_only=True)
class Learning:
    epochs: float | None = option(None, "Passes; more with `amp`.", "Learning")
    amp: bool = option(False, "Half precision.")
    chart: bool = option(True, "A chart.", off="no")


@dataclass(frozen=True)
class Learn(Learning, Command[Facts]):
    """Learn."""

    example = "privmix learn x"
    called = "learn-it"

    place: Path = option(MISSING, "A folder.", argument=True)
    _: KW_ONLY
    number_columns: str | Sequence[str] | None = option(None, "Names.", flag="columns")
    features: str | Extractor = option("pixels", "Which.", common=True, panel="Learning")
    ledger: Any = option(None, "Whose.")
    out: Path | None = option(None, "Where.", needed=True)
    rows: int = option(7, "How many.")
    hidden: object = option(None, "Of Python.", python=True)

    def run(self, progress: Progress) -> Facts:
        got.append(self)
        return Facts("learnt", {"rows": self.rows})


app = typer.Typer()
got: list[Learn] = []
add_command(app, Learn)
# A second command makes it a group.
app.command("other")(lambda: None)


def run(*words: str) -> Learn:
    got.clear()
    get_command(app)(["learn-it", *words], standalone_mode=False)
    return got[0]


def test_every_field_is_an_option_with_its_help_and_default() -> None:
    shown = {option.opts[0]: option for option in get_command(app).commands["learn-it"].params}
    own = ["place", "--columns", "--features", "--ledger", "--out", "--rows", "--epochs", "--amp", "--chart"]
    assert list(shown)[:9] == own
    assert (shown["--epochs"].help, shown["--epochs"].rich_help_panel) == ("Passes; more with --amp.", "Learning")
    assert (shown["--features"].rich_help_panel, shown["--rows"].default) == (None, 7)
    assert shown["--out"].required
    # A switch is only ever switched on, unless it says how to switch it off.
    assert (shown["--amp"].secondary_opts, shown["--chart"].secondary_opts) == ([], ["--no-chart"])


def test_a_command_gets_what_was_said() -> None:
    assert run("x", "--out", "y") == Learn(Path("x"), out=Path("y"))
    found = run("x", "--out=y", "--columns", "a,b", "--amp", "--epochs", "3", "--rows", "8", "--ledger=l", "--no-chart")
    given = {"number_columns": "a,b", "amp": True, "epochs": 3.0, "rows": 8, "ledger": "l", "chart": False}
    assert found == Learn(Path("x"), out=Path("y"), **given)


def test_the_package_runs_as_a_program(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """``python -m privmix``."""
    from privmix import __version__

    # A test that imports every module leaves it behind, and runpy warns of a module that is run twice.
    monkeypatch.delitem(sys.modules, "privmix.__main__", raising=False)
    monkeypatch.setattr(sys, "argv", ["privmix", "--version"])
    with pytest.raises(SystemExit, match="0"):
        runpy.run_module("privmix", run_name="__main__")
    assert __version__ in capsys.readouterr().out
