"""Options say what they are once: docstrings and help show the same text."""

import ast
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "privmix"


def classes_with_options() -> list[tuple[str, str]]:
    """Module and name of each class in whose body an option stands."""
    found = []
    # Of a command Python's function says it.
    paths = [path for place in ("jobs", "research") for path in (SOURCE / place).rglob("*.py") if path.stem != "verb"]
    for path in sorted(paths):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and any(
                isinstance(line, ast.AnnAssign) and "option(" in ast.unparse(line.value or line) for line in node.body
            ):
                module = ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)
                found.append((module, node.name))
    return found


OPTIONS = classes_with_options()
assert len(OPTIONS) > 15


@pytest.mark.parametrize(("module", "name"), OPTIONS)
def test_a_docstring_has_the_text_of_every_field(module: str, name: str) -> None:
    kind = getattr(import_module(module), name)
    assert is_dataclass(kind)
    for item in fields(kind):
        if item.init and "help" in item.metadata:
            assert f"    {item.name}: {item.metadata['help']}" in (kind.__doc__ or "")
