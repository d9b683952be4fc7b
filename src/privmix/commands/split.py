"""Parting a share of a private dataset off as public, once, before its first release."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from typing import TYPE_CHECKING, Any, Final

from privmix.commands.base import Command, function
from privmix.jobs.options import SplitOptions
from privmix.options import option
from privmix.progress import Progress

if TYPE_CHECKING:
    from privmix.jobs.public_data import Parted


@dataclass(frozen=True, eq=False, repr=False)
class Split(SplitOptions, Command["Parted"]):
    """Declare a random share of a dataset public.

    No guarantee covers the records in `public`: ask the people whom they describe. privmix train takes the file as
    PUBLIC records. Split once, before the first release, and use `private` as your dataset from then on. With
    `person`, whole persons are drawn.

    Raises:
        InvalidInput: an option is out of range, or a file is there already or would lie in what is shared with others.
        StorageError: the data can't be read, or a file can't be written.
    """

    example = "privmix split --data mnist --share 0.04 --public PUBLIC.npz --private PRIVATE.npz"

    data: Any = option(
        MISSING, "Private dataset: file, folder, pattern or address.", in_python="Also arrays, frames and tensors."
    )

    def run(self, progress: Progress) -> Parted:
        from privmix.jobs.public_data import parted

        return parted(self.data, self)


split: Final = function(Split)
