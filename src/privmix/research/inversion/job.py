"""Model inversion: what images an attacker gets out of released rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.data import Schema, Source
from privmix.errors import InvalidInput, check_integer, check_number
from privmix.features import Extractor, parse_features
from privmix.jobs.dataset import open_dataset
from privmix.jobs.features import extractor_of
from privmix.jobs.model_data import split_of
from privmix.jobs.places import check_figure
from privmix.jobs.recording import Measured, Measurement
from privmix.planning import ReleaseConfig
from privmix.plans import plan_from_dict
from privmix.private_files import file_mode
from privmix.progress import Progress, silent
from privmix.releases.certificate import read_certificate
from privmix.releases.folder import read_transform
from privmix.research.inversion.options import DEGREES, DELTA, EPSILONS, OF_RELEASES, InversionOptions
from privmix.research.inversion.picture import draw_inversion
from privmix.research.inversion.search import InversionConfig
from privmix.research.inversion.study import STATEMENTS, InversionCase, InversionStudy, study_inversion
from privmix.research.known_rows import check_sums

FEATURES: Final = "scattering"


@dataclass(frozen=True, repr=False)
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


@dataclass(frozen=True, eq=False, kw_only=True)
class InversionJob(InversionOptions):
    """Recover images from mixed features, with and without noise, and set them beside the originals.

    Rows of known members are made by the real mechanism; an attacker who knows the extractor, the plan and the number
    of members looks for images that explain them (He et al. 2019; Li et al. 2022, appendix G). Half of the data is
    attacked, half is what the attacker practises on. Figures and pictures show the data: keep them to yourself unless
    it is public.

    Attributes:
        release: the release whose plan, extractor and mean are attacked; None: a plan of the options up to ``centre``.
        data: images with labels: those that rows are made of.

    The rest: :class:`privmix.research.inversion.options.InversionOptions`.
    """

    release: str | Path | None
    data: Any = field(repr=False)

    def run(self, progress: Progress | None = None) -> Inversion:
        """Attack.

        Args:
            progress: called with (stage, done, total).

        Raises:
            InvalidInput: a value is out of range, an option is given beside a release, or the data are not of its kind.
            StorageError: something can't be read or written.
        """
        picture = None if self.figure is None else Path(self.figure)
        check_figure(picture)
        check_integer("images", self.images, low=1)
        config = InversionConfig(check_integer("steps", self.steps, low=1))
        certificate = None if self.release is None else read_certificate(Path(self.release))
        extractor = (
            parse_features(self.features or FEATURES)
            if certificate is None
            else extractor_of(Path(str(self.release)), certificate, self.features_model, self.trust_features_model)
        )
        source = self._open(extractor, certificate)
        extractor.differentiable(source.schema.input_shape)
        given = {name: getattr(self, name) for name in OF_RELEASES}
        if self.release is None or certificate is None:
            setting = _declared(extractor, source.schema, given)
        else:
            setting = _released(Path(self.release), certificate, source.schema, given)
        generator = np.random.default_rng(check_integer("seed", self.seed, low=0))
        held = source.read()
        study = study_inversion(
            setting.cases,
            held.x,
            held.y,
            extractor,
            generator,
            originals=self.images,
            centre=setting.centre,
            config=config,
            progress=progress or silent,
        )
        if picture is not None:
            with file_mode(private=not self.public_data):
                draw_inversion(study.to_dict(), picture)
        return Inversion(self._measurement(setting, extractor, config, study), study, picture)

    def _open(self, extractor: Extractor, certificate: Mapping[str, Any] | None) -> Source:
        classes = self.classes
        if classes is None and certificate is not None:
            # A release names its classes; they make labels mean the same.
            classes = list(certificate["plan"]["classes"])
        return open_dataset(
            self.data,
            extractor,
            split=split_of(self.data, self.split),
            classes=classes,
            columns=self.columns,
            input_shape=None if certificate is None else tuple(certificate["input_shape"]),
        ).source

    def _measurement(
        self, setting: _Setting, extractor: Extractor, config: InversionConfig, study: InversionStudy
    ) -> Measurement:
        return Measurement(
            "inversion",
            setting.subject,
            study.to_dict(),
            private=not self.public_data,
            settings={
                "plans": [{"epsilon": case.epsilon, "plan": case.plan.to_dict()} for case in setting.cases],
                "extractor": extractor.spec(),
                "steps": self.steps,
                "learning_rate": config.learning_rate,
                "seed": self.seed,
                "images": self.images,
            },
            title=f"model inversion of rows made from {extractor.name} features",
            statements=STATEMENTS,
        )


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
