"""``privmix series``: releases of data that grow, for one budget."""

from __future__ import annotations

from typing import Final

from privmix.cli.app import app
from privmix.cli.lazy_verbs import Verb, lazy_app

# Verb -> where it is, and its line in `privmix series --help`.
VERBS: Final = {
    "begin": Verb("privmix.commands.series:Begin", "Begin a series of releases of growing data, for one budget."),
    "step": Verb("privmix.commands.series:Step", "Release all records so far, as the next step."),
    "show": Verb("privmix.commands.series:Show", "Show the progress of a series."),
    "end": Verb("privmix.commands.series:End", "End a series early, by destroying its key."),
}

series: Final = lazy_app(VERBS, "series", no_args_is_help=True, help="Release growing data for one privacy budget.")
app.add_typer(series, name="series")
