"""The Typer application: its commands, in the order and under the headings that help has."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from privmix import __version__
from privmix.cli.console import out
from privmix.cli.lazy_verbs import Verb, lazy_app

REFUTED: Final = 4
"""Exit code of an audit that refutes what it was asked about; what it found is shown and kept all the same."""

# Verb -> where it is, its line in `privmix --help`, and whom it is for.
VERBS: Final = {
    "demo": Verb("privmix.cli.demo", "Release, fit, attack and report on scikit-learn's digits.", "Start"),
    "studio": Verb("privmix.cli.studio", "Release a dataset by pages in your browser.", "Start"),
    "check": Verb("privmix.commands.check:Check", "Find what does not fit in a private dataset.", "Start"),
    "spec": Verb("privmix.commands.spec:Spec", "Draft the specification of a table from its header.", "Start"),
    "plan": Verb("privmix.cli.plan", "Predict every design's accuracy at a budget, and name the best.", "Start"),
    "account": Verb("privmix.cli.account", "Price a design, or find the noise that meets a target.", "Start"),
    "version": Verb("privmix.cli.main", "Print the version.", "Start"),
    "release": Verb("privmix.cli.release", "Turn a private dataset into a differentially private release.", "Publish"),
    "train": Verb("privmix.cli.train", "Train a private model with DP-SGD.", "Publish"),
    "ledger": Verb("privmix.cli.ledger", "Give private datasets a total privacy budget.", "Publish"),
    "extract-features": Verb(
        "privmix.commands.extract_features:ExtractFeatures",
        "Make the features of a private dataset in a store.",
        "Publish",
    ),
    "split": Verb("privmix.commands.split:Split", "Set a random share of a dataset apart as public.", "Publish"),
    "series": Verb("privmix.cli.series", "Release data that grow, for one privacy budget.", "Publish"),
    "fit": Verb("privmix.commands.fit:Fit", "Train a classifier on a release.", "Use"),
    "predict": Verb("privmix.commands.predict:Predict", "Predict the classes of records without labels.", "Use"),
    "evaluate": Verb("privmix.commands.evaluate:Evaluate", "Measure a model on your own labelled data.", "Use"),
    "evaluate-table": Verb(
        "privmix.commands.evaluate_table:EvaluateTable", "Compare rows sampled from a release with real records.", "Use"
    ),
    "sample": Verb("privmix.commands.sample:Sample", "Make rows of a table from a release of the table.", "Use"),
    "transform": Verb(
        "privmix.commands.transform:Transform", "Do to new records what was done to those of a release.", "Use"
    ),
    "picture": Verb("privmix.commands.picture:Picture", "Show what the classes of a release look like.", "Use"),
    "export": Verb("privmix.commands.export:Export", "Write a trained network to a file without privmix.", "Use"),
    "inspect": Verb(
        "privmix.commands.inspect:Inspect", "Show what a release or a model is and what it guarantees.", "Review"
    ),
    "verify": Verb(
        "privmix.commands.verify:Verify", "Recompute epsilon, check every byte and test the noise.", "Review"
    ),
    "audit": Verb("privmix.cli.audit", "Attack the worst pair of datasets: a proven lower bound.", "Review"),
    "attack": Verb("privmix.cli.attack", "Attack a release, a model or its data, to see what leaks.", "Review"),
    "replay": Verb(
        "privmix.cli.replay",
        "Make every byte of a release again, beside its records, by an auditor's key; say equal, or where not.",
        "Review",
    ),
    "report": Verb("privmix.commands.report:Report", "Write one HTML page: guarantee, accuracy and attacks.", "Review"),
    "sign": Verb("privmix.commands.sign:Sign", "Sign every file of a release or model, once it verifies.", "Share"),
    "keygen": Verb("privmix.commands.keygen:Keygen", "Make a key to sign with, or an auditor's.", "Share"),
    "push": Verb("privmix.commands.hub:Push", "Send a release or model to the Hugging Face hub.", "Share"),
    "pull": Verb("privmix.commands.hub:Pull", "Take a release or model from the Hugging Face hub.", "Share"),
}


def _version(asked: bool) -> None:
    """What ``--version`` does, before anything else is looked at."""
    if asked:
        out.print(__version__)
        raise typer.Exit


_VERSION: Final = typer.Option("--version", help="Print the version and stop.", callback=_version, is_eager=True)


def _before(version: Annotated[bool, _VERSION] = False) -> None:
    """Run before every verb."""


app = lazy_app(
    VERBS,
    name="privmix",
    callback=_before,
    help="Publish private datasets as differentially private mixup releases, and learn from them.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
