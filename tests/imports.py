"""Import graph of src and tests, by the names that stand in their text, wherever they stand."""

import re
from collections import deque
from collections.abc import Iterable
from pathlib import Path

_ROOTS = {"privmix": "src/privmix", "tests": "tests"}
# Commands, designs and scripts name modules in strings: "privmix.engine.rows:ReleaseEngine".
_NAMED = re.compile(r"\b(?:privmix|tests)(?:\.\w+)+|(?<=import )privmix\b")
_IMPORTED = re.compile(r"from ((?:privmix|tests)[\w.]*) import (\([^)]*\)|[^\n;]*)")
# Top folders: files that name one of them read its files.
_INPUTS = ("docs", "benchmarks")


class ImportGraph:
    """Files of a checkout and the files that each of them uses."""

    def __init__(self, root: Path) -> None:
        paths = [path for folder in _ROOTS.values() for path in sorted((root / folder).rglob("*.py"))]
        self._texts = {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in paths}
        self.uses = {file: self._used(file, text) - {file} for file, text in self._texts.items()}

    @property
    def tests(self) -> list[str]:
        """Test files."""
        return [file for file in self._texts if file.startswith("tests/") and Path(file).name.startswith("test_")]

    def distances(self, changed: Iterable[str]) -> dict[str, int]:
        """Imports from each file to the nearest changed file; 0 for changed files and the tests of changed modules."""
        users: dict[str, set[str]] = {}
        for file, used in self.uses.items():
            for one in used:
                users.setdefault(one, set()).add(file)
        found = {start: 0 for path in changed for start in (path, *self._readers(path))}
        mirrors = {mirror: 0 for path in changed if (mirror := self.mirror(path)) is not None}
        waiting = deque(found)
        while waiting:
            file = waiting.popleft()
            for user in users.get(file, set()) - set(found):
                found[user] = found[file] + 1
                waiting.append(user)
        return found | mirrors

    def mirror(self, file: str) -> str | None:
        """Test file of a module, by its own name, otherwise by the name of its folder."""
        if not file.startswith("src/privmix/") or not file.endswith(".py"):
            return None
        parts = Path(file).relative_to("src/privmix").with_suffix("").parts
        names = (parts[:-1], parts[:-2]) if parts[-1] == "__init__" else (parts, parts[:-1])
        for *folders, name in filter(None, names):
            for place in (folders, folders[:1]):
                test = "/".join(["tests", *place, f"test_{name.strip('_')}.py"])
                if test in self._texts:
                    return test
        return None

    def _readers(self, path: str) -> set[str]:
        """Files that read a changed file which is not a module."""
        top, name, folder = path.split("/")[0], path.rsplit("/", 1)[-1], path.rpartition("/")[0]
        if top in ("src", "tests") and path.endswith(".py"):
            return set()
        names = [path, name, *([top] if top in _INPUTS else [])]
        found = {file for file, text in self._texts.items() if any(f'"{one}"' in text for one in names)}
        while top in ("src", "tests") and folder and not found:
            found = {file for file in self._texts if file.rpartition("/")[0] == folder}
            folder = folder.rpartition("/")[0]
        return found

    def _used(self, file: str, text: str) -> set[str]:
        named = set(_NAMED.findall(text))
        for module, names in _IMPORTED.findall(text):
            named |= {f"{module}.{name}" for name in re.findall(r"\w+", names)}
        # The conftest.py of each folder; that of all tests is left out.
        shared = {f"{folder}/conftest.py" for folder in Path(file).parents} - {"tests/conftest.py"}
        return {found for name in named if (found := self._file_of(name))} | (shared & set(self._texts))

    def _file_of(self, name: str) -> str | None:
        """File of a dotted name: its module, or the nearest package that it lies in."""
        first, *rest = name.split(".")
        for length in range(len(rest), -1, -1):
            place = "/".join([_ROOTS[first], *rest[:length]])
            for file in (f"{place}.py", f"{place}/__init__.py"):
                if file in self._texts:
                    return file
        return None
