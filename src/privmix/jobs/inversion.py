"""Model inversion: what images an attacker gets out of released rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.attacks.defaults import DEGREES, DELTA, EPSILONS
from privmix.attacks.inversion import InversionConfig
from privmix.attacks.inversion_study import STATEMENTS, InversionCase, InversionStudy, study_inversion
from privmix.attacks.known_rows import check_sums
from privmix.data import Schema
from privmix.errors import InvalidInput, check_integer, check_number
from privmix.features import Extractor, from_spec, parse_features
from privmix.jobs.columns import Columns
from privmix.jobs.dataset import open_dataset
from privmix.jobs.evaluation import split_of
from privmix.jobs.places import check_figure
from privmix.jobs.progress import Progress, silent
from privmix.jobs.recording import Measured, Measurement
from privmix.private_files import file_mode
from privmix.releases import ReleaseConfig, plan_from_dict
from privmix.releases.certificate import read_certificate
from privmix.releases.folder import read_transform
from privmix.reports.inversion import draw_inversion

FEATURES: Final = "scattering"


@dataclass(frozen=True)
class Inversion(Measured):
    """What was recovered, beside the originals.

    Attributes:
        study: the figures of every setting.
        figure: the picture, where one was asked for.
    """

    study: InversionStudy
    figure: Path | None = None

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {**self.measurement.content, "figure": None if self.figure is None else str(self.figure)}


def inversion(
    release: str | Path | None,
    data: Any,
    *,
    features: str | None = None,
    split: str | None = None,
    mixup_degrees: str | Sequence[int] | None = None,
    epsilons: str | Sequence[float | None] | None = None,
    delta: float | None = None,
    records: int | None = None,
    rows: int | None = None,
    centre: str | None = None,
    images: int = 8,
    steps: int = InversionConfig.steps,
    seed: int = 0,
    public_data: bool = False,
    classes: Any = None,
    columns: Columns | None = None,
    features_model: str | Path | None = None,
    trust_features_model: bool = False,
    figure: str | Path | None = None,
    progress: Progress | None = None,
) -> Inversion:
    """Recover images from mixed features, with and without noise, and set them beside the originals.

    Rows of known members are made by the real mechanism; an attacker who knows the extractor, the plan and the number
    of members looks for images that explain them (He et al. 2019; Li et al. 2022, appendix G). Half of the data is
    attacked, half is what the attacker practises on. Figures and pictures show the data: keep them to yourself unless
    it is public.

    Args:
        release: the release whose plan, extractor and mean are attacked; None: a plan of the options up to ``centre``.
        data: images with labels: those that rows are made of.
        features: public extractor of images with gradients; scattering where None.
        split: which part of the data; None: ``test``, or all of what is in memory.
        mixup_degrees: degrees m to attack, as a list or with commas; 1, 4, 8, 16, 64 where None.
        epsilons: budgets whose noise to add, as a list or with commas; None or ``none`` among them is no noise; none,
            8, 1 where None.
        delta: of the budgets; 1e-5 where None.
        records: record count n of the plan; that of the data where None.
        rows: rows T that the plan releases; n where None.
        centre: ``"private"`` or ``"none"``; none where None.
        images: to attack at each degree.
        steps: of an attack.
        seed: decides images, noise and starts: same seed, same picture.
        public_data: the data are public.
        classes: number or names of the classes.
        columns: what is declared of columns and images.
        features_model: your own copy of the extractor's model, where it is a file or folder.
        trust_features_model: that file may be a program, and may run.
        figure: where to draw originals and recovered images (.png, .svg, .pdf); not in a release or model.
        progress: called with (stage, done, total).

    Raises:
        InvalidInput: a value is out of range, an option is given beside a release, or the data are not of its kind.
        StorageError: something can't be read or written.
    """
    picture = None if figure is None else Path(figure)
    check_figure(picture)
    check_integer("images", images, low=1)
    config = InversionConfig(check_integer("steps", steps, low=1))
    given = {
        "features": features,
        "mixup_degrees": mixup_degrees,
        "epsilons": epsilons,
        "delta": delta,
        "records": records,
        "rows": rows,
        "centre": centre,
    }
    certificate = None if release is None else read_certificate(Path(release))
    extractor = (
        parse_features(features or FEATURES)
        if certificate is None
        else from_spec(certificate["extractor"], features_model, trust_model=trust_features_model)
    )
    # A release names its classes; they make labels mean the same.
    named = list(certificate["plan"]["classes"]) if classes is None and certificate is not None else classes
    shape = None if certificate is None else tuple(certificate["input_shape"])
    source = open_dataset(
        data, extractor, split=split_of(data, split), classes=named, columns=columns, input_shape=shape
    ).source
    extractor.differentiable(source.schema.input_shape)
    if release is None or certificate is None:
        setting = _declared(extractor, source.schema, given)
    else:
        setting = _released(Path(release), certificate, source.schema, given)
    generator = np.random.default_rng(check_integer("seed", seed, low=0))
    held = source.read()
    study = study_inversion(
        setting.cases,
        held.x,
        held.y,
        extractor,
        generator,
        originals=images,
        centre=setting.centre,
        config=config,
        progress=progress or silent,
    )
    content = study.to_dict()
    if picture is not None:
        with file_mode(private=not public_data):
            draw_inversion(content, picture)
    measurement = Measurement(
        "inversion",
        setting.subject,
        content,
        private=not public_data,
        settings={
            "plans": [{"epsilon": case.epsilon, "plan": case.plan.to_dict()} for case in setting.cases],
            "extractor": extractor.spec(),
            "steps": steps,
            "learning_rate": config.learning_rate,
            "seed": seed,
            "images": images,
        },
        title=f"model inversion of rows made from {extractor.name} features",
        statements=STATEMENTS,
    )
    return Inversion(measurement, study, picture)


@dataclass(frozen=True)
class _Setting:
    """What is attacked: the cases, the released mean, and what a record says it is about."""

    cases: tuple[InversionCase, ...]
    centre: NDArray[np.float32] | None
    subject: dict[str, Any]


def _declared(extractor: Extractor, schema: Schema, given: Mapping[str, Any]) -> _Setting:
    """Plans from the options, calibrated as a release's would be."""
    delta = DELTA if given["delta"] is None else given["delta"]
    check_number("delta", delta, low=0, high=1, low_open=True, high_open=True)
    degrees = [_degree(word) for word in _words("mixup_degrees", given, DEGREES)]
    budgets = [_budget(word) for word in _words("epsilons", given, EPSILONS)]
    cases = []
    for degree in degrees:
        plans = ReleaseConfig(
            records=given["records"] or schema.records,
            dim=extractor.output_dim(schema.input_shape),
            classes=tuple(schema.classes),
            mixup_degree=degree,
            rows=given["rows"],
            centre=given["centre"] or "none",
        )
        cases += [
            InversionCase(plans.with_noise(1.0) if budget is None else plans.calibrate(budget, delta), budget)
            for budget in budgets
        ]
    return _Setting(tuple(cases), None, {"kind": "design", "id": None})


def _released(release: Path, certificate: Mapping[str, Any], schema: Schema, given: Mapping[str, Any]) -> _Setting:
    """The release's plan, without its noise and with it."""
    for name, value in given.items():
        if value is not None:
            raise InvalidInput(name, value, "nothing beside a release, which says it")
    plan = check_sums(plan_from_dict(certificate["plan"]))
    if tuple(schema.input_shape) != tuple(certificate["input_shape"]):
        raise InvalidInput("data", schema.input_shape, f"images of shape {tuple(certificate['input_shape'])}")
    if tuple(schema.classes) != plan.classes:
        raise InvalidInput("classes", list(schema.classes), f"the release's: {', '.join(plan.classes)}")
    cases = (InversionCase(plan, None), InversionCase(plan, float(certificate["guarantee"]["epsilon"])))
    subject = {"kind": "release", "id": certificate["id"]}
    return _Setting(cases, read_transform(release, plan).centre, subject)


def _words(name: str, given: Mapping[str, Any], default: str) -> Sequence[Any]:
    value = given[name] or default
    words = [word.strip() for word in value.split(",")] if isinstance(value, str) else list(value)
    if len(set(words)) != len(words):
        raise InvalidInput(name, given[name], "different values, separated by commas")
    return words


def _degree(word: Any) -> int:
    try:
        return check_integer("mixup_degrees", int(word), low=1)
    except ValueError:
        raise InvalidInput("mixup_degrees", word, "integers >= 1, separated by commas") from None


def _budget(word: Any) -> float | None:
    if word in (None, "none"):
        return None
    try:
        return check_number("epsilons", float(word), low=0, low_open=True)
    except ValueError:
        raise InvalidInput("epsilons", word, "none, or numbers > 0, separated by commas") from None
