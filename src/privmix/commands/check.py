"""Values of a private dataset that a release would refuse, for its owner: a release's own pass, before any charge."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from typing import TYPE_CHECKING, Any, Final

from privmix.commands.base import Command, function
from privmix.jobs.options import CheckOptions
from privmix.options import option
from privmix.progress import Progress

if TYPE_CHECKING:
    from privmix.jobs.data_check import DataCheck


@dataclass(frozen=True, eq=False, repr=False)
class Check(CheckOptions, Command["DataCheck"]):
    """Find values that a release would reject, before spending budget.

    Lists values that are refused, clipped, missing or in no category, by file, record, column and reason, and
    counts the records of each class. Writes nothing and charges nothing. The output is private: do not share it.
    Exit code 2 if a release would refuse a record.

    Raises:
        InvalidInput: the data do not open, as a release of them would not.
        StorageError: they can't be read.

    Example:
        >>> found = check(([[1.0], [2.0]], ["yes", "yess"]), classes=["yes", "no"], features="identity",
        ...               feature_length=1)
        >>> found.fits, [(one.record, one.why) for one in found.misfits]
        (False, [(2, 'not a declared class')])
    """

    example = "privmix check mnist --features pixels"

    data: Any = option(
        MISSING,
        "Private dataset: file, folder, pattern or address.",
        in_python="Also arrays, frames and tensors.",
        argument=True,
    )

    def run(self, progress: Progress) -> DataCheck:
        from privmix.jobs.misfits import checked

        return checked(self.data, self, progress)


check: Final = function(Check)
