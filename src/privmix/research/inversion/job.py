"""Model inversion: what images an attacker gets out of released rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.data.dataset import Schema, Source
from privmix.devices import chosen_device
from privmix.errors import InvalidInput, check_integer, check_number
from privmix.features.base import Extractor, parse_features
from privmix.features.spec import from_spec
from privmix.folders import file_mode
from privmix.jobs.dataset import open_dataset
from privmix.jobs.models import split_of
from privmix.jobs.places import check_figure
from privmix.jobs.recording import Measured, Measurement
from privmix.planning.config import ReleaseConfig
from privmix.progress import Progress
from privmix.releases.certificate import read_certificate
from privmix.releases.folder import read_centre
from privmix.research.inversion.options import DEGREES, DELTA, EPSILONS, OF_RELEASES, InversionOptions
from privmix.research.inversion.picture import draw_inversion
from privmix.research.inversion.search import InversionConfig
from privmix.research.inversion.study import STATEMENTS, InversionCase, InversionStudy, case_name, study_inversion
from privmix.research.known_rows import released_plan

FEATURES: Final = "scattering"


@dataclass(frozen=True, repr=False)
class InversionResult(Measured):
    """The recovered images, next to the originals."""

    study: InversionStudy
    figure: Path | None = None

    def shown(self) -> tuple[str, Mapping[str, object]]:
        count = self.study.cases[0].originals
        place = {} if self.figure is None else {"picture": self.figure}
        return f"likeness of recovered images to their originals ({count} a setting, best matches)", {
            **{
                f"m {one.m}, {case_name(one.epsilon)}": f"MSE {one.recovered.mse:.4f}, SSIM {one.recovered.ssim:.3f}; "
                f"other people: MSE {one.others.mse:.4f}, SSIM {one.others.ssim:.3f}; mean image: SSIM "
                f"{one.mean_image.ssim:.3f}"
                for one in self.study.cases
            },
            **place,
        }

    @property
    def details(self) -> tuple[str, ...]:
        return STATEMENTS

    def to_dict(self) -> dict[str, Any]:
        return {**self.measurement.content, "figure": None if self.figure is None else str(self.figure)}


def invert_rows(
    options: InversionOptions, release: str | Path | None, data: Any, progress: Progress
) -> InversionResult:
    picture = None if options.figure is None else Path(options.figure)
    check_figure(picture)
    check_integer("images", options.images, low=1)
    config = InversionConfig(check_integer("steps", options.steps, low=1), device=str(chosen_device(options.device)))
    folder = None if release is None else Path(release)
    certificate = None if folder is None else read_certificate(folder)
    extractor = (
        parse_features(options.features or FEATURES)
        if folder is None or certificate is None
        else from_spec(certificate["extractor"], options.features_model)
    )
    source = _open(options, data, extractor, certificate)
    extractor.differentiable(source.schema.input_shape)
    given = {name: getattr(options, name) for name in OF_RELEASES}
    if folder is None or certificate is None:
        setting = _declared(extractor, source.schema, given)
    else:
        setting = _released(folder, certificate, source.schema, given)
    generator = np.random.default_rng(check_integer("seed", options.seed, low=0))
    held = source.read()
    effort: dict[str, Any] = {"originals": options.images, "config": config, "progress": progress}
    study = study_inversion(setting.cases, held.x, held.y, extractor, generator, centre=setting.centre, **effort)
    if picture is not None:
        with file_mode(private=not options.public_data):
            draw_inversion(study.to_dict(), picture)
    return InversionResult(_measurement(options, setting, extractor, config, study), study, picture)


def _open(options: InversionOptions, data: Any, extractor: Extractor, certificate: Mapping[str, Any] | None) -> Source:
    classes = options.classes
    if classes is None and certificate is not None:
        # A release names its classes; they make labels mean the same.
        classes = list(certificate["plan"]["classes"])
    return open_dataset(
        data,
        extractor,
        split=split_of(data, options.split),
        classes=classes,
        columns=options.as_columns(),
        input_shape=None if certificate is None else tuple(certificate["input_shape"]),
    ).source


def _measurement(
    options: InversionOptions, setting: "_Setting", extractor: Extractor, config: InversionConfig, study: InversionStudy
) -> Measurement:
    return Measurement(
        "inversion",
        setting.subject,
        study.to_dict(),
        private=not options.public_data,
        settings={
            "plans": [{"epsilon": case.epsilon, "plan": case.plan.to_dict()} for case in setting.cases],
            "extractor": extractor.spec(),
            "steps": options.steps,
            "learning_rate": config.learning_rate,
            "seed": options.seed,
            "images": options.images,
        },
        title=f"model inversion of rows made from {extractor.name} features",
        statements=STATEMENTS,
    )


@dataclass(frozen=True)
class _Setting:
    """The attacked setting: the cases, the released mean, and the subject as a record states it."""

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
    """Return the release's plan, without its noise and with it."""
    plan = released_plan(certificate, schema, given, "data", "images")
    cases = (InversionCase(plan, None), InversionCase(plan, float(certificate["guarantee"]["epsilon"])))
    subject = {"kind": "release", "id": certificate["id"]}
    return _Setting(cases, read_centre(release, plan), subject)


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
