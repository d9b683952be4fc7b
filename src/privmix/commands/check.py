"""What of a private dataset does not fit, for its owner's eyes: the pass that a release makes, before any charge."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from typing import TYPE_CHECKING, Any

from privmix.commands.base import Command, function
from privmix.jobs.options import CheckOptions
from privmix.options import option
from privmix.progress import Progress

if TYPE_CHECKING:
    from privmix.jobs.data_check import DataCheck


@dataclass(frozen=True, eq=False, repr=False)
class Check(CheckOptions, Command["DataCheck"]):
    """Find what does not fit in a private dataset.

    For its owner's eyes alone.

    It makes the pass that privmix release and privmix train make, and goes on where they would end. It lists values
    that are refused, cut to a range, missing or in no category, by file, record, column and reason. It counts records
    that are longer than the clipping bound, and the records of each class. With `person` it also counts persons, and
    the records of the one who has most. It writes nothing, opens no ledger and charges nothing.

    So pass nothing of it on, not even that it was done. What it makes you change is a choice from private data. The
    exit code is 2 where a record would be refused.

    Raises:
        InvalidInput: the data do not open, as a release of them would not.
        StorageError: they can't be read.

    Example:
        >>> found = check(([[1.0], [2.0]], ["yes", "yess"]), classes=["yes", "no"], features="identity",
        ...               feature_length=1)
        >>> found.fits, [(one.record, one.why) for one in found.misfits]
        (False, [(2, 'none of the declared classes')])
    """

    example = "privmix check mnist --features pixels"

    data: Any = option(
        MISSING, "Private dataset: file, folder, pattern or address; in Python in memory, too.", argument=True
    )

    def run(self, progress: Progress) -> DataCheck:
        """Check."""
        from privmix.jobs.data_check import checked

        return checked(self.data, self, progress)


check = function(Check)
