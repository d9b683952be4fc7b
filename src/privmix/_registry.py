"""Registries: the variants of one thing, each in a file that no other file names.

A variant is a class that its file registers, with a ``name`` and texts that are plain literals:

    @STRATEGIES.register
    class LoopGradients(GradientStrategy):
        name: ClassVar[str] = "loop"

The registry lists its package's files, and those of other packages by entry points. Help reads files without running
them.
"""

import ast
import importlib
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, TypeVar, cast

from privmix.errors import InvalidInput

Variant = TypeVar("Variant")
Registered = TypeVar("Registered")
# A method, or a statement outside of the class: its literals end there.
_METHOD = re.compile(r"    (?:@|def |async )|[^\s)]")


class Registry(Generic[Variant]):
    """Classes by name: first those of a package's own files, then those of other packages, each part sorted by name."""

    # what: a variant's name in messages. package: where variants are, with commas. group: of entry points. by: the
    # decorator, such as ``LEARNERS.register``, where other registries have variants in the same packages. ended: the
    # allowed value, and the reason, by the name of a variant that only earlier versions have.

    def __init__(
        self, what: str, package: str, group: str, by: str = "", ended: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self._what, self._package, self._group, self._by, self._ended = what, package, group, by, ended
        self._known: dict[str, Variant] = {}
        self._ordered: tuple[Variant, ...] | None = None
        self._looked = False

    def register(self, variant: Registered) -> Registered:
        """Register a variant by its name; a class decorator. Raises InvalidInput for a name in use."""
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
        return (cast(Any, variant).name for variant in self.all())

    def __getitem__(self, name: Any) -> Variant:
        """Return the variant of that name, or raise InvalidInput. Only the file that has it is imported."""
        # Also where another package came first: its variant of the same name is refused.
        if isinstance(name, str) and not self._looked:
            for module, source in _files(self._package, self._by).items():
                if f'"{name}"' in source and name in (one.get("name") for one in _variants(source, self._by)):
                    importlib.import_module(module)
        if isinstance(name, str) and (name in self._known or name in tuple(self)):
            return self._known[name]
        if isinstance(name, str) and name in self._ended:
            raise InvalidInput(self._what, name, self._ended[name])
        raise InvalidInput(self._what, name, "one of " + ", ".join(self))


@cache
def literals_of(package: str, by: str = "", group: str = "") -> tuple[Mapping[str, Any], ...]:
    """Return the literal attributes of the variants in a package's files and in files that entry points name."""
    # For fast help: files are read and not run, and only the package is imported. Empty group: its own variants alone.
    own = [one for source in _files(package, by).values() for one in _variants(source, by)]
    others = [one for source in _elsewhere(group) for one in _variants(source, by) if "name" in one] if group else []
    return tuple(one for part in (own, others) for one in sorted(part, key=lambda said: str(said["name"])))


def options_of(package: str, by: str, group: str) -> dict[str, type[Any]]:
    """Return each variant's dataclass of options by name (``options = "module:name"``), without importing variants."""
    named = {said["name"]: said["options"] for said in literals_of(package, by, group) if said.get("options")}
    return {name: behind(place) for name, place in named.items()}


def behind(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


def _variants(source: str, by: str) -> Iterator[dict[str, Any]]:
    lines, decorator = source.splitlines(), re.compile(f"@{_decorator(by)}")
    for start in (place for place, line in enumerate(lines) if decorator.fullmatch(line)):
        first = next((place for place in range(start, len(lines)) if lines[place].startswith("class ")), None)
        if first is None:
            continue
        # Up to the first method: parsing whole files would take a third of the time of `--help`.
        end = next((place for place in range(first + 1, len(lines)) if _METHOD.match(lines[place])), len(lines))
        try:
            node = ast.parse("\n".join([*lines[first:end], "    pass"])).body[0]
        except SyntaxError:
            # A text in the class has lines that begin like code.
            node = ast.parse("\n".join(lines[first:])).body[0]
        assert isinstance(node, ast.ClassDef)
        yield _literals(node)


def _elsewhere(group: str) -> Iterator[str]:
    """Yield sources of modules that other packages name; an unreadable one is left out and fails where it is used."""
    for point in entry_points(group=group):
        with suppress(ImportError, AttributeError, OSError, ValueError, SyntaxError):
            spec = find_spec(point.module)
            source = Path(str(spec and spec.origin)).read_text(encoding="utf-8")
            ast.parse(source)
            yield source


def entry_points(group: str) -> Any:
    return _installed(tuple(sys.path)).select(group=group)


@cache
def _installed(path: tuple[str, ...]) -> Any:
    # Reads the metadata of every package on sys.path.
    return metadata.entry_points()


@cache
def _files(packages: str, by: str) -> dict[str, str]:
    """Return module -> source, of the packages' files that register something; others are not imported to find out."""
    sources = {}
    for package in packages.split(","):
        spec = find_spec(package)
        for place in map(Path, (spec and spec.submodule_search_locations) or ()):
            for path in sorted(place.rglob("*.py")):
                module = ".".join((package, *path.relative_to(place).with_suffix("").parts))
                sources[module.removesuffix(".__init__")] = path.read_text(encoding="utf-8")
    line = re.compile(f"^@{_decorator(by)}$", re.MULTILINE)
    return {module: source for module, source in sources.items() if line.search(source)}


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
