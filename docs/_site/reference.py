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

# The packages whose `__init__` lends names, and no other; the first holds what most people need.
PACKAGES = (
    "privmix",
    "privmix.designs",
    "privmix.accounting",
    "privmix.planning",
    "privmix.data",
    "privmix.certificate",
)


# Names of the first package by task, the most frequent task first.
TASKS: dict[str, str] = {
    "Release": "release forecast plan check spec extract_features series Release TableSpec DataCheck"
    " ExtractedFeatures Columns",
    "Train on a release": "fit predict evaluate sample transform evaluate_table load Model ReleaseClassifier"
    " DiscriminantClassifier TwoStageClassifier ThreeStageClassifier SecondMomentsClassifier NoiseAwareRidgeClassifier"
    " GeneralizedKLClassifier Predictions Evaluation SampledTable TableEvaluation",
    "Verify": "verify inspect report audit attack replay",
    "Train a private model": "train export DPClassifier",
    "Share": "sign keygen",
    "Keep a budget": "Ledger ledger_total",
    "Compute epsilon": "epsilon delta calibrate PrivacyCost Calibration Adjacency Event Gaussian Laplace PoissonSampled"
    " FixedSizeSampled ClusterSampled Allocated NormalWeighted Bounded Composed Repeated",
    "Extend": "designs",
    "Errors": "PrivmixError InvalidInput BudgetExceeded MissingExtra StorageError UnsupportedEvent NotPrivateWarning",
}


def first_line(thing: Any) -> str:
    """What a docstring begins with, as one line."""
    return " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())


@cache
def documented(package: str) -> dict[str, Any]:
    """Public names with docstrings of their own."""
    module = importlib.import_module(package)
    return {name: getattr(module, name) for name in sorted(module.__all__)}


def tasks(package: str) -> dict[str, list[str]]:
    """Names of a package under the headings of its page.

    Raises:
        ValueError: a name of the first package has no task.
    """
    names = documented(package)
    if package == PACKAGES[0]:
        found = {title: words.split() for title, words in TASKS.items()}
        if missing := names.keys() ^ {name for listed in found.values() for name in listed}:
            raise ValueError(f"docs/_site/reference.py: TASKS and {package}.__all__ differ by {sorted(missing)}")
        return found
    found: dict[str, list[str]] = {"Functions": [], "Classes": [], "Values and modules": []}
    for name, thing in names.items():
        kind = (
            "Classes" if inspect.isclass(thing) else "Functions" if inspect.isroutine(thing) else "Values and modules"
        )
        found[kind].append(name)
    return {title: listed for title, listed in found.items() if listed}


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
    """A page in reStructuredText: a table of the names for each task, then each of them in the same order."""
    lines = [f"``{package}``", "=" * (len(package) + 4), "", f".. automodule:: {package}", "   :no-members:", ""]
    entries = ["Details", "-------", ""]
    for title, names in tasks(package).items():
        lines += [title, "-" * len(title), "", ".. list-table::", "   :widths: 30 70", ""]
        for name in names:
            thing = documented(package)[name]
            home = home_of(thing, name, package)
            if inspect.ismodule(thing):
                lines += [f"   * - :mod:`{name} <{thing.__name__}>`", f"     - {first_line(thing)}"]
                continue
            kind = "class" if inspect.isclass(thing) else "func" if callable(thing) else "data"
            own = inspect.isclass(thing) or inspect.isroutine(thing)
            lines += [
                f"   * - :py:{kind}:`{name} <{home}.{name}>`",
                f"     - {first_line(thing) if own else _value(thing)}",
            ]
            if home == package:
                entries += _entry(package, name, thing)
        lines += [""]
    return "\n".join([*lines, *entries])


def _entry(package: str, name: str, thing: Any) -> list[str]:
    if not (inspect.isclass(thing) or inspect.isroutine(thing)):
        return [f".. py:data:: {package}.{name}", "", f"   {_value(thing)}", ""]
    if inspect.isclass(thing):
        return [f".. autoclass:: {package}.{name}", "   :members:", "   :show-inheritance:", ""]
    return [f".. autofunction:: {package}.{name}", ""]


def _value(thing: Any) -> str:
    names = list(thing) if isinstance(thing, dict | tuple | list) else []
    return ("Holds " + ", ".join(f"``{name}``" for name in names) + ".") if names else "A type or a registry."


def command_pages() -> dict[str, str]:
    """The list of commands, as the help groups them, and a page for each: what ``--help-all`` prints."""
    root = command(app)
    context = root.context_class(root, info_name="privmix")
    groups: dict[str, list[str]] = {}
    pages = {}
    for name in root.list_commands(context):
        _, found, _ = root.resolve_command(context, [name])
        helps = dict(_helps(found, found.context_class(found, info_name=name, parent=context)))
        parts = [f"# privmix {name}", ""]
        for title, text in helps.items():
            parts += [f"## {title}", ""] if title != f"privmix {name}" else []
            parts += ["```text", text, "```", ""]
        pages[name] = "\n".join(parts)
        first = (found.help or "").strip().split("\n\n")[0].replace("\n", " ")
        groups.setdefault(found.rich_help_panel or "Other", []).append(f"| [{name}]({name}.md) | {first} |")
    lines = ["# Commands", "", "`privmix COMMAND --help` prints the main options, `--help-all` prints all of them."]
    lines += ["Options from a file, exit codes: [command line](../../command-line.md).", ""]
    for title, rows in groups.items():
        lines += [f"## {title}", "", "| command | purpose |", "|---|---|", *rows, ""]
    return {"index": "\n".join([*lines, "```{toctree}", ":hidden:", "", *pages, "```", ""]), **pages}


def _helps(found: Any, context: Any) -> Iterator[tuple[str, str]]:
    context.meta["help_all"], context.terminal_width = True, 88
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
    for name, text in command_pages().items():
        written(GENERATED / "commands" / f"{name}.md", text)


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
