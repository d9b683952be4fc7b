"""Public names state their types, so that ``pyright --verifytypes privmix`` infers none of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import privmix

PLACE = Path(privmix.__file__).parent
# Checkers agree on the type of such a value.
PLAIN = (ast.Constant, ast.Name, ast.Attribute)


def untyped(tree: ast.Module) -> Iterator[str]:
    """Objects of a module, and attributes of its classes: those by call, by unpacking or by a bare ``ClassVar``."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            yield from (name for target in node.targets if (name := ast.unparse(target)).islower() and name[0] != "_")
        elif isinstance(node, ast.ClassDef) and node.name[0] != "_":
            typed = {ast.unparse(one.target) for one in ast.walk(node) if isinstance(one, ast.AnnAssign)}
            typed |= {f"self.{name}" for name in typed}
            for one in ast.walk(node):
                if isinstance(one, ast.AnnAssign) and ast.unparse(one.annotation) == "ClassVar":
                    yield f"{node.name}.{ast.unparse(one.target)}"
                elif isinstance(one, ast.Assign) and not (isinstance(one.value, PLAIN) and len(one.targets) == 1):
                    names = {ast.unparse(leaf) for whole in one.targets for leaf in ast.walk(whole)}
                    public = {name for name in names - typed if name.startswith("self.") and name[5:].isidentifier()}
                    yield from (f"{node.name}: {name}" for name in sorted(public) if name[5] != "_")


def test_public_names_state_their_types() -> None:
    found = [
        f"{path.relative_to(PLACE)} {one}"
        for path in PLACE.rglob("*.py")
        for one in untyped(ast.parse(path.read_text()))
    ]
    assert not found, "\n".join(sorted(found))
