"""``privmix series``: releases of data that grow, for one budget."""

from __future__ import annotations

from typing import Final

from privmix.cli.app import app
from privmix.cli.lazy_verbs import Verb, lazy_app

# Verb -> where it is, and its line in `privmix series --help`.
VERBS: Final = {
    "begin": Verb("privmix.cli.series.steps", "Begin a series of releases of data that grow, for one budget."),
    "step": Verb("privmix.cli.series.steps", "Make the next step: a release of all records so far."),
    "show": Verb("privmix.cli.series.steps", "Show how far a series is."),
    "end": Verb("privmix.cli.series.steps", "Overwrite and remove the key before the last step: no step can follow."),
}

series = lazy_app(VERBS, "series", no_args_is_help=True, help="Release data that grow, for one privacy budget.")
app.add_typer(series, name="series")
