"""Groups of commands that have no command of their own: ``attack``, ``ledger`` and ``series``."""

from typing import Final

import typer

from privmix.cli.app import VERBS, app
from privmix.cli.lazy_verbs import Verb, lazy_app

# Verb -> where it is, and its line in `privmix GROUP --help`.
ATTACKS: Final = {
    "membership": Verb(
        "privmix.commands.membership:Membership", "Guess which records a model was trained on, and measure success."
    )
}
LEDGER: Final = {
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
SERIES: Final = {
    "begin": Verb("privmix.commands.series:Begin", "Begin a series of releases of growing data, for one budget."),
    "step": Verb("privmix.commands.series:Step", "Release all records so far, as the next step."),
    "show": Verb("privmix.commands.series:Show", "Show the progress of a series."),
    "end": Verb("privmix.commands.series:End", "End a series early, by destroying its key."),
}


def _group(name: str, verbs: dict[str, Verb]) -> typer.Typer:
    group = lazy_app(verbs, name, no_args_is_help=True, help=VERBS[name].help)
    app.add_typer(group, name=name)
    return group


attack: Final = _group("attack", ATTACKS)
ledger: Final = _group("ledger", LEDGER)
series: Final = _group("series", SERIES)
