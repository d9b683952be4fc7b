"""``privmix release``: turn a private dataset into a differentially private mixup release."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from privmix.cli.app import app, err, out, plain, print_json, progress_bars
from privmix.cli.pipeline import charge, class_list, extract_features
from privmix.data import open_dataset
from privmix.errors import InvalidInput, StorageError
from privmix.features.base import get_extractor
from privmix.release import (
    PrivateRecords,
    ReleaseConfig,
    ReleasePlan,
    SecretStreams,
    release_to_folder,
)
from privmix.release.folder import RELEASE_FOLDER


@app.command()
def release(
    data: Annotated[Path, typer.Option(help="Private dataset: a folder or file (idx, npz, Parquet, images, CSV).")],
    epsilon: Annotated[float, typer.Option(help="Privacy budget, epsilon.")],
    delta: Annotated[float, typer.Option(help="Privacy budget, delta; well below 1/n.")],
    out_folder: Annotated[Path, typer.Option("--out", help="Folder to create.")],
    features: Annotated[str, typer.Option(help="Public extractor: scattering, pixels or identity.")] = "pixels",
    design: Annotated[str, typer.Option(help="poisson, fixed, hierarchical, classwise or random-weight.")] = "poisson",
    mixup_degree: Annotated[int, typer.Option(help="Records mixed into a row, m.")] = 64,
    rows: Annotated[int | None, typer.Option(help="Rows to release, T. Default: n.")] = None,
    centre: Annotated[str | None, typer.Option(help="private releases and subtracts the mean first; none.")] = None,
    noise: Annotated[str, typer.Option(help="gaussian, or laplace (design fixed, L1 clipping).")] = "gaussian",
    clip_norm: Annotated[float, typer.Option(help="Bound on a record's feature norm.")] = 1.0,
    residual_clip_norm: Annotated[float, typer.Option(help="Bound after centring, as a share of --clip-norm.")] = 0.55,
    label_noise_ratio: Annotated[float, typer.Option(help="lambda: label noise over feature noise.")] = 1.0,
    expected_classes: Annotated[float, typer.Option(help="Hierarchical: expected classes in a row.")] = 3.0,
    full_batch: Annotated[bool, typer.Option(help="Classwise: one row a class that holds all of it.")] = False,
    dirichlet_alpha: Annotated[float, typer.Option(help="Random-weight: concentration.")] = 1.0,
    max_weight: Annotated[float, typer.Option(help="Random-weight: largest weight.")] = 1.0,
    split: Annotated[str, typer.Option(help="Which part of the dataset.")] = "train",
    classes: Annotated[
        str | None, typer.Option(help="Class list: a number K or names with commas. Needed unless a schema says it.")
    ] = None,
    label_column: Annotated[str, typer.Option(help="CSV, Parquet: the label's column.")] = "label",
    image_column: Annotated[str, typer.Option(help="Parquet: the image's column.")] = "image",
    feature_column: Annotated[str | None, typer.Option(help="Parquet: a column of number lists.")] = None,
    records: Annotated[int | None, typer.Option(help="A public record count to use in place of the real one.")] = None,
    store: Annotated[Path | None, typer.Option(help="Keep extracted features here (private!) and reuse them.")] = None,
    ledger: Annotated[
        str | None, typer.Option(help="Charge this ledger before reading: sqlite:///FILE or postgresql://...")
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="With --ledger: the dataset's name there.")] = None,
    seed: Annotated[
        int | None, typer.Option(help="Tests and benchmarks only: the release is then NOT private.")
    ] = None,
    dry_run: Annotated[bool, typer.Option(help="Show the plan; read no private row.")] = False,
    overwrite: Annotated[bool, typer.Option(help="Replace an existing --out.")] = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print the plan or certificate as JSON.")] = False,
) -> None:
    """Turn a private dataset into a differentially private mixup release.

    The plan (design, noise, guarantee) is made from public facts before any private row is read. The result is a
    folder with Parquet shards, certificate.json and a data card; hand it to anyone.

    Example: privmix release --data mnist --features scattering --mixup-degree 64 --epsilon 1 --delta 1e-5 --out REL
    """
    RELEASE_FOLDER.check_target(out_folder, overwrite=overwrite)
    if (ledger is None) != (dataset is None):
        raise InvalidInput("--ledger, --dataset", (ledger, dataset), "both or none of them")
    if ledger is not None and seed is not None:
        raise InvalidInput("--seed", seed, "no seed with --ledger: a release that anyone can re-create has no price")
    source = open_dataset(
        data,
        split=split,
        classes=class_list(classes),
        label_column=label_column,
        image_column=image_column,
        feature_column=feature_column,
    )
    schema = source.schema
    extractor = get_extractor(features)
    config = ReleaseConfig(
        records=schema.records if records is None else records,
        dim=extractor.output_dim(schema.input_shape),
        classes=tuple(schema.classes),
        design=design,
        mixup_degree=mixup_degree,
        rows=rows,
        clip_norm=clip_norm,
        centre=centre,
        residual_clip_norm=residual_clip_norm,
        noise=noise,
        label_noise_ratio=label_noise_ratio,
        expected_classes=expected_classes,
        full_batch=full_batch,
        dirichlet_alpha=dirichlet_alpha,
        max_weight=max_weight,
    )
    if design in ("fixed", "random-weight") and config.records != schema.records:
        raise InvalidInput("--records", records, f"the real record count (leave it out) for design {design}")
    plan = config.calibrate(epsilon, delta)
    _warn(plan, delta, seed)
    if dry_run:
        _show_plan(plan, epsilon, delta, json_output)
        return
    # Before the first private row is read: a crash from here on leaves the budget spent.
    charged = charge(ledger, dataset, plan.event, plan.adjacency, "release", data)
    with progress_bars() as progress:
        x, labels = extract_features(source, extractor, store, progress, data, split)
        streams = SecretStreams.from_entropy() if seed is None else SecretStreams.from_seed(seed)
        certificate = release_to_folder(
            plan,
            PrivateRecords(x, labels),
            streams,
            out_folder,
            target=(epsilon, delta),
            extractor=extractor.spec(),
            input_shape=schema.input_shape,
            records_declared=records is not None,
            overwrite=overwrite,
            progress=progress,
        )
    try:
        charged(f"release {certificate['release_id']}")
    except StorageError as error:
        # The budget was charged before; what is missing is the note that the run succeeded.
        err.print(f"[yellow]warning:[/] the release is written and charged, but not noted as done: {plain(error)}")
    if json_output:
        print_json(certificate)
    else:
        guarantee = certificate["guarantee"]
        out.print(
            f"released: {plan.rows} rows of {plan.dim} features to {out_folder}\n"
            f"guarantee: epsilon {guarantee['epsilon']:.4g}, delta {guarantee['delta']:g}, "
            f"adjacency {guarantee['adjacency']} (accountant {guarantee['accountant']})\n"
            f"next: privmix fit {out_folder} --learner noise-aware-ridge --out MODEL",
            soft_wrap=True,
        )


def _warn(plan: ReleasePlan, delta: float, seed: int | None) -> None:
    if delta >= 1 / plan.records:
        err.print(f"[yellow]warning:[/] delta {delta:g} is not below 1/records = {1 / plan.records:.3g}")
    if seed is not None:
        err.print("[yellow]warning:[/] --seed makes the noise reproducible: this release is NOT private")


def _show_plan(plan: ReleasePlan, epsilon: float, delta: float, json_output: bool) -> None:
    if json_output:
        print_json({"plan": plan.to_dict(), "epsilon": epsilon, "delta": delta, "adjacency": plan.adjacency.value})
        return
    table = Table(title="plan (public; no private row was read)", title_justify="left", show_header=False)
    facts: dict[str, Any] = {
        "design": plan.design,
        "records, features, classes": f"{plan.records}, {plan.dim}, {plan.num_classes}",
        "rows, mixup degree": f"{plan.rows}, {plan.mixup_degree}",
        "target": f"epsilon {epsilon:g}, delta {delta:g}, adjacency {plan.adjacency.value}",
        "joint noise multiplier": f"{plan.noise_multiplier:.5g}",
        "mean query's multiplier": "none" if not plan.centred else f"{plan.centre_noise_multiplier:.5g}",
        "noise in x, y": f"{plan.noise_std_x:.5g}, {plan.noise_std_y:.5g}",
    }
    for name, value in facts.items():
        table.add_row(name, str(value))
    out.print(table)
