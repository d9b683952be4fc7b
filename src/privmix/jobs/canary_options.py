"""What is asked of an audit with canaries, option by option; importing this takes no time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from privmix.jobs.asked import FEATURES_MODEL_HELP, TRUST_HELP, told
from privmix.jobs.columns import Columns

PANEL: Final = "Canaries in the owner's data"
_told = partial(told, panel=PANEL)


@dataclass(frozen=True)
class TargetColumns(Columns):
    """Columns of the records that a release or model was made of, which says what images and lists are like."""

    label_column: str = _told("label", "The labels' column.")
    image_column: str = _told("image", "The column of encoded images.")
    feature_column: str | None = _told(None, "The column of number lists.")
    text_column: str | None = _told(None, "The texts' column.")
    image_size: int | None = _told(None, "Side that images are scaled to. Default: TARGET's.")
    colour: str | None = _told(None, "grey or rgb, for images. Default: as TARGET's.")
    number_columns: str | Sequence[str] | None = _told(None, "Columns of numbers, with commas.", flag="columns")
    feature_length: int | None = _told(None, "How many numbers each list has. Default: TARGET's.")
    separator: str | None = _told(None, "CSV: what stands between cells: , ; | or tab.")
    decimal: str | None = _told(None, "CSV: the decimal mark of numbers, a point or a comma.")
    encoding: str | None = _told(None, "CSV: utf-8, latin-1, cp1252 (Windows), cp1250 or iso-8859-15.")


@dataclass(frozen=True, kw_only=True)
class CanaryOptions:
    """How an audit with canaries goes.

    Attributes:
        data: the records that the target was made of.
        canaries: insert so many by coins, and run the plan once.
        canary_kind: ``"planted"``: what reveals most (models: gradients, seen step by step); ``"mislabelled"`` records;
            ``"blank"`` ones (models).
        evidence: ``"rows"`` (or steps); ``"neighbours"``, ``"tiles"``: differences, which show noise used twice.
        guesses: coins to guess; what proves most if the claim holds where None.
        split: which part of the dataset.
        columns: what is declared of columns and images.
        features_model: your own copy of the extractor's model, where it is a file or folder.
        trust_features_model: that file may be a program, and may run.
        store: where extracted features are kept (private!) and reused.
        ledger, dataset: the budget that pays, or None of both.
        public_data: the records are public, so the figures are too.
    """

    data: Any = field(
        default=None,
        repr=False,
        metadata={"help": "With `canaries`: the records that TARGET was made of.", "panel": PANEL},
    )
    canaries: int | None = _told(None, "Insert so many by coins, and run TARGET's plan once.")
    canary_kind: str = _told(
        "planted",
        "planted: what reveals most (models: gradients, seen step by step); mislabelled records; blank ones (models).",
    )
    evidence: str = _told("rows", "rows (or steps); neighbours, tiles: differences, which show noise used twice.")
    guesses: int | None = _told(None, "Coins to guess. Default: what proves most if the claim holds.")
    split: str = _told("train", "Which part of the dataset.")
    columns: Columns = field(default_factory=TargetColumns)
    features_model: str | Path | None = field(default=None, metadata={"help": FEATURES_MODEL_HELP, "panel": PANEL})
    trust_features_model: bool = _told(False, TRUST_HELP)
    store: str | Path | None = field(
        default=None, metadata={"help": "Keep extracted features here (private!) and reuse them.", "panel": PANEL}
    )
    ledger: str | None = field(
        default=None, repr=False, metadata={"help": "Charge the run to this ledger before reading.", "panel": PANEL}
    )
    dataset: str | None = _told(None, "With `ledger`: the dataset's name there.")
    public_data: bool = _told(False, "The records are public, so the figures are too.")
