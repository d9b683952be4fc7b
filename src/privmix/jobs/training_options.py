"""What is asked of a DP-SGD run, option by option; importing this takes no time."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from privmix._registry import told as told_by
from privmix.accounting.events import Adjacency
from privmix.jobs.asked import CLASSES_HELP, Asked
from privmix.jobs.columns import Columns
from privmix.options import described, option, said

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
    return "; ".join(f"{one['name']} ({one['words']})" for one in told_by("privmix.training.mechanisms"))


@described
@dataclass(frozen=True, eq=False)
class TrainingOptions(Asked):
    """What is asked of a DP-SGD run. What is None takes the model's own default."""

    model: str = option(
        "linear",
        f"{_models(of_images=False)} (any features); {_models(of_images=True)} (images, `features` pixels).",
    )
    split: str = option("train", "Which part of the dataset.")
    classes: Any = option(None, CLASSES_HELP)
    columns: Columns = field(default_factory=Columns)
    adjacency: str = option(
        Adjacency.ADD_REMOVE.value,
        "What the guarantee hides: add_remove, that a record is there; replace_one, its content.",
        _PRIVACY,
    )
    records: int | None = option(None, "A public record count to plan with; the real one then stays private.", _PRIVACY)
    ledger: Any = field(
        default=None,
        repr=False,
        metadata=said("Charge this ledger before reading: sqlite:///FILE or postgresql://...", _PRIVACY),
    )
    dataset: str | None = option(None, "With `ledger`: the dataset's name there.", _PRIVACY)
    seed: int | None = option(None, "Tests and benchmarks only: the model is then NOT private.", _PRIVACY)
    epochs: float | None = option(None, "Expected passes. Default: 60 linear, 50 else.", _DP_SGD)
    batch_size: int | None = option(None, "Expected batch. Default: about n/7 linear, n/12 else.", _DP_SGD)
    clip_norm: float | None = option(None, "Bound C on the gradient of a record. Default: 0.1 linear, 1 else.", _DP_SGD)
    clipping: str = option("flat", "flat (Abadi et al.) or automatic (Bu et al.).", _DP_SGD)
    optimiser: str = option("sgd", "sgd or adam.", _DP_SGD)
    learning_rate: float | None = option(None, "Default: 16 linear, 2 else; 0.001 with adam.", _DP_SGD)
    momentum: float | None = option(None, "Of sgd. Default: 0.9 linear, 0 else.", _DP_SGD)
    schedule: str = option("constant", "Learning rate: constant, cosine, linear.", _DP_SGD)
    ema: float | None = option(None, "Decay of the averaged weights. Default: 0.95 linear, 0.999 else.", _DP_SGD)
    feature_norm: float | None = option(None, "Linear: scale features to this length. Default: 16.", _DP_SGD)
    mechanism: str = option("dp-sgd", f"How steps are made private: {_mechanisms()}.", _DP_SGD)
    bands: int = option(0, "With `mechanism` banded: over so many steps noise is correlated.", _DP_SGD)
    microbatch: int = option(1, "Records clipped together; above 1 costs sensitivity 2C.", _DP_SGD)
    microbatch_mixes: int = option(0, "Mixed views of a microbatch, beside its records.", _DP_SGD)
    microbatch_mixed_only: bool = option(False, "With `microbatch_mixes`: these in place of the records.", _DP_SGD)
    views: str = option(
        "plain",
        f"{_views()}.",
        _VIEWS,
    )
    k_base: int | None = option(None, "Augmented copies of a record.", _VIEWS)
    k_self: int | None = option(None, "Mixes of two views.", _VIEWS)
    k_diff: int | None = option(None, "Public examples from `pool`.", _VIEWS)
    pool: Any = option(None, "Public labelled examples to mix with: a dataset.", _VIEWS)
    augment: str | None = option(
        None,
        "With commas: flip, crop, jitter, affine, cutout, noise, blur, sobel, all, autoaugment; or none. "
        "Default: flip,crop with such views or `bank`.",
        _VIEWS,
    )
    mixing: str = option("mixup", "mixup or cutmix.", _VIEWS)
    alpha: float = option(0.2, "Mixing weights are Beta(alpha, alpha).", _VIEWS)
    bank: int = option(0, "Linear on images: features of so many augmented copies of each, extracted once.", _VIEWS)
    scenario: str = option(
        "cold",
        "cold: none is used; warm, warm-synthetic: training starts from it; extended: it helps in every step.",
        _PUBLIC,
    )
    public: Any = option(None, "Real public records of the same classes: a dataset.", _PUBLIC)
    synthetic: Any = option(None, "Synthetic records, made from public data only.", _PUBLIC)
    public_method: str = option("none", f"With extended: {_names('public')}; multiplicity+dope and so on.", _PUBLIC)
    public_batch: int | None = option(None, "With extended: public records a step. Default: 64.", _PUBLIC)
    public_max_norm: float | None = option(
        None,
        "Public gradients are cut to this length. Default: the clipping bound for dope and mirror, which step along "
        "them; never for others.",
        _PUBLIC,
    )
    rho: float | None = option(None, "Radius of weight multiplicity. Default: 0.1.", _PUBLIC)
    perturbations: int | None = option(None, "Of weight multiplicity. Default: one a view.", _PUBLIC)
    adaptive_multiplicity: bool = option(
        False,
        "Of weight multiplicity: perturb each weight in proportion to its size (ASAM), which wants a `rho` ten times "
        "as large.",
        _PUBLIC,
    )
    warm_up_epochs: int | None = option(None, "Passes over public records. Default: 100.", _PUBLIC)
    warm_up_rate: float | None = option(None, "Learning rate of the warm-up. Default: 0.05.", _PUBLIC)
    warm_up_batch: int | None = option(None, "Records of a step of the warm-up. Default: 100.", _PUBLIC)
    warm_up_optimiser: str | None = option(None, "sgd, sam or asam. Default: sam.", _PUBLIC)
    warm_up_rho: float | None = option(None, "Radius of sam or asam. Default: 0.1.", _PUBLIC)
    warm_up_augment: str | None = option(
        None, "Of the warm-up's images, as `augment`. Default: as the private views.", _PUBLIC
    )
    warm_up_mixing: str | None = option(
        None, "Mix public records in the warm-up: mixup or cutmix. Default: neither.", _PUBLIC
    )
    warm_up_adversary: str | None = option(
        None, "Train on adversarial examples in the warm-up: their radius, as in 8/255. Default: none.", _PUBLIC
    )
    warm_up_adversary_steps: int | None = option(None, "Of gradient ascent for each of them. Default: 7.", _PUBLIC)
    dry_run: bool = option(False, "Show the plan; read no private row.", _RUNNING)
    resume: bool = option(False, "Finish an interrupted run with the same options.", _RUNNING)
    overwrite: bool = option(False, "Replace an existing `out`; discard an interrupted run.", _RUNNING)
    store: Path | None = option(None, "Keep extracted features here (private!) and reuse them.", _RUNNING)
    device: str | None = option(None, "cpu or cuda. Default: cuda if there is one.", _RUNNING)
    strategy: str = option("auto", f"auto (measured), {_names('gradients')}: speed only.", _RUNNING)
    chunk: int | None = option(None, "Records computed at once. Default: what fits.", _RUNNING)
    amp: bool = option(False, "bfloat16 forward passes.", _RUNNING)
    compile: bool = option(False, "torch.compile.", _RUNNING)
    model_seed: int = option(0, "Initial weights and public draws; public.", _RUNNING)
