"""``privmix train``: train a private model with DP-SGD."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import torch.distributed as dist
import typer
from rich.table import Table

from privmix.accounting import Adjacency
from privmix.cli.app import app, err, out, plain, print_json, progress_bars
from privmix.cli.options import (
    Classes,
    Columns,
    Data,
    FeatureColumn,
    Features,
    ImageColumn,
    ImageSize,
    LabelColumn,
    TextColumn,
    check_writable,
    open_for,
)
from privmix.cli.pipeline import Charge, charge, class_list, features_in_memory, features_on_disk
from privmix.data import Source
from privmix.errors import InvalidInput, StorageError, check_choice
from privmix.features import Extractor, parse_features
from privmix.mechanisms.streams import SecretStreams
from privmix.training import (
    ExecutionConfig,
    ExtendedConfig,
    ModelFacts,
    OptimiserConfig,
    Pool,
    PublicData,
    TrainedModel,
    TrainingConfig,
    TrainingJob,
    TrainingRecords,
    TrainingRun,
    ViewConfig,
    WarmUpConfig,
    current_world,
    parse_augmentations,
    read_run,
)
from privmix.training.bank import extract_bank
from privmix.training.world import World

_VIEWS: dict[str, Callable[[], ViewConfig]] = {
    "plain": ViewConfig.plain,
    "self-aug": ViewConfig.self_aug,
    "dp-mix-self": ViewConfig.dp_mix_self,
    "dp-mix-diff": ViewConfig.dp_mix_diff,
    "pure-diff": ViewConfig.pure_diff,
}
_TRAINING, _AUGMENT, _PUBLIC = "DP-SGD", "Views and mixup", "Public data"
_INPUT, _RUNNING = "Data columns", "Running"


@app.command()
def train(
    data: Data,
    epsilon: Annotated[float, typer.Option(help="Privacy budget, epsilon.")],
    delta: Annotated[float, typer.Option(help="Privacy budget, delta; well below 1/n.")],
    out_folder: Annotated[Path, typer.Option("--out", help="Folder to create.")],
    features: Features = "pixels",
    model: Annotated[
        str,
        typer.Option(
            help="linear (any features); cnn, cnn-relu, resnet-9, wrn-16-4, wrn-40-4, hf:FOLDER_OR_NAME or "
            "hf-head:FOLDER_OR_NAME (images, --features pixels)."
        ),
    ] = "linear",
    epochs: Annotated[
        float | None, typer.Option(help="Expected passes. Default: 30 linear, 50 else.", rich_help_panel=_TRAINING)
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(help="Expected batch. Default: about n/7 linear, n/12 else.", rich_help_panel=_TRAINING),
    ] = None,
    clip_norm: Annotated[
        float | None,
        typer.Option(help="Bound C on a gradient. Default: 0.1 linear, 1 else.", rich_help_panel=_TRAINING),
    ] = None,
    clipping: Annotated[
        str, typer.Option(help="flat (Abadi et al.) or automatic (Bu et al.).", rich_help_panel=_TRAINING)
    ] = "flat",
    learning_rate: Annotated[
        float | None, typer.Option(help="Default: 16 linear, 2 else.", rich_help_panel=_TRAINING)
    ] = None,
    optimiser: Annotated[str, typer.Option(help="sgd or adam.", rich_help_panel=_TRAINING)] = "sgd",
    momentum: Annotated[
        float | None, typer.Option(help="Of sgd. Default: 0.9 linear, 0 else.", rich_help_panel=_TRAINING)
    ] = None,
    schedule: Annotated[
        str, typer.Option(help="Learning rate: constant, cosine, linear.", rich_help_panel=_TRAINING)
    ] = "constant",
    ema: Annotated[
        float | None,
        typer.Option(
            help="Decay of the averaged weights. Default: 0.95 linear, 0.999 else.", rich_help_panel=_TRAINING
        ),
    ] = None,
    feature_norm: Annotated[
        float | None,
        typer.Option(help="Linear: scale features to this length. Default: 16.", rich_help_panel=_TRAINING),
    ] = None,
    microbatch: Annotated[
        int, typer.Option(help="Records clipped together; above 1 costs sensitivity 2C.", rich_help_panel=_TRAINING)
    ] = 1,
    microbatch_mixes: Annotated[int, typer.Option(help="Mixed views of a microbatch.", rich_help_panel=_TRAINING)] = 0,
    views: Annotated[
        str,
        typer.Option(
            help="plain; self-aug (De et al.); dp-mix-self, dp-mix-diff (DP-Mix); pure-diff.", rich_help_panel=_AUGMENT
        ),
    ] = "plain",
    k_base: Annotated[int | None, typer.Option(help="Augmented copies of a record.", rich_help_panel=_AUGMENT)] = None,
    k_self: Annotated[int | None, typer.Option(help="Mixes of two views.", rich_help_panel=_AUGMENT)] = None,
    k_diff: Annotated[int | None, typer.Option(help="Public examples from --pool.", rich_help_panel=_AUGMENT)] = None,
    augment: Annotated[
        str | None,
        typer.Option(
            help="With commas: flip, crop, jitter, affine, cutout, noise, blur, sobel, all; or none. "
            "Default with views: flip,crop.",
            rich_help_panel=_AUGMENT,
        ),
    ] = None,
    mixing: Annotated[str, typer.Option(help="mixup or cutmix.", rich_help_panel=_AUGMENT)] = "mixup",
    alpha: Annotated[
        float, typer.Option(help="Mixing weights are Beta(alpha, alpha).", rich_help_panel=_AUGMENT)
    ] = 0.2,
    bank: Annotated[
        int,
        typer.Option(
            help="Linear on images: features of so many augmented copies of each, extracted once.",
            rich_help_panel=_AUGMENT,
        ),
    ] = 0,
    pool: Annotated[
        str | None, typer.Option(help="Public labelled examples to mix with: a dataset.", rich_help_panel=_AUGMENT)
    ] = None,
    scenario: Annotated[
        str, typer.Option(help="cold, warm, warm-synthetic or extended.", rich_help_panel=_PUBLIC)
    ] = "cold",
    public: Annotated[
        str | None, typer.Option(help="Real public records of the same classes.", rich_help_panel=_PUBLIC)
    ] = None,
    synthetic: Annotated[
        str | None, typer.Option(help="Synthetic records, made from public data only.", rich_help_panel=_PUBLIC)
    ] = None,
    public_method: Annotated[
        str,
        typer.Option(
            help="extended: multiplicity, dope, mirror, adadps; multiplicity+dope and so on.", rich_help_panel=_PUBLIC
        ),
    ] = "none",
    public_batch: Annotated[int, typer.Option(help="Public records a step.", rich_help_panel=_PUBLIC)] = 64,
    rho: Annotated[float, typer.Option(help="Radius of weight multiplicity.", rich_help_panel=_PUBLIC)] = 0.1,
    perturbations: Annotated[
        int | None, typer.Option(help="Of weight multiplicity. Default: one a view.", rich_help_panel=_PUBLIC)
    ] = None,
    warm_up_epochs: Annotated[int, typer.Option(help="Passes over public records.", rich_help_panel=_PUBLIC)] = 100,
    warm_up_rate: Annotated[float, typer.Option(help="Learning rate of the warm-up.", rich_help_panel=_PUBLIC)] = 0.05,
    warm_up_optimiser: Annotated[str, typer.Option(help="sgd, sam or asam.", rich_help_panel=_PUBLIC)] = "sam",
    split: Annotated[str, typer.Option(help="Which part of the dataset.", rich_help_panel=_INPUT)] = "train",
    classes: Classes = None,
    label_column: LabelColumn = "label",
    image_column: ImageColumn = "image",
    feature_column: FeatureColumn = None,
    text_column: TextColumn = None,
    image_size: ImageSize = None,
    records: Annotated[int | None, typer.Option(help="A public record count to use in place of the real one.")] = None,
    adjacency: Annotated[str, typer.Option(help="add_remove, or replace_one.")] = Adjacency.ADD_REMOVE.value,
    store: Annotated[
        Path | None,
        typer.Option(help="Keep extracted features here (private!) and reuse them.", rich_help_panel=_RUNNING),
    ] = None,
    ledger: Annotated[
        str | None, typer.Option(help="Charge this ledger before reading: sqlite:///FILE or postgresql://...")
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="With --ledger: the dataset's name there.")] = None,
    strategy: Annotated[
        str,
        typer.Option(help="auto (measured), loop, vmap, ghost, closed-form: speed only.", rich_help_panel=_RUNNING),
    ] = "auto",
    chunk: Annotated[
        int | None, typer.Option(help="Records computed at once. Default: what fits.", rich_help_panel=_RUNNING)
    ] = None,
    amp: Annotated[bool, typer.Option(help="bfloat16 forward passes.", rich_help_panel=_RUNNING)] = False,
    compile_model: Annotated[bool, typer.Option("--compile", help="torch.compile.", rich_help_panel=_RUNNING)] = False,
    device: Annotated[
        str | None, typer.Option(help="cpu or cuda. Default: cuda if there is one.", rich_help_panel=_RUNNING)
    ] = None,
    model_seed: Annotated[int, typer.Option(help="Initial weights; public.", rich_help_panel=_RUNNING)] = 0,
    seed: Annotated[
        int | None,
        typer.Option(help="Tests and benchmarks only: the model is then NOT private.", rich_help_panel=_RUNNING),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Finish an interrupted run with the same options.")] = False,
    overwrite: Annotated[bool, typer.Option(help="Replace an existing --out.")] = False,
    dry_run: Annotated[bool, typer.Option(help="Show the plan; read no private row.")] = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print the plan or certificate as JSON.")] = False,
) -> None:
    """Train a private model with DP-SGD: mixup, augmentation, public data.

    The plan (batches, steps, noise) is made from public facts before any private row is read, and one plan serves the
    sampler, the noise and the accountant. An interrupted run is finished by the same command with --resume: its weights
    are then those of a run without the interruption, and it is not charged twice. Under torchrun, every process takes
    its share of each batch.

    Example: privmix train --data mnist --features scattering --epsilon 1.2 --delta 1e-5 --out MODEL

    DP-Mix: privmix train --data cifar10 --model wrn-16-4 --views dp-mix-self --epsilon 8 --delta 1e-5 --out MODEL

    Public data: privmix train ... --scenario extended --public PUBLIC --public-method multiplicity
    """
    if (ledger is None) != (dataset is None):
        raise InvalidInput("--ledger, --dataset", (ledger, dataset), "both or none of them")
    if ledger is not None and seed is not None:
        raise InvalidInput("--seed", seed, "no seed with --ledger: a model that anyone can re-create has no price")
    if bank and store is not None:
        raise InvalidInput("--store", str(store), "none with --bank: its views are drawn anew for each run")
    for flag, place in (("--out", out_folder.parent), ("--store", store)):
        if place is not None and not dry_run:
            check_writable(flag, place)
    extractor = parse_features(features)
    columns = Columns(label_column, image_column, feature_column, text_column, image_size)
    source = open_for(extractor, data, split, class_list(classes), columns)
    view_config = _views(views, k_base, k_self, k_diff, augment, mixing, alpha)
    copies = view_config.augmentations if bank else ()
    if bank:
        view_config = replace(view_config, augmentations=())
    config = TrainingConfig.for_model(
        model,
        records=source.schema.records if records is None else records,
        epsilon=epsilon,
        delta=delta,
        epochs=epochs,
        batch_size=batch_size,
        clip_norm=clip_norm,
        clipping=clipping,
        feature_norm=feature_norm,
        microbatch_size=microbatch,
        microbatch_mixes=microbatch_mixes,
        adjacency=Adjacency(check_choice("--adjacency", adjacency, [item.value for item in Adjacency])),
        views=view_config,
        bank_views=bank,
        bank_augmentations=copies,
        scenario=scenario,
        warm_up=WarmUpConfig(epochs=warm_up_epochs, learning_rate=warm_up_rate, optimiser=warm_up_optimiser),
        extended=ExtendedConfig(
            method=public_method, batch_size=public_batch, rho=rho, perturbations=perturbations or view_config.views
        ),
        execution=ExecutionConfig(strategy, chunk, amp, compile_model),
        model_seed=model_seed,
    )
    config = replace(config, optimiser=_optimiser(config.optimiser, optimiser, learning_rate, momentum, schedule, ema))
    facts = ModelFacts(
        tuple(source.schema.classes),
        extractor.spec(),
        tuple(source.schema.input_shape),
        extractor.output_dim(source.schema.input_shape),
    )
    job = TrainingJob(
        config,
        facts,
        source.schema.records if records is None else records,
        public=_public(public, extractor, facts, columns),
        synthetic=_public(synthetic, extractor, facts, columns),
        pool=None if pool is None else _pool(pool, extractor, facts, columns),
        records_declared=records is not None,
        device=device,
    )
    _warn(job, seed)
    if dry_run:
        _show_plan(job, json_output)
        return
    with current_world() as world:
        job.check_world(world)
        made = _run(
            job, source, extractor, world, data, split, out_folder, store, ledger, dataset, seed, resume, overwrite
        )
        if world.is_head:
            _show_result(made, out_folder, json_output)


def _run(
    job: TrainingJob,
    source: Source,
    extractor: Extractor,
    world: World,
    data: str,
    split: str,
    out_folder: Path,
    store: Path | None,
    ledger: str | None,
    dataset: str | None,
    seed: int | None,
    resume: bool,
    overwrite: bool,
) -> TrainedModel:
    """Charge, read, train; processes beside the head read and compute, and neither charge nor write."""
    if not world.is_head:
        # Nothing private is read before the head has paid.
        dist.barrier()
        with progress_bars(quiet=True) as progress:
            streams = world.share_streams(None) if job.config.bank_views else None
            found = _records(job, source, extractor, store, progress, data, split, streams)
            return job.run(found, world=world)
    TrainingRun.check_target(out_folder, overwrite=overwrite)
    # A run that is to be discarded need not be readable.
    interrupted = None if overwrite and not resume else read_run(out_folder)
    if interrupted is not None and not resume:
        raise InvalidInput("--resume", False, f"--resume or --overwrite: an interrupted run was making {out_folder}")
    if resume and interrupted is None:
        raise InvalidInput("--resume", True, "the --out of an interrupted run; there is none")
    if resume and interrupted is not None:
        TrainingRun.check_settings(interrupted, job.settings())
        charged = Charge.again(ledger, dataset, interrupted["extra"].get("reservation"), data)
    else:
        # Before the first private row is read: a crash from here on leaves the budget spent.
        charged = charge(ledger, dataset, job.plan.event(), job.plan.adjacency, "training", data)
    streams = None if seed is None or resume else SecretStreams.from_seed(seed)
    with (
        progress_bars() as progress,
        TrainingRun(
            out_folder,
            job.settings(),
            streams=streams,
            extra={"reservation": charged.note()},
            overwrite=overwrite,
            resume=resume,
        ) as run,
    ):
        if world.size > 1:
            dist.barrier()
        banked = world.share_streams(run.streams.derive("view bank")) if job.config.bank_views else None
        found = _records(job, source, extractor, store, progress, data, split, banked)
        made = job.run(found, run=run, in_ledger=ledger is not None, progress=progress, world=world)
    try:
        charged.done(f"model {made.certificate['model_id']}")
    except StorageError as error:
        err.print(
            f"[yellow]warning:[/] the model is written and charged, but not noted as done: {plain(error)}",
            soft_wrap=True,
        )
    return made


def _records(
    job: TrainingJob,
    source: Source,
    extractor: Extractor,
    store: Path | None,
    progress: Callable[[str, int, int], None],
    data: str,
    split: str,
    bank: SecretStreams | None,
) -> TrainingRecords:
    classes = source.schema.num_classes
    if bank is not None:
        config = job.config
        return extract_bank(source, extractor, config.bank_augmentations, config.bank_views, bank, progress)
    if store is not None:
        kept = features_on_disk(source, extractor, store, progress, data, split)
        return TrainingRecords.of(kept.features, kept.labels, classes=classes)
    found = features_in_memory(source, extractor, progress)
    return TrainingRecords.of(found.features, found.labels, classes=classes)


def _views(
    name: str,
    k_base: int | None,
    k_self: int | None,
    k_diff: int | None,
    augmentations: str | None,
    mixing: str,
    alpha: float,
) -> ViewConfig:
    """A preset with what was given in its place."""
    found = _VIEWS[check_choice("--views", name, _VIEWS)]()
    if augmentations is not None:
        chosen = () if augmentations == "none" else parse_augmentations(augmentations)
        found = replace(found, augmentations=chosen)
    counts = {"k_base": k_base, "k_self": k_self, "k_diff": k_diff}
    given = {field: value for field, value in counts.items() if value is not None}
    return replace(found, mixing=mixing, alpha=alpha, **given)  # type: ignore[arg-type]


def _optimiser(
    found: OptimiserConfig,
    name: str,
    learning_rate: float | None,
    momentum: float | None,
    schedule: str,
    ema: float | None,
) -> OptimiserConfig:
    given: dict[str, Any] = {"learning_rate": learning_rate, "momentum": momentum, "ema_decay": ema}
    if name == "adam" and learning_rate is None:
        given["learning_rate"] = 1e-3
    if name == "adam" and momentum is not None:
        raise InvalidInput("--momentum", momentum, "none with --optimiser adam")
    changes = {field: value for field, value in given.items() if value is not None}
    return replace(found, name=name, schedule=schedule, **changes)


def _pool(place: str, extractor: Extractor, facts: ModelFacts, columns: Columns) -> Pool:
    text = columns.text or ("text" if extractor.name in ("minilm", "text") else None)
    return Pool.open(
        place,
        extractor,
        facts.classes,
        input_shape=facts.input_shape,
        label_column=columns.label,
        image_column=columns.image,
        feature_column=columns.feature,
        text_column=text,
        columns=getattr(extractor, "columns", None),
        image_size=columns.image_size,
    )


def _public(place: str | None, extractor: Extractor, facts: ModelFacts, columns: Columns) -> PublicData | None:
    if place is None:
        return None
    found = _pool(place, extractor, facts, columns)
    return PublicData(found.x, found.targets)


def _warn(job: TrainingJob, seed: int | None) -> None:
    plan = job.plan
    if plan.delta >= 1 / plan.records:
        err.print(f"[yellow]warning:[/] delta {plan.delta:g} is not below 1/records = {1 / plan.records:.3g}")
    if seed is not None:
        err.print("[yellow]warning:[/] --seed makes the noise reproducible: this model is NOT private")


def _show_result(model: TrainedModel, folder: Path, json_output: bool) -> None:
    if json_output:
        print_json(model.certificate)
        return
    guarantee = model.certificate["guarantee"]
    out.print(
        f"trained: {plain(model.network.architecture)} to {plain(folder)}\n"
        f"guarantee: epsilon {guarantee['epsilon']:.4g}, delta {guarantee['delta']:g}, "
        f"adjacency {guarantee['adjacency']} (accountant {guarantee['accountant']})\n"
        f"next: privmix evaluate {plain(shlex.quote(str(folder)))} --data DIR --split test",
        soft_wrap=True,
    )


def _show_plan(job: TrainingJob, json_output: bool) -> None:
    plan = job.plan
    if json_output:
        print_json({"plan": plan.to_dict(), "epsilon": plan.epsilon(), "settings": job.settings()})
        return
    table = Table(title="plan (public; made before any private row is used)", title_justify="left", show_header=False)
    facts = {
        "model": f"{job.config.model}, {sum(p.numel() for p in job.network.parameters() if p.requires_grad)} trained",
        "records, features, classes": f"{plan.records}, {job.facts.dim}, {len(job.facts.classes)}",
        "target": f"epsilon {job.config.epsilon:g}, delta {plan.delta:g}, adjacency {plan.adjacency.value}",
        "batches": f"Poisson, {plan.batch_size} expected, {plan.steps} steps, {plan.epochs:.4g} epochs",
        "views of a record": str(job.views.views),
        "clipping": f"{job.config.clipping}, C = {plan.clip_norm:g}, sensitivity {plan.sensitivity:g}",
        "noise multiplier": f"{plan.noise_multiplier:.5g}",
        "public data": job.config.scenario,
    }
    for name, value in facts.items():
        table.add_row(name, plain(value))
    out.print(table)
