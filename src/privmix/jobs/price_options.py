"""What is asked of a price, option by option; importing this takes no time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from privmix.jobs.asked import DELTA_HELP
from privmix.options import described, option


@described
@dataclass(frozen=True, kw_only=True)
class PriceOptions:
    """Of which plan, by which accountant."""

    records: int | None = option(None, "Record count n, taken as public.")
    rows: int | None = option(None, "Rows released, T. Default: n.")
    delta: float | None = option(None, f"{DELTA_HELP} Default: 1e-05, or the release's.")
    release: Path | None = option(
        None, "Release or trained model: price all that its plan ran, the mean query too, in place of a design."
    )
    noise_multiplier: float | None = option(None, "Joint noise multiplier s of a row (features and labels together).")
    epsilon: float | None = option(None, "Target: find the least noise that meets it.")
    classes: int = option(10, "Number of classes (hierarchical, classwise).")
    accountant: str = option("pld", "pld, rdp, moments, pure; gdp_clt, as_published compare.")
    every: bool = option(False, "A table over all accountants.", flag="all")
    adjacency: str | None = option(
        None, "Neighbours: add_remove or replace_one. Default: the design's own; fixed with laplace noise has both."
    )
    as_published: bool = option(False, "The papers' figure: a comparison, not a bound.", off="no")
