"""The Typer application: its commands, in the order and under the headings that help has."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from privmix import __version__
from privmix.cli.console import out
from privmix.cli.lazy_verbs import Verb, lazy_app

REFUTED: Final = 4
"""Exit code of an audit that refutes what it was asked about; what it found is shown and kept all the same."""

# Verb -> where it is, and its line in `privmix --help`.
VERBS: Final = {
    "audit": Verb(
        "privmix.cli.audit",
        "Attack the worst pair of neighbouring datasets with the real engine: a proven lower bound beside the claim.",
    ),
    "check": Verb(
        "privmix.commands.check:Check",
        "Find what does not fit in a private dataset, before a release charges for it. For its owner's eyes alone.",
    ),
    "extract-features": Verb(
        "privmix.commands.extract_features:ExtractFeatures",
        "Make the features of a private dataset in a store, once for many releases and trainings.",
    ),
    "evaluate": Verb(
        "privmix.commands.evaluate:Evaluate", "Measure a model on your own labelled data: raw inputs in, accuracy out."
    ),
    "evaluate-table": Verb(
        "privmix.commands.evaluate_table:EvaluateTable",
        "Sample rows from a release of a table and compare them with real records of it.",
    ),
    "report": Verb(
        "privmix.cli.report",
        "Write one self-contained HTML page: what was guaranteed, what it is good for, and what attacks could do.",
    ),
    "demo": Verb(
        "privmix.cli.demo",
        "Release scikit-learn's digits at epsilon 8, fit a classifier, attack both, and write a report.",
    ),
    "export": Verb(
        "privmix.cli.export", "Write a trained network to a file that loads in torch in one line, without privmix."
    ),
    "fit": Verb(
        "privmix.commands.fit:Fit",
        "Train a classifier on a release. No private data is read and no privacy is spent, however often you do it.",
    ),
    "plan": Verb(
        "privmix.cli.plan",
        "Predict every design's accuracy at a budget, and name the best. Reads no private data.",
    ),
    "predict": Verb(
        "privmix.commands.predict:Predict",
        "Predict the classes of records without labels, and write them to a file of your own.",
    ),
    "picture": Verb(
        "privmix.cli.picture",
        "Show what the classes of a release look like: images of their means, or the public texts nearest to them.",
    ),
    "sample": Verb(
        "privmix.commands.sample:Sample",
        "Make rows in the columns that a table's specification declares, from a release of the table.",
    ),
    "transform": Verb(
        "privmix.commands.transform:Transform",
        "Do to new records what was done to those of a release: what any learner of its rows must see.",
    ),
    "pull": Verb(
        "privmix.cli.pull", "Take a release or a trained model from the Hugging Face hub, and keep it if it verifies."
    ),
    "push": Verb("privmix.cli.push", "Send a release or a trained model to the Hugging Face hub, once it verifies."),
    "release": Verb("privmix.cli.release", "Turn a private dataset into a differentially private release."),
    "end-series": Verb(
        "privmix.cli.end_series",
        "Overwrite and remove the key of a series of releases before its last step: no step can follow.",
    ),
    "inspect": Verb(
        "privmix.cli.inspect", "Show what a release or a model is and what it guarantees, in words and numbers."
    ),
    "keygen": Verb(
        "privmix.cli.keygen",
        "Make a key to sign with, or an auditor's: NAME.pem for you alone, NAME.pub.pem for others.",
    ),
    "replay": Verb(
        "privmix.cli.replay",
        "Make every byte of a release again, beside its records, by an auditor's key; say equal, or where not.",
    ),
    "sign": Verb(
        "privmix.cli.sign",
        "Sign every file of a release or model, once it verifies: others then see that it is yours and unchanged.",
    ),
    "spec": Verb(
        "privmix.commands.spec:Spec",
        "Draft the specification of a table from its header and your word, for features tabular:SPEC.json.",
    ),
    "split": Verb(
        "privmix.commands.split:Split",
        "Set a random share of a private dataset apart as PUBLIC records, for privmix train.",
    ),
    "studio": Verb(
        "privmix.cli.studio",
        "Release a dataset by pages in your browser: price, forecast, ledger, certificate. Served to this machine "
        "alone.",
    ),
    "train": Verb("privmix.cli.train", "Train a private model with DP-SGD: mixup, augmentation, public data."),
    "verify": Verb(
        "privmix.cli.verify",
        "Recompute epsilon, check every byte of every file, and test the released numbers for their noise.",
    ),
    "version": Verb("privmix.cli.main", "Print the version."),
    "account": Verb("privmix.cli.account", "Price a design, or find the noise that meets a target."),
    "attack": Verb("privmix.cli.attack", "Attack a release, a model or its data, to see what leaks or what gets in."),
    "ledger": Verb("privmix.cli.ledger", "Give private datasets a total privacy budget, and keep to it."),
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
