"""Groups of verbs that answer at once: a verb's module is imported when the verb is run or asked for its options."""
# Commands of other packages are looked up for lists and unknown names; help reads their source without running it.

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

from privmix.cli.frame import Frame
from privmix.cli.verb import add_command
from privmix.errors import InvalidInput

VERBS_GROUP: Final = "privmix.verbs"
"""Group of entry points: ``NAME`` is a verb of privmix, ``GROUP.NAME`` a verb of a group; each names a module."""


@dataclass(frozen=True)
class Verb:
    """Help that a group shows of a command without importing its module (or MODULE:NAME of a command)."""

    module: str
    help: str
    panel: str | None = None


class _Unread(TyperCommand):
    """Stands for a verb in lists and completions until the verb is needed."""

    def __init__(self, name: str, verb: Verb, app: typer.Typer, markup: Any) -> None:
        super().__init__(name, callback=_never, help=verb.help, rich_help_panel=verb.panel, rich_markup_mode=markup)
        self._module, self._app = verb.module, app

    def read(self) -> Any:
        module, _, kind = self._module.partition(":")
        imported = importlib.import_module(module)
        if hasattr(imported, kind):
            add_command(self._app, getattr(imported, kind), self.rich_help_panel)
        found = get_group(self._app).commands.get(self.name or "")
        if found is None or isinstance(found, _Unread):
            raise InvalidInput(f"verb {self.name}", self._module, "a module that registers it")
        return found


def lazy_app(verbs: Mapping[str, Verb], place: str = "", **settings: Any) -> typer.Typer:
    """Return an application, or the group ``place``, whose ``verbs`` (in the order of help) register when needed."""

    class Group(Frame, TyperGroup):
        """The verbs that were imported, and a stand-in for each of the others."""

        def __init__(self, *, commands: Any = None, **rest: Any) -> None:
            super().__init__(commands={}, **rest)
            for name, verb in verbs.items():
                known: Any = commands.get(name) or _Unread(name, verb, app, self.rich_markup_mode)
                known.rich_help_panel, self.commands[name] = verb.panel, known
            self.commands.update({name: command for name, command in commands.items() if name not in verbs})

        def list_commands(self, ctx: Any) -> list[str]:
            """Names of all commands, with those of other packages."""
            return [*verbs, *sorted(set(self._with_others().commands) - set(verbs))]

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            """Return the verb or its stand-in; who asks for one of privmix waits for no other package."""
            return self._having(cmd_name).commands.get(cmd_name)

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            """Everything that does more with a verb than to name it comes by here."""
            name, command, rest = TyperGroup.resolve_command(self._having(args[0]), ctx, args)
            return name, command.read() if isinstance(command, _Unread) else command, rest

        def _having(self, name: str) -> Group:
            return self if name in self.commands else self._with_others()

        def _with_others(self) -> Group:
            """Return a copy: which packages are installed may have changed when it is asked for again."""
            found = copy(self)
            found.commands = dict(self.commands)
            for name, verb in verbs_from_elsewhere(place).items():
                found.commands.setdefault(name, _Unread(name, verb, app, self.rich_markup_mode))
            return found

    # A callback makes it a group, however few of its verbs are there yet.
    app = typer.Typer(cls=Group, **{"callback": lambda: None, **settings})
    return app


def command(app: typer.Typer) -> Any:
    """Return the command line of an application with the verbs registered now, made once for each set of them."""
    return _command(app, *_registered(app))


def _registered(app: typer.Typer) -> Iterator[Any]:
    yield from app.registered_commands
    for group in app.registered_groups:
        yield group
        yield from _registered(group.typer_instance) if group.typer_instance else ()


@lru_cache(maxsize=1)
def _command(app: typer.Typer, *registered: Any) -> Any:
    return get_command(app)


def verbs_from_elsewhere(place: str = "") -> dict[str, Verb]:
    """Return the verbs of a group that installed packages bring, by name; none of their modules is imported."""
    # Who asks for a verb of privmix does not wait for this.
    from importlib.metadata import entry_points

    found = {}
    for point in sorted(entry_points(group=VERBS_GROUP), key=lambda point: point.name):
        group, _, name = point.name.rpartition(".")
        if group == place:
            found[name] = Verb(point.value, *_said_of(name, point.module))
    return found


def _said_of(verb: str, module: str) -> tuple[str, str | None]:
    """Return the first paragraph of a verb's help, and its heading, as the source of its module has them, if it has."""
    with suppress(OSError, SyntaxError, ValueError, ImportError):
        for node in ast.parse(_source(module)).body:
            if isinstance(node, ast.ClassDef) and node.name.lower() == verb.replace("-", ""):
                lines = [one for one in node.body if isinstance(one, ast.Assign)]
                panels = [one.value for one in lines if "panel" in map(ast.unparse, one.targets)]
                first = (ast.get_docstring(node) or "").split("\n\n")[0]
                panel = next((str(one.value) for one in panels if isinstance(one, ast.Constant)), None)
                return " ".join(first.split()), panel
    return "", None


def _source(module: str) -> str:
    """Return a module's source without importing the module or its packages."""
    top, *parts = module.split(".")
    spec = find_spec(top)
    places = [Path(place) for place in (spec and spec.submodule_search_locations) or ()]
    files = [place.joinpath(*parts) for place in places] if parts else [Path((spec and spec.origin) or "")]
    for file in files:
        for source in (file, file.with_name(f"{file.name}.py"), file / "__init__.py"):
            if source.is_file():
                return source.read_text(encoding="utf-8")
    raise ModuleNotFoundError(module)


def _never() -> NoReturn:
    raise AssertionError("a placeholder command was run")
