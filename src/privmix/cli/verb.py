"""Commands on the command line: flags and help from the fields of a dataclass, and what it finds, printed."""

from __future__ import annotations

import inspect
import json
import re
import sys
import types
import warnings
from collections.abc import Callable
from dataclasses import MISSING, Field
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Final, Union, get_args, get_origin

import typer

from privmix.cli.console import err, out, plain, progress_bars, tell_spent, with_passphrase
from privmix.cli.flags import with_flags
from privmix.cli.frame import OPTIONS, TerminalCommand
from privmix.commands.base import Command
from privmix.errors import Caution
from privmix.fields import NotImported, bare, hints_of
from privmix.options import full_text, in_order
from privmix.packages import torch_as_extra

_ONLY: Final = inspect.Parameter.KEYWORD_ONLY
_CONTEXT: Final = "_context"
_WORDS: Final = {bool: None, int: "N", float: "N", Path: "FILE"}
# Metavars by name, of values that are neither a name nor, by their type, a number or a file.
_SHAPES: Final = {
    name: metavar
    for metavar, names in {
        "DATA": "data public proxy reference synthetic pool validation held_out control",
        "FILE": "class_descriptions schema",
        "FOLDER": "release",
        "K": "classes",
        "N": "epsilon",
        "NAMES": "columns",
        "TEXT": "assume canaries clean_success csv engine epsilons head mixup_degrees poisoned "
        "regularisation replay_for text",
        "URL": "ledger",
    }.items()
    for name in names.split()
}


def option(item: Field[Any], hint: Any) -> inspect.Parameter:
    words, default = item.metadata, _default(item)
    kind = list[str] | None if "several" in words else _simple(hint, default)
    flag, off = words.get("flag") or (item.name.replace("_", "-") if kind is bool else None), words.get("off")
    several, text = words.get("several"), with_flags(full_text(item, python=False))
    if words.get("argument"):
        # The text names the base of a folder or file.
        info: Any = typer.Argument(help=text, show_default=False, metavar=several)
    else:
        bare_kind: Any = next((one for one in (get_args(kind) or (kind,)) if one is not type(None)), kind)
        info = typer.Option(
            *([f"--{flag}{f'/--{off}-{flag}' if off else ''}"] if flag else []),
            help=text,
            rich_help_panel=None if words.get("common") else words.get("panel"),
            metavar=several or _metavar(item.name, bare_kind, text),
        )
    usual = inspect.Parameter.empty if default is MISSING else default
    return inspect.Parameter(item.name, _ONLY, default=usual, annotation=Annotated[kind, info])


def _metavar(name: str, kind: Any, text: str) -> str | None:
    if kind in (bool, int, float):
        return _WORDS[kind]
    return _SHAPES.get(name) or ("FOLDER" if kind is Path and "older" in text else _WORDS.get(kind, "NAME"))


def _default(item: Field[Any]) -> Any:
    if item.metadata.get("needed"):
        return MISSING
    if "shown" in item.metadata:
        shown = item.metadata["shown"]
        return shown.value if isinstance(shown, Enum) else shown
    factory: Any = item.default_factory
    return item.default if factory is MISSING else factory()


def add_command(group: typer.Typer, kind: type[Command[Any]], panel: str | None = None) -> None:
    """Make a dataclass of options a command of ``group``; ``panel``: heading in help, None for the first."""
    group.command(kind.words(), cls=TerminalCommand, rich_help_panel=panel or None)(running(kind))


def running(kind: type[Command[Any]]) -> Callable[..., Any]:
    """Return Typer's callback for a command: it makes the dataclass of the options, runs it and prints the result."""
    # As the callback of a group it does nothing where one of the group's commands is called.

    hints = hints_of(kind)
    items = [item for item in in_order(kind) if not item.metadata.get("python")]

    def run(**said: Any) -> None:
        context = said.pop(_CONTEXT)
        if context.invoked_subcommand is not None:
            return
        try:
            _carry_out(kind(**{item.name: said[item.name] for item in items}), said["json_output"])
        except KeyboardInterrupt as stop:
            # Typer makes an exit code of it, which carries nothing.
            tell_spent(stop)
            raise

    as_json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
    parameters = [
        *(option(item, hints[item.name]) for item in items),
        inspect.Parameter("json_output", _ONLY, default=False, annotation=as_json),
        *OPTIONS.values(),
        inspect.Parameter(_CONTEXT, _ONLY, annotation=typer.Context),
    ]
    run.__module__ = kind.__module__
    run.asked = kind  # type: ignore[attr-defined]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    # The sections after these are for Python.
    told = re.split(r"\n\n(?=(?:Formal guarantees|Raises|Example):\n)", inspect.cleandoc(kind.__doc__ or ""))[0]
    flags = {item.name: f"--{item.metadata.get('flag', item.name.replace('_', '-'))}" for item in in_order(kind)}
    example = f"Examples:\n{kind.example}" if "\n" in kind.example else f"Example: {kind.example}"
    run.__doc__ = with_flags(f"{told}\n\n{example}", flags)
    return run


def _carry_out(asked: Command[Any], json_output: bool) -> None:
    asked = with_passphrase(asked)
    percent, prints = getattr(asked, "count_is_private", False), getattr(asked, "prints", True)
    with progress_bars(quiet=not prints, percent=percent) as progress, warnings.catch_warnings():
        warnings.simplefilter("always", Caution)
        warnings.showwarning = _warned  # type: ignore[assignment]
        with torch_as_extra():
            found = asked.run(progress)
    if not prints:
        return
    if (place := getattr(asked, "record", None)) is not None:
        # Imported here: few commands measure.
        from privmix.jobs.recording import command_line

        command = command_line(sys.argv[1:], private=found.measurement.private)
        err.print(f"record: {plain(found.keep(place, command))}", soft_wrap=True)
    tell(found, json_output)
    if not json_output and (then := asked.then(found)) is not None:
        out.print(f"next: {plain(then)}", soft_wrap=True)
    if code := getattr(found, "exit_code", 0):
        raise typer.Exit(code)


_others: Final = warnings.showwarning


def _warned(message: Warning | str, category: type[Warning], *place: Any) -> None:
    """Print what the owner should know; what libraries warn of is shown as Python shows it."""
    if issubclass(category, Caution):
        err.print(f"[yellow]warning:[/] {plain(with_flags(str(message)))}", soft_wrap=True)
    else:
        _others(message, category, *place)


def tell(found: Any, json_output: bool) -> None:
    cautions = getattr(found, "cautions", ())
    for line in cautions:
        err.print(f"[yellow]WARNING:[/] {plain(with_flags(line))}", soft_wrap=True)
    heeded = getattr(found, "warnings", ())
    if json_output:
        typer.echo(json.dumps(found.to_dict(), indent=2))
    else:
        title, facts = found.shown()
        if (document := getattr(found, "document", None)) is not None:
            # For a file: as it is.
            out.file.write(document)
            facts = {}
        else:
            out.print(plain(title), soft_wrap=True)
        for name, value in facts.items():
            # `next` is a call of Python; the next command follows below.
            if name != "next" and not ((heeded and name == "warnings") or (cautions and name == "WARNING")):
                text = f"{value:.4g}" if isinstance(value, float) else str(value)
                text = text if getattr(found, "verbatim", False) else with_flags(text)
                out.print(f"  {plain(name)}: {plain(text)}", soft_wrap=True)
        for line in found.details:
            out.print(f"- {plain(with_flags(line))}", soft_wrap=True)
    for line in heeded:
        err.print(f"[yellow]warning:[/] {plain(with_flags(line))}", soft_wrap=True)


def _simple(hint: Any, default: Any) -> Any:
    """Return a type that Typer can read from a word: a path or text if the hint has one, since both hold any value."""
    hint = bare(hint)
    several = get_origin(hint) in (Union, types.UnionType)
    members = [one for one in get_args(hint) if one is not type(None)] if several else [hint]
    known = [one for one in members if one not in (Any, NotImported)]
    kind = next((one for one in (Path, str) if one in known), known[0] if known else str)
    kind = str if isinstance(kind, type) and issubclass(kind, Enum) else kind
    return kind | None if type(None) in get_args(hint) or default is None else kind
