"""Doors: what a design brings beside its plan, in files that are read when it is first asked for.

A design says where each is, as ``"module:name"``, so that to plan and to price imports no engine. Whoever goes through
a door declares it with the type of what lies behind it:

    WORST_CASE: Final = Door[Callable[[Plan], WorstCase]]("worst_case", "one whose worst case is known")
    case = WORST_CASE.of(made_by(plan))(plan)
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any, Generic, TypeVar, cast

from privmix.errors import InvalidInput
from privmix.plans.design import Design

Behind = TypeVar("Behind")


@dataclass(frozen=True)
class Door(Generic[Behind]):
    """An attribute of designs that leads to a class or a function of another file.

    Attributes:
        name: the attribute's.
        needed: which design would do, for a message about one that has no such door.
        inherited: whether a design has the door of one that it derives from.

    Example:
        >>> from privmix.plans import design_named
        >>> Door("worst_case", "one whose worst case is known").of(design_named("poisson")).__name__
        'poisson_case'
    """

    name: str
    needed: str = "one that says where that is"
    inherited: bool = True

    def is_in(self, design: type[Design[Any]]) -> bool:
        """Whether the design has the door."""
        return bool(self._said(design))

    def of(self, design: type[Design[Any]]) -> Behind:
        """What lies behind the design's door.

        Raises:
            InvalidInput: it has none, or one that leads nowhere.
        """
        said = self._said(design)
        if not said:
            raise InvalidInput("design", design.name, f"{self.needed} (its {self.name!r})")
        return cast(Behind, behind(design, self.name, said))

    def _said(self, design: type[Design[Any]]) -> str:
        said: str = getattr(design, self.name, "") if self.inherited else vars(design).get(self.name, "")
        return said


def behind(design: type[Design[Any]], door: str, said: str) -> Any:
    """What ``"module:name"`` means.

    Raises:
        InvalidInput: nothing.
    """
    module, _, name = said.partition(":")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidInput(f"{door} of design {design.name}", said, "module:name of what can be imported") from error
