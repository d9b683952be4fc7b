"""Options made of dataclasses: what is shown, what is taken, and what a verb gets."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pytest
import typer
from typer.main import get_command

from privmix.cli.design_options import DesignOptions, GivenDesign
from privmix.cli.verb import Take, verb
from privmix.plans import all_designs

if TYPE_CHECKING:
    from privmix.features import Extractor


@dataclass(frozen=True)
class Choices:
    place: Path = field(metadata={"help": "A folder."})
    epochs: float | None = field(default=None, metadata={"help": "Passes; more with `amp`.", "panel": "Learning"})
    number_columns: str | Sequence[str] | None = field(default=None, metadata={"flag": "columns"})
    amp: bool = False
    rows: int = 7


@dataclass(frozen=True)
class Order:
    features: str | Extractor = "pixels"
    ledger: Any = None
    out: Path | None = None
    choices: Choices = field(default_factory=lambda: Choices(Path("here"), rows=9))
    hidden: object = None


app = typer.Typer()
got: dict[str, Any] = {}


@verb(app)
def learn(
    choices: Choices,
    design: Annotated[GivenDesign, DesignOptions("poisson", noise="noise_law")],
    noise: bool = False,
    noise_share: float = 0.5,
) -> None:
    """A verb."""
    got.update(choices=choices, design=design, noise=noise)


@verb(app, "few-fields")
def few_fields(
    design: Annotated[GivenDesign, DesignOptions(None)],
    choices: Annotated[Choices, Take("rows", "place")] = Choices(Path("here"), amp=True, rows=9),
    max_weight: float = 1.0,
) -> None:
    """Another, which has a design's option for itself."""
    got.update(choices=choices, design=design)


@verb(app)
def order(
    context: typer.Context, asked: Annotated[Order, Take(without=["hidden"], needed=["out"])], seed: int = 0
) -> None:
    """A third, whose options have options."""
    got.update(asked=asked, seed=seed, verb=context.info_name)


def options(name: str) -> dict[str, Any]:
    command = get_command(app).commands[name]  # type: ignore[attr-defined]
    return {option.opts[0]: option for option in command.params}


def run(*words: str) -> dict[str, Any]:
    got.clear()
    get_command(app)(list(words), standalone_mode=False)
    return dict(got)


def test_every_field_is_an_option_with_its_help_and_default() -> None:
    shown = options("learn")
    assert list(shown)[:5] == ["--place", "--epochs", "--columns", "--amp", "--rows"]
    assert (shown["--epochs"].help, shown["--epochs"].rich_help_panel) == ("Passes; more with --amp.", "Learning")
    assert shown["--place"].required
    # A switch is only ever switched on.
    assert shown["--amp"].secondary_opts == []
    assert run("learn", "--place", "x")["choices"] == Choices(Path("x"))
    found = run("learn", "--place", "x", "--columns", "a,b", "--amp", "--epochs", "3", "--rows", "8", "--noise")
    assert found["choices"] == Choices(Path("x"), 3.0, "a,b", True, 8)
    assert found["noise"]


def test_some_fields_and_other_defaults() -> None:
    shown = options("few-fields")
    assert {"--epochs", "--columns", "--amp"}.isdisjoint(shown)
    assert (shown["--rows"].default, shown["--rows"].required, shown["--place"].required) == (9, False, False)
    assert run("few-fields", "--rows", "3")["choices"] == Choices(Path("here"), amp=True, rows=3)


def test_options_of_options() -> None:
    shown = options("order")
    words = ["features", "ledger", "out", "place", "epochs", "columns", "amp", "rows", "seed"]
    assert list(shown)[:9] == [f"--{word}" for word in words]
    assert shown["--out"].required
    assert shown["--rows"].default == 9
    found = run("order", "--out", "x", "--ledger", "sqlite:///l", "--epochs", "2", "--seed", "1")
    choices = Choices(Path("here"), 2.0, rows=9)
    assert found == {"asked": Order("pixels", "sqlite:///l", Path("x"), choices), "seed": 1, "verb": "order"}


def test_designs_bring_their_options() -> None:
    shown = options("learn")
    for design in all_designs():
        for item in design.options():
            option = shown["--noise-law" if item.name == "noise" else f"--{item.name.replace('_', '-')}"]
            assert option.help == item.metadata["help"]
            assert design.name in option.rich_help_panel
    assert shown["--expected-classes"].rich_help_panel == "Design: hierarchical"
    assert run("learn", "--place", "x")["design"] == GivenDesign("poisson", {})
    given = run("learn", "--place", "x", "--design", "fixed", "--noise-law", "laplace", "--mixup-degree", "64")
    # What was said is passed on, also where it is the default; the release refuses what is of another design.
    assert given["design"] == GivenDesign("fixed", {"noise": "laplace", "mixup_degree": 64})
    assert not given["noise"]


def test_a_verb_s_own_option_goes_before_a_design_s() -> None:
    assert options("few-fields")["--random-weight-max-weight"].rich_help_panel == "Design: random-weight"
    found = run("few-fields", "--max-weight", "0.5", "--random-weight-max-weight", "0.25")
    assert found["design"] == GivenDesign(None, {"max_weight": 0.25})


OUTSIDE = """
from dataclasses import dataclass, field
from privmix.designs import Poisson
from privmix.plans import register

@register
@dataclass(frozen=True)
class Rare(Poisson):
    name = "rare"
    rarity: float = field(default=0.25, metadata={"help": "Rare: how rare."})
"""


@pytest.fixture
def outside(tmp_path: Path) -> dict[str, str]:
    """The environment in which a package with a design of its own is installed."""
    (tmp_path / "rare.py").write_text(OUTSIDE)
    installed = tmp_path / "rare-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: rare\nVersion: 1\n")
    (installed / "entry_points.txt").write_text("[privmix.designs]\nrare = rare\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    return {**os.environ, "PYTHONPATH": path, "COLUMNS": "200", "TERM": "dumb"}


def test_a_design_from_elsewhere_has_its_options_in_help(outside: dict[str, str]) -> None:
    program = "from privmix.cli.main import run; import sys; sys.exit(run(['release', '--help-all']))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=outside, check=False)
    assert done.returncode == 0, done.stderr
    panel = done.stdout.split("Design: rare")[1].split("Design")[0]
    assert "--rarity" in panel
    assert "Rare: how rare." in panel
    assert "fixed, hierarchical, poisson, random-weight and rare" in done.stdout


def test_the_version_is_an_option_and_a_verb() -> None:
    from privmix import __version__
    from tests.cli.helpers import privmix

    for word in ("--version", "version"):
        outcome = privmix(word)
        assert (outcome.code, outcome.out.strip()) == (0, __version__)


def test_the_package_runs_as_a_program(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """``python -m privmix``."""
    from privmix import __version__

    # A test that imports every module leaves it behind, and runpy warns of a module that is run twice.
    monkeypatch.delitem(sys.modules, "privmix.__main__", raising=False)
    monkeypatch.setattr(sys, "argv", ["privmix", "version"])
    with pytest.raises(SystemExit, match="0"):
        runpy.run_module("privmix", run_name="__main__")
    assert __version__ in capsys.readouterr().out
