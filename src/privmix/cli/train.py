"""``privmix train``: train a private model with DP-SGD."""

from __future__ import annotations

import shlex
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from rich.table import Table

from privmix.accounting import Adjacency
from privmix.cli import training_options as options
from privmix.cli.app import app, err, out, plain, print_json
from privmix.cli.options import (
    Classes,
    Colour,
    Data,
    FeatureColumn,
    FeatureLength,
    Features,
    ImageColumn,
    ImageSize,
    LabelColumn,
    NumberColumns,
    TextColumn,
)
from privmix.cli.training_run import Order, run_job
from privmix.cli.training_setup import (
    check_bank,
    check_device,
    extended_of,
    optimiser_of,
    public_of,
    takes_images,
    views_of,
    warm_up_of,
)
from privmix.errors import check_choice
from privmix.features import parse_features
from privmix.jobs.columns import Columns, class_list
from privmix.jobs.dataset import open_for
from privmix.jobs.public_data import contents_of, refuse_private
from privmix.rounding import exact, rounded_up
from privmix.training import (
    ExecutionConfig,
    ModelFacts,
    TrainedModel,
    TrainingConfig,
    TrainingJob,
    current_world,
)
from privmix.training.world import World


@app.command()
def train(
    data: Data,
    epsilon: options.Epsilon,
    delta: options.Delta,
    out_folder: options.Out,
    features: Features = "pixels",
    model: options.Model = "linear",
    split: options.Split = "train",
    classes: Classes = None,
    label_column: LabelColumn = "label",
    image_column: ImageColumn = "image",
    feature_column: FeatureColumn = None,
    text_column: TextColumn = None,
    image_size: ImageSize = None,
    colour: Colour = None,
    number_columns: NumberColumns = None,
    feature_length: FeatureLength = None,
    adjacency: options.Adjacent = Adjacency.ADD_REMOVE.value,
    records: options.Records = None,
    ledger: options.LedgerUrl = None,
    dataset: options.LedgerName = None,
    seed: options.Seed = None,
    epochs: options.Epochs = None,
    batch_size: options.BatchSize = None,
    clip_norm: options.ClipNorm = None,
    clipping: options.ClippingRule = "flat",
    optimiser: options.OptimiserName = "sgd",
    learning_rate: options.LearningRate = None,
    momentum: options.Momentum = None,
    schedule: options.Schedule = "constant",
    ema: options.Ema = None,
    feature_norm: options.FeatureNorm = None,
    microbatch: options.Microbatch = 1,
    microbatch_mixes: options.MicrobatchMixes = 0,
    microbatch_mixed_only: options.MicrobatchMixedOnly = False,
    views: options.Views = "plain",
    k_base: options.KBase = None,
    k_self: options.KSelf = None,
    k_diff: options.KDiff = None,
    pool: options.Pool = None,
    augment: options.Augment = None,
    mixing: options.Mixing = "mixup",
    alpha: options.Alpha = 0.2,
    bank: options.Bank = 0,
    scenario: options.Scenario = "cold",
    public: options.Public = None,
    synthetic: options.Synthetic = None,
    public_method: options.PublicMethod = "none",
    public_batch: options.PublicBatch = None,
    rho: options.Rho = None,
    perturbations: options.Perturbations = None,
    warm_up_epochs: options.WarmUpEpochs = None,
    warm_up_rate: options.WarmUpRate = None,
    warm_up_optimiser: options.WarmUpOptimiser = None,
    warm_up_augment: options.WarmUpAugment = None,
    warm_up_mixing: options.WarmUpMixing = None,
    dry_run: options.DryRun = False,
    resume: options.Resume = False,
    overwrite: options.Overwrite = False,
    json_output: options.JsonOutput = False,
    store: options.Store = None,
    device: options.Device = None,
    strategy: options.Strategy = "auto",
    chunk: options.Chunk = None,
    amp: options.Amp = False,
    compile_model: options.Compile = False,
    model_seed: options.ModelSeed = 0,
) -> None:
    """Train a private model with DP-SGD: mixup, augmentation, public data.

    The plan (batches, steps, noise) is made from public facts before any private row is read, and one plan serves \
the sampler, the noise and the accountant; --dry-run shows it. An interrupted run is finished by the same command \
with --resume: its weights are then those of a run without the interruption, and it is not charged twice. Under \
torchrun, every process takes its share of each batch.

    Linear head on fixed features: privmix train --data mnist --features scattering --epsilon 1.2 --delta 1e-5 \
--out MODEL

    DP-Mix: privmix train --data cifar10 --model wrn-16-4 --views dp-mix-self --epsilon 8 --delta 1e-5 --out MODEL

    Public data: privmix train ... --scenario extended --public PUBLIC --public-method multiplicity
    """
    order = Order(data, split, out_folder, store, ledger, dataset, seed, resume, overwrite, bank, dry_run)
    order.check()
    check_device(device)
    shared = {"--pool": pool, "--public": public, "--synthetic": synthetic}
    refuse_private(shared, data, split)
    extractor = parse_features(features)
    columns = Columns(
        label_column, image_column, feature_column, text_column, image_size, colour, number_columns, feature_length
    )
    source = open_for(extractor, data, split, class_list(classes), columns)
    check_bank(bank, source, microbatch_mixes)
    counts = {"k_base": k_base, "k_self": k_self, "k_diff": k_diff}
    on_images = takes_images(model, extractor)
    view_config, copies = views_of(views, counts, augment, mixing, alpha, on_images=on_images, bank=bank)
    planned = source.schema.records if records is None else records
    config = TrainingConfig.for_model(
        model,
        records=planned,
        epsilon=epsilon,
        delta=delta,
        epochs=epochs,
        batch_size=batch_size,
        clip_norm=clip_norm,
        clipping=clipping,
        feature_norm=feature_norm,
        microbatch_size=microbatch,
        microbatch_mixes=microbatch_mixes,
        microbatch_keep=not microbatch_mixed_only,
        adjacency=Adjacency(check_choice("--adjacency", adjacency, [item.value for item in Adjacency])),
        views=view_config,
        bank_views=bank,
        bank_augmentations=copies,
        scenario=scenario,
        warm_up=warm_up_of(
            scenario,
            {
                "epochs": warm_up_epochs,
                "learning_rate": warm_up_rate,
                "optimiser": warm_up_optimiser,
                "augmentations": warm_up_augment,
                "mixing": warm_up_mixing,
            },
            on_images=on_images,
        ),
        extended=extended_of(scenario, public_method, public_batch, rho, perturbations, view_config.views),
        execution=ExecutionConfig(strategy, chunk, amp, compile_model),
        model_seed=model_seed,
    )
    config = replace(
        config, optimiser=optimiser_of(config.optimiser, optimiser, learning_rate, momentum, schedule, ema)
    )
    shape = tuple(source.schema.input_shape)
    facts = ModelFacts(tuple(source.schema.classes), extractor.spec(), shape, extractor.output_dim(shape))
    # Each process of several has its own CUDA device from here on; a plan alone needs no other process.
    with nullcontext(World()) if dry_run else current_world(device) as world:
        job = TrainingJob(
            config,
            facts,
            planned,
            public=public_of("--public", public, extractor, facts, columns),
            synthetic=public_of("--synthetic", synthetic, extractor, facts, columns),
            pool=public_of("--pool", pool, extractor, facts, columns),
            records_declared=records is not None,
            device=device,
        )
        job.check_world(world)
        if world.is_head:
            _warn(job, seed)
        if dry_run:
            _show_plan(job, json_output)
            return
        contents = contents_of(shared, extractor, facts, columns) if world.is_head else {}
        made = run_job(job, source, extractor, order, world, contents)
        if world.is_head:
            _show_result(made, out_folder, json_output)


def _warn(job: TrainingJob, seed: int | None) -> None:
    plan = job.plan
    if plan.delta >= 1 / plan.records:
        err.print(f"[yellow]warning:[/] delta {exact(plan.delta)} is not below 1/records = {1 / plan.records:.3g}")
    if seed is not None:
        err.print("[yellow]warning:[/] --seed makes the noise reproducible: this model is NOT private")


def _show_result(model: TrainedModel, folder: Path, json_output: bool) -> None:
    if json_output:
        print_json(model.certificate)
        return
    guarantee = model.certificate["guarantee"]
    out.print(
        f"trained: {plain(model.network.architecture)} to {plain(folder)}\n"
        f"guarantee: epsilon {rounded_up(guarantee['epsilon'], 4)}, delta {exact(guarantee['delta'])}, "
        f"adjacency {guarantee['adjacency']} (accountant {guarantee['accountant']})\n"
        f"next: privmix evaluate {plain(shlex.quote(str(folder)))} --data DIR --split test",
        soft_wrap=True,
    )


def _show_plan(job: TrainingJob, json_output: bool) -> None:
    plan = job.plan
    if json_output:
        print_json({"plan": plan.to_dict(), "epsilon": plan.cost().epsilon, "settings": job.settings()})
        return
    table = Table(title="plan (public; made before any private row is used)", title_justify="left", show_header=False)
    facts = {
        "model": f"{job.config.model}, {sum(p.numel() for p in job.network.parameters() if p.requires_grad)} trained",
        "records, features, classes": f"{plan.records}, {job.facts.dim}, {len(job.facts.classes)}",
        "target": f"epsilon {exact(job.config.epsilon)}, delta {exact(plan.delta)}, adjacency {plan.adjacency.value}",
        "batches": f"Poisson, {plan.batch_size} expected, {plan.steps} steps, {plan.epochs:.4g} epochs",
        "views of a record": str(job.views.views),
        "clipping": f"{job.config.clipping}, C = {plan.clip_norm:g}, sensitivity {plan.sensitivity:g}",
        "noise multiplier": f"{plan.noise_multiplier:.5g}",
        "public data": job.config.scenario,
    }
    for name, value in facts.items():
        table.add_row(name, plain(value))
    out.print(table)
