"""Whether classes survive mixing and noise, on a public proxy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from privmix.data import Schema, Source
from privmix.errors import InvalidInput, check_integer
from privmix.features import Extractor, parse_features
from privmix.jobs.dataset import open_dataset
from privmix.jobs.features import extractor_of, features_in_memory
from privmix.jobs.places import check_figure
from privmix.jobs.recording import Measured, Measurement
from privmix.planning import ReleaseConfig
from privmix.plans import Plan, plan_from_dict
from privmix.progress import Progress, silent
from privmix.releases.certificate import read_certificate
from privmix.research.collapse.measures import CollapseReport, measure_collapse
from privmix.research.collapse.options import OF_RELEASES, CollapseOptions
from privmix.research.collapse.picture import draw_collapse
from privmix.research.known_rows import check_sums

_STATEMENT: Final = (
    "Computed from a dataset that its user declares public; nothing here is protected by differential privacy."
)


@dataclass(frozen=True, repr=False)
class Collapse(Measured):
    """How well classes are told apart after mixing.

    Attributes:
        report: the figures.
        figure: the picture, where one was asked for.
    """

    report: CollapseReport
    figure: Path | None = None

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {**self.measurement.content, "figure": None if self.figure is None else str(self.figure)}


@dataclass(frozen=True, eq=False, kw_only=True)
class CollapseJob(CollapseOptions):
    """Measure on public data how well classes survive mixing (Li et al. 2024, Figures 2 and 14).

    No private data is read. Neural collapse and the least distance of mixed pairs to other classes judge the features.
    Mixed labels are drawn as Poisson and hierarchical releases of that budget would mix them, or as one release does.

    Attributes:
        release: the release whose plan and extractor are judged; None: plans of the options up to ``clip_norm``.
        proxy: a PUBLIC dataset like the private one; never a private one.

    The rest: :class:`privmix.research.collapse.options.CollapseOptions`.
    """

    release: str | Path | None
    proxy: Any = field(repr=False)

    def run(self, progress: Progress | None = None) -> Collapse:
        """Measure.

        Args:
            progress: called with (stage, done, total).

        Raises:
            InvalidInput: a value is out of range, an option is given beside a release, or the proxy is not of its kind.
            StorageError: something can't be read or written.
        """
        picture = None if self.figure is None else Path(self.figure)
        check_figure(picture)
        given = {name: getattr(self, name) for name in OF_RELEASES}
        certificate = None if self.release is None else read_certificate(Path(self.release))
        if certificate is None and (self.features is None or self.epsilon is None):
            raise InvalidInput("features, epsilon", (self.features, self.epsilon), "both, or a release")
        if certificate is None:
            extractor = parse_features(str(self.features))
        else:
            extractor = extractor_of(
                Path(str(self.release)), certificate, self.features_model, self.trust_features_model
            )
        source = self._open(extractor, certificate)
        if certificate is None:
            plans = _declared(extractor.output_dim(source.schema.input_shape), source.schema, given)
            epsilon, subject = self.epsilon, {"kind": "design", "id": None}
        else:
            plans, epsilon = _released(certificate, source.schema, given), certificate["guarantee"]["epsilon"]
            subject = {"kind": "release", "id": certificate["id"]}
        generator = np.random.default_rng(check_integer("seed", self.seed, low=0))
        found = features_in_memory(source, extractor, progress or silent)
        report = measure_collapse(plans, found.features, found.labels, generator)
        content = {**report.to_dict(), "epsilon": epsilon}
        if picture is not None:
            draw_collapse(content, picture)
        measurement = Measurement(
            "collapse",
            subject,
            content,
            private=False,
            settings={
                "plans": [plan.to_dict() for plan in plans],
                "extractor": extractor.spec(),
                "seed": self.seed,
            },
            title=f"collapse of {extractor.name} features and mixed labels on public data",
            statements=[_STATEMENT],
        )
        return Collapse(measurement, report, picture)

    def _open(self, extractor: Extractor, certificate: Mapping[str, Any] | None) -> Source:
        classes = self.classes
        if classes is None and certificate is not None:
            classes = list(certificate["plan"]["classes"])
        shape = None if certificate is None else tuple(certificate["input_shape"])
        return open_dataset(
            self.proxy, extractor, split=self.split, classes=classes, columns=self.columns, input_shape=shape
        ).source


def _declared(dim: int, schema: Schema, given: Mapping[str, Any]) -> list[Plan]:
    """Poisson and hierarchical plans of the same budget."""
    common: dict[str, Any] = {
        "records": given["records"] or schema.records,
        "dim": dim,
        "classes": tuple(schema.classes),
        "mixup_degree": 64 if given["mixup_degree"] is None else given["mixup_degree"],
        "rows": given["rows"],
        "clip_norm": 1.0 if given["clip_norm"] is None else given["clip_norm"],
        "centre": "none",
    }
    expected = given["expected_classes"]
    expected = min(3.0, len(schema.classes)) if expected is None else expected
    delta = 1e-5 if given["delta"] is None else given["delta"]
    configs = (ReleaseConfig(**common), ReleaseConfig(**common, design="hierarchical", expected_classes=expected))
    return [config.calibrate(given["epsilon"], delta) for config in configs]


def _released(certificate: Mapping[str, Any], schema: Schema, given: Mapping[str, Any]) -> list[Plan]:
    for name, value in given.items():
        if value is not None:
            raise InvalidInput(name, value, "nothing beside a release, which says it")
    if tuple(schema.input_shape) != tuple(certificate["input_shape"]):
        raise InvalidInput("proxy", schema.input_shape, f"inputs of shape {tuple(certificate['input_shape'])}")
    plan = check_sums(plan_from_dict(certificate["plan"]))
    if tuple(schema.classes) != plan.classes:
        raise InvalidInput("classes", list(schema.classes), f"the release's: {', '.join(plan.classes)}")
    return [plan]
