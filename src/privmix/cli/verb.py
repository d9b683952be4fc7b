"""Verbs whose options are the fields of dataclasses, with the help that stands beside each field.

A parameter of a verb whose type is a dataclass becomes as many options as that has fields, and the verb gets the
object, made of what the user said:

    @verb(app)
    def evaluate(model: Folder, columns: Columns, json_output: Json = False) -> None:

The help of a field is in its metadata, where it may have a panel and, if it is not ``--NAME``, a flag, too:
``field(default=0, metadata={"help": "With `pool`.", "panel": "Views", "flag": "k"})``. A switch is only ever
switched on, unless its metadata say what begins the flag that switches it off: ``"off": "no"``. A field with
``"python"`` there is for Python alone.
"""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass, replace
from enum import Enum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Final, Protocol, TypeVar, Union, get_args, get_origin

import typer

from privmix.cli.console import err, out, plain, print_json
from privmix.cli.flags import with_flags
from privmix.cli.frame import OPTIONS, TerminalCommand
from privmix.cli.passphrase import with_passphrase
from privmix.cli.progress import progress_bars
from privmix.cli.spending import tell_spent
from privmix.commands.base import Command
from privmix.fields import NotImported, bare, hints_of
from privmix.options import in_order

Function = TypeVar("Function", bound=Callable[..., Any])
_CONTEXT: Final = "_context"
_WORDS: Final = {bool: None, int: "NUMBER", float: "NUMBER", Path: "PATH"}


class Group(Protocol):
    """Several options that become one argument of a verb."""

    def parameters(self, taken: set[str]) -> list[inspect.Parameter]:
        """The options, as Typer takes them.

        Args:
            taken: names that the verb's other options have.
        """
        ...

    def value(self, values: dict[str, Any], context: typer.Context) -> Any:
        """The argument.

        Args:
            values: of all options, by name; those of the group are taken out.
            context: of the command.
        """
        ...


class Take:
    """In ``Annotated[Dataclass, Take("rows", "seed")]``: which of its fields are options.

    Args:
        names: these, in this order; where there are none, all.
        without: names of fields that are no options.
        needed: names of fields that must be given here, whatever their default.
    """

    def __init__(self, *names: str, without: Sequence[str] = (), needed: Sequence[str] = ()) -> None:
        self._names, self._without, self.needed = names, without, needed

    def of(self, kind: type[Any]) -> list[Field[Any]]:
        """The fields of ``kind`` that are options."""
        known = {
            item.name: item
            for item in (in_order(kind) if issubclass(kind, Command) else fields(kind))
            if item.init and item.name not in self._without and not item.metadata.get("python")
        }
        return [known[name] for name in self._names or known]


class Fields:
    """The fields of a dataclass as options, and those of dataclasses among them.

    Args:
        kind: the dataclass.
        default: whose values are the options' defaults, in place of the dataclass's own.
        take: which of them.
    """

    def __init__(self, kind: type[Any], default: Any = MISSING, take: Take | None = None) -> None:
        self._kind, self._default, self._take = kind, default, take or Take()
        self._hints, self._inner = hints_of(kind), {}
        for item in self._take.of(kind):
            hint, inner = bare(self._hints[item.name]), self._default_of(item)
            if isinstance(hint, type) and is_dataclass(hint):
                self._inner[item.name] = Fields(hint if inner is MISSING else type(inner), inner)

    def _default_of(self, item: Field[Any]) -> Any:
        if item.name in self._take.needed or item.metadata.get("needed"):
            return MISSING
        if self._default is not MISSING:
            return getattr(self._default, item.name)
        if "shown" in item.metadata:
            shown = item.metadata["shown"]
            return shown.value if isinstance(shown, Enum) else shown
        factory: Any = item.default_factory
        return item.default if factory is MISSING else factory()

    def parameters(self, taken: set[str]) -> list[inspect.Parameter]:
        """See :class:`Group`."""
        found: list[inspect.Parameter] = []
        for item in self._take.of(self._kind):
            inner = self._inner.get(item.name)
            found += (
                [option(item, self._hints[item.name], self._default_of(item))]
                if inner is None
                else inner.parameters(taken)
            )
        return found

    def value(self, values: dict[str, Any], context: typer.Context) -> Any:
        """See :class:`Group`."""
        said = {
            item.name: values.pop(item.name) if inner is None else inner.value(values, context)
            for item in self._take.of(self._kind)
            for inner in [self._inner.get(item.name)]
        }
        return self._kind(**said) if self._default is MISSING else replace(self._default, **said)


def option(
    item: Field[Any], hint: Any, default: Any = MISSING, *, name: str | None = None, panel: str | None = None
) -> inspect.Parameter:
    """An option for a field of a dataclass.

    Args:
        item: the field.
        hint: its type.
        default: of the option, if it has any.
        name: of the option, if not the field's.
        panel: under which help shows it, if not the one in the field's metadata.

    Example:
        >>> from dataclasses import field, make_dataclass
        >>> made = make_dataclass("Made", [("rows", int, field(default=3, metadata={"help": "To release."}))])
        >>> option(fields(made)[0], int, 3).default
        3
    """
    words, kind = item.metadata, _simple(hint, default)
    name = name or item.name
    flag, off = words.get("flag") or (name.replace("_", "-") if kind is bool else None), words.get("off")
    if "several" in words:
        kind = list[str] | None
    if words.get("argument"):
        # The base of a folder or file is said in the text.
        argument = typer.Argument(help=with_flags(words["help"]), show_default=False, metavar=words.get("several"))
        return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[kind, argument])
    info = typer.Option(
        *([f"--{flag}{f'/--{off}-{flag}' if off else ''}"] if flag else []),
        help=with_flags(words.get("help", "")),
        rich_help_panel=None if words.get("common") else panel or words.get("panel"),
        metavar=words.get("several"),
    )
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if default is MISSING else default,
        annotation=Annotated[kind, info],
    )


def help_of(kind: type[Any], field: str) -> str:
    """The help of one field of a dataclass, for a verb that has the option alone."""
    return with_flags(next(item for item in fields(kind) if item.name == field).metadata["help"])


def verb(group: typer.Typer, name: str | None = None, panel: str | None = None) -> Callable[[Function], Function]:
    """Make a function a verb of ``group``; see above.

    Args:
        group: the application or a group of it.
        name: of the verb, if not the function's.
        panel: heading under which help lists it; None: with most verbs.
    """

    def register(function: Function) -> Function:
        group.command(name, cls=TerminalCommand, rich_help_panel=panel)(expanded(function))
        return function

    return register


def add_command(group: typer.Typer, kind: type[Command[Any]], panel: str | None = None) -> None:
    """Make a dataclass of options a command of ``group``.

    Args:
        group: the application or a group of it.
        kind: the command.
        panel: heading under which help lists it; None: with most.
    """

    def run(asked: Command[Any], json_output: bool) -> None:
        asked = with_passphrase(asked)
        with progress_bars() as progress:
            found = asked.run(progress)
        if (place := getattr(asked, "record", None)) is not None:
            # Imported here: few commands measure, and recording takes what measures.
            from privmix.cli.recording import keep

            keep(found, place)
        tell(found, json_output)
        if not json_output and (then := asked.then(found)) is not None:
            out.print(f"next: {plain(then)}", soft_wrap=True)
        if code := getattr(found, "exit_code", 0):
            raise typer.Exit(code)

    json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
    only = inspect.Parameter.KEYWORD_ONLY
    asked = inspect.Parameter("asked", only, annotation=kind)
    as_json = inspect.Parameter("json_output", only, default=False, annotation=json)
    run.__module__ = kind.__module__
    run.__signature__ = inspect.Signature([asked, as_json])  # type: ignore[attr-defined]
    # What follows is for Python.
    told = re.split(r"\n\n(?=(?:Formal guarantees|Raises|Example):\n)", inspect.cleandoc(kind.__doc__ or ""))[0]
    flags = {item.name: f"--{item.metadata.get('flag', item.name.replace('_', '-'))}" for item in in_order(kind)}
    run.__doc__ = with_flags(f"{told}\n\nExample: {kind.example}", flags)
    group.command(kind.words(), cls=TerminalCommand, rich_help_panel=panel)(expanded(run))


def tell(found: Any, json_output: bool) -> None:
    """Print what a command found: a few facts, or JSON."""
    cautions = getattr(found, "cautions", ())
    for line in cautions:
        err.print(f"[yellow]WARNING:[/] {plain(with_flags(line))}", soft_wrap=True)
    if json_output:
        print_json(found.to_dict())
    else:
        warnings = getattr(found, "warnings", ())
        title, facts = found.shown()
        if (document := getattr(found, "document", None)) is not None:
            # For a file: as it is.
            out.file.write(document)
            facts = {}
        else:
            out.print(plain(title), soft_wrap=True)
        for name, value in facts.items():
            if not ((warnings and name == "warnings") or (cautions and name == "WARNING")):
                text = f"{value:.4g}" if isinstance(value, float) else str(value)
                out.print(f"  {plain(name)}: {plain(with_flags(text))}", soft_wrap=True)
        for line in found.details:
            out.print(f"- {plain(with_flags(line))}", soft_wrap=True)
        for line in warnings:
            err.print(f"[yellow]warning:[/] {plain(with_flags(line))}", soft_wrap=True)


def expanded(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as Typer takes it: with options in place of each parameter that is a group of them."""
    signature = inspect.signature(function, eval_str=True)
    groups = {name: found for name, one in signature.parameters.items() if (found := _group(one)) is not None}
    taken = {*signature.parameters, *OPTIONS} - set(groups)
    parameters: list[inspect.Parameter] = []
    for name, parameter in signature.parameters.items():
        inner = groups[name].parameters(taken) if name in groups else [parameter]
        parameters += [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in inner]
        taken |= {one.name for one in inner}
    parameters = [*map(_with_metavar, parameters), *OPTIONS.values()]
    asked = next((name for name, one in signature.parameters.items() if one.annotation is typer.Context), None)
    if asked is None:
        parameters.append(inspect.Parameter(_CONTEXT, inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context))

    @wraps(function)
    def run(**values: Any) -> Any:
        context = values.pop(_CONTEXT) if asked is None else values[asked]
        for name in OPTIONS:
            del values[name]
        made = {name: group.value(values, context) for name, group in groups.items()}
        try:
            return function(**values, **made)
        except KeyboardInterrupt as stop:
            # Typer makes an exit code of it, which carries nothing.
            tell_spent(stop)
            raise

    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


def _with_metavar(parameter: inspect.Parameter) -> inspect.Parameter:
    """The option with a plain word for its value, whatever its type is in Python."""
    kind, *notes = get_args(parameter.annotation) or (None,)
    for note in notes:
        if type(note).__name__ == "OptionInfo" and note.metavar is None:
            plain = next((one for one in (get_args(kind) or (kind,)) if one is not type(None)), kind)
            note.metavar = _WORDS.get(plain, "TEXT")
    return parameter


def _group(parameter: inspect.Parameter) -> Group | None:
    """The group of options that a parameter stands for, if it does."""
    annotation = parameter.annotation
    kind, *notes = get_args(annotation) if get_origin(annotation) is Annotated else [annotation]
    for note in notes:
        if hasattr(note, "parameters"):
            found: Group = note
            return found
    if not (isinstance(kind, type) and is_dataclass(kind)):
        return None
    take = next((note for note in notes if isinstance(note, Take)), None)
    return Fields(kind, MISSING if parameter.default is parameter.empty else parameter.default, take)


def _simple(hint: Any, default: Any) -> Any:
    """A type that Typer can read from a word: of several a path or a text, since these may say everything."""
    hint = bare(hint)
    several = get_origin(hint) in (Union, types.UnionType)
    members = [one for one in get_args(hint) if one is not type(None)] if several else [hint]
    known = [one for one in members if one not in (Any, NotImported)]
    kind = next((one for one in (Path, str) if one in known), known[0] if known else str)
    kind = str if isinstance(kind, type) and issubclass(kind, Enum) else kind
    return kind | None if type(None) in get_args(hint) or default is None else kind
