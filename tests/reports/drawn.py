"""Figures of pages, each drawn once: drawing is nine tenths of what a page takes."""

import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def drawn_once() -> Iterator[dict[bytes, Any]]:
    """Have figures of the same arguments drawn once; yields those that were, for who has them drawn anew."""
    with pytest.MonkeyPatch.context() as patch:
        kept: dict[bytes, Any] = {}
        for module in [module for name, module in sys.modules.items() if name.startswith("privmix.")]:
            for name, found in list(vars(module).items()):
                if name.startswith("draw_") and found.__annotations__.get("return") == "Markup":
                    patch.setattr(module, name, _remembered(found, kept))
        yield kept


def _remembered(draw: Callable[..., Any], kept: dict[bytes, Any]) -> Callable[..., Any]:
    def drawn(*arguments: Any, **named: Any) -> Any:
        key = pickle.dumps((draw.__module__, draw.__name__, arguments, named))
        if key not in kept:
            kept[key] = draw(*arguments, **named)
        return kept[key]

    return drawn
