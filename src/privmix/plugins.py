"""Parts of privmix for packages that extend it: registries, literals in their source files, lazy names."""

from privmix._lazy import lazily
from privmix._registry import Registry, literals_of

__all__ = ["Registry", "lazily", "literals_of"]
