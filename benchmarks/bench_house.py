"""The house in numbers: files, lines, imports and circles, of the core and of the research wing, beside a checkout.

python benchmarks/bench_house.py [CHECKOUT...]
"""

from __future__ import annotations

import ast
import io
import statistics
import subprocess
import sys
import tokenize
from collections import Counter
from pathlib import Path
from typing import Any, Final

import common

HERE: Final = Path(__file__).parents[1]
FEW_LINES: Final = 80
PACKAGES: Final = "packages"


def module_of(path: Path, source: Path) -> str:
    return ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")


def code_lines(tree: ast.Module, lines: list[str]) -> int:
    """Lines that are neither blank, nor a comment, nor part of a docstring."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    told: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, kinds) and ast.get_docstring(node, clean=False) is not None:
            first = node.body[0]
            told |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return sum(
        1
        for number, line in enumerate(lines, 1)
        if line.strip() and not line.strip().startswith("#") and number not in told
    )


def import_lines(tree: ast.Module) -> int:
    return sum(
        (node.end_lineno or node.lineno) - node.lineno + 1
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
    )


def own_lines(tree: ast.Module) -> int:
    """Lines of imports of the package's own modules."""
    return sum(
        (node.end_lineno or node.lineno) - node.lineno + 1
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "privmix"
    )


def comment_lines(text: str) -> int:
    """Lines with a comment for people; ``noqa`` and ``type: ignore`` are for tools."""
    found = (one for one in tokenize.generate_tokens(io.StringIO(text).readline) if one.type == tokenize.COMMENT)
    return sum(not one.string.startswith(("# noqa", "# type:", "# pragma")) for one in found)


def by_rule(path: Path, text: str) -> bool:
    """Whether a file stands alone by rule: a package has a face, and a verb and a variant have one file each."""
    return path.name == "__init__.py" or path.parts[1] in ("cli", "commands") or ".register" in text


def imports(tree: ast.Module, modules: set[str]) -> set[str]:
    """Modules of the package that are named by an import, inside functions and for type checkers too."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found & modules


def in_circles(arrows: dict[str, set[str]]) -> int:
    """How many groups of modules there are each of which leads to all others of it."""

    def reached(start: str) -> frozenset[str]:
        found: set[str] = set()
        left = [start]
        while left:
            new = arrows.get(left.pop(), set()) - found
            found |= new
            left += new
        return frozenset(found)

    ends = {name: reached(name) for name in arrows}
    return len({frozenset(b for b in ends[a] if a in ends.get(b, ())) for a in arrows if a in ends[a]})


def measured(checkout: Path) -> dict[str, dict[str, Any]]:
    source = checkout / "src"
    files = {path: path.read_text(encoding="utf-8") for path in sorted((source / "privmix").rglob("*.py"))}
    trees = {path: ast.parse(text) for path, text in files.items()}
    faces = {module_of(path, source) for path in files if path.name == "__init__.py"}
    modules = {module_of(path, source) for path in files} - faces
    found = {}
    for part in ("core", "research"):
        own = [path for path in files if ("research" in path.relative_to(source).parts) == (part == "research")]
        if not own:
            continue
        lines = {path: files[path].splitlines() for path in own}
        code = sum(code_lines(trees[path], lines[path]) for path in own)
        names = {module_of(path, source): path for path in own if path.name != "__init__.py"}
        arrows = {name: imports(trees[path], modules) - {name} for name, path in names.items()}
        floors = {
            (name.split(".")[1], end.split(".")[1])
            for name, ends in arrows.items()
            for end in ends
            if name.count(".") > 1 and end.count(".") > 1 and name.split(".")[1] != end.split(".")[1]
        }
        sizes = [len(each) for each in lines.values()]
        found[part] = {
            "files": len(own),
            "lines": sum(sizes),
            "code lines": code,
            "comments, share of code, %": round(100 * sum(map(comment_lines, (files[path] for path in own))) / code, 1),
            "imports, share of code, %": round(100 * sum(import_lines(trees[path]) for path in own) / code, 1),
            "of which of privmix's own modules, %": round(100 * sum(own_lines(trees[path]) for path in own) / code, 1),
            f"files of fewer than {FEW_LINES} lines": sum(size < FEW_LINES for size in sizes),
            "of which faces, verbs and variants of a registry": sum(
                len(lines[path]) < FEW_LINES and by_rule(path.relative_to(source), files[path]) for path in own
            ),
            "median file, lines": statistics.median(sizes),
            "pairs of floors": len(floors),
            "circles, lazy and typed imports too": in_circles(arrows),
            PACKAGES: dict(code_by_package(own, source, trees, lines)),
        }
    return found


def code_by_package(
    own: list[Path], source: Path, trees: dict[Path, ast.Module], lines: dict[Path, list[str]]
) -> Counter[str]:
    """Code lines of each package; files beside the packages are one."""
    found: Counter[str] = Counter()
    for path in own:
        first, *rest = path.relative_to(source / "privmix").parts
        found[first if rest else "beside the packages"] += code_lines(trees[path], lines[path])
    return found


def packages(runs: list[dict[str, Any]]) -> str:
    """Code lines of the core by package, the largest first."""
    by_run = [run["core"].pop(PACKAGES) for run in runs]
    for run in runs:
        run.get("research", {}).pop(PACKAGES, None)
    names = sorted({name for one in by_run for name in one}, key=lambda name: -by_run[-1].get(name, 0))
    rows = [[name, *(f"{one.get(name, 0):,}" for one in by_run)] for name in names]
    return common.table(["package of the core, code lines", *(run["commit"] for run in runs)], rows)


def main() -> None:
    checkouts = [*map(Path, sys.argv[1:]), HERE]
    runs = []
    for checkout in checkouts:
        commit = subprocess.run(
            ["git", "-C", str(checkout), "rev-parse", "--short=8", "HEAD"], capture_output=True, text=True, check=True
        ).stdout.strip()
        runs.append({"commit": commit, **measured(checkout)})
    by_package = packages(runs)
    columns = [(run, part) for run in runs for part in ("core", "research") if part in run]
    rows = [[name, *(f"{run[part][name]:,}" for run, part in columns)] for name in runs[-1]["core"]]
    header = ["", *(f"{part}, {run['commit']}" for run, part in columns)]
    settings = {"lines": "of Python under src; code without blanks, comments and docstrings"}
    tests = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in (HERE / "tests").rglob("*.py"))
    tables = [common.table(header, rows), f"Lines of tests: {tests:,}.", by_package]
    common.save("house", "The house in numbers", settings, runs, tables)


if __name__ == "__main__":
    main()
