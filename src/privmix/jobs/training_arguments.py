"""What Python's users may say of a training, by name and type: editors and type checkers read it here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from privmix.features import Extractor


class TrainingArguments(TypedDict, total=False):
    """Fields of :class:`privmix.jobs.training_options.TrainingOptions`, which says what each is.

    Those that :func:`privmix.train` names itself are left out, and ``dry_run``, which is a job's.
    """

    out: str | Path | None
    features: str | Extractor
    model: str
    split: str
    classes: Any
    adjacency: str
    records: int | None
    ledger: Any
    dataset: str | None
    seed: int | None
    epochs: float | None
    batch_size: int | None
    clip_norm: float | None
    clipping: str
    optimiser: str
    learning_rate: float | None
    momentum: float | None
    schedule: str
    ema: float | None
    feature_norm: float | None
    mechanism: str
    bands: int
    microbatch: int
    microbatch_mixes: int
    microbatch_mixed_only: bool
    views: str
    k_base: int | None
    k_self: int | None
    k_diff: int | None
    pool: Any
    augment: str | None
    mixing: str
    alpha: float
    bank: int
    scenario: str
    public: Any
    synthetic: Any
    public_method: str
    public_batch: int | None
    public_max_norm: float | None
    rho: float | None
    perturbations: int | None
    adaptive_multiplicity: bool
    warm_up_epochs: int | None
    warm_up_rate: float | None
    warm_up_batch: int | None
    warm_up_optimiser: str | None
    warm_up_rho: float | None
    warm_up_augment: str | None
    warm_up_mixing: str | None
    warm_up_adversary: str | None
    warm_up_adversary_steps: int | None
    resume: bool
    overwrite: bool
    store: str | Path | None
    device: str | None
    strategy: str
    chunk: int | None
    amp: bool
    compile: bool
    model_seed: int
