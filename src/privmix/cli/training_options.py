"""Options of ``privmix train``, by the panels in which ``--help`` shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

_PRIVACY: Final = "Privacy"
_TRAINING: Final = "DP-SGD"
_VIEWS: Final = "Views and mixup"
_PUBLIC: Final = "Public data"
_RUNNING: Final = "Running"

Split = Annotated[str, typer.Option(help="Which part of the dataset.")]
Epsilon = Annotated[float, typer.Option(help="Privacy budget, epsilon.")]
Delta = Annotated[float, typer.Option(help="Privacy budget, delta; well below 1/n.")]
Out = Annotated[Path, typer.Option("--out", help="Folder to create.")]
Model = Annotated[
    str,
    typer.Option(
        help="linear (any features); cnn, cnn-relu, resnet-9, wrn-16-4, wrn-40-4, hf:FOLDER_OR_NAME or "
        "hf-head:FOLDER_OR_NAME (images, --features pixels)."
    ),
]

Adjacent = Annotated[
    str,
    typer.Option(
        "--adjacency",
        help="What the guarantee hides: add_remove, that a record is there; replace_one, its content.",
        rich_help_panel=_PRIVACY,
    ),
]
Records = Annotated[
    int | None,
    typer.Option(help="A public record count to plan with; the real one then stays private.", rich_help_panel=_PRIVACY),
]
LedgerUrl = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        help="Charge this ledger before reading: sqlite:///FILE or postgresql://...",
        rich_help_panel=_PRIVACY,
    ),
]
LedgerName = Annotated[
    str | None,
    typer.Option("--dataset", help="With --ledger: the dataset's name there.", rich_help_panel=_PRIVACY),
]
Seed = Annotated[
    int | None,
    typer.Option(help="Tests and benchmarks only: the model is then NOT private.", rich_help_panel=_PRIVACY),
]

Epochs = Annotated[
    float | None, typer.Option(help="Expected passes. Default: 60 linear, 50 else.", rich_help_panel=_TRAINING)
]
BatchSize = Annotated[
    int | None,
    typer.Option(help="Expected batch. Default: about n/7 linear, n/12 else.", rich_help_panel=_TRAINING),
]
ClipNorm = Annotated[
    float | None,
    typer.Option(help="Bound C on the gradient of a record. Default: 0.1 linear, 1 else.", rich_help_panel=_TRAINING),
]
ClippingRule = Annotated[
    str,
    typer.Option("--clipping", help="flat (Abadi et al.) or automatic (Bu et al.).", rich_help_panel=_TRAINING),
]
OptimiserName = Annotated[str, typer.Option("--optimiser", help="sgd or adam.", rich_help_panel=_TRAINING)]
LearningRate = Annotated[
    float | None,
    typer.Option(help="Default: 16 linear, 2 else; 0.001 with adam.", rich_help_panel=_TRAINING),
]
Momentum = Annotated[float | None, typer.Option(help="Of sgd. Default: 0.9 linear, 0 else.", rich_help_panel=_TRAINING)]
Schedule = Annotated[str, typer.Option(help="Learning rate: constant, cosine, linear.", rich_help_panel=_TRAINING)]
Ema = Annotated[
    float | None,
    typer.Option(help="Decay of the averaged weights. Default: 0.95 linear, 0.999 else.", rich_help_panel=_TRAINING),
]
FeatureNorm = Annotated[
    float | None,
    typer.Option(help="Linear: scale features to this length. Default: 16.", rich_help_panel=_TRAINING),
]
Microbatch = Annotated[
    int,
    typer.Option(help="Records clipped together; above 1 costs sensitivity 2C.", rich_help_panel=_TRAINING),
]
MicrobatchMixes = Annotated[
    int, typer.Option(help="Mixed views of a microbatch, beside its records.", rich_help_panel=_TRAINING)
]
MicrobatchMixedOnly = Annotated[
    bool,
    typer.Option(
        "--microbatch-mixed-only",
        help="With --microbatch-mixes: these in place of the records.",
        rich_help_panel=_TRAINING,
    ),
]

Views = Annotated[
    str,
    typer.Option(
        help="plain; self-aug (De et al.); dp-mix-self, dp-mix-diff (DP-Mix; the latter with --pool); pure-diff.",
        rich_help_panel=_VIEWS,
    ),
]
KBase = Annotated[int | None, typer.Option(help="Augmented copies of a record.", rich_help_panel=_VIEWS)]
KSelf = Annotated[int | None, typer.Option(help="Mixes of two views.", rich_help_panel=_VIEWS)]
KDiff = Annotated[int | None, typer.Option(help="Public examples from --pool.", rich_help_panel=_VIEWS)]
Pool = Annotated[
    str | None, typer.Option(help="Public labelled examples to mix with: a dataset.", rich_help_panel=_VIEWS)
]
Augment = Annotated[
    str | None,
    typer.Option(
        help="With commas: flip, crop, jitter, affine, cutout, noise, blur, sobel, all; or none. "
        "Default: flip,crop with such views or --bank.",
        rich_help_panel=_VIEWS,
    ),
]
Mixing = Annotated[str, typer.Option(help="mixup or cutmix.", rich_help_panel=_VIEWS)]
Alpha = Annotated[float, typer.Option(help="Mixing weights are Beta(alpha, alpha).", rich_help_panel=_VIEWS)]
Bank = Annotated[
    int,
    typer.Option(
        help="Linear on images: features of so many augmented copies of each, extracted once.",
        rich_help_panel=_VIEWS,
    ),
]

Scenario = Annotated[
    str,
    typer.Option(
        help="cold: none is used; warm, warm-synthetic: training starts from it; extended: it helps in every step.",
        rich_help_panel=_PUBLIC,
    ),
]
Public = Annotated[
    str | None, typer.Option(help="Real public records of the same classes: a dataset.", rich_help_panel=_PUBLIC)
]
Synthetic = Annotated[
    str | None, typer.Option(help="Synthetic records, made from public data only.", rich_help_panel=_PUBLIC)
]
PublicMethod = Annotated[
    str,
    typer.Option(
        help="With extended: multiplicity, dope, mirror, adadps; multiplicity+dope and so on.",
        rich_help_panel=_PUBLIC,
    ),
]
PublicBatch = Annotated[
    int | None, typer.Option(help="With extended: public records a step. Default: 64.", rich_help_panel=_PUBLIC)
]
Rho = Annotated[
    float | None, typer.Option(help="Radius of weight multiplicity. Default: 0.1.", rich_help_panel=_PUBLIC)
]
Perturbations = Annotated[
    int | None, typer.Option(help="Of weight multiplicity. Default: one a view.", rich_help_panel=_PUBLIC)
]
WarmUpEpochs = Annotated[
    int | None, typer.Option(help="Passes over public records. Default: 100.", rich_help_panel=_PUBLIC)
]
WarmUpRate = Annotated[
    float | None, typer.Option(help="Learning rate of the warm-up. Default: 0.05.", rich_help_panel=_PUBLIC)
]
WarmUpOptimiser = Annotated[str | None, typer.Option(help="sgd, sam or asam. Default: sam.", rich_help_panel=_PUBLIC)]
WarmUpAugment = Annotated[
    str | None,
    typer.Option(help="Of the warm-up's images, as --augment. Default: as the private views.", rich_help_panel=_PUBLIC),
]
WarmUpMixing = Annotated[
    str | None,
    typer.Option(help="Mix public records in the warm-up: mixup or cutmix. Default: neither.", rich_help_panel=_PUBLIC),
]

DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show the plan; read no private row.", rich_help_panel=_RUNNING)
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Finish an interrupted run with the same options.", rich_help_panel=_RUNNING)
]
Overwrite = Annotated[
    bool,
    typer.Option(
        "--overwrite", help="Replace an existing --out; discard an interrupted run.", rich_help_panel=_RUNNING
    ),
]
JsonOutput = Annotated[
    bool, typer.Option("--json", help="Print the plan or certificate as JSON.", rich_help_panel=_RUNNING)
]
Store = Annotated[
    Path | None,
    typer.Option(help="Keep extracted features here (private!) and reuse them.", rich_help_panel=_RUNNING),
]
Device = Annotated[
    str | None, typer.Option(help="cpu or cuda. Default: cuda if there is one.", rich_help_panel=_RUNNING)
]
Strategy = Annotated[
    str,
    typer.Option(help="auto (measured), loop, vmap, ghost, closed-form: speed only.", rich_help_panel=_RUNNING),
]
Chunk = Annotated[
    int | None, typer.Option(help="Records computed at once. Default: what fits.", rich_help_panel=_RUNNING)
]
Amp = Annotated[bool, typer.Option("--amp", help="bfloat16 forward passes.", rich_help_panel=_RUNNING)]
Compile = Annotated[bool, typer.Option("--compile", help="torch.compile.", rich_help_panel=_RUNNING)]
ModelSeed = Annotated[int, typer.Option(help="Initial weights and public draws; public.", rich_help_panel=_RUNNING)]
