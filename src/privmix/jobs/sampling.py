"""Rows in the columns of a table, from a release of it: post-processing, at no cost of privacy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from privmix.errors import InvalidInput, check_choice, check_integer
from privmix.features.table_states import States, table_states
from privmix.features.tabular import Tabular
from privmix.jobs.planner import columns_of
from privmix.jobs.private_tables import check_out, write_table
from privmix.learning.table_model import FINE, ColumnStates, PairFit, TableModel, fit_table
from privmix.planning.table import TableForecast, forecast_table, listed, untold_note
from privmix.plans.named import plan_from_dict
from privmix.plans.plan import Plan
from privmix.progress import Progress
from privmix.publication.dataset import HasDataset, ReleasedDataset
from privmix.publication.second_moments import SecondMoments
from privmix.releases.series_chain import dataset_of
from privmix.shown import Shown

LABEL: Final = "label"
"""Default name of the column of classes: a release holds no name of it."""

MOST_ROWS: Final = 10_000_000

_OPEN_END: Final = (
    'of the outer intervals of {}; rows have the end that is declared (declare both: "range" with the bins)'
)
# Exit code of rows that do not meet the release, as of a claim that an audit refutes.
_LOST: Final = 4

# A share that is this number of standard deviations of its noise above 0 counts as present.
_SEEN: Final = 4.0


@dataclass(frozen=True, eq=False, repr=False)
class SampledTable(Shown):
    """Rows of a table that fit a release, in the columns that its specification declares.

    They are made of the released numbers alone: public as the release is, and no row is a record.

    Attributes:
        arrow: an Arrow table: the declared columns that are used, and the classes.
        label: name of the column of classes.
        pairs: fit to the released numbers, by pair of columns, see :class:`privmix.learning.table_model.PairFit`.
        ignored: declared columns that are not in the release, and so not here.
        open_ended: columns whose first and last bin have one end: there cells are the number at that end.
        model: the mixture that rows are drawn from.
        told: for each column whether the shares of its values were released, or its mean and spread alone.
        share_error: standard deviation of the noise in a class's share, as its released count has it.
        forecast: the noise's effect on pairs of columns, by the plan; None where no shares were released.
        out: the file that was written, if any.
    """

    arrow: pa.Table
    label: str
    pairs: tuple[PairFit, ...]
    ignored: tuple[str, ...]
    open_ended: tuple[str, ...]
    model: TableModel
    told: Mapping[str, bool]
    share_error: float
    forecast: TableForecast | None
    out: Path | None = None

    def __len__(self) -> int:
        return int(self.arrow.num_rows)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns, the classes' last."""
        return tuple(self.arrow.column_names)

    @property
    def met(self) -> int:
        """How many pairs of columns are met: within noise, or :data:`~privmix.learning.table_model.FINE`."""
        return sum(pair.met for pair in self.pairs)

    @property
    def fit(self) -> str:
        """How many of the pairs are met, in words."""
        pairs = f"{self.met} of {len(self.pairs)} pairs of columns are met within their noise"
        return f"{pairs} or {FINE} of total variation"

    @property
    def worst(self) -> tuple[PairFit, ...]:
        """The pairs that are not met, those furthest from it first."""
        return tuple(sorted((pair for pair in self.pairs if not pair.met), key=lambda pair: -pair.ratio))

    @property
    def notes(self) -> tuple[str, ...]:
        """Effect of the release's noise in the rows' terms, a sentence each."""
        untold = untold_note([name for name, told in self.told.items() if not told])
        counts = f"From class counts alone, a class's share is known to about {self.share_error:.2g}."
        return (*(untold if self.forecast is None else self.forecast.notes), counts)

    @property
    def cautions(self) -> tuple[str, ...]:
        """Why the rows are of little use, where they are."""
        found = [] if self.forecast is None or self.forecast.warning is None else [self.forecast.warning]
        if lost := self.model.lost:
            names = listed(f"{' x '.join(pair.columns)} ({pair.beyond:.2f})" for pair in lost)
            found.append(
                f"the fit missed {len(lost)} of {len(self.pairs)} pairs of columns by more total variation than "
                f"noise and rounding explain: {names}. Do not use the rows for these; another `seed` may meet them"
            )
        return tuple(found)

    @property
    def exit_code(self) -> int:
        """Exit code of the command line: other than 0 where the fit missed a pair of columns."""
        return _LOST if self.model.lost else 0

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        fitted = [{**vars(pair), "columns": list(pair.columns), "lost": pair.lost} for pair in self.pairs]
        return {
            "rows": len(self),
            "columns": list(self.columns),
            "released": {name: "shares" if told else "mean and spread" for name, told in self.told.items()},
            "ignored": list(self.ignored),
            "warnings": list(self.cautions),
            "notes": list(self.notes),
            "variation": None if self.forecast is None else self.forecast.variation,
            "pairs": fitted,
        }

    def table(self, start: int = 0, stop: int | None = None) -> Any:
        """Rows ``start`` to before ``stop`` as an Arrow table."""
        return self.arrow.slice(start, None if stop is None else stop - start)

    def to_frame(self, library: str = "pandas") -> Any:
        """Return the rows as a frame: whole numbers that can be missing as ``Int64``, missing cells as missing.

        Args:
            library: ``"pandas"``, ``"pyarrow"`` or ``"polars"``.

        Raises:
            InvalidInput: another library.
        """
        check_choice("library", library, ["pandas", "pyarrow", "polars"])
        if library == "pyarrow":
            return self.arrow
        if library == "polars":
            import polars

            return polars.from_arrow(self.arrow)
        import pandas

        whole = {pa.int64(): pandas.Int64Dtype(), pa.bool_(): pandas.BooleanDtype()}
        frame = self.arrow.to_pandas(types_mapper=lambda kind: whole.get(kind) if self._has_missing(kind) else None)
        return frame

    def _has_missing(self, kind: pa.DataType) -> bool:
        return any(column.null_count and column.type == kind for column in self.arrow.columns)

    def shown(self) -> tuple[str, Mapping[str, object]]:
        """How many, and how well they fit."""
        worst = listed(f"{' x '.join(pair.columns)} ({pair.beyond:.3f})" for pair in self.worst)
        facts: dict[str, object] = {
            **({"WARNING": "; ".join(self.cautions)} if self.cautions else {}),
            "columns": len(self.columns),
            **{f"quality {place}": text for place, text in enumerate(self.notes, 1)},
            "fit": self.fit,
            **({"error beyond the noise (total variation)": worst} if worst else {}),
            **({"not in the release": ", ".join(self.ignored)} if self.ignored else {}),
            **({"only one end is declared": _OPEN_END.format(", ".join(self.open_ended))} if self.open_ended else {}),
            **({} if self.out is None else {"file": self.out}),
        }
        return f"Sampled table: {len(self):,} rows", facts


def sampled(
    release: HasDataset | ReleasedDataset | str | Path,
    records: int | None,
    label: str,
    seed: int,
    place: Path | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> SampledTable:
    """Rows of a release of a table; see :class:`privmix.commands.sample.Sample`."""
    if place is not None:
        check_out(place, overwrite)
    dataset = dataset_of(release)
    tabular, moments = checked_table(dataset, records, label, seed)
    plan = plan_of(dataset)
    states = [_seen(one, moments, dataset, span) for one, span in _spans(table_states(tabular))]
    noise = getattr(plan, "centre_noise_multiplier", None)
    counted = plan.records_declared or plan.records_noise_multiplier is not None or plan.per_person is not None
    model = fit_table(
        moments,
        dataset.label_offset,
        dataset.transform,
        [ColumnStates(one.name, one.features, one.shares) for one in states],
        label=label,
        mean_noise_std=0.0 if noise is None else noise * plan.clip_norm / moments.records,
        free_total=counted,
        seed=seed,
        progress=progress,
    )
    generator = np.random.default_rng([seed, 1])
    places = model.sample(records or moments.records, generator)
    arrays = [one.cells(places[:, column], generator) for column, one in enumerate(states)]
    classes = pa.array(np.array(dataset.classes)[places[:, -1]].tolist(), pa.string())
    names = [one.name for one in states]
    open_ended = tuple(one.name for one in states if one.open_end)
    table = pa.table([*arrays, classes], names=[*names, label])
    columns = columns_of(tabular)
    told = {one.name: one.told for one in columns}
    forecast = forecast_table(plan, columns, label=label) if any(told.values()) else None
    error = moments.noise_std_counts / moments.records
    found = SampledTable(table, label, model.pairs, tabular.ignored, open_ended, model, told, error, forecast, place)
    if place is not None:
        write_table(found, place, private=False)
    return found


def plan_of(dataset: ReleasedDataset) -> Plan:
    """Return the plan that a release carried out."""
    if dataset.certificate is None:
        raise InvalidInput("release", "rows without a certificate", "a release, or its folder")
    return plan_from_dict(dataset.certificate["plan"])


def checked_table(
    dataset: ReleasedDataset, records: int | None, label: str, seed: int
) -> tuple[Tabular, SecondMoments]:
    """Return the columns of the rows to sample, and the released moments; raise where sampling is impossible."""
    check_integer("seed", seed, low=0)
    if records is not None:
        check_integer("records", records, low=1, high=MOST_ROWS)
    tabular, moments = _table_of(dataset)
    if label in tabular.columns or not label:
        raise InvalidInput("label", label, "a name that no other column has: choose another one")
    plan_of(dataset)
    return tabular, moments


def _table_of(dataset: ReleasedDataset) -> tuple[Tabular, SecondMoments]:
    if dataset.moments is None:
        allowed = (
            "moments, class-moments, two-stage or three-stage, whose X'X holds the table of every pair of columns; "
            "from rows of other designs `privmix fit` learns a classifier"
        )
        raise InvalidInput("design", dataset.design, allowed)
    if dataset.extractor.get("name") != Tabular.name:
        allowed = (
            "tabular features: others cannot be turned back into columns (Python: release.sample() draws features)"
        )
        raise InvalidInput("features of the release", dataset.extractor.get("name"), allowed)
    return Tabular(**dataset.extractor["options"]), dataset.moments


def _spans(states: tuple[States, ...]) -> list[tuple[States, slice]]:
    edges = np.cumsum([0, *(one.features.shape[1] for one in states)])
    return [(one, slice(int(a), int(b))) for one, a, b in zip(states, edges, edges[1:], strict=False)]


def _seen(states: States, moments: SecondMoments, dataset: ReleasedDataset, span: slice) -> States:
    """Without the state of unlisted values, unless the released numbers show that there are some."""
    if states.unlisted is None:
        return states
    plan = plan_of(dataset)
    top, width = states.features.max(), states.features.shape[1]
    if dataset.transform.centre is None:
        told = np.diag(moments.second)[span].sum() / moments.records / top**2
        noise = np.sqrt(width) * moments.noise_std_second / moments.records / top**2
    else:
        told = float(dataset.transform.centre[span].sum()) / top
        noise = np.sqrt(width) * plan.centre_noise_multiplier * plan.clip_norm / moments.records / top
    return states if 1 - told > _SEEN * noise else states.without_unlisted()
