"""``privmix ledger upgrade``: bring an earlier ledger to this version."""

from __future__ import annotations

from privmix import ledger as ledgers
from privmix.cli.console import out
from privmix.cli.ledger import ledger
from privmix.cli.ledger.words import Url
from privmix.cli.verb import verb


@verb(ledger, "upgrade")
def upgrade(url: Url) -> None:
    """Bring a ledger that an earlier privmix made to this version; its budgets and history stay as they are.

    Earlier versions refuse it from then on.
    """
    ledgers.Ledger.upgrade(url)
    out.print("upgraded: budgets and history are as they were")
