"""``privmix ledger export``: budgets and histories for an archive."""

from __future__ import annotations

from privmix import ledger as ledgers
from privmix.cli.console import print_json
from privmix.cli.ledger import ledger
from privmix.cli.ledger.words import Url
from privmix.cli.verb import verb


@verb(ledger, "export")
def export(url: Url) -> None:
    """Print budgets and whole histories as JSON, for an archive or an audit."""
    opened = ledgers.Ledger.open(url)
    content = {name: opened.history(name) for name in opened.names()}
    print_json({"format": "privmix-ledger", "schema_version": 1, "datasets": content})
