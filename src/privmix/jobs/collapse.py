"""Whether classes survive mixing and noise, on a public proxy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from privmix.attacks.collapse import CollapseReport, measure_collapse
from privmix.attacks.known_rows import check_sums
from privmix.data import Schema
from privmix.designs import Plan
from privmix.errors import InvalidInput, check_integer
from privmix.features import from_spec, parse_features
from privmix.jobs.columns import Columns
from privmix.jobs.dataset import open_dataset
from privmix.jobs.features import features_in_memory
from privmix.jobs.places import check_figure
from privmix.jobs.progress import Progress, silent
from privmix.jobs.recording import Measured, Measurement
from privmix.releases import ReleaseConfig, plan_from_dict
from privmix.releases.certificate import read_certificate
from privmix.reports.collapse import draw_collapse

_STATEMENT: Final = (
    "Computed from a dataset that its user declares public; nothing here is protected by differential privacy."
)


@dataclass(frozen=True)
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


def collapse(
    release: str | Path | None,
    proxy: Any,
    *,
    features: str | None = None,
    split: str = "train",
    epsilon: float | None = None,
    delta: float | None = None,
    records: int | None = None,
    rows: int | None = None,
    mixup_degree: int | None = None,
    expected_classes: float | None = None,
    clip_norm: float | None = None,
    classes: Any = None,
    columns: Columns | None = None,
    features_model: str | Path | None = None,
    trust_features_model: bool = False,
    seed: int = 0,
    figure: str | Path | None = None,
    progress: Progress | None = None,
) -> Collapse:
    """Measure on public data how well classes survive mixing (Li et al. 2024, Figures 2 and 14).

    No private data is read. Neural collapse and the least distance of mixed pairs to other classes judge the features.
    Mixed labels are drawn
    as Poisson and hierarchical releases of that budget would mix them, or as one release does.

    Args:
        release: the release whose plan and extractor are judged; None: plans of the options up to ``clip_norm``.
        proxy: a PUBLIC dataset like the private one; never a private one.
        features: public extractor.
        split: which part of the proxy.
        epsilon: budget that the label noise is for.
        delta: of the budget; 1e-5 where None.
        records: record count n of the plan; that of the proxy where None.
        rows: rows T that the plan releases; n where None.
        mixup_degree: expected records in a row; 64 where None.
        expected_classes: expected classes in a row of the hierarchical design; 3 where None.
        clip_norm: bound on a record's feature norm; 1 where None.
        classes: number or names of the classes.
        columns: what is declared of columns and images.
        features_model: your own copy of the extractor's model, where it is a file or folder.
        trust_features_model: that file may be a program, and may run.
        seed: decides the mixtures and the noise drawn.
        figure: where to draw histograms of mixed labels, clean and noisy (.png, .svg, .pdf); not in a release or model.
        progress: called with (stage, done, total).

    Raises:
        InvalidInput: a value is out of range, an option is given beside a release, or the proxy is not of its kind.
        StorageError: something can't be read or written.
    """
    picture = None if figure is None else Path(figure)
    check_figure(picture)
    given: dict[str, Any] = {
        "features": features,
        "epsilon": epsilon,
        "delta": delta,
        "records": records,
        "rows": rows,
        "mixup_degree": mixup_degree,
        "expected_classes": expected_classes,
        "clip_norm": clip_norm,
    }
    certificate = None if release is None else read_certificate(Path(release))
    if certificate is None and (features is None or epsilon is None):
        raise InvalidInput("features, epsilon", (features, epsilon), "both, or a release")
    if certificate is None:
        extractor = parse_features(str(features))
    else:
        extractor = from_spec(certificate["extractor"], features_model, trust_model=trust_features_model)
    named = list(certificate["plan"]["classes"]) if classes is None and certificate is not None else classes
    shape = None if certificate is None else tuple(certificate["input_shape"])
    source = open_dataset(proxy, extractor, split=split, classes=named, columns=columns, input_shape=shape).source
    if certificate is None:
        plans = _declared(extractor.output_dim(source.schema.input_shape), source.schema, given)
        subject: dict[str, Any] = {"kind": "design", "id": None}
    else:
        plans, epsilon = _released(certificate, source.schema, given), certificate["guarantee"]["epsilon"]
        subject = {"kind": "release", "id": certificate["id"]}
    generator = np.random.default_rng(check_integer("seed", seed, low=0))
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
        settings={"plans": [plan.to_dict() for plan in plans], "extractor": extractor.spec(), "seed": seed},
        title=f"collapse of {extractor.name} features and mixed labels on public data",
        statements=[_STATEMENT],
    )
    return Collapse(measurement, report, picture)


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
