"""What the planner is asked about every design, option by option; importing this takes no time."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from privmix.jobs.asked import told
from privmix.jobs.columns import Columns
from privmix.jobs.release_options import Assumptions, ReleaseOptions


def _as_in_release(name: str, default: Any) -> Any:
    """An option that says what it says of a release."""
    return field(default=default, metadata=ReleaseOptions.__dataclass_fields__[name].metadata)


@dataclass(frozen=True)
class PredictionOptions:
    """At which budget, of which records, and what may be assumed of them; all of it public.

    Attributes:
        epsilon, delta: the budget.
        records: record count.
        classes: number or names of the classes.
        assumptions: of the records.
        columns: of the public data that the assumptions name.
        dim: features of a record, unless public data say it.
        features: the public extractor, for public data.
        rows: to release; one a record where None.
        clip_norm, residual_clip_norm: of :class:`privmix.designs.Setting`.
        figure: where to draw accuracy against epsilon.
    """

    epsilon: float = field(metadata={"help": "Privacy budget, epsilon."})
    delta: float = field(metadata={"help": "Privacy budget, delta."})
    records: int = field(metadata={"help": "Record count: public, declared, or a private estimate."})
    classes: str = field(metadata={"help": "Class list: a number K, names with commas, or @FILE."})
    assumptions: Assumptions = field(default_factory=Assumptions)
    columns: Columns = field(default_factory=Columns)
    dim: int | None = told(None, "Features of a record. Not needed with `proxy`.")
    features: str = _as_in_release("features", "identity")
    rows: int | None = told(None, "Rows to release, T. Default: n.")
    clip_norm: float = _as_in_release("clip_norm", 1.0)
    residual_clip_norm: float = _as_in_release("residual_clip_norm", 0.55)
    figure: Path | None = told(None, "Draw predicted accuracy against epsilon (.svg, .png).")
