"""A statement of a dataset's total cost, for other parties."""

from __future__ import annotations

from dataclasses import KW_ONLY, MISSING, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from privmix.commands.base import Command, function
from privmix.commands.ledger.budget import DATASET_HELP, AtLedger
from privmix.errors import InvalidInput
from privmix.jobs.options import NewFile
from privmix.options import option
from privmix.progress import Progress

if TYPE_CHECKING:
    from privmix.certificate.keys import PrivateKey
    from privmix.jobs.ledger_total import StatedTotal
    from privmix.ledger.ledger import Ledger


@dataclass(frozen=True, eq=False, repr=False)
class LedgerStatement(NewFile, AtLedger, Command["StatedTotal"]):
    """Write a statement of a dataset's total privacy cost.

    States budget, spent and left, the number and purpose of charges, adjacency and date; no data and no
    fingerprints. Verifies the whole ledger first. Recipients check the file with privmix verify FILE --key
    KEY.pub.pem, or next to a release with privmix report RELEASE --statement FILE.

    Formal guarantees:
        * The statement has plans and amounts from the ledger's rows, and nothing of data: see
          :class:`privmix.certificate.ledger_total.LedgerTotal`.
        * Figures are rounded to their safe side.

    Raises:
        InvalidInput: the ledger does not hold, has no such dataset, or the file can't be replaced.
        StorageError: the ledger can't be read, or the file not be written.

    Example:
        >>> import tempfile
        >>> from privmix.accounting import Gaussian
        >>> from privmix.ledger.ledger import Ledger
        >>> book = Ledger.create(f"sqlite:///{tempfile.mkdtemp()}/ledger.db")
        >>> book.add_dataset("patients", epsilon=4.0, delta=1e-5)
        >>> _ = book.reserve("patients", Gaussian(2.0), purpose="release")
        >>> found = ledger_total(book, "patients").total
        >>> round(found.spent, 2), round(found.left, 2), found.charges
        (1.99, 2.01, {'release': 1})
    """

    called = "statement"
    example = "privmix ledger statement --ledger sqlite:///ledger.db --dataset patients --out total.json --key ana.pem"

    ledger: str | Ledger = option(MISSING, AtLedger.__dataclass_fields__["ledger"].metadata["help"])
    dataset: str = option(MISSING, DATASET_HELP)
    _: KW_ONLY
    out: str | Path | None = option(
        None,
        "JSON file to write, outside releases and models.",
        in_python="In Python, no file by default.",
        needed=True,
    )
    key: str | Path | PrivateKey | None = option(
        None, "Private key (PEM) for the signature; passphrase by prompt or PRIVMIX_KEY_PASSPHRASE."
    )
    passphrase: bytes | None = option(None, "Passphrase of the key.", python=True)
    outcomes: bool = option(False, "Include the outcomes of charges; do not publish such a statement.")

    def run(self, progress: Progress) -> StatedTotal:
        from privmix.certificate.keys import PrivateKey
        from privmix.certificate.ledger_total import check_place, write_total
        from privmix.jobs.ledger_total import StatedTotal, total_of
        from privmix.jobs.places import check_unpublished

        place, key = None if self.out is None else Path(self.out), self.key
        if place is not None:
            check_unpublished("out", place)
            check_place(place, overwrite=self.overwrite)
        elif key is not None:
            raise InvalidInput("key", "a key", "only with `out`, since a signature needs a file")
        signer = key if key is None or isinstance(key, PrivateKey) else PrivateKey.read(Path(key), self.passphrase)
        total = total_of(self.opened(), self.dataset, self.outcomes)
        statement = None if place is None else write_total(total, place, signer, overwrite=self.overwrite)
        return StatedTotal(total, statement, place)


ledger_total = function(LedgerStatement, "ledger_total")
