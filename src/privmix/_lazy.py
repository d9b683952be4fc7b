"""Packages that import their parts when a name is first asked for (PEP 562), so that who asks for little waits little.

A package writes its public names once, as ordinary imports that type checkers and editors read and Python does not
run:

    if TYPE_CHECKING:
        from privmix.accounting.api import calibrate
    else:
        __getattr__, __dir__ = lazily(__name__)

:func:`lazily` reads the same block at run time and follows it name by name.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

from privmix.packages import import_part


def lazily(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The ``__getattr__`` and ``__dir__`` of a package; see above.

    A name that a part of the package has too (a function ``x`` in a file ``x.py``) can't be lent this way: the import
    of the file takes it.

    Args:
        package: the package's own ``__name__``.

    Returns:
        A function that imports what it is asked for, or raises AttributeError; and one that lists the names.

    Example:
        >>> import privmix.accounting
        >>> find, names = lazily("privmix.accounting")
        >>> find("Gaussian").__module__, "calibrate" in names()
        ('privmix.accounting.events', True)
    """

    def find(name: str) -> Any:
        place = _exports(package).get(name)
        if place is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, original = place
        if module == package:
            # A part of the package itself; importing it makes it an attribute, too.
            return import_part(f"{package}.{original}")
        # The next one to ask finds it without asking here.
        setattr(sys.modules[package], name, getattr(import_part(module), original))
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
        raise ImportError(f"{package} needs its source file beside it", name=package)
    found: dict[str, tuple[str, str]] = {}
    for block in ast.parse(source).body:
        if isinstance(block, ast.If) and isinstance(block.test, ast.Name) and block.test.id == "TYPE_CHECKING":
            for line in block.body:
                if not isinstance(line, ast.ImportFrom) or line.module is None:
                    raise TypeError(f"{package}: only names are lent, from modules")
                found.update({alias.asname or alias.name: (line.module, alias.name) for alias in line.names})
    return found
