"""``privmix ledger``: the budget of each private dataset."""

from __future__ import annotations

from typing import Final

from privmix.cli.app import app
from privmix.cli.lazy_verbs import Verb, lazy_app

# Verb -> where it is, and its line in `privmix ledger --help`.
VERBS: Final = {
    "init": Verb("privmix.commands.ledger:Init", "Set a dataset's total budget, once."),
    "upgrade": Verb("privmix.commands.ledger:Upgrade", "Upgrade a ledger that an earlier privmix made."),
    "show": Verb("privmix.commands.ledger:Show", "Show the total, spent and remaining budget of each dataset."),
    "history": Verb("privmix.commands.ledger:History", "Show every entry of a dataset, oldest first."),
    "verify": Verb("privmix.commands.ledger:Verify", "Recompute every hash and every price of a ledger."),
    "statement": Verb(
        "privmix.commands.ledger:LedgerStatement", "Write a statement of a dataset's total privacy cost."
    ),
    "export": Verb("privmix.commands.ledger:Export", "Print budgets and whole histories as JSON."),
}

ledger: Final = lazy_app(
    VERBS, "ledger", no_args_is_help=True, help="Manage the total privacy budget of private datasets."
)
app.add_typer(ledger, name="ledger")
