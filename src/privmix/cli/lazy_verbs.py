"""Groups of verbs that answer at once: a verb's module is imported when the verb is run or asked for its options."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group


@dataclass(frozen=True)
class Verb:
    """What a group says of a verb without importing it.

    Attributes:
        module: registers the verb when it is imported.
        help: the first paragraph of the verb's own help.
    """

    module: str
    help: str


class _Unread(TyperCommand):
    """Stands for a verb in lists and completions until the verb is needed."""

    def __init__(self, name: str, verb: Verb, group: Callable[[], TyperGroup], markup: Any) -> None:
        super().__init__(name, callback=_never, help=verb.help, rich_markup_mode=markup)
        self._module, self._group = verb.module, group

    def read(self) -> Any:
        """The verb itself."""
        importlib.import_module(self._module)
        return self._group().commands[self.name or ""]


def lazy_app(verbs: Mapping[str, Verb], **settings: Any) -> typer.Typer:
    """A Typer application or group whose ``verbs`` register themselves with it as usual, but when they are needed.

    Args:
        verbs: name -> verb, in the order in which help shows them.
        settings: of :class:`typer.Typer`.
    """

    class Group(TyperGroup):
        """The verbs that were imported, and a stand-in for each of the others."""

        def __init__(self, *, commands: Any = None, **rest: Any) -> None:
            super().__init__(commands={}, **rest)
            for name, verb in verbs.items():
                self.commands[name] = commands.get(name) or _Unread(name, verb, group, self.rich_markup_mode)

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            """Everything that does more with a verb than to name it comes by here."""
            name, command, rest = super().resolve_command(ctx, args)
            return name, command.read() if isinstance(command, _Unread) else command, rest

    def group() -> TyperGroup:
        return get_group(app)

    # A callback makes it a group, however few of its verbs are there yet.
    app = typer.Typer(cls=Group, **{"callback": _nothing, **settings})
    return app


def _nothing() -> None:
    """Run before every verb."""


def _never() -> NoReturn:
    raise AssertionError("a stand-in was run")
