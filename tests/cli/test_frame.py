"""Help on one screen, usage errors, and groups of commands: for every command at once."""

import contextlib
import io
import re
from importlib import import_module
from pathlib import Path

import pytest

from privmix import __version__
from privmix.cli import main
from privmix.cli.app import VERBS
from privmix.cli.frame import EVERY_COMMAND, example_of
from privmix.errors import REFUTED, InvalidInput, PrivmixError, StorageError
from tests.cli.helpers import privmix
from tests.golden.help import verbs
from tests.processes import run_in

COMMANDS = verbs()
ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "privmix"
# Python's names of types, and words of Typer for them.
TYPES = re.compile(r"<\w+>|\b(bool|str|int|float|list\[|PosixPath|INTEGER|None)\b")
READERS = ["Start", "Publish", "Use", "Review", "Share", "Research"]


def shown(*words: str, columns: int) -> str:
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as out:
        patch.setenv("COLUMNS", str(columns))
        assert main.run(list(words)) == 0
    return out.getvalue()


def options_of(command: object) -> list[str]:
    return [one.opts[0] for one in command.params if one.opts[0].startswith("--")]  # type: ignore[attr-defined]


@pytest.mark.parametrize("words", [words for words in COMMANDS if words], ids=" ".join)
def test_help_is_one_screen_and_all_of_it_is_there_when_asked(words: tuple[str, ...]) -> None:
    command = COMMANDS[words]
    short = shown(*words, "--help", columns=80)
    assert len(short.splitlines()) <= 40
    required = [one.opts[0] for one in command.params if one.required and one.opts[0].startswith("--")]
    assert all(f"  {flag}" in short for flag in required)
    assert short.splitlines()[0].startswith(f"Usage: privmix {' '.join(words)}")
    example = example_of(command)
    assert example is None or f"Example: {example.split(' --')[0]}" in short
    everything = [
        shown(*words, "--help-all", columns=width) for width in (80, 120) if "--help-all" in options_of(command)
    ]
    for text in [short, *everything]:
        assert not TYPES.search(text), TYPES.search(text)
    # Headings name all designs that have an option, and a list of examples has one a line.
    for text in (short, *everything[:1]):
        assert all(len(line) <= 80 or line.startswith(("Design", "privmix ")) for line in text.splitlines())
    for text in everything:
        assert all(re.search(rf"^  {flag}\b", text, re.MULTILINE) for flag in options_of(command))
    # Options that matter are about a dozen.
    assert short.count("\n  --") <= 22


def test_every_command_is_in_one_group_and_has_the_frame_s_options() -> None:
    text = shown("--help", columns=80)
    assert re.findall(r"^(\w+):$", text, re.MULTILINE) == ["Options", *READERS]
    assert {verb.panel for verb in VERBS.values()} == set(READERS[:-1])
    for name in VERBS:
        assert len(re.findall(rf"^  {name} ", text, re.MULTILINE)) == 1
    # Fields that a text of help names are flags in it.
    assert "Replace an existing --out" in shown("release", "--help-all", columns=120)
    for words, command in COMMANDS.items():
        frame = {one.name for one in command.params if one.rich_help_panel == EVERY_COMMAND}
        # Groups that do nothing by themselves have none.
        assert frame == (
            set() if words in ((), ("attack",), ("ledger",), ("series",)) else {"help_all", "config", "print_config"}
        )


def test_the_package_runs_as_a_program() -> None:
    program = "import runpy, sys; sys.argv = ['privmix', '--version']; runpy.run_module('privmix', run_name='__main__')"
    assert __version__ in run_in(Path(), program, timeout=60).stdout


def test_a_missing_option_shows_how_the_command_is_called() -> None:
    outcome = privmix("predict", "MODEL", "--data", "x")
    assert outcome.code == 2
    missing, usage, example = outcome.err.splitlines()
    assert "--out" in missing
    assert usage == "Usage: privmix predict MODEL --data DATA --out FILE [OPTIONS]"
    assert example.startswith("Example: privmix predict MODEL --data")


@pytest.mark.parametrize(
    ("wrong", "near"), [("--epsilo", "--epsilon"), ("--label-colum", "--label-column"), ("--xyzzy", None)]
)
def test_a_wrong_option_gets_the_nearest(wrong: str, near: str | None) -> None:
    outcome = privmix("release", wrong, "1")
    assert outcome.code == 2
    assert outcome.err.strip() == f"No such option: {wrong}" + (f". Did you mean {near}?" if near else "")


def test_the_page_lists_every_error_with_its_exit_code() -> None:
    modules = ("accounting.base", "folders", "world", "data.files", "engine.cluster", "ledger.pricing")
    for module in (*modules, "training.gradients.execution"):
        import_module(f"privmix.{module}")
    classes = {PrivmixError}.union(*(one.__subclasses__() for one in (PrivmixError, InvalidInput, StorageError)))
    own = {one.__name__: one.exit_code for one in classes if one.__module__.startswith("privmix.")}
    found = re.compile(rf"^class (\w+)\((?:{'|'.join(own)})\b", re.MULTILINE)
    written = {name for file in SOURCE.rglob("*.py") for name in found.findall(file.read_text("utf-8"))}
    assert written == set(own) - {"PrivmixError"}
    page = (ROOT / "docs" / "command-line.md").read_text("utf-8")
    rows = {name: int(code) for name, code in re.findall(r"^\| `(\w+)` \| (\d+) \|", page, re.MULTILINE)}
    assert rows == {name: own[name] for name in written}
    assert {f"\n| {code} |" in page for code in (0, REFUTED, *own.values())} == {True}
