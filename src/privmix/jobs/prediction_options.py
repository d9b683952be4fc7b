"""What the planner is asked about every design, option by option; importing this takes no time."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from privmix.jobs.columns import Columns
from privmix.jobs.release_options import Assumptions, ReleaseOptions
from privmix.options import described, option, said


def _as_in_release(name: str, default: Any) -> Any:
    """An option that says what it says of a release."""
    return field(default=default, metadata=ReleaseOptions.__dataclass_fields__[name].metadata)


@described
@dataclass(frozen=True)
class PredictionOptions:
    """At which budget, of which records, and what may be assumed of them; all of it public."""

    epsilon: float = field(metadata=said("Privacy budget, epsilon."))
    delta: float = field(metadata=said("Privacy budget, delta."))
    records: int = field(metadata=said("Record count: public, declared, or a private estimate."))
    classes: str = field(metadata=said("Class list: a number K, names with commas, or @FILE."))
    assumptions: Assumptions = field(default_factory=Assumptions)
    columns: Columns = field(default_factory=Columns)
    dim: int | None = option(None, "Features of a record. Not needed with `proxy`.")
    features: str = _as_in_release("features", "identity")
    rows: int | None = option(None, "Rows to release, T. Default: n.")
    clip_norm: float = _as_in_release("clip_norm", 1.0)
    residual_clip_norm: float = _as_in_release("residual_clip_norm", 0.55)
    figure: Path | None = option(None, "Draw predicted accuracy against epsilon (.svg, .png).")
