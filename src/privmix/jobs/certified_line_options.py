"""What is asked of a bound on poisoning, option by option; importing this takes no time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from privmix.jobs.asked import told


@dataclass(frozen=True, kw_only=True)
class CertifiedLineOptions:
    """Against which guarantee, how many records, and what happens without them.

    The guarantee is that of a folder; or of a design with its noise; or an epsilon alone, with delta and adjacency.

    Attributes:
        poisoned: number of records that the attacker controls.
        clean_success: probability that what the attacker wants happens without poisoning, where it is known; or
        clean_successes, clean_trials: in how many of so many independent runs it happened.
        confidence: of the upper limit that is taken of a measured base rate.
        how: what happens to the records: changed, inserted or deleted.
        folder: of a release or trained model: its certificate's plan says what ran.
        epsilon, delta: of the guarantee; with a design, the target that its noise meets.
        adjacency: of an epsilon alone: add_remove or replace_one; a design and a folder have their own.
        records, rows, classes, noise_multiplier: with a design, as for its price.
    """

    poisoned: int = told(0, "Number of records that the attacker controls.")
    clean_success: float | None = told(
        None, "Probability that what the attacker wants happens without poisoning, where it is known."
    )
    clean_successes: int | None = told(None, "In its place: in how many runs without poisoning it happened.")
    clean_trials: int | None = told(None, "Of so many independent runs.")
    confidence: float = told(0.95, "Of the upper limit that is taken of a base rate that was measured.")
    how: str = told("changed", "What happens to the records: changed, inserted or deleted.")
    folder: Path | None = told(None, "Release or trained model: its plan says what ran.", flag="release")
    epsilon: float | None = told(None, "Epsilon of the guarantee; with `design`, the target that its noise meets.")
    delta: float = told(1e-5, "Delta of the guarantee.")
    adjacency: str | None = told(
        None, "Of an epsilon alone: add_remove (default) or replace_one. Designs and folders have their own."
    )
    records: int | None = told(None, "With `design`: record count n, taken as public.")
    rows: int | None = told(None, "With `design`: rows released, T. Default: n.")
    classes: int = told(10, "With `design`: number of classes (hierarchical, classwise).")
    noise_multiplier: float | None = told(None, "With `design`: joint noise multiplier s, in place of `epsilon`.")
