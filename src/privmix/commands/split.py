"""Parting a share of a private dataset off as public, once, before its first release."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from typing import TYPE_CHECKING, Any

from privmix.commands.base import Command, function
from privmix.jobs.options import SplitOptions
from privmix.options import option
from privmix.progress import Progress

if TYPE_CHECKING:
    from privmix.jobs.split import Parted


@dataclass(frozen=True, eq=False, repr=False)
class Split(SplitOptions, Command["Parted"]):
    """Set a random share of a dataset apart as public.

    privmix train takes them as PUBLIC records.

    The records in `public` are public by your act: nothing protects them from then on, and no later guarantee is about
    them. Ask the people they are about. The draw looks at nothing but classes, so the public file says nothing of the
    records that stay but this: per-class, that every class has as many; uniform, about what share each class has.

    Split once, before the first release, and use `private` as your dataset from then on, with a budget of its own in
    the ledger. A second draw makes more records public, and what was released from the whole dataset before is about
    all of them.

    With `person` whole persons are drawn, each of the class of their first record: `share` and `count` are of persons,
    and `private` says by numbers whose its records are, under the column's name.

    Raises:
        InvalidInput: an option is out of range, or a file is there already or would lie in what is handed to others.
        StorageError: the data can't be read, or a file can't be written.
    """

    example = "privmix split --data mnist --share 0.04 --public PUBLIC.npz --private PRIVATE.npz"

    data: Any = option(MISSING, "Private dataset: file, folder, pattern or address; in Python in memory, too.")

    def run(self, progress: Progress) -> Parted:
        """Part."""
        from privmix.jobs.split import parted

        return parted(self.data, self)


split = function(Split)
