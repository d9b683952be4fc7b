"""Registries: the variants of one thing, each in a file that nothing else names.

A variant is a class that its file registers, with a ``name`` and words about itself that are plain literals:

    @STRATEGIES.register
    class LoopGradients(GradientStrategy):
        name: ClassVar[str] = "loop"

The registry finds the files of its package by looking, and those of other packages by their entry points. Help lists
variants without importing them, as their files are read and not run.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Generic, TypeVar, cast

from privmix.errors import InvalidInput, check_choice

Variant = TypeVar("Variant")
Registered = TypeVar("Registered")
# A file that has this line registers something; the others are not imported to find out.
_REGISTERS: Final = re.compile(r"^@(\w+\.)?register$", re.MULTILINE)


class Registry(Generic[Variant]):
    """Classes by name: those of a package's own files in the order of their names, then those from elsewhere.

    Args:
        what: a variant is called in messages.
        package: in whose files its own variants are; it has no other registry.
        group: of entry points, by which other packages name modules that register theirs.

    Example:
        >>> from privmix.designs.registry import DESIGNS
        >>> DESIGNS["poisson"].__name__, "moments" in DESIGNS
        ('Poisson', True)
    """

    def __init__(self, what: str, package: str, group: str) -> None:
        self._what, self._package, self._group = what, package, group
        self._known: dict[str, Variant] = {}
        self._looked = False

    def register(self, variant: Registered) -> Registered:
        """Make a variant known by its name; a class decorator.

        Raises:
            InvalidInput: another variant has the name.
        """
        found = cast(Any, variant)
        name = found.name
        if self._known.get(name, found) is not found:
            raise InvalidInput(self._what, name, f"a name that no other {self._what} has")
        self._known[name] = found
        return variant

    def all(self) -> tuple[Variant, ...]:
        """Every variant that is known; their files are imported when one is first asked for, and not before."""
        if not self._looked:
            # First, since what is imported now may ask, too.
            self._looked = True
            for module in _files(self._package):
                importlib.import_module(module)
            for found in entry_points(group=self._group):
                found.load()
        own = {name for name, one in self._known.items() if getattr(one, "__module__", "") in _files(self._package)}
        return tuple(self._known[name] for name in [*sorted(own), *(name for name in self._known if name not in own)])

    def __iter__(self) -> Iterator[str]:
        """Their names."""
        return (cast(Any, variant).name for variant in self.all())

    def __getitem__(self, name: Any) -> Variant:
        """The variant of that name.

        Raises:
            InvalidInput: there is none.
        """
        return self._known[check_choice(self._what, name, self)]


@cache
def told(package: str) -> tuple[Mapping[str, Any], ...]:
    """What the variants in a package's files say of themselves in literals, attribute by attribute.

    For help that can't wait: their files are read and not run, so nothing is imported but the package.

    Example:
        >>> [said["name"] for said in told("privmix.training.gradients")]
        ['closed-form', 'ghost', 'loop', 'vmap']
    """
    found = []
    for source in _files(package).values():
        for node in ast.parse(source).body:
            if isinstance(node, ast.ClassDef) and any(_registers(one) for one in node.decorator_list):
                found.append(_literals(node))
    return tuple(sorted(found, key=lambda said: str(said["name"])))


@cache
def _files(package: str) -> dict[str, str]:
    """Module -> source, of the package's files that register something."""
    spec = find_spec(package)
    places = [(package, place) for place in (spec and spec.submodule_search_locations) or ()]
    # A variant may have a folder in the package.
    places += [
        (f"{package}.{part.name}", str(Path(place, part.name)))
        for _, place in tuple(places)
        for part in pkgutil.iter_modules([place])
        if part.ispkg
    ]
    sources = {
        f"{name}.{part.name}": Path(place, f"{part.name}.py").read_text(encoding="utf-8")
        for name, place in places
        for part in pkgutil.iter_modules([place])
        if not part.ispkg
    }
    return {module: source for module, source in sources.items() if _REGISTERS.search(source)}


def _registers(decorator: ast.expr) -> bool:
    return ast.unparse(decorator).rpartition(".")[2] == "register"


def _literals(node: ast.ClassDef) -> dict[str, Any]:
    said: dict[str, Any] = {}
    for line in node.body:
        targets = line.targets if isinstance(line, ast.Assign) else [getattr(line, "target", None)]
        value = getattr(line, "value", None)
        if len(targets) == 1 and isinstance(targets[0], ast.Name) and value is not None:
            with suppress(ValueError):
                said[targets[0].id] = ast.literal_eval(value)
    return said
