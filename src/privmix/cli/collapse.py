"""``privmix attack collapse``: whether classes survive mixing and noise, on a public proxy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from privmix.attacks.collapse import CollapseReport, measure_collapse
from privmix.attacks.known_rows import check_sums
from privmix.cli.app import out, plain, print_json
from privmix.cli.attack import attack
from privmix.cli.options import (
    Classes,
    Colour,
    FeatureColumn,
    FeatureLength,
    FeaturesModel,
    ImageColumn,
    ImageSize,
    LabelColumn,
    NumberColumns,
    TextColumn,
    TrustFeaturesModel,
    check_figure,
)
from privmix.cli.progress import progress_bars
from privmix.cli.recording import Record, keep_record
from privmix.data import Schema
from privmix.designs import Plan
from privmix.errors import InvalidInput, check_integer
from privmix.features import from_spec, parse_features
from privmix.jobs.columns import Columns, class_list
from privmix.jobs.dataset import open_for
from privmix.jobs.features import features_in_memory
from privmix.release import ReleaseConfig, plan_from_dict
from privmix.release.certificate import read_certificate
from privmix.reports.collapse import draw_collapse

_STATEMENT = "Computed from a dataset that its user declares public; nothing here is protected by differential privacy."


@attack.command()
def collapse(
    proxy: Annotated[str, typer.Option(help="A PUBLIC dataset like the private one; read like --data. Never private.")],
    release: Annotated[
        Path | None, typer.Argument(help="Release whose plan and extractor are judged, in place of options.")
    ] = None,
    features: Annotated[str | None, typer.Option(help="Public extractor, as in privmix release.")] = None,
    split: Annotated[str, typer.Option(help="Which part of --proxy.")] = "train",
    epsilon: Annotated[float | None, typer.Option(help="Budget that the label noise is for.")] = None,
    delta: Annotated[float | None, typer.Option(help="Of the budget. Default: 1e-5.")] = None,
    records: Annotated[int | None, typer.Option(help="Record count n of the plan. Default: that of --proxy.")] = None,
    rows: Annotated[int | None, typer.Option(help="Rows T that the plan releases. Default: n.")] = None,
    mixup_degree: Annotated[int | None, typer.Option(help="Expected records in a row, m. Default: 64.")] = None,
    expected_classes: Annotated[
        float | None, typer.Option(help="Hierarchical: expected number of classes in a row. Default: 3, or K.")
    ] = None,
    clip_norm: Annotated[float | None, typer.Option(help="Bound on a record's feature norm. Default: 1.")] = None,
    classes: Classes = None,
    label_column: LabelColumn = "label",
    image_column: ImageColumn = "image",
    feature_column: FeatureColumn = None,
    text_column: TextColumn = None,
    image_size: ImageSize = None,
    colour: Colour = None,
    number_columns: NumberColumns = None,
    feature_length: FeatureLength = None,
    features_model: FeaturesModel = None,
    trust_features_model: TrustFeaturesModel = False,
    seed: Annotated[int, typer.Option(help="Decides the mixtures and the noise drawn.")] = 0,
    figure: Annotated[
        Path | None, typer.Option(help="Histograms of mixed labels, clean and noisy (.png, .svg).")
    ] = None,
    record: Record = None,
    json_output: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Measure on public data how well classes survive mixing (Li et al. 2024, Figures 2 and 14). Reads no private data.

    Neural collapse and the least distance of mixed pairs to other classes judge the features. Mixed labels are drawn
    as Poisson and hierarchical releases of that budget would mix them, or as one release does.

    Example: privmix attack collapse --proxy mnist --features scattering --epsilon 8 --records 60000 --figure labels.png
    """
    check_figure(figure)
    given: dict[str, Any] = {
        "--features": features,
        "--epsilon": epsilon,
        "--delta": delta,
        "--records": records,
        "--rows": rows,
        "--mixup-degree": mixup_degree,
        "--expected-classes": expected_classes,
        "--clip-norm": clip_norm,
    }
    certificate = None if release is None else read_certificate(release)
    if certificate is None and (features is None or epsilon is None):
        raise InvalidInput("--features, --epsilon", (features, epsilon), "both, or a release")
    if certificate is None:
        extractor = parse_features(str(features))
    else:
        extractor = from_spec(certificate["extractor"], features_model, trust_model=trust_features_model)
    columns = Columns(
        label_column, image_column, feature_column, text_column, image_size, colour, number_columns, feature_length
    )
    named = class_list(classes) or (None if certificate is None else list(certificate["plan"]["classes"]))
    shape = None if certificate is None else tuple(certificate["input_shape"])
    source = open_for(extractor, proxy, split, named, columns, shape)
    if certificate is None:
        plans = _declared(extractor.output_dim(source.schema.input_shape), source.schema, given)
        subject: dict[str, Any] = {"kind": "design", "id": None}
    else:
        plans, epsilon = _released(certificate, source.schema, given), certificate["guarantee"]["epsilon"]
        subject = {"kind": "release", "id": certificate["release_id"]}
    with progress_bars() as progress:
        found = features_in_memory(source, extractor, progress)
        generator = np.random.default_rng(check_integer("--seed", seed, low=0))
        report = measure_collapse(plans, found.features, found.labels, generator)
    content = {**report.to_dict(), "epsilon": epsilon}
    keep_record(
        record,
        "collapse",
        subject,
        content,
        private=False,
        settings={"plans": [plan.to_dict() for plan in plans], "extractor": extractor.spec(), "seed": seed},
        title=f"collapse of {extractor.name} features and mixed labels on public data",
        statements=[_STATEMENT],
    )
    if figure is not None:
        draw_collapse(content, figure)
    if json_output:
        print_json({**content, "figure": None if figure is None else str(figure)})
        return
    _show(report, figure)


def _declared(dim: int, schema: Schema, given: dict[str, Any]) -> list[Plan]:
    """Poisson and hierarchical plans of the same budget."""
    common: dict[str, Any] = {
        "records": given["--records"] or schema.records,
        "dim": dim,
        "classes": tuple(schema.classes),
        "mixup_degree": 64 if given["--mixup-degree"] is None else given["--mixup-degree"],
        "rows": given["--rows"],
        "clip_norm": 1.0 if given["--clip-norm"] is None else given["--clip-norm"],
        "centre": "none",
    }
    expected = given["--expected-classes"]
    expected = min(3.0, len(schema.classes)) if expected is None else expected
    delta = 1e-5 if given["--delta"] is None else given["--delta"]
    configs = (ReleaseConfig(**common), ReleaseConfig(**common, design="hierarchical", expected_classes=expected))
    return [config.calibrate(given["--epsilon"], delta) for config in configs]


def _released(certificate: dict[str, Any], schema: Schema, given: dict[str, Any]) -> list[Plan]:
    for flag, value in given.items():
        if value is not None:
            raise InvalidInput(flag, value, "nothing beside a release, which says it")
    if tuple(schema.input_shape) != tuple(certificate["input_shape"]):
        raise InvalidInput("--proxy", schema.input_shape, f"inputs of shape {tuple(certificate['input_shape'])}")
    plan = check_sums(plan_from_dict(certificate["plan"]))
    if tuple(schema.classes) != plan.classes:
        raise InvalidInput("--classes", list(schema.classes), f"the release's: {', '.join(plan.classes)}")
    return [plan]


def _show(report: CollapseReport, figure: Path | None) -> None:
    out.print(
        f"neural collapse: {report.neural_collapse:.4g} (the smaller, the better classes survive mixing)\n"
        f"least distance of a mixed pair to another class: {report.minimum_euclidean_distance:.4g} (the larger, the "
        "better)",
        soft_wrap=True,
    )
    table = Table(title="mixed labels under noise", title_justify="left")
    for name in ("design", "m", "top class kept", "side of 1/K kept", "signal over noise"):
        table.add_column(name, justify="left" if name == "design" else "right")
    for one in report.histograms:
        kept, level = f"{100 * one.collapse.top_kept:.1f}%", f"{100 * one.collapse.level_kept:.1f}%"
        table.add_row(one.design, str(one.m), kept, level, f"{one.collapse.signal_to_noise:.3g}")
    out.print(table)
    if figure is not None:
        out.print(f"picture: {plain(figure)}", soft_wrap=True)
