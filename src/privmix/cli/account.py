"""``privmix account``: prices; a group that prices where its command is not called."""

from typing import Final

from privmix.cli.app import app
from privmix.cli.lazy_verbs import Verb, lazy_app
from privmix.cli.verb import running
from privmix.commands.account.account import Account

# Verb -> where it is, and its line in `privmix account --help`.
VERBS: Final = {
    "poisoning": Verb(
        "privmix.commands.account.poisoning:Poisoning",
        "Bound the success of poisoning attacks under a privacy guarantee.",
    )
}

account: Final = lazy_app(VERBS, "account", invoke_without_command=True, callback=running(Account))
app.add_typer(account, name="account")
