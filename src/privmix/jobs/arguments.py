"""What Python's users may say of a release, training or attack, by name and type: for editors and checkers.

They read text alone, so this repeats what the dataclasses say: ``python -m tests.golden.arguments`` writes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from privmix.features import Extractor
    from privmix.jobs.columns import Columns
    from privmix.plans import Design
    from privmix.training import ExecutionConfig, ExtendedConfig, OptimiserConfig, ViewConfig, WarmUpConfig


class TrainingArguments(TypedDict, total=False):
    """Fields of :class:`privmix.jobs.training_options.TrainingOptions`, which says what each is.

    Those that :func:`privmix.train` names itself are left out, and ``dry_run``, which is a job's.
    """

    out: str | Path | None
    features: str | Extractor
    split: str
    classes: Any
    label: str
    person: Any
    separator: str | None
    decimal: str | None
    encoding: str | None
    header: str | Sequence[str] | None
    no_header: int | None
    columns: str | Sequence[str] | Columns | None
    text_column: str | None
    feature_column: str | None
    feature_length: int | None
    image_column: str
    image_size: int | None
    colour: str | None
    records: int | None
    private_count: bool
    person_pattern: str | None
    person_file: Path | None
    person_missing: str
    per_person: int | None
    ledger: Any
    dataset: str | None
    most_per_person: int | None
    seed: int | None
    pool: Any
    public: Any
    synthetic: Any
    validation: Any
    callbacks: Any
    resume: bool
    overwrite: bool
    store: str | Path | None
    device: str | None
    model: Any | None
    batch_size: int | None
    epochs: float | None
    clip_norm: float | None
    clipping: str | None
    feature_norm: float | None
    mechanism: str | None
    bands: int | None
    microbatch: int | None
    microbatch_mixes: int | None
    microbatch_mixed_only: bool | None
    adjacency: str | None
    optimiser: str | OptimiserConfig | None
    learning_rate: float | None
    momentum: float | None
    schedule: str | None
    ema: float | None
    views: str | ViewConfig | None
    k_base: int | None
    k_self: int | None
    k_diff: int | None
    augment: str | None
    mixing: str | None
    alpha: float | None
    bank: int | None
    scenario: str | None
    warm_up_epochs: int | None
    warm_up_batch: int | None
    warm_up_rate: float | None
    warm_up_optimiser: str | None
    warm_up_rho: float | None
    warm_up_augment: str | None
    warm_up_mixing: str | None
    warm_up_adversary: str | None
    warm_up_adversary_steps: int | None
    public_method: str | None
    public_batch: int | None
    public_max_norm: float | None
    rho: float | None
    perturbations: int | None
    adaptive_multiplicity: bool | None
    strategy: str | None
    chunk: int | None
    amp: bool | None
    compile: bool | None
    model_seed: int | None
    mechanism_options: Any
    warm_up: WarmUpConfig | None
    extended: ExtendedConfig | None
    method_options: Any
    execution: ExecutionConfig | None


class ReleaseArguments(TypedDict, total=False):
    """Fields of :class:`privmix.jobs.release_options.ReleaseOptions`, and of what it holds, which say what each is.

    Those that :func:`privmix.release` names itself are left out; columns are declared as :class:`Columns`, or by name.
    """

    features: str | Extractor
    design: str | Design[Any]
    goal: str
    rows: int | None
    centre: str | None
    clip_norm: float
    residual_clip_norm: float
    split: str
    classes: Any
    label: str
    person: Any
    separator: str | None
    decimal: str | None
    encoding: str | None
    header: str | Sequence[str] | None
    no_header: int | None
    columns: str | Sequence[str] | Columns | None
    text_column: str | None
    feature_column: str | None
    feature_length: int | None
    image_column: str
    image_size: int | None
    colour: str | None
    records: int | None
    proxy: Any
    proxy_classes: Any
    spectrum_decay: float | None
    between_share: float | None
    attainable: float | None
    records_per_person: Any
    public: Any
    public_classes: Any
    public_records: int | None
    title: str | None
    owner: str | None
    contact: str | None
    licence: str | None
    licence_file: Path | None
    purpose: str | None
    date: str | None
    person_pattern: str | None
    person_file: Path | None
    person_missing: str
    per_person: int | None
    replay_for: str | Path | None
    replay_until: str | None
    project: int | None


class MembershipArguments(TypedDict, total=False):
    """Fields of :class:`privmix.jobs.membership.MembershipJob` that :func:`privmix.attack` does not name itself."""

    members: str
    nonmembers: str
    held_out: Any
    attacks: str | Sequence[str]
    references: int
    release: str | Path | None
    work: str | Path | None
    confidence: float
    highest: int
    public_data: bool
    features_model: str | Path | None
    trust_features_model: bool
    classes: Any
    label: str
    person: str | Sequence[str] | None
    separator: str | None
    decimal: str | None
    encoding: str | None
    header: str | Sequence[str] | None
    no_header: int | None
    columns: str | Sequence[str] | Columns | None
    text_column: str | None
    feature_column: str | None
    feature_length: int | None
    image_column: str
    image_size: int | None
    colour: str | None
    module: Any


class CanaryArguments(TypedDict, total=False):
    """Fields of :class:`privmix.jobs.canaries.CanaryJob` that :func:`privmix.audit` does not name itself."""

    data: Any
    canaries: int | None
    canary_kind: str
    evidence: str
    canary_records: int | None
    guesses: int | None
    split: str
    label: str
    person: Any
    separator: str | None
    decimal: str | None
    encoding: str | None
    header: str | Sequence[str] | None
    no_header: int | None
    columns: str | Sequence[str] | Columns | None
    text_column: str | None
    feature_column: str | None
    feature_length: int | None
    image_column: str
    image_size: int | None
    colour: str | None
    person_pattern: str | None
    person_file: Path | None
    person_missing: str
    per_person: int | None
    features_model: str | Path | None
    trust_features_model: bool
    module: Any
    store: str | Path | None
    ledger: str | None
    dataset: str | None
    most_per_person: int | None
    public_data: bool
