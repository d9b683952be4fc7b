"""Packages that import their parts when a name is first used (PEP 562).

A package writes its public names once, as imports under ``if TYPE_CHECKING``; :func:`lazily` reads the same block at
run time.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

from privmix.packages import import_part


def lazily(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    # A name that a part of the package has too (a function x in a file x.py) is impossible: the file's import takes it.

    def find(name: str) -> Any:
        place = _exports(package).get(name)
        if place is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, original = place
        if module == package:
            # A part of the package itself; importing it makes it an attribute, too.
            return import_part(f"{package}.{original}")
        # The next one to ask finds it without asking here.
        found = import_part(module)
        part = getattr(found, original) if hasattr(found, original) else import_part(f"{module}.{original}")
        setattr(sys.modules[package], name, part)
        return vars(sys.modules[package])[name]

    def names() -> list[str]:
        # Parts of a package, and what its source imports, are no names of it: editors offer what is listed here.
        own = {name for name in vars(sys.modules[package]) if name.startswith("__")}
        return sorted(own | set(_exports(package)))

    return find, names


@cache
def _exports(package: str) -> dict[str, tuple[str, str]]:
    """Public name -> (module, name there), from the ``if TYPE_CHECKING:`` block of the package's source."""
    spec = sys.modules[package].__spec__
    source = getattr(spec and spec.loader, "get_source", lambda _: None)(package)
    if source is None:
        raise ImportError(f"{package}: its source file is missing; reinstall privmix", name=package)
    found: dict[str, tuple[str, str]] = {}
    for block in ast.parse(source).body:
        if isinstance(block, ast.If) and isinstance(block.test, ast.Name) and block.test.id == "TYPE_CHECKING":
            for line in block.body:
                if not isinstance(line, ast.ImportFrom) or line.module is None:
                    raise TypeError(f"{package}: only names in modules can be imported lazily")
                found.update({alias.asname or alias.name: (line.module, alias.name) for alias in line.names})
    return found
