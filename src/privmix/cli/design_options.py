"""Options that belong to designs, as their dataclasses declare them."""

from __future__ import annotations

from typing import Any

import typer

from privmix.designs import all_designs


def design_list() -> str:
    """The names of all designs, for help."""
    *names, last = (design.name for design in all_designs())
    return f"{', '.join(names)} or {last}"


def design_help(option: str) -> str:
    """Help on an option of some designs, in the words of the first that has it."""
    fields = (field for design in all_designs() for field in design.options() if field.name == option)
    return str(next(fields).metadata["help"])


def design_options(context: typer.Context, **renamed: str) -> dict[str, Any]:
    """The options of designs that the user gave, whichever design they belong to.

    Args:
        context: of the command, whose parameters are named as the options.
        renamed: parameters by the options that they are for, where names differ.
    """
    names = {field.name: None for design in all_designs() for field in design.options()}
    parameters = {name: renamed.get(name, name) for name in names}
    return {
        name: context.params[parameter]
        for name, parameter in parameters.items()
        if parameter in context.params and _given(context, parameter)
    }


def _given(context: typer.Context, parameter: str) -> bool:
    source = context.get_parameter_source(parameter)
    return source is not None and source.name != "DEFAULT"
