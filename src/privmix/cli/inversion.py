"""``privmix attack inversion``: what images an attacker gets out of released rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import typer
from numpy.typing import NDArray
from rich.table import Table

from privmix.attacks.inversion import InversionConfig
from privmix.attacks.inversion_study import STATEMENTS, InversionCase, InversionStudy, case_name, study_inversion
from privmix.attacks.known_rows import check_sums
from privmix.cli.app import out, plain, print_json
from privmix.cli.attack import attack
from privmix.cli.options import (
    Classes,
    Colour,
    FeaturesModel,
    ImageColumn,
    ImageSize,
    LabelColumn,
    TrustFeaturesModel,
    check_figure,
)
from privmix.cli.progress import progress_bars
from privmix.cli.recording import Record, keep_record
from privmix.data import Schema
from privmix.errors import InvalidInput, check_integer, check_number
from privmix.features import Extractor, from_spec, parse_features
from privmix.jobs.columns import Columns, class_list
from privmix.jobs.dataset import open_for
from privmix.private_files import file_mode
from privmix.release import ReleaseConfig, plan_from_dict
from privmix.release.certificate import read_certificate
from privmix.release.folder import read_transform
from privmix.reports.inversion import draw_inversion

_FEATURES: Final = "scattering"
_DEGREES: Final = "1,4,8,16,64"
_EPSILONS: Final = "none,8,1"
_DELTA: Final = 1e-5


@dataclass(frozen=True)
class _Setting:
    """What is attacked: the extractor, the cases, the released mean, and what a record says it is about."""

    extractor: Extractor
    cases: tuple[InversionCase, ...]
    centre: NDArray[np.float32] | None
    subject: dict[str, Any]


@attack.command()
def inversion(
    data: Annotated[str, typer.Option(help="Images with labels: those that rows are made of.")],
    release: Annotated[
        Path | None, typer.Argument(help="Release whose plan, extractor and mean are attacked, in place of options.")
    ] = None,
    features: Annotated[
        str | None, typer.Option(help="Public extractor of images with gradients. Default: scattering.")
    ] = None,
    split: Annotated[str, typer.Option(help="Which part of --data.")] = "test",
    mixup_degrees: Annotated[str | None, typer.Option(help=f"Degrees m to attack. Default: {_DEGREES}.")] = None,
    epsilons: Annotated[
        str | None, typer.Option(help=f"Budgets whose noise to add; none is no noise. Default: {_EPSILONS}.")
    ] = None,
    delta: Annotated[float | None, typer.Option(help=f"Of the budgets. Default: {_DELTA:g}.")] = None,
    records: Annotated[int | None, typer.Option(help="Record count n of the plan. Default: that of --data.")] = None,
    rows: Annotated[int | None, typer.Option(help="Rows T that the plan releases. Default: n.")] = None,
    centre: Annotated[str | None, typer.Option(help="private or none, as in privmix release. Default: none.")] = None,
    images: Annotated[int, typer.Option(help="Images to attack at each degree.")] = 8,
    steps: Annotated[int, typer.Option(help="Steps of an attack.")] = InversionConfig.steps,
    seed: Annotated[int, typer.Option(help="Decides images, noise and starts: same seed, same picture.")] = 0,
    public_data: Annotated[bool, typer.Option("--public-data", help="Declare --data public.")] = False,
    classes: Classes = None,
    label_column: LabelColumn = "label",
    image_column: ImageColumn = "image",
    image_size: ImageSize = None,
    colour: Colour = None,
    features_model: FeaturesModel = None,
    trust_features_model: TrustFeaturesModel = False,
    figure: Annotated[Path | None, typer.Option(help="Picture of originals and recovered images (.png, .svg).")] = None,
    record: Record = None,
    json_output: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Recover images from mixed features, with and without noise, and show them beside the originals.

    Rows of known members are made by the real mechanism; an attacker who knows the extractor, the plan and the number
    of members looks for images that explain them (He et al. 2019; Li et al. 2022, appendix G). Half of --data is
    attacked, half is what the attacker practises on. Figures and pictures show the data: keep them to yourself unless
    it is public.

    Example: privmix attack inversion --data mnist --features scattering --records 60000 --figure inversion.png

    A release: privmix attack inversion REL --data mnist --figure inversion.png
    """
    check_figure(figure)
    check_integer("--images", images, low=1)
    config = InversionConfig(check_integer("--steps", steps, low=1))
    columns = Columns(label_column, image_column, None, None, image_size, colour)
    given = {
        "--features": features,
        "--mixup-degrees": mixup_degrees,
        "--epsilons": epsilons,
        "--delta": delta,
        "--records": records,
        "--rows": rows,
        "--centre": centre,
    }
    certificate = None if release is None else read_certificate(release)
    extractor = (
        parse_features(features or _FEATURES)
        if certificate is None
        else from_spec(certificate["extractor"], features_model, trust_model=trust_features_model)
    )
    # A release names its classes; they make labels mean the same.
    named = class_list(classes) or (None if certificate is None else list(certificate["plan"]["classes"]))
    shape = None if certificate is None else tuple(certificate["input_shape"])
    source = open_for(extractor, data, split, named, columns, shape)
    extractor.differentiable(source.schema.input_shape)
    if release is None or certificate is None:
        setting = _declared(extractor, source.schema, given)
    else:
        setting = _released(release, certificate, extractor, source.schema, given)
    with progress_bars() as progress:
        held = source.read()
        study = study_inversion(
            setting.cases,
            held.x,
            held.y,
            setting.extractor,
            np.random.default_rng(check_integer("--seed", seed, low=0)),
            originals=images,
            centre=setting.centre,
            config=config,
            progress=progress,
        )
    content = study.to_dict()
    keep_record(
        record,
        "inversion",
        setting.subject,
        content,
        private=not public_data,
        settings={
            "plans": [{"epsilon": case.epsilon, "plan": case.plan.to_dict()} for case in setting.cases],
            "extractor": setting.extractor.spec(),
            "steps": steps,
            "learning_rate": config.learning_rate,
            "seed": seed,
            "images": images,
        },
        title=f"model inversion of rows made from {extractor.name} features",
        statements=STATEMENTS,
    )
    if figure is not None:
        with file_mode(private=not public_data):
            draw_inversion(content, figure)
    if json_output:
        print_json({**content, "figure": None if figure is None else str(figure)})
        return
    _show(study, figure)


def _declared(extractor: Extractor, schema: Schema, given: Mapping[str, Any]) -> _Setting:
    """Plans from the options, calibrated as a release's would be."""
    delta = check_number(
        "--delta",
        _DELTA if given["--delta"] is None else given["--delta"],
        low=0,
        high=1,
        low_open=True,
        high_open=True,
    )
    degrees = [_degree(word) for word in _words("--mixup-degrees", given, _DEGREES)]
    budgets = [_budget(word) for word in _words("--epsilons", given, _EPSILONS)]
    cases = []
    for degree in degrees:
        plans = ReleaseConfig(
            records=given["--records"] or schema.records,
            dim=extractor.output_dim(schema.input_shape),
            classes=tuple(schema.classes),
            mixup_degree=degree,
            rows=given["--rows"],
            centre=given["--centre"] or "none",
        )
        cases += [
            InversionCase(plans.with_noise(1.0) if budget is None else plans.calibrate(budget, delta), budget)
            for budget in budgets
        ]
    return _Setting(extractor, tuple(cases), None, {"kind": "design", "id": None})


def _released(
    release: Path, certificate: Mapping[str, Any], extractor: Extractor, schema: Schema, given: Mapping[str, Any]
) -> _Setting:
    """The release's plan, without its noise and with it."""
    for flag, value in given.items():
        if value is not None:
            raise InvalidInput(flag, value, "nothing beside a release, which says it")
    plan = check_sums(plan_from_dict(certificate["plan"]))
    if tuple(schema.input_shape) != tuple(certificate["input_shape"]):
        raise InvalidInput("--data", schema.input_shape, f"images of shape {tuple(certificate['input_shape'])}")
    if tuple(schema.classes) != plan.classes:
        raise InvalidInput("--classes", list(schema.classes), f"the release's: {', '.join(plan.classes)}")
    cases = (InversionCase(plan, None), InversionCase(plan, float(certificate["guarantee"]["epsilon"])))
    subject = {"kind": "release", "id": certificate["release_id"]}
    return _Setting(extractor, cases, read_transform(release, plan).centre, subject)


def _words(flag: str, given: Mapping[str, Any], default: str) -> Sequence[str]:
    words = [word.strip() for word in (given[flag] or default).split(",")]
    if len(set(words)) != len(words):
        raise InvalidInput(flag, given[flag], "different values, separated by commas")
    return words


def _degree(word: str) -> int:
    try:
        return check_integer("--mixup-degrees", int(word), low=1)
    except ValueError:
        raise InvalidInput("--mixup-degrees", word, "integers >= 1, separated by commas") from None


def _budget(word: str) -> float | None:
    if word == "none":
        return None
    try:
        return check_number("--epsilons", float(word), low=0, low_open=True)
    except ValueError:
        raise InvalidInput("--epsilons", word, "none, or numbers > 0, separated by commas") from None


def _show(study: InversionStudy, figure: Path | None) -> None:
    table = Table(
        title=f"likeness of recovered images to their originals ({study.cases[0].originals} a setting, best matches)",
        title_justify="left",
    )
    for name in ("m", "noise", "MSE", "SSIM", "MSE, other people", "SSIM, other people", "SSIM, mean image"):
        table.add_column(name, justify="left" if name == "noise" else "right")
    for case in study.cases:
        figures = (case.recovered.mse, case.recovered.ssim, case.others.mse, case.others.ssim, case.mean_image.ssim)
        shown = (f"{value:.4f}" if place in (0, 2) else f"{value:.3f}" for place, value in enumerate(figures))
        table.add_row(str(case.m), case_name(case.epsilon), *shown)
    out.print(table)
    for text in STATEMENTS:
        out.print(f"- {text}", soft_wrap=True)
    if figure is not None:
        out.print(f"picture: {plain(figure)}", soft_wrap=True)
