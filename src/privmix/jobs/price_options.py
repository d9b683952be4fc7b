"""What is asked of a price, option by option; importing this takes no time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from privmix.jobs.asked import DELTA_HELP, told


@dataclass(frozen=True, kw_only=True)
class PriceOptions:
    """Of which plan, by which accountant.

    Attributes:
        records: record count n, taken as public.
        rows: rows released, T; n where None.
        delta: of (epsilon, delta)-DP; None: 1e-5, or that of ``release``.
        release: folder of a release or trained model, whose whole plan is priced in place of a design.
        noise_multiplier: joint noise multiplier s of a row; answers with epsilon.
        epsilon: target; answers with the least noise multiplier.
        classes: how many.
        accountant: its name.
        every: ask all accountants.
        as_published: the papers' figure, which is no bound.
        adjacency: relation to price for; the design's own where None, and another one only where that is proven.
    """

    records: int | None = told(None, "Record count n, taken as public.")
    rows: int | None = told(None, "Rows released, T. Default: n.")
    delta: float | None = told(None, f"{DELTA_HELP} Default: 1e-05, or the release's.")
    release: Path | None = told(
        None, "Release or trained model: price all that its plan ran, the mean query too, in place of a design."
    )
    noise_multiplier: float | None = told(None, "Joint noise multiplier s of a row (features and labels together).")
    epsilon: float | None = told(None, "Target: find the least noise that meets it.")
    classes: int = told(10, "Number of classes (hierarchical, classwise).")
    accountant: str = told("pld", "pld, rdp, moments, pure; gdp_clt, as_published compare.")
    every: bool = told(False, "A table over all accountants.", flag="all")
    adjacency: str | None = told(
        None, "Neighbours: add_remove or replace_one. Default: the design's own; fixed with laplace noise has both."
    )
    as_published: bool = told(False, "The papers' figure: a comparison, not a bound.", off="no")
