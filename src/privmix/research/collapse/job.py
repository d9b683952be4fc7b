"""Whether classes survive mixing and noise, on a public proxy."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from privmix.data.dataset import Schema, Source
from privmix.errors import InvalidInput, check_integer
from privmix.features.base import Extractor, parse_features
from privmix.features.spec import from_spec
from privmix.jobs.dataset import open_dataset
from privmix.jobs.features import features_in_memory
from privmix.jobs.places import check_figure
from privmix.jobs.recording import Measured, Measurement
from privmix.planning.config import ReleaseConfig
from privmix.plans.plan import Plan
from privmix.progress import Progress
from privmix.releases.certificate import read_certificate
from privmix.reports.pictures import COLOURS, new_figure, save_figure
from privmix.research.collapse.measures import CollapseReport, measure_collapse
from privmix.research.collapse.options import OF_RELEASES, CollapseOptions
from privmix.research.known_rows import released_plan
from privmix.rounding import rounded_up

_STATEMENT: Final = (
    "Computed from a dataset that its user declares public; nothing here is protected by differential privacy."
)


@dataclass(frozen=True, repr=False)
class CollapseResult(Measured):
    """How well classes can be separated after mixing."""

    report: CollapseReport
    figure: Path | None = None

    def shown(self) -> tuple[str, Mapping[str, object]]:
        report, place = self.report, {} if self.figure is None else {"picture": self.figure}
        lines = {
            f"{one.design}, m {one.m}, mixed labels under noise": f"top class kept {100 * one.collapse.top_kept:.1f}%, "
            f"side of 1/K kept {100 * one.collapse.level_kept:.1f}%, signal over noise "
            f"{one.collapse.signal_to_noise:.3g}"
            for one in report.histograms
        }
        return self.measurement.title, {
            "neural collapse": f"{report.neural_collapse:.4g} (the smaller, the better classes survive mixing)",
            "least distance of a mixed pair to another class": f"{report.minimum_euclidean_distance:.4g} (the larger, "
            "the better)",
            **lines,
            **place,
        }

    def to_dict(self) -> dict[str, Any]:
        return {**self.measurement.content, "figure": None if self.figure is None else str(self.figure)}


def measure(options: CollapseOptions, release: str | Path | None, proxy: Any, progress: Progress) -> CollapseResult:
    picture = None if options.figure is None else Path(options.figure)
    check_figure(picture)
    given = {name: getattr(options, name) for name in OF_RELEASES}
    folder = None if release is None else Path(release)
    certificate = None if folder is None else read_certificate(folder)
    if certificate is None and (options.features is None or options.epsilon is None):
        raise InvalidInput("features, epsilon", (options.features, options.epsilon), "both, or a release")
    if folder is None or certificate is None:
        extractor = parse_features(str(options.features))
    else:
        extractor = from_spec(certificate["extractor"], options.features_model)
    source = _open(options, proxy, extractor, certificate)
    if certificate is None:
        plans = _declared(extractor.output_dim(source.schema.input_shape), source.schema, given)
        epsilon, subject = options.epsilon, {"kind": "design", "id": None}
    else:
        plans = [released_plan(certificate, source.schema, given, "data", "inputs")]
        epsilon = certificate["guarantee"]["epsilon"]
        subject = {"kind": "release", "id": certificate["id"]}
    generator = np.random.default_rng(check_integer("seed", options.seed, low=0))
    found = features_in_memory(source, extractor, progress)
    report = measure_collapse(plans, found.features, found.labels, generator)
    content = {**report.to_dict(), "epsilon": epsilon}
    if picture is not None:
        draw_collapse(content, picture)
    measurement = Measurement(
        "collapse",
        subject,
        content,
        private=False,
        settings={"plans": [plan.to_dict() for plan in plans], "extractor": extractor.spec(), "seed": options.seed},
        title=f"collapse of {extractor.name} features and mixed labels on public data",
        statements=[_STATEMENT],
    )
    return CollapseResult(measurement, report, picture)


def _open(options: CollapseOptions, proxy: Any, extractor: Extractor, certificate: Mapping[str, Any] | None) -> Source:
    classes = options.classes
    if classes is None and certificate is not None:
        classes = list(certificate["plan"]["classes"])
    shape = None if certificate is None else tuple(certificate["input_shape"])
    return open_dataset(
        proxy, extractor, split=options.split, classes=classes, columns=options.as_columns(), input_shape=shape
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


def draw_collapse(record: Mapping[str, Any], path: Path) -> None:
    """Draw, for each design, how often each value occurs in mixed labels, clean and noisy."""
    panels = record["histograms"]
    figure = new_figure(0.6 + 4.2 * len(panels), 3.6)
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        edges = np.asarray(panel["edges"])
        for name, colour, style in (("clean", COLOURS[0], "-"), ("noisy", COLOURS[1], "--")):
            axes.stairs(panel[name], edges, color=colour, linestyle=style, fill=False, linewidth=1.6, label=name)
        axes.axvline(1 / record["labels"], color="#666666", linestyle=":", linewidth=1)
        axes.set_yscale("log")
        axes.set_title(
            f"{panel['design']}, m = {panel['m']}: top class kept {100 * panel['top_kept']:.0f}%", fontsize=10
        )
        axes.set_xlabel(f"entry of a mixed label (dotted: 1/K = {1 / record['labels']:.3g})")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    figure.axes[0].set_ylabel("share of entries")
    figure.suptitle(_title(record), fontsize=10)
    save_figure(figure, path)


def _title(record: Mapping[str, Any]) -> str:
    budget = "" if record["epsilon"] is None else f", noise for ε = {rounded_up(record['epsilon'])}"
    return f"Mixed labels of {record['labels']} classes{budget}"
