"""No defence: the baseline of all others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from privmix.research.poisoning.base import DEFENCES, Case, Defence, Defended


@DEFENCES.register
@dataclass(frozen=True)
class NoDefence(Defence):
    """Ordinary training on all records."""

    name: ClassVar[str] = "none"
    about: ClassVar[str] = "ordinary training, as it is"

    def train(self, case: Case) -> Defended:
        return Defended(case.undefended)
