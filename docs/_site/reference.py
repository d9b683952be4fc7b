"""Reference pages: the public names of each package, from their docstrings, and what ``--help`` says of every verb."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from sphinx.application import Sphinx

from _site.pages import GENERATED, written
from privmix.cli.lazy_verbs import command
from privmix.cli.main import app

# Public packages with one line each on what they are for; the first holds what most people need.
PACKAGES = (
    "privmix",
    "privmix.designs",
    "privmix.accounting",
    "privmix.plans",
    "privmix.planning",
    "privmix.data",
    "privmix.features",
    "privmix.procedural",
    "privmix.engine",
    "privmix.releases",
    "privmix.publication",
    "privmix.learning",
    "privmix.training",
    "privmix.certificate",
    "privmix.ledger",
)


def first_line(thing: Any) -> str:
    """What a docstring begins with, as one line."""
    return " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())


@cache
def documented(package: str) -> dict[str, Any]:
    """Public names with docstrings of their own."""
    module = importlib.import_module(package)
    return {name: getattr(module, name) for name in sorted(module.__all__)}


def home_of(thing: Any, name: str, package: str) -> str:
    """The package whose page describes a name: the first that exports it."""
    for other in PACKAGES:
        if (
            getattr(importlib.import_module(other), name, None) is thing
            and name in importlib.import_module(other).__all__
        ):
            return other
    return package


def package_page(package: str) -> str:
    """A page in reStructuredText: a table of the names, then each of them."""
    lines = [f"``{package}``", "=" * (len(package) + 4), "", f".. automodule:: {package}", "   :no-members:", ""]
    entries = []
    lines += [".. list-table::", "   :widths: 30 70", "   :header-rows: 1", "", "   * - name", "     - what it is"]
    for name, thing in documented(package).items():
        home = home_of(thing, name, package)
        if inspect.ismodule(thing):
            lines += [f"   * - :mod:`{name} <{thing.__name__}>`", f"     - {first_line(thing)}"]
            continue
        kind = "class" if inspect.isclass(thing) else "func" if callable(thing) else "data"
        own = inspect.isclass(thing) or inspect.isroutine(thing)
        lines += [
            f"   * - :py:{kind}:`{name} <{home}.{name}>`",
            f"     - {first_line(thing) if own else 'A constant.'}",
        ]
        if home == package:
            entries += _entry(package, name, thing)
    return "\n".join([*lines, "", *entries])


def _entry(package: str, name: str, thing: Any) -> list[str]:
    if not (inspect.isclass(thing) or inspect.isroutine(thing)):
        return [f".. py:data:: {package}.{name}", "", f"   {_value(thing)}", ""]
    if inspect.isclass(thing):
        return [f".. autoclass:: {package}.{name}", "   :members:", "   :show-inheritance:", ""]
    return [f".. autofunction:: {package}.{name}", ""]


def _value(thing: Any) -> str:
    names = list(thing) if isinstance(thing, dict | tuple | list) else []
    return ("Holds " + ", ".join(f"``{name}``" for name in names) + ".") if names else "A type, or a registry."


def commands_page() -> str:
    """What ``--help-all`` says of each command."""
    lines = [
        "# Command line",
        "",
        "`privmix COMMAND --help` shows the options that matter most, `--help-all` all of them, as this page does.",
        "Options from a file: [the command line](../command-line.md). Examples: [how to](../index.md#how-to).",
        "",
    ]
    root = command(app)
    for title, text in sorted(_helps(root, root.context_class(root, info_name="privmix"))):
        lines += [f"## {title}", "", "```text", text, "```", ""]
    return "\n".join(lines)


def _helps(found: Any, context: Any) -> Iterator[tuple[str, str]]:
    context.meta["help_all"], context.terminal_width = True, 100
    yield context.command_path, found.get_help(context)
    for name in found.list_commands(context) if hasattr(found, "list_commands") else ():
        _, inner, _ = found.resolve_command(context, [name])
        yield from _helps(inner, inner.context_class(inner, info_name=name, parent=context))


def make() -> None:
    """Write the pages."""
    for package in PACKAGES:
        written(GENERATED / "api" / f"{package}.rst", package_page(package) + "\n")
    lines = ["Python", "======", "", "``import privmix as pm``: most of what people need is in the first of these.", ""]
    lines += [".. toctree::", "   :maxdepth: 1", "", *(f"   {package}" for package in PACKAGES)]
    written(GENERATED / "api" / "index.rst", "\n".join(lines) + "\n")
    written(GENERATED / "commands.md", commands_page())


# A star that begins a word, or a bar: markup in reStructuredText, plain in a docstring.
_MARK = re.compile(r"(?<![\w\\])\*(?=\w)|\|")


def _escaped(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are read as text: shapes such as (n, *shape) and norms such as |x| mean no markup."""
    for place, line in enumerate(lines):
        parts = re.split(r"(``.*?``|:\w+:`[^`]*`)", line)
        parts[::2] = [
            re.sub(r"(?<![\w\\])\*(?=\w)|\|", lambda found: "\\" + found.group(), part) for part in parts[::2]
        ]
        lines[place] = "".join(parts)


def _left_out(app: Sphinx, what: str, name: str, thing: Any, skip: bool, options: Any) -> bool | None:
    """What scikit-learn adds to each estimator for itself."""
    return True if re.fullmatch(r"set_\w+_request", name) else None


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", _escaped)
    app.connect("autodoc-skip-member", _left_out)
    app.connect("builder-inited", lambda _: make())
    return {"parallel_read_safe": True}
