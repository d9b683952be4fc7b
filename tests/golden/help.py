"""The options of every command, with their panels and defaults, in a file a command: moved code keeps them.

``python -m tests.golden.help`` writes the files. Texts of help are left out.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import typer

from privmix.cli.frame import EVERY_COMMAND
from privmix.cli.main import app

FOLDER = Path(__file__).with_name("help")


def verbs() -> dict[tuple[str, ...], Any]:
    """Every command by its words, groups before what is in them."""
    root = typer.main.get_command(app)
    return dict(_within(root, click.Context(root), ()))


def file_of(words: tuple[str, ...]) -> str:
    return "-".join(("privmix", *words)) + ".txt"


def _within(command: Any, context: click.Context, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield words, command
    # By what it can do: Typer brings a copy of click, whose groups are none of click's own.
    if hasattr(command, "list_commands") and hasattr(command, "resolve_command"):
        for name in command.list_commands(context):
            _, found, _ = command.resolve_command(context, [name])
            yield from _within(found, click.Context(found, parent=context, info_name=name), (*words, name))


def options_of(command: Any) -> str:
    """A line for each option or argument of a command, under its panel."""
    panels: dict[str, list[str]] = {}
    for one in command.params:
        if one.rich_help_panel == EVERY_COMMAND:
            continue
        names = [one.name] if one.param_type_name == "argument" else [*one.opts, *one.secondary_opts]
        value = "..." if one.nargs < 0 or getattr(one, "multiple", False) else ""
        default = " (required)" if one.required else f" = {one.default}"
        line = f"  {' '.join([*names, *filter(None, [one.metavar])])}{value}{default}"
        panels.setdefault(one.rich_help_panel or "Options", []).append(line)
    return "".join(f"{title}\n" + "\n".join(lines) + "\n" for title, lines in panels.items())


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*.txt"):
        old.unlink()
    for words, command in verbs().items():
        (FOLDER / file_of(words)).write_text(options_of(command), encoding="utf-8")


if __name__ == "__main__":
    main()
