"""Verbs whose options are the fields of dataclasses, with the help that stands beside each field.

A parameter of a verb whose type is a dataclass becomes as many options as that has fields, and the verb gets the
object, made of what the user said:

    @verb(app)
    def evaluate(model: Folder, columns: Columns, json_output: Json = False) -> None:

The help of a field is in its metadata, where it may have a panel and, if it is not ``--NAME``, a flag, too:
``field(default=0, metadata={"help": "With `pool`.", "panel": "Views", "flag": "k"})``. A switch is only ever
switched on.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass, replace
from functools import wraps
from typing import Annotated, Any, Final, Protocol, TypeVar, Union, get_args, get_origin, get_type_hints

import typer

from privmix.cli.flags import with_flags

Function = TypeVar("Function", bound=Callable[..., Any])
_CONTEXT: Final = "_context"


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


@dataclass(frozen=True)
class Only:
    """In ``Annotated[Dataclass, Only("rows", "seed")]``: these of its fields are options, in this order."""

    names: tuple[str, ...]

    def __init__(self, *names: str) -> None:
        object.__setattr__(self, "names", names)


class Fields:
    """The fields of a dataclass as options.

    Args:
        kind: the dataclass.
        default: whose values are the options' defaults, in place of the dataclass's own.
        only: names of the fields, or None for all.
    """

    def __init__(self, kind: type[Any], default: Any = None, only: tuple[str, ...] | None = None) -> None:
        known = {item.name: item for item in fields(kind) if item.init}
        self._kind, self._default = kind, default
        self._fields = [known[name] for name in only or known]

    def parameters(self, taken: set[str]) -> list[inspect.Parameter]:
        """See :class:`Group`."""
        hints = get_type_hints(self._kind)
        given = {item.name: getattr(self._default, item.name) for item in self._fields if self._default is not None}
        return [option(item, hints[item.name], **given_default(item, given)) for item in self._fields]

    def value(self, values: dict[str, Any], context: typer.Context) -> Any:
        """See :class:`Group`."""
        said = {item.name: values.pop(item.name) for item in self._fields}
        return self._kind(**said) if self._default is None else replace(self._default, **said)


def given_default(item: Field[Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The default of a field in ``given``, if it has one there."""
    return {"default": given[item.name]} if item.name in given else {}


def option(
    item: Field[Any], hint: Any, *, name: str | None = None, panel: str | None = None, default: Any = MISSING
) -> inspect.Parameter:
    """An option for a field of a dataclass.

    Args:
        item: the field.
        hint: its type.
        name: of the option, if not the field's.
        panel: under which help shows it, if not the one in the field's metadata.
        default: in place of the field's.

    Example:
        >>> from dataclasses import field, make_dataclass
        >>> made = make_dataclass("Made", [("rows", int, field(default=3, metadata={"help": "To release."}))])
        >>> option(fields(made)[0], int).default
        3
    """
    words, kind = item.metadata, _simple(hint)
    name = name or item.name
    flag = words.get("flag") or (name.replace("_", "-") if kind is bool else None)
    info = typer.Option(
        *([f"--{flag}"] if flag else []),
        help=with_flags(words.get("help", "")),
        rich_help_panel=panel or words.get("panel"),
    )
    if default is MISSING:
        default = item.default
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if default is MISSING else default,
        annotation=Annotated[kind, info],
    )


def verb(group: typer.Typer, name: str | None = None) -> Callable[[Function], Function]:
    """Make a function a verb of ``group``; see above.

    Args:
        group: the application or a group of it.
        name: of the verb, if not the function's.
    """

    def register(function: Function) -> Function:
        group.command(name)(expanded(function))
        return function

    return register


def expanded(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as Typer takes it: with options in place of each parameter that is a group of them."""
    signature = inspect.signature(function, eval_str=True)
    groups = {name: found for name, one in signature.parameters.items() if (found := _group(one)) is not None}
    taken = set(signature.parameters) - set(groups)
    parameters: list[inspect.Parameter] = []
    for name, parameter in signature.parameters.items():
        inner = groups[name].parameters(taken) if name in groups else [parameter]
        parameters += [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in inner]
        taken |= {one.name for one in inner}
    asked = next((name for name, one in signature.parameters.items() if one.annotation is typer.Context), None)
    if asked is None:
        parameters.append(inspect.Parameter(_CONTEXT, inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context))

    @wraps(function)
    def run(**values: Any) -> Any:
        context = values.pop(_CONTEXT) if asked is None else values[asked]
        made = {name: group.value(values, context) for name, group in groups.items()}
        return function(**values, **made)

    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


def _group(parameter: inspect.Parameter) -> Group | None:
    """The group of options that a parameter stands for, if it does."""
    kind, *notes = (
        get_args(parameter.annotation) if get_origin(parameter.annotation) is Annotated else [parameter.annotation]
    )
    for note in notes:
        if hasattr(note, "parameters"):
            found: Group = note
            return found
    if not (isinstance(kind, type) and is_dataclass(kind)):
        return None
    only = next((note.names for note in notes if isinstance(note, Only)), None)
    return Fields(kind, None if parameter.default is parameter.empty else parameter.default, only)


def _simple(hint: Any) -> Any:
    """A type that Typer can read from a word: of several the text, since that may say everything."""
    if get_origin(hint) not in (Union, types.UnionType):
        return hint
    members = [member for member in get_args(hint) if member is not type(None)]
    kind = str if str in members else members[0]
    return kind | None if type(None) in get_args(hint) else kind
