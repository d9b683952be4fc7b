"""The Typer application: its commands, in the order and under the headings that help has."""

from typing import Annotated, Final

import typer

from privmix import __version__
from privmix.cli.console import out
from privmix.cli.lazy_verbs import Verb, lazy_app

# Verb -> where it is, its line in `privmix --help`, and whom it is for.
VERBS: Final = {
    "demo": Verb("privmix.commands.demo:Demo", "Release, fit, attack and report on scikit-learn's digits.", "Start"),
    "studio": Verb("privmix.studio.command:StudioPages", "Release a dataset by pages in your browser.", "Start"),
    "check": Verb(
        "privmix.commands.check:Check", "Find values that a release would reject, before spending budget.", "Start"
    ),
    "spec": Verb("privmix.commands.spec:Spec", "Draft the specification of a table from its header.", "Start"),
    "plan": Verb(
        "privmix.commands.forecast:Forecast", "Predict every design's accuracy at a budget, and name the best.", "Start"
    ),
    "account": Verb("privmix.cli.account", "Compute a design's epsilon, or the noise that meets a target.", "Start"),
    "release": Verb(
        "privmix.commands.release:MakeRelease",
        "Turn a private dataset into a differentially private release.",
        "Publish",
    ),
    "train": Verb("privmix.commands.train:Train", "Train a private model with DP-SGD.", "Publish"),
    "ledger": Verb("privmix.cli.groups", "Manage the total privacy budget of private datasets.", "Publish"),
    "extract-features": Verb(
        "privmix.commands.extract_features:ExtractFeatures",
        "Extract features once, into a store as private as the records.",
        "Publish",
    ),
    "series": Verb("privmix.cli.groups", "Release growing data for one privacy budget.", "Publish"),
    "fit": Verb("privmix.commands.fit:Fit", "Train a classifier on a release.", "Use"),
    "predict": Verb("privmix.commands.fit:Predict", "Predict the classes of records without labels.", "Use"),
    "evaluate": Verb("privmix.commands.evaluate:Evaluate", "Measure a model on your own labelled data.", "Use"),
    "evaluate-table": Verb(
        "privmix.commands.evaluate_table:EvaluateTable", "Compare rows sampled from a release with real records.", "Use"
    ),
    "sample": Verb("privmix.commands.sample:Sample", "Sample table rows from a release of the table.", "Use"),
    "transform": Verb("privmix.commands.transform:Transform", "Apply a release's preprocessing to new records.", "Use"),
    "export": Verb("privmix.commands.export:Export", "Write a trained network to a file without privmix.", "Use"),
    "inspect": Verb(
        "privmix.commands.inspect:Inspect", "Show what a release or a model is and what it guarantees.", "Review"
    ),
    "verify": Verb("privmix.commands.verify:Verify", "Check a release or model against its certificate.", "Review"),
    "audit": Verb(
        "privmix.commands.audit:Audit", "Prove a lower bound on epsilon by attacking the release mechanism.", "Review"
    ),
    "attack": Verb("privmix.cli.groups", "Attack a release or model to measure what leaks.", "Review"),
    "replay": Verb(
        "privmix.commands.replay:Replay", "Recompute every byte of a release with an auditor's key.", "Review"
    ),
    "report": Verb(
        "privmix.commands.report:Report", "Write an HTML report with guarantee, accuracy and attacks.", "Review"
    ),
    "sign": Verb("privmix.commands.sign:Sign", "Sign every file of a release or model, once it verifies.", "Share"),
    "keygen": Verb("privmix.commands.sign:Keygen", "Make a key pair for signing, or for an auditor.", "Share"),
}


def _version(asked: bool) -> None:
    if asked:
        out.print(__version__)
        raise typer.Exit


_VERSION: Final = typer.Option("--version", help="Print the version and stop.", callback=_version, is_eager=True)


def _before(version: Annotated[bool, _VERSION] = False) -> None:
    """Run before every verb."""


app: Final = lazy_app(
    VERBS,
    name="privmix",
    callback=_before,
    help="Publish labelled data with differential privacy, and train private models.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
