"""``privmix ledger``: the budget of each private dataset."""

from __future__ import annotations

from typing import Final

from privmix.cli.app import app
from privmix.cli.lazy_verbs import Verb, lazy_app

# Verb -> where it is, and its line in `privmix ledger --help`.
VERBS: Final = {
    "init": Verb(
        "privmix.cli.ledger.init", "Give a dataset its total budget, once; makes the ledger where there is none."
    ),
    "upgrade": Verb(
        "privmix.cli.ledger.upgrade",
        "Bring a ledger that an earlier privmix made to this version; its budgets and history stay as they are.",
    ),
    "show": Verb(
        "privmix.cli.ledger.show",
        "Show what every dataset may cost, has cost and has left, and for which plans its total holds.",
    ),
    "history": Verb("privmix.cli.ledger.history", "Show every entry of a dataset, oldest first."),
    "verify": Verb(
        "privmix.cli.ledger.verify", "Recompute every hash and every price; exit code 2 if anything does not hold."
    ),
    "statement": Verb(
        "privmix.cli.ledger.statement",
        "State what a dataset has cost in all, in a file that can be signed and handed on.",
    ),
    "export": Verb(
        "privmix.cli.ledger.export", "Print budgets and whole histories as JSON, for an archive or an audit."
    ),
}

ledger = lazy_app(VERBS, "ledger", no_args_is_help=True, help="Give private datasets a total privacy budget.")
app.add_typer(ledger, name="ledger")
