"""What is asked of a bound on poisoning, option by option; importing this takes no time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from privmix.options import described, option


@described
@dataclass(frozen=True, kw_only=True)
class CertifiedLineOptions:
    """Against which guarantee, how many records, and what happens without them.

    The guarantee is that of a folder; or of a design with its noise; or an epsilon alone, with delta and adjacency.
    """

    poisoned: int = option(0, "Number of records that the attacker controls.")
    clean_success: float | None = option(
        None, "Probability that what the attacker wants happens without poisoning, where it is known."
    )
    clean_successes: int | None = option(None, "In its place: in how many runs without poisoning it happened.")
    clean_trials: int | None = option(None, "Of so many independent runs.")
    confidence: float = option(0.95, "Of the upper limit that is taken of a base rate that was measured.")
    how: str = option("changed", "What happens to the records: changed, inserted or deleted.")
    folder: Path | None = option(None, "Release or trained model: its plan says what ran.", flag="release")
    epsilon: float | None = option(None, "Epsilon of the guarantee; with `design`, the target that its noise meets.")
    delta: float = option(1e-5, "Delta of the guarantee.")
    adjacency: str | None = option(
        None, "Of an epsilon alone: add_remove (default) or replace_one. Designs and folders have their own."
    )
    records: int | None = option(None, "With `design`: record count n, taken as public.")
    rows: int | None = option(None, "With `design`: rows released, T. Default: n.")
    classes: int = option(10, "With `design`: number of classes (hierarchical, classwise).")
    noise_multiplier: float | None = option(None, "With `design`: joint noise multiplier s, in place of `epsilon`.")
