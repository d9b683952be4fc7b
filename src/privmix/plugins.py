"""What packages that extend privmix share with it: registries, what their files say of themselves, lazy names."""

from __future__ import annotations

from privmix._lazy import lazily
from privmix._registry import Registry, literals_of

__all__ = ["Registry", "lazily", "literals_of"]
