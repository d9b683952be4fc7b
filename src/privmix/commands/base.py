"""A command: a frozen dataclass whose fields are its options. Python's function and the command line follow from it.

    @dataclass(frozen=True, eq=False, repr=False)
    class Predict(Columns, Command[Predictions]):
        '''Predict the classes of records.'''

        example = "privmix predict MODEL --data mnist"
        model: Model | str | Path = option(MISSING, "Folder that privmix fit or privmix train wrote.", argument=True)
        data: Any = option(MISSING, "Records.")
        _: KW_ONLY
        out: Path | None = option(None, "File to write.")

        def run(self, progress: Progress) -> Predictions: ...

    predict = function(Predict)

Options that several commands have are a dataclass that they inherit, whose fields are keywords.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, ParamSpec, Protocol, TypeVar

from privmix.bars import Asked, callback, shows_bars
from privmix.errors import warn
from privmix.options import option, taking
from privmix.packages import torch_as_extra
from privmix.progress import Progress
from privmix.shown import Shown


class Result(Protocol):
    """A command's result: it prints as a few facts (:class:`privmix.shown.Shown`) and has JSON values.

    It may have ``cautions``, which Python warns of, and an ``exit_code`` of the command line, if not 0.
    """

    def to_dict(self) -> Any:
        """JSON values."""


@dataclass(frozen=True, repr=False)
class Facts(Shown):
    """A result for the command line alone: what is shown of it, and its JSON values."""

    title: str
    facts: Mapping[str, object] = field(default_factory=dict)
    details: tuple[str, ...] = ()
    values: Any = field(default_factory=dict)
    document: str | None = None

    def shown(self) -> tuple[str, Mapping[str, object]]:
        return self.title, self.facts

    def to_dict(self) -> Any:
        return self.values


P = ParamSpec("P")
Found = TypeVar("Found", bound=Result)


@dataclass(frozen=True, kw_only=True)
class Command(ABC, Generic[Found]):
    """A request; making one reads nothing."""

    # called: its name on the command line, where that is not the class's. panel: heading of another package's command.

    example: ClassVar[str]
    called: ClassVar[str] = ""
    panel: ClassVar[str] = ""
    progress: Asked = option(
        None, "Progress: True (bars), None (terminals only), or a function(stage, done, total).", python=True
    )

    @abstractmethod
    def run(self, progress: Progress) -> Found:
        """Do the work and report it to ``progress``."""

    def then(self, found: Any) -> str | None:
        """Return what people usually do next, on the command line."""
        return None

    @classmethod
    def words(cls) -> str:
        """Its name on the command line.

        Example:
            >>> from privmix.commands.evaluate_table import EvaluateTable
            >>> EvaluateTable.words()
            'evaluate-table'
        """
        return cls.called or re.sub(r"(?<=[a-z])(?=[A-Z])", "-", cls.__name__).lower()


def function(kind: Callable[P, Command[Found]], name: str = "") -> Callable[P, Found]:
    """Return the function of a command for Python: its arguments are the command's fields, and so is its help."""

    @shows_bars
    def called(*args: P.args, **kwargs: P.kwargs) -> Found:
        command = kind(*args, **kwargs)
        with torch_as_extra():
            found: Any = command.run(callback(command.progress))
        if (place := getattr(command, "record", None)) is not None:
            found.keep(place)
        for text in getattr(found, "cautions", ()):
            warn(text)
        return found  # type: ignore[no-any-return]

    assert isinstance(kind, type)
    assert issubclass(kind, Command)
    called.__name__ = called.__qualname__ = name or kind.words().replace("-", "_")
    called.__module__ = kind.__module__
    return taking(called, kind)
