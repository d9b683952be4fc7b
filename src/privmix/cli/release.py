"""``privmix release``: turn a private dataset into a differentially private release."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from privmix.cli.app import app, err, out, plain, print_json
from privmix.cli.design_options import design_help, design_options
from privmix.cli.options import (
    AUTO,
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
    check_engine,
)
from privmix.cli.planning import BetweenShare, Proxy, ProxyClasses, SpectrumDecay, data_model, picture_of
from privmix.cli.progress import progress_bars
from privmix.designs import MomentsPlan, Plan, all_designs
from privmix.errors import InvalidInput, check_number
from privmix.features import parse_features
from privmix.jobs.columns import Columns, class_list
from privmix.jobs.dataset import open_dataset
from privmix.jobs.places import check_writable
from privmix.jobs.public_data import refuse_private
from privmix.jobs.release import Chosen, ReleaseJob, interrupted
from privmix.release import (
    Choice,
    ReleaseConfig,
    choose_design,
)
from privmix.release.count import count_noise
from privmix.release.folder import RELEASE_FOLDER
from privmix.rounding import exact, rounded_up

# More records than any setting asks for.
_STAND_IN = 2**40


@app.command()
def release(
    context: typer.Context,
    data: Data,
    epsilon: Annotated[float, typer.Option(help="Privacy budget, epsilon.")],
    delta: Annotated[float, typer.Option(help="Privacy budget, delta; well below 1/n.")],
    out_folder: Annotated[Path, typer.Option("--out", help="Folder to create.")],
    features: Features = "pixels",
    design: Annotated[
        str,
        typer.Option(
            help="poisson, moments, classwise, hierarchical, fixed, random-weight; auto lets the planner choose."
        ),
    ] = "poisson",
    mixup_degree: Annotated[int, typer.Option(help=design_help("mixup_degree"))] = 64,
    rows: Annotated[int | None, typer.Option(help="Rows to release, T. Default: n; moments: at most 10,000.")] = None,
    centre: Annotated[str | None, typer.Option(help="private releases and subtracts the mean first; none.")] = None,
    noise: Annotated[str, typer.Option(help=design_help("noise"))] = "gaussian",
    clip_norm: Annotated[float, typer.Option(help="Bound on a record's feature norm.")] = 1.0,
    residual_clip_norm: Annotated[float, typer.Option(help="Bound after centring, as a share of --clip-norm.")] = 0.55,
    label_noise_ratio: Annotated[float, typer.Option(help=design_help("label_noise_ratio"))] = 1.0,
    label_share: Annotated[float, typer.Option(help=design_help("label_share"))] = 0.5,
    expected_classes: Annotated[float, typer.Option(help=design_help("expected_classes"))] = 3.0,
    full_batch: Annotated[bool, typer.Option(help=design_help("full_batch"))] = False,
    dirichlet_alpha: Annotated[float, typer.Option(help=design_help("dirichlet_alpha"))] = 1.0,
    max_weight: Annotated[float, typer.Option(help=design_help("max_weight"))] = 1.0,
    split: Annotated[str, typer.Option(help="Which part of the dataset.")] = "train",
    classes: Classes = None,
    label_column: LabelColumn = "label",
    image_column: ImageColumn = "image",
    feature_column: FeatureColumn = None,
    text_column: TextColumn = None,
    image_size: ImageSize = None,
    colour: Colour = None,
    number_columns: NumberColumns = None,
    feature_length: FeatureLength = None,
    records: Annotated[int | None, typer.Option(help="A public record count to use in place of the real one.")] = None,
    private_count: Annotated[
        bool, typer.Option("--private-count", help="The record count is private: estimate it, and pay for that.")
    ] = False,
    proxy: Proxy = None,
    proxy_classes: ProxyClasses = None,
    spectrum_decay: SpectrumDecay = None,
    between_share: BetweenShare = None,
    store: Annotated[Path | None, typer.Option(help="Keep extracted features here (private!) and reuse them.")] = None,
    ledger: Annotated[
        str | None, typer.Option(help="Charge this ledger before reading: sqlite:///FILE or postgresql://...")
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="With --ledger: the dataset's name there.")] = None,
    engine: Annotated[str, typer.Option(help="local, or ray for a cluster (moments: local).")] = "local",
    memory_gb: Annotated[
        float | None, typer.Option(help="Memory for sums and records, GiB; more is streamed. Default: half of it all.")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Threads (ray: tasks at once). Default: every core.")] = None,
    ray_address: Annotated[str | None, typer.Option(help="Ray: the cluster. Default: start one here.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Finish an interrupted run with the same options.")] = False,
    seed: Annotated[
        int | None, typer.Option(help="Tests and benchmarks only: the release is then NOT private.")
    ] = None,
    dry_run: Annotated[bool, typer.Option(help="Show the plan; read no private row.")] = False,
    overwrite: Annotated[bool, typer.Option(help="Replace an existing --out.")] = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print the plan or certificate as JSON.")] = False,
) -> None:
    """Turn a private dataset into a differentially private release.

    The plan (design, noise, guarantee) is made from public facts before any private row is read. The result is a
    folder with Parquet shards, certificate.json and a data card; hand it to anyone. An interrupted run is finished by
    the same command with --resume, and is not charged twice.

    Example: privmix release --data mnist --features scattering --design auto --epsilon 1 --delta 1e-5 --out REL

    Texts: privmix release --data train.csv.gz --text-column text --classes 77 --features minilm --design auto ...

    Tables: privmix release --data adult --label-column income --features tabular:adult.json ...
    """
    RELEASE_FOLDER.check_target(out_folder, overwrite=overwrite)
    if (ledger is None) != (dataset is None):
        raise InvalidInput("--ledger, --dataset", (ledger, dataset), "both or none of them")
    if ledger is not None and seed is not None:
        raise InvalidInput("--seed", seed, "no seed with --ledger: a release that anyone can re-create has no price")
    if private_count and (records is not None or dry_run):
        raise InvalidInput("--private-count", True, "neither with --records nor with --dry-run: it reads the count")
    names = (AUTO, *(kind.name for kind in all_designs()))
    if design not in names:
        raise InvalidInput("--design", design, ", ".join(names))
    if design != AUTO and any(value is not None for value in (proxy, proxy_classes, spectrum_decay, between_share)):
        raise InvalidInput("--design", design, "auto with --proxy, --spectrum-decay or --between-share")
    chosen = _chosen(design, design_options(context))
    check_engine(engine, design, memory_gb, workers, ray_address)
    for flag, place in (("out", out_folder.parent), ("store", store)):
        if place is not None and not dry_run:
            check_writable(flag, place)
    refuse_private({"--proxy": proxy}, data, split)
    check_number("epsilon", epsilon, low=0, low_open=True)
    check_number("delta", delta, low=0, high=1, high_open=True)
    extractor = parse_features(features)
    columns = Columns(
        label_column, image_column, feature_column, text_column, image_size, colour, number_columns, feature_length
    )
    opened = open_dataset(data, extractor, split=split, classes=class_list(classes), columns=columns)
    state = None if dry_run else interrupted(out_folder, resume=resume, overwrite=overwrite)
    config = ReleaseConfig(
        # A private count is a query that costs: whatever else is wrong shows before it, with a stand-in.
        records=_STAND_IN if private_count else opened.schema.records if records is None else records,
        dim=extractor.output_dim(opened.schema.input_shape),
        classes=tuple(opened.schema.classes),
        **chosen,
        rows=rows,
        clip_norm=clip_norm,
        centre=centre,
        residual_clip_norm=residual_clip_norm,
        records_noise_multiplier=count_noise(epsilon, delta) if private_count else None,
        records_declared=records is not None,
    )
    if config.design.fixed_size and config.records != opened.schema.records:
        raise InvalidInput("--records", records, f"the real record count (leave it out) for design {design}")

    def choose(config: ReleaseConfig) -> Chosen:
        with progress_bars() as progress:
            model, words, public = data_model(
                config,
                extractor,
                columns,
                proxy,
                proxy_classes,
                spectrum_decay,
                between_share,
                progress,
                tuple(opened.schema.input_shape),
            )
            found = choose_design(config, epsilon, delta, model, model_words=words, progress=progress)
        return Chosen(found, picture_of(found), public)

    job = ReleaseJob(
        data=opened,
        extractor=extractor,
        config=config,
        epsilon=epsilon,
        delta=delta,
        out=out_folder,
        ledger=ledger,
        dataset=dataset,
        private_count=private_count,
        choose=choose if design == AUTO else None,
        rows=rows,
        store=store,
        engine=engine,
        memory_gb=memory_gb,
        workers=workers,
        address=ray_address,
        seed=seed,
        overwrite=overwrite,
        resume=resume,
    )
    planned = job.plan(state)
    choice = None if planned.chosen is None else planned.chosen.choice
    _warn(planned.plan, delta, seed)
    if dry_run:
        _show_plan(planned.plan, epsilon, delta, choice, json_output)
        return
    with progress_bars(percent=records is not None or private_count) as progress:
        done = job.release(planned, progress)
    for error in done.not_noted:
        err.print(
            f"[yellow]warning:[/] the release is written and charged, but not noted as done: {plain(error)}",
            soft_wrap=True,
        )
    _show_result(planned.plan, done.certificate, out_folder, choice, json_output)


def _chosen(design: str, options: dict[str, Any]) -> dict[str, Any]:
    """The design and its options; where the planner is to choose them, something that is right for any data."""
    if design != AUTO:
        return {"design": design, **options}
    for name, value in options.items():
        if name != "label_noise_ratio":
            raise InvalidInput(f"--{name.replace('_', '-')}", value, "no value with --design auto, which chooses it")
    return {"design": "poisson", "mixup_degree": 1, **options}


def _warn(plan: Plan, delta: float, seed: int | None) -> None:
    if delta >= 1 / plan.records:
        err.print(f"[yellow]warning:[/] delta {exact(delta)} is not below 1/records = {1 / plan.records:.3g}")
    if seed is not None:
        err.print("[yellow]warning:[/] --seed makes the noise reproducible: this release is NOT private")


def _show_result(
    plan: Plan, certificate: dict[str, Any], folder: Path, choice: Choice | None, json_output: bool
) -> None:
    if json_output:
        print_json(certificate)
        return
    guarantee = certificate["guarantee"]
    moments = isinstance(plan, MomentsPlan)
    if choice is not None:
        out.print(f"design: {plain(choice.reasons[0])}", soft_wrap=True)
    out.print(
        f"released: {'second moments and ' if moments else ''}{plan.rows} rows of {plan.dim} features to "
        f"{plain(folder)}\n"
        f"guarantee: epsilon {rounded_up(guarantee['epsilon'], 4)}, delta {exact(guarantee['delta'])}, "
        f"adjacency {guarantee['adjacency']} (accountant {guarantee['accountant']})\n"
        f"next: privmix fit {plain(shlex.quote(str(folder)))} --out MODEL",
        soft_wrap=True,
    )


def _show_plan(plan: Plan, epsilon: float, delta: float, choice: Choice | None, json_output: bool) -> None:
    if json_output:
        content = {
            "plan": plan.to_dict(),
            "epsilon": epsilon,
            "delta": delta,
            "adjacency": plan.adjacency.value,
            "choice": None if choice is None else choice.to_dict(),
        }
        print_json(content)
        return
    table = Table(title="plan (public; made before any private row is used)", title_justify="left", show_header=False)
    facts: dict[str, Any] = {
        "design": plan.design,
        "records, features, classes": f"{plan.records}, {plan.dim}, {plan.num_classes}",
        "target": f"epsilon {exact(epsilon)}, delta {exact(delta)}, adjacency {plan.adjacency.value}",
        **design_facts(plan),
    }
    for name, value in facts.items():
        table.add_row(name, str(value))
    out.print(table)
    for text in () if choice is None else choice.reasons:
        out.print(f"- {plain(text)}", soft_wrap=True)


def design_facts(plan: Plan) -> dict[str, str]:
    """What people want to see of a plan's design and noise."""
    if isinstance(plan, MomentsPlan):
        shares = f"{(1 - plan.label_share):.0%} to X'X, {plan.label_share:.0%} to X'Y; {plan.count_share:.0%} before"
        own = {"sampled rows": str(plan.rows), "budget": shares + " to label sums"}
    else:
        own = {"rows, mixup degree": f"{plan.rows}, {plan.mixup_degree}"}
    return {
        **own,
        "joint noise multiplier": f"{plan.noise_multiplier:.5g}",
        "mean query's multiplier": "none" if not plan.centred else f"{plan.centre_noise_multiplier:.5g}",
        "noise in " + ", ".join(plan.noise_std): ", ".join(f"{value:.5g}" for value in plan.noise_std.values()),
    }
