"""Import graph of src and tests, read by ``ast``. Imports inside functions and module names in strings count."""

from __future__ import annotations

import ast
import re
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path

_ROOTS = {"privmix": "src/privmix", "tests": "tests"}
# Commands, designs and scripts name modules in strings: "privmix.engine.rows:ReleaseEngine".
_NAMED = re.compile(r"\b(?:privmix|tests)(?:\.\w+)+")
# Top folders: files that name one of them read its files.
_INPUTS = ("docs", "benchmarks")


class ImportGraph:
    """Files of a checkout and the files that each of them uses."""

    def __init__(self, root: Path) -> None:
        paths = [path for folder in _ROOTS.values() for path in sorted((root / folder).rglob("*.py"))]
        self._modules = {path.relative_to(root).as_posix(): _Module(path.read_text(encoding="utf-8")) for path in paths}
        self._folders = {folder.as_posix() for file in self._modules for folder in Path(file).parents}
        self.uses = {file: self._used(file, module) - {file} for file, module in self._modules.items()}

    @property
    def tests(self) -> list[str]:
        """Test files."""
        return [file for file in self._modules if file.startswith("tests/") and Path(file).name.startswith("test_")]

    def distances(self, changed: Iterable[str]) -> dict[str, int]:
        """Imports from each file to the nearest changed file; 0 for changed files and the tests of changed modules."""
        users: dict[str, set[str]] = {}
        for file, used in self.uses.items():
            for one in used:
                users.setdefault(one, set()).add(file)
        found, waiting = dict[str, int](), deque[str]()
        for path in sorted(set(changed)):
            for start in (path, *self._readers(path)):
                if start not in found:
                    found[start] = 0
                    waiting.append(start)
        mirrors = {self.mirror(path) for path in changed}
        while waiting:
            file = waiting.popleft()
            for user in sorted(users.get(file, ())):
                if user not in found:
                    found[user] = found[file] + 1
                    waiting.append(user)
        return found | {mirror: 0 for mirror in mirrors if mirror is not None}

    def mirror(self, file: str) -> str | None:
        """Test file of a module, by its own name, otherwise by the name of its folder."""
        if not file.startswith("src/privmix/") or not file.endswith(".py"):
            return None
        parts = Path(file).relative_to("src/privmix").with_suffix("").parts
        names = (parts[:-1], parts[:-2]) if parts[-1] == "__init__" else (parts, parts[:-1])
        for *folders, name in filter(None, names):
            for place in (folders, folders[:1]):
                test = "/".join(["tests", *place, f"test_{name.strip('_')}.py"])
                if test in self._modules:
                    return test
        return None

    def _readers(self, path: str) -> set[str]:
        """Files that read a changed file which is not a module."""
        top, name, folder = path.split("/")[0], path.rsplit("/", 1)[-1], path.rpartition("/")[0]
        if top in ("src", "tests") and path.endswith(".py"):
            return set()
        names = {path, name} | ({top} if top in _INPUTS else set())
        found = {file for file, module in self._modules.items() if module.texts & names}
        if top in ("src", "tests") and not found:
            while folder and not found:
                found = {file for file in self._modules if file.rpartition("/")[0] == folder}
                folder = folder.rpartition("/")[0]
        return found

    def _used(self, file: str, module: _Module) -> set[str]:
        # The conftest.py of each folder; that of all tests is left out.
        parts = file.split("/")[:-1]
        depths = range(2, len(parts) + 1) if parts[0] == "tests" else ()
        found = {"/".join([*parts[:depth], "conftest.py"]) for depth in depths} & set(self._modules)
        for dotted in module.dotted:
            found |= self._resolved(dotted)
        return found

    def _resolved(self, dotted: str) -> set[str]:
        """Files of a dotted name: its module and, where a lazy package exports the name, the package."""
        found, (first, *rest) = set[str](), dotted.split(".")
        place = _ROOTS.get(first)
        if place is None:
            return found
        for _ in range(2 * len(rest) + 2):
            if not rest:
                break
            if f"{place}/{rest[0]}.py" in self._modules:
                return found | {f"{place}/{rest[0]}.py"}
            if f"{place}/{rest[0]}" in self._folders:
                place, rest = f"{place}/{rest[0]}", rest[1:]
                continue
            package = f"{place}/__init__.py"
            export = self._modules[package].exports.get(rest[0]) if package in self._modules else None
            if export is None:
                break
            found.add(package)
            first, *rest = [*export.split("."), *rest[1:]]
            place = _ROOTS.get(first, "")
        return found | ({f"{place}/__init__.py"} & set(self._modules))


class _Module:
    """Names that a module uses; its syntax tree is not kept."""

    # texts: string constants other than docstrings; exports: name -> dotted name, of a lazy package.

    def __init__(self, source: str) -> None:
        tree = ast.parse(source)
        nodes = list(_nodes(tree))
        prose = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        constants = [node.value for node in nodes if isinstance(node, ast.Constant) and id(node) not in prose]
        self.texts = {value for value in constants if isinstance(value, str)}
        self.dotted = {named for text in self.texts for named in _NAMED.findall(text)}
        aliases = dict[str, str]()
        for node in nodes:
            if isinstance(node, ast.Import):
                self.dotted |= {alias.name for alias in node.names}
                aliases |= {
                    alias.asname or alias.name.split(".")[0]: alias.name if alias.asname else alias.name.split(".")[0]
                    for alias in node.names
                }
            elif isinstance(node, ast.ImportFrom):
                aliases |= _imported(node)
                self.dotted |= set(_imported(node).values())
        for node in nodes:
            # pm.release, where pm is a lazy package.
            if isinstance(node, ast.Attribute) and (chain := _chain(node)) and chain[0] in aliases:
                self.dotted.add(".".join((aliases[chain[0]], *chain[1:])))
        for_types = [one for node in tree.body if isinstance(node, ast.If) and _for_types(node) for one in node.body]
        self.exports = dict[str, str]()
        for statement in (*tree.body, *for_types):
            if isinstance(statement, ast.ImportFrom):
                self.exports |= _imported(statement)


def _imported(node: ast.ImportFrom) -> dict[str, str]:
    """Name -> dotted name."""
    return {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names if node.level == 0}


def _nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but imports for type checkers, which never run."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += node.orelse if isinstance(node, ast.If) and _for_types(node) else ast.iter_child_nodes(node)


def _for_types(node: ast.If) -> bool:
    return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _chain(node: ast.Attribute) -> list[str]:
    names: list[str] = []
    inner: ast.AST = node
    while isinstance(inner, ast.Attribute):
        names.append(inner.attr)
        inner = inner.value
    return [inner.id, *reversed(names)] if isinstance(inner, ast.Name) else []
