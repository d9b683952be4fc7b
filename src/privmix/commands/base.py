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
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, ParamSpec, Protocol, TypeVar

from privmix.bars import Asked, callback, shows_bars
from privmix.options import option
from privmix.progress import Progress
from privmix.signatures import taking


class Result(Protocol):
    """What a command finds: it prints as a few facts (:class:`privmix.shown.Shown`) and has JSON values.

    It may have ``cautions``, which Python warns of, and an ``exit_code`` of the command line, if not 0.
    """

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""


P = ParamSpec("P")
Found = TypeVar("Found", bound=Result)


@dataclass(frozen=True, kw_only=True)
class Command(ABC, Generic[Found]):
    """What is asked for; making one reads nothing.

    Attributes:
        example: a line of the command line.
        panel: heading under which help lists a command of another package.
    """

    example: ClassVar[str]
    panel: ClassVar[str | None] = None
    progress: Asked = option(
        None, "Called with (stage, done, total); True: bars; None: bars where somebody looks on.", python=True
    )

    @abstractmethod
    def run(self, progress: Progress) -> Found:
        """Do it, and tell ``progress`` how far it is."""

    def then(self, found: Any) -> str | None:
        """What people usually do next, on the command line."""
        return None

    @classmethod
    def words(cls) -> str:
        """Its name on the command line.

        Example:
            >>> from privmix.commands.evaluate_table import EvaluateTable
            >>> EvaluateTable.words()
            'evaluate-table'
        """
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", cls.__name__).lower()


def function(kind: Callable[P, Command[Found]]) -> Callable[P, Found]:
    """The function of a command for Python: its arguments are the command's fields, and so is its help."""

    @shows_bars
    def called(*args: P.args, **kwargs: P.kwargs) -> Found:
        command = kind(*args, **kwargs)
        found: Any = command.run(callback(command.progress))
        if (place := getattr(command, "record", None)) is not None:
            found.keep(place)
        for text in getattr(found, "cautions", ()):
            warnings.warn(text, stacklevel=4)
        return found  # type: ignore[no-any-return]

    assert isinstance(kind, type)
    assert issubclass(kind, Command)
    called.__name__ = called.__qualname__ = kind.words().replace("-", "_")
    called.__module__ = kind.__module__
    return taking(called, kind)
