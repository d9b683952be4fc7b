"""What is asked of an audit, option by option; importing this takes no time."""

from __future__ import annotations

from dataclasses import dataclass

from privmix.audits.defaults import CONFIDENCE, RUNS
from privmix.jobs.asked import DELTA_HELP
from privmix.options import described, option


@described
@dataclass(frozen=True, kw_only=True)
class DesignClaim:
    """What is claimed of a design that is audited without a release."""

    records: int | None = option(None, "Record count n of the design.")
    rows: int | None = option(None, "Rows released, T. Default: n.")
    epsilon: float | None = option(None, "Claim of the design.")
    delta: float = option(1e-5, DELTA_HELP)
    classes: int = option(10, "Number of classes.")
    centre: str = option("none", "none, or private: release the mean first.")
    as_published: bool = option(
        False,
        "Take the noise from the papers' formula: audits the published claim.",
        off="no",
    )


@described
@dataclass(frozen=True, kw_only=True)
class AuditOptions:
    """How an audit goes."""

    runs: int | None = option(None, f"Independent runs, half of them with the record. Default: {RUNS}.")
    confidence: float = option(CONFIDENCE, "Of what is said to be proven.")
    seed: int | None = option(None, "For tests: the same runs again.")
