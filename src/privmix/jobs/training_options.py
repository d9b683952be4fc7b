"""What is asked of a DP-SGD run, option by option; importing this takes no time."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from privmix._registry import told as told_by
from privmix.accounting.events import Adjacency
from privmix.jobs.asked import CLASSES_HELP, Asked, told
from privmix.jobs.columns import Columns

_PRIVACY: Final = "Privacy"
_DP_SGD: Final = "DP-SGD"
_VIEWS: Final = "Views and mixup"
_PUBLIC: Final = "Public data"
_RUNNING: Final = "Running"


def _names(part: str) -> str:
    """The variants of a part of training, for help, which waits for no import."""
    return ", ".join(said["name"] for said in told_by(f"privmix.training.{part}"))


def _models(*, of_images: bool) -> str:
    kinds = told_by("privmix.training.models")
    return ", ".join(sorted(said["called"] for said in kinds if said.get("takes_images", True) is of_images))


def _views() -> str:
    words = {said["name"]: said.get("words") for said in told_by("privmix.training.views")}
    return "; ".join(f"{name} ({more})" if more else name for name, more in words.items())


def _mechanisms() -> str:
    return "; ".join(f"{said['name']} ({said['words']})" for said in told_by("privmix.training.mechanisms"))


@dataclass(frozen=True, eq=False)
class TrainingOptions(Asked):
    """What is asked of a DP-SGD run. What is None takes the model's own default.

    Attributes (and those of :class:`Asked`):
        model: its name; see :func:`privmix.training.models.build_model`.
        split, classes, columns: of the dataset.
        records: a public record count to plan with; the real one then stays private.
        ledger, dataset: the budget that pays, or None of both.
        seed: for tests and benchmarks; takes the privacy away.
        pool: public labelled examples to mix with: a dataset, in a file or in memory.
        public: real public records of the same classes.
        synthetic: synthetic records, made from public data only.
        dry_run: only plan.
        resume: finish an interrupted run; all else must be as it was.
        overwrite: replace a model at ``out``; discard an interrupted run.
        store: where features are kept and reused, in the clear; None keeps none.
        device: ``cpu`` or ``cuda``; CUDA if there is any where None.
        adjacency: what the guarantee hides: ``add_remove``, that a record is there; ``replace_one``, its content.
        epochs: expected passes; 60 for the linear model, 50 for others.
        batch_size: expected batch; about n/7 linear, n/12 else.
        clip_norm: bound C on the gradient of a record; 0.1 linear, 1 else.
        clipping: ``flat`` (Abadi et al. 2016) or ``automatic`` (Bu et al. 2023).
        optimiser: ``sgd`` or ``adam``.
        learning_rate: 16 linear, 2 else; 0.001 with adam.
        momentum: of sgd; 0.9 linear, 0 else.
        schedule: of the learning rate: ``constant``, ``cosine`` or ``linear``.
        ema: decay of the averaged weights; 0.95 linear, 0.999 else.
        feature_norm: linear: features are scaled to this length; 16.
        mechanism: how batches and noise are made; see :mod:`privmix.training.mechanisms`.
        bands: with banded: over so many steps noise is correlated, and a record's turn is every so many.
        microbatch: records clipped together; above 1 costs sensitivity 2C.
        microbatch_mixes: mixed views of a microbatch, beside its records.
        microbatch_mixed_only: these in place of the records.
        views: a preset by its name; see :mod:`privmix.training.views.presets`.
        k_base: augmented copies of a record.
        k_self: mixes of two views.
        k_diff: public examples from the pool.
        augment: with commas: flip, crop, jitter, affine, cutout, noise, blur, sobel, all, autoaugment; or none.
        mixing: ``mixup`` or ``cutmix``.
        alpha: mixing weights are Beta(alpha, alpha).
        bank: linear on images: features of so many augmented copies of each, extracted once.
        scenario: of public data: ``cold``: none is used; ``warm``, ``warm-synthetic``: training starts from it;
            ``extended``: it helps in every step.
        public_method: with extended: one of :mod:`privmix.training.public`, or two as in ``multiplicity+dope``.
        public_batch: with extended: public records a step; 64.
        public_max_norm: with extended: public gradients are cut to this length. None: to the clipping bound for methods
            that step along them, dope and mirror; never for others.
        rho: radius of weight multiplicity; 0.1.
        perturbations: of weight multiplicity; one a view.
        adaptive_multiplicity: scale its perturbations by the weights' sizes, as ASAM does.
        warm_up_epochs: passes over public records; 100.
        warm_up_rate: learning rate of the warm-up; 0.05.
        warm_up_batch: records of a step of the warm-up; 100.
        warm_up_optimiser: ``sgd``, ``sam`` or ``asam``; sam.
        warm_up_rho: radius of sam or asam; 0.1.
        warm_up_augment: of the warm-up's images, as ``augment``; as the private views.
        warm_up_mixing: mix public records in the warm-up: ``mixup`` or ``cutmix``; neither.
        warm_up_adversary: train on adversarial examples of this radius in the warm-up, as in ``8/255``; none.
        warm_up_adversary_steps: of gradient ascent for each of them; 7.
        strategy: ``auto`` (measured), or one of :mod:`privmix.training.gradients`: speed only.
        chunk: records computed at once; what fits.
        amp: bfloat16 forward passes.
        compile: ``torch.compile``.
        model_seed: initial weights and public draws; public.
    """

    model: str = told(
        "linear",
        f"{_models(of_images=False)} (any features); {_models(of_images=True)} (images, `features` pixels).",
    )
    split: str = told("train", "Which part of the dataset.")
    classes: Any = told(None, CLASSES_HELP)
    columns: Columns = field(default_factory=Columns)
    adjacency: str = told(
        Adjacency.ADD_REMOVE.value,
        "What the guarantee hides: add_remove, that a record is there; replace_one, its content.",
        _PRIVACY,
    )
    records: int | None = told(None, "A public record count to plan with; the real one then stays private.", _PRIVACY)
    ledger: Any = field(
        default=None,
        repr=False,
        metadata={"help": "Charge this ledger before reading: sqlite:///FILE or postgresql://...", "panel": _PRIVACY},
    )
    dataset: str | None = told(None, "With `ledger`: the dataset's name there.", _PRIVACY)
    seed: int | None = told(None, "Tests and benchmarks only: the model is then NOT private.", _PRIVACY)
    epochs: float | None = told(None, "Expected passes. Default: 60 linear, 50 else.", _DP_SGD)
    batch_size: int | None = told(None, "Expected batch. Default: about n/7 linear, n/12 else.", _DP_SGD)
    clip_norm: float | None = told(None, "Bound C on the gradient of a record. Default: 0.1 linear, 1 else.", _DP_SGD)
    clipping: str = told("flat", "flat (Abadi et al.) or automatic (Bu et al.).", _DP_SGD)
    optimiser: str = told("sgd", "sgd or adam.", _DP_SGD)
    learning_rate: float | None = told(None, "Default: 16 linear, 2 else; 0.001 with adam.", _DP_SGD)
    momentum: float | None = told(None, "Of sgd. Default: 0.9 linear, 0 else.", _DP_SGD)
    schedule: str = told("constant", "Learning rate: constant, cosine, linear.", _DP_SGD)
    ema: float | None = told(None, "Decay of the averaged weights. Default: 0.95 linear, 0.999 else.", _DP_SGD)
    feature_norm: float | None = told(None, "Linear: scale features to this length. Default: 16.", _DP_SGD)
    mechanism: str = told("dp-sgd", f"How steps are made private: {_mechanisms()}.", _DP_SGD)
    bands: int = told(0, "With `mechanism` banded: over so many steps noise is correlated.", _DP_SGD)
    microbatch: int = told(1, "Records clipped together; above 1 costs sensitivity 2C.", _DP_SGD)
    microbatch_mixes: int = told(0, "Mixed views of a microbatch, beside its records.", _DP_SGD)
    microbatch_mixed_only: bool = told(False, "With `microbatch_mixes`: these in place of the records.", _DP_SGD)
    views: str = told(
        "plain",
        f"{_views()}.",
        _VIEWS,
    )
    k_base: int | None = told(None, "Augmented copies of a record.", _VIEWS)
    k_self: int | None = told(None, "Mixes of two views.", _VIEWS)
    k_diff: int | None = told(None, "Public examples from `pool`.", _VIEWS)
    pool: Any = field(
        default=None, metadata={"help": "Public labelled examples to mix with: a dataset.", "panel": _VIEWS}
    )
    augment: str | None = told(
        None,
        "With commas: flip, crop, jitter, affine, cutout, noise, blur, sobel, all, autoaugment; or none. "
        "Default: flip,crop with such views or `bank`.",
        _VIEWS,
    )
    mixing: str = told("mixup", "mixup or cutmix.", _VIEWS)
    alpha: float = told(0.2, "Mixing weights are Beta(alpha, alpha).", _VIEWS)
    bank: int = told(0, "Linear on images: features of so many augmented copies of each, extracted once.", _VIEWS)
    scenario: str = told(
        "cold",
        "cold: none is used; warm, warm-synthetic: training starts from it; extended: it helps in every step.",
        _PUBLIC,
    )
    public: Any = field(
        default=None, metadata={"help": "Real public records of the same classes: a dataset.", "panel": _PUBLIC}
    )
    synthetic: Any = field(
        default=None, metadata={"help": "Synthetic records, made from public data only.", "panel": _PUBLIC}
    )
    public_method: str = told("none", f"With extended: {_names('public')}; multiplicity+dope and so on.", _PUBLIC)
    public_batch: int | None = told(None, "With extended: public records a step. Default: 64.", _PUBLIC)
    public_max_norm: float | None = told(
        None,
        "Public gradients are cut to this length. Default: the clipping bound for dope and mirror, which step along "
        "them; never for others.",
        _PUBLIC,
    )
    rho: float | None = told(None, "Radius of weight multiplicity. Default: 0.1.", _PUBLIC)
    perturbations: int | None = told(None, "Of weight multiplicity. Default: one a view.", _PUBLIC)
    adaptive_multiplicity: bool = told(
        False,
        "Of weight multiplicity: perturb each weight in proportion to its size (ASAM), which wants a `rho` ten times "
        "as large.",
        _PUBLIC,
    )
    warm_up_epochs: int | None = told(None, "Passes over public records. Default: 100.", _PUBLIC)
    warm_up_rate: float | None = told(None, "Learning rate of the warm-up. Default: 0.05.", _PUBLIC)
    warm_up_batch: int | None = told(None, "Records of a step of the warm-up. Default: 100.", _PUBLIC)
    warm_up_optimiser: str | None = told(None, "sgd, sam or asam. Default: sam.", _PUBLIC)
    warm_up_rho: float | None = told(None, "Radius of sam or asam. Default: 0.1.", _PUBLIC)
    warm_up_augment: str | None = told(
        None, "Of the warm-up's images, as `augment`. Default: as the private views.", _PUBLIC
    )
    warm_up_mixing: str | None = told(
        None, "Mix public records in the warm-up: mixup or cutmix. Default: neither.", _PUBLIC
    )
    warm_up_adversary: str | None = told(
        None, "Train on adversarial examples in the warm-up: their radius, as in 8/255. Default: none.", _PUBLIC
    )
    warm_up_adversary_steps: int | None = told(None, "Of gradient ascent for each of them. Default: 7.", _PUBLIC)
    dry_run: bool = told(False, "Show the plan; read no private row.", _RUNNING)
    resume: bool = told(False, "Finish an interrupted run with the same options.", _RUNNING)
    overwrite: bool = told(False, "Replace an existing `out`; discard an interrupted run.", _RUNNING)
    store: Path | None = field(
        default=None, metadata={"help": "Keep extracted features here (private!) and reuse them.", "panel": _RUNNING}
    )
    device: str | None = told(None, "cpu or cuda. Default: cuda if there is one.", _RUNNING)
    strategy: str = told("auto", f"auto (measured), {_names('gradients')}: speed only.", _RUNNING)
    chunk: int | None = told(None, "Records computed at once. Default: what fits.", _RUNNING)
    amp: bool = told(False, "bfloat16 forward passes.", _RUNNING)
    compile: bool = told(False, "torch.compile.", _RUNNING)
    model_seed: int = told(0, "Initial weights and public draws; public.", _RUNNING)
