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
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from privmix.errors import InvalidInput

Variant = TypeVar("Variant")
Registered = TypeVar("Registered")


class Registry(Generic[Variant]):
    """Classes by name: those of a package's own files, then those from elsewhere, each in the order of their names.

    Args:
        what: a variant is called in messages.
        package: in whose files its own variants are, those of folders in it too; or several with commas.
        group: of entry points, by which other packages name modules that register theirs.
        by: its decorator, such as ``LEARNERS.register``, where other registries have variants in these packages.

    Example:
        >>> from privmix.plans.registry import DESIGNS
        >>> DESIGNS["poisson"].__name__, "moments" in DESIGNS
        ('Poisson', True)
    """

    def __init__(self, what: str, package: str, group: str, by: str = "") -> None:
        self._what, self._package, self._group, self._by = what, package, group, by
        self._known: dict[str, Variant] = {}
        self._ordered: tuple[Variant, ...] | None = None
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
        self._ordered = None
        return variant

    def all(self) -> tuple[Variant, ...]:
        """Every variant that is known; their files are imported when one is first asked for, and not before."""
        if not self._looked:
            # First, since what is imported now may ask, too.
            self._looked = True
            for module in _files(self._package, self._by):
                importlib.import_module(module)
            for found in entry_points(group=self._group):
                found.load()
        if self._ordered is None or len(self._ordered) != len(self._known):
            files = _files(self._package, self._by)
            own = {name for name, one in self._known.items() if getattr(one, "__module__", "") in files}
            order = sorted(self._known, key=lambda name: (name not in own, name))
            self._ordered = tuple(self._known[name] for name in order)
        return self._ordered

    def __iter__(self) -> Iterator[str]:
        """Their names."""
        return (cast(Any, variant).name for variant in self.all())

    def __getitem__(self, name: Any) -> Variant:
        """The variant of that name.

        Raises:
            InvalidInput: there is none.
        """
        known = self.all()
        if isinstance(name, str) and name in self._known:
            return self._known[name]
        raise InvalidInput(self._what, name, "one of " + ", ".join(cast(Any, one).name for one in known))


@cache
def literals_of(package: str, by: str = "", group: str = "") -> tuple[Mapping[str, Any], ...]:
    """What the variants in a package's files say of themselves in literals, attribute by attribute.

    For help that can't wait: their files are read and not run, so nothing is imported but the package. Of entry points
    of ``group``, the file that they name is read, too.

    Args:
        package: as of :class:`Registry`, like ``by``.
        by: its decorator.
        group: of entry points, whose files are read likewise; empty: the package's own variants alone.

    Example:
        >>> [said["name"] for said in literals_of("privmix.training.gradients")]
        ['closed-form', 'ghost', 'loop', 'vmap']
    """
    own = [one for source in _files(package, by).values() for one in _variants(source, by)]
    others = [one for source in _elsewhere(group) for one in _variants(source, by) if "name" in one] if group else []
    return (*sorted(own, key=lambda said: str(said["name"])), *others)


def options_of(package: str, by: str, group: str) -> dict[str, type[Any]]:
    """The dataclass of each variant's options, by the variant's name, where it says one: ``options = "module:name"``.

    Their files are imported, and those of the variants are not.
    """
    named = {said["name"]: said["options"] for said in literals_of(package, by, group) if said.get("options")}
    return {name: behind(place) for name, place in named.items()}


def behind(place: str) -> Any:
    """What ``"module:name"`` names; imported when it is asked for.

    Example:
        >>> behind("privmix._registry:behind") is behind
        True
    """
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


def _variants(source: str, by: str) -> Iterator[dict[str, Any]]:
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef) and any(_registers(one, by) for one in node.decorator_list):
            yield _literals(node)


def _elsewhere(group: str) -> Iterator[str]:
    """Sources of modules that other packages name; what can't be read is left out here, and fails where it is used."""
    for point in entry_points(group=group):
        with suppress(ImportError, AttributeError, OSError, ValueError, SyntaxError):
            spec = find_spec(point.module)
            source = Path(str(spec and spec.origin)).read_text(encoding="utf-8")
            ast.parse(source)
            yield source


@cache
def _files(packages: str, by: str) -> dict[str, str]:
    """Module -> source, of the packages' files that register something; others are not imported to find out."""
    sources = {}
    for package in packages.split(","):
        spec = find_spec(package)
        for place in map(Path, (spec and spec.submodule_search_locations) or ()):
            for path in sorted(place.rglob("*.py")):
                module = ".".join((package, *path.relative_to(place).with_suffix("").parts))
                sources[module.removesuffix(".__init__")] = path.read_text(encoding="utf-8")
    line = re.compile(f"^@{_decorator(by)}$", re.MULTILINE)
    return {module: source for module, source in sources.items() if line.search(source)}


def _brought(group: str) -> dict[str, str]:
    """Module -> source, of those that entry points of a group name; none of them is imported, nor what they lie in."""
    sources = {}
    for point in entry_points(group=group) if group else ():
        top, *parts = point.module.split(".")
        spec = find_spec(top)
        places = [Path(place, *parts) for place in (spec and spec.submodule_search_locations) or ()]
        if not parts and spec is not None and spec.origin is not None:
            places = [Path(spec.origin).with_suffix("")]
        for file in (file for place in places for file in (place.with_suffix(".py"), place / "__init__.py")):
            if file.is_file():
                sources[point.module] = file.read_text(encoding="utf-8")
    return sources


def _registers(decorator: ast.expr, by: str) -> bool:
    return re.fullmatch(_decorator(by), ast.unparse(decorator)) is not None


def _decorator(by: str) -> str:
    return re.escape(by) if by else r"(\w+\.)?register"


def _literals(node: ast.ClassDef) -> dict[str, Any]:
    said: dict[str, Any] = {}
    for line in node.body:
        targets = line.targets if isinstance(line, ast.Assign) else [getattr(line, "target", None)]
        value = getattr(line, "value", None)
        if len(targets) != 1 or value is None:
            continue
        pairs = [(targets[0], value)]
        if isinstance(targets[0], ast.Tuple) and isinstance(value, ast.Tuple):
            pairs = list(zip(targets[0].elts, value.elts, strict=False))
        for target, part in pairs:
            if isinstance(target, ast.Name):
                with suppress(ValueError):
                    said[target.id] = ast.literal_eval(part)
    return said
