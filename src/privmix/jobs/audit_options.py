"""What is asked of an audit, option by option; importing this takes no time."""

from __future__ import annotations

from dataclasses import dataclass

from privmix.attacks.defaults import CONFIDENCE, RUNS
from privmix.jobs.asked import DELTA_HELP, told


@dataclass(frozen=True, kw_only=True)
class DesignClaim:
    """What is claimed of a design that is audited without a release.

    Attributes:
        records: record count n.
        rows: rows released, T; n where None.
        epsilon, delta: the claim.
        classes: how many.
        centre: ``"none"``, or ``"private"``: the mean is released first.
        as_published: the noise is that of the papers' formula.
    """

    records: int | None = told(None, "Record count n of the design.")
    rows: int | None = told(None, "Rows released, T. Default: n.")
    epsilon: float | None = told(None, "Claim of the design.")
    delta: float = told(1e-5, DELTA_HELP)
    classes: int = told(10, "Number of classes.")
    centre: str = told("none", "none, or private: release the mean first.")
    as_published: bool = told(
        False,
        "Take the noise from the papers' formula: audits the published claim.",
        off="no",
    )


@dataclass(frozen=True, kw_only=True)
class AuditOptions:
    """How an audit goes.

    Attributes:
        runs: of the worst case: independent runs, half of them with the record; 10,000 where None.
        confidence: of what is said to be proven.
        seed: for tests: the same runs again.
    """

    runs: int | None = told(None, f"Independent runs, half of them with the record. Default: {RUNS}.")
    confidence: float = told(CONFIDENCE, "Of what is said to be proven.")
    seed: int | None = told(None, "For tests: the same runs again.")
