"""What is asked of an audit with canaries, option by option; importing this takes no time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from privmix.jobs.asked import FEATURES_MODEL_HELP, TRUST_HELP
from privmix.jobs.columns import Columns
from privmix.options import described, option, said

PANEL: Final = "Canaries in the owner's data"
_option = partial(option, panel=PANEL)


@described
@dataclass(frozen=True)
class TargetColumns(Columns):
    """Columns of the records that a release or model was made of, which says what images and lists are like."""

    label_column: str = _option("label", "The labels' column.")
    image_column: str = _option("image", "The column of encoded images.")
    feature_column: str | None = _option(None, "The column of number lists.")
    text_column: str | None = _option(None, "The texts' column.")
    image_size: int | None = _option(None, "Side that images are scaled to. Default: TARGET's.")
    colour: str | None = _option(None, "grey or rgb, for images. Default: as TARGET's.")
    number_columns: str | Sequence[str] | None = _option(None, "Columns of numbers, with commas.", flag="columns")
    feature_length: int | None = _option(None, "How many numbers each list has. Default: TARGET's.")
    separator: str | None = _option(None, "CSV: what stands between cells: , ; | or tab.")
    decimal: str | None = _option(None, "CSV: the decimal mark of numbers, a point or a comma.")
    encoding: str | None = _option(None, "CSV: utf-8, latin-1, cp1252 (Windows), cp1250 or iso-8859-15.")


@described
@dataclass(frozen=True, kw_only=True)
class CanaryOptions:
    """How an audit with canaries goes."""

    data: Any = field(
        default=None,
        repr=False,
        metadata=said("With `canaries`: the records that TARGET was made of.", PANEL),
    )
    canaries: int | None = _option(None, "Insert so many by coins, and run TARGET's plan once.")
    canary_kind: str = _option(
        "planted",
        "planted: what reveals most (models: gradients, seen step by step); mislabelled records; blank ones (models).",
    )
    evidence: str = _option("rows", "rows (or steps); neighbours, tiles: differences, which show noise used twice.")
    guesses: int | None = _option(None, "Coins to guess. Default: what proves most if the claim holds.")
    split: str = _option("train", "Which part of the dataset.")
    columns: Columns = field(default_factory=TargetColumns)
    features_model: str | Path | None = option(None, FEATURES_MODEL_HELP, PANEL)
    trust_features_model: bool = _option(False, TRUST_HELP)
    store: str | Path | None = option(None, "Keep extracted features here (private!) and reuse them.", PANEL)
    ledger: str | None = field(
        default=None, repr=False, metadata=said("Charge the run to this ledger before reading.", PANEL)
    )
    dataset: str | None = _option(None, "With `ledger`: the dataset's name there.")
    public_data: bool = _option(False, "The records are public, so the figures are too.")
