"""Editions of what results follow from, and whether a page is older than the present ones.

``tests/golden/substance.py`` counts the editions. A record keeps those of its runs.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).parent
KEPT = BENCHMARKS.parent / "tests" / "golden" / "substance.json"
# A script depends on an area if it imports or calls one of these.
USED = {
    "prices": ("privmix.accounting", "privmix.planning.ReleaseConfig", "privmix.training.trainer.Trainer"),
    "releases": ("privmix.designs", "privmix.engine", "privmix.releases.run.release_to_memory", "privmix.release"),
    "learners": ("privmix.learning", "privmix.designs.moments.learner", "privmix.fit"),
    "tables": ("privmix.learning.table_model", "privmix.sample"),
    "trainings": ("privmix.training", "privmix.train", "privmix.jobs.training"),
    "plans": ("privmix.planning.choose_design", "privmix.planning.choice"),
}
_HEAD = re.compile(r"^> Of commit .*, not rebuilt: .*\n\n", re.MULTILINE)


def read() -> dict[str, Any]:
    return json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}


def now() -> dict[str, int]:
    return {area: kept["edition"] for area, kept in read().items()}


def imported(script: Path) -> Iterator[str]:
    """Full names that a script takes from privmix, also through helper files next to it."""
    lent: dict[str, str] = {}
    tree = ast.parse(script.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{name.name}" for name in node.names)
        for module in _modules(node):
            helper = BENCHMARKS.joinpath(*module.split(".")).with_suffix(".py")
            if helper.exists() and module != "common" and not module.startswith("bench_"):
                yield from imported(helper)
        if isinstance(node, ast.Import):
            lent |= {name.asname or name.name: name.name for name in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in lent:
            yield f"{lent[node.value.id]}.{node.attr}"


def _modules(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [name.name for name in node.names]
    return [node.module] if isinstance(node, ast.ImportFrom) and node.module else []


def areas_of(script: Path) -> list[str]:
    """Areas that decide what a script measures."""
    names = {f"{name}." for name in imported(script)}
    return [area for area, used in USED.items() if any(name.startswith(f"{one}.") for one in used for name in names)]


def changed_since(page: Path) -> list[str]:
    """Areas that a page's script uses, and that have changed since the page's runs."""
    script = BENCHMARKS / f"bench_{page.stem}.py"
    record = json.loads(page.with_suffix(".json").read_text(encoding="utf-8"))
    then, on, kept = record.get("editions", {}), record["machine"]["date"], read()
    return [
        area
        for area in (areas_of(script) if script.exists() else [])
        if (then[area] != kept[area]["edition"] if area in then else on < kept[area]["since"])
    ]


def with_head(page: Path) -> str:
    """A page's text, stating at its head whether it was not rebuilt."""
    title, rest = _HEAD.sub("", page.read_text(encoding="utf-8")).split("\n\n", 1)
    areas = changed_since(page)
    if not areas:
        return f"{title}\n\n{rest}"
    ran = json.loads(page.with_suffix(".json").read_text(encoding="utf-8"))["machine"]
    words = f"> Of commit {ran['commit']} ({ran['date']}), not rebuilt: {', '.join(areas)} changed later."
    return f"{title}\n\n{words}\n\n{rest}"


def pages() -> list[Path]:
    return [page for page in sorted((BENCHMARKS / "results").glob("*.md")) if page.with_suffix(".json").exists()]
