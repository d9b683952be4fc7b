"""``privmix attack``: attacks that measure what a release or a model gives away."""

from __future__ import annotations

from typing import Final

from privmix.cli.app import app
from privmix.cli.lazy_verbs import Verb, lazy_app

# Verb -> where it is, and its line in `privmix attack --help`.
ATTACKS: Final = {
    "membership": Verb(
        "privmix.commands.membership:Membership", "Guess which records a model was trained on, and measure success."
    )
}

attack: Final = lazy_app(
    ATTACKS, "attack", no_args_is_help=True, help="Attack a release or model to measure what leaks."
)
app.add_typer(attack, name="attack")
