"""What ``--help`` says of every verb, in a file a verb: code that moves must not move these.

``python -m tests.golden.help`` writes them anew. Boxes and columns are left out, so that a new option changes a line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import typer

from privmix.cli.main import app
from tests.cli.helpers import privmix

FOLDER = Path(__file__).with_name("help")


def verbs() -> list[tuple[str, ...]]:
    """Every verb, groups before what is in them."""
    root = typer.main.get_command(app)
    return list(_within(root, click.Context(root), ()))


def _within(command: click.Command, context: click.Context, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    yield words
    # By what it can do: Typer brings a copy of click, whose groups are none of click's own.
    if hasattr(command, "list_commands") and hasattr(command, "resolve_command"):
        for name in command.list_commands(context):
            _, found, _ = command.resolve_command(context, [name])
            yield from _within(found, click.Context(found, parent=context, info_name=name), (*words, name))


def file_of(verb: tuple[str, ...]) -> Path:
    """Where a verb's help is frozen."""
    return FOLDER / ("-".join(("privmix", *verb)) + ".txt")


def help_of(verb: tuple[str, ...]) -> str:
    """A verb's help, its boxes and columns apart."""
    said = privmix(*verb, "--help")
    assert said.code == 0, said.err
    lines = (re.sub(r" {2,}", "  ", line.strip(" ─╭╮╰╯│┌┐└┘|+")) for line in said.out.splitlines())
    text = "\n".join(line for line in lines if line) + "\n"
    # The name of the program, whoever runs it.
    return re.sub(r"^Usage: (python -m )?\S+", "Usage: privmix", text)


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*.txt"):
        old.unlink()
    for verb in verbs():
        file_of(verb).write_text(help_of(verb), encoding="utf-8")


if __name__ == "__main__":
    main()
