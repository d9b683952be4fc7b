"""Options that belong to designs, as their dataclasses declare them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import Field, dataclass
from typing import Annotated, Any

import typer

from privmix.cli.verb import option
from privmix.fields import bare, hints_of
from privmix.plans import Design, all_designs


def design_list() -> str:
    """The names of all designs, for help."""
    return _listed([design.name for design in all_designs()], "or")


@dataclass(frozen=True)
class GivenDesign:
    """A design's name, and the options that the user gave, whichever design they belong to.

    :class:`privmix.planning.ReleaseConfig` refuses those of others.

    Attributes:
        name: as the user wrote it, or the default.
        options: by name.
    """

    name: str | None
    options: Mapping[str, Any]


class DesignOptions:
    """The options of every design that is known, those from other packages too, by the designs that have them.

    In a verb: ``design: Annotated[GivenDesign, DesignOptions(default="poisson")]``.

    Args:
        default: the design where none is named, or None.
        more: that the help of ``--design`` says before the names.
        names: of options by those of the fields, where a verb has another use for the field's name.
    """

    def __init__(self, default: str | None = "poisson", *, more: str = ": ", **names: str) -> None:
        self._default, self._more, self._renamed = default, more, names
        # Option -> field.
        self._names: dict[str, str] = {}

    def parameters(self, taken: set[str]) -> list[inspect.Parameter]:
        """See :class:`privmix.cli.verb.Group`."""
        chosen = typer.Option("--design", help=f"Design{self._more}{design_list()}.")
        kind: Any = str if self._default is not None else str | None
        annotation = Annotated[kind, chosen]
        named = inspect.Parameter(
            "design", inspect.Parameter.KEYWORD_ONLY, default=self._default, annotation=annotation
        )
        owners: dict[tuple[str, Any], list[type[Design[Any]]]] = {}
        found: dict[tuple[str, Any], Field[Any]] = {}
        for design in all_designs():
            hints = {name: bare(hint) for name, hint in hints_of(design).items()}
            for item in design.options():
                key = (item.name, hints[item.name])
                owners.setdefault(key, []).append(design)
                found.setdefault(key, item)
        parameters, taken = [named], {*taken, "design"}
        for (name, hint), item in found.items():
            designs = owners[name, hint]
            wanted = self._renamed.get(name, name)
            if wanted in taken:
                # A design from elsewhere may call its option as another is called already.
                wanted = f"{designs[0].name}_{name}".replace("-", "_")
            taken.add(wanted)
            self._names[wanted] = name
            panel = f"Design{'s' * (len(designs) > 1)}: {_listed([design.name for design in designs], 'and')}"
            parameters.append(option(item, hint, item.default, name=wanted, panel=panel))
        return parameters

    def value(self, values: dict[str, Any], context: typer.Context) -> GivenDesign:
        """See :class:`privmix.cli.verb.Group`."""
        taken = {name: values.pop(name) for name in self._names}
        given = {self._names[name]: _read(value) for name, value in taken.items() if _given(context, name)}
        return GivenDesign(values.pop("design"), given)


def _read(value: Any) -> Any:
    """A number, where an option that takes a word or a number was given one."""
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value


def _given(context: typer.Context, parameter: str) -> bool:
    source = context.get_parameter_source(parameter)
    return source is not None and source.name != "DEFAULT"


def _listed(names: list[str], word: str) -> str:
    """``"a, b or c"``."""
    *first, last = names
    return f"{', '.join(first)} {word} {last}" if first else last
