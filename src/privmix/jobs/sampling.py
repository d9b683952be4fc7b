"""Rows in the columns of a table, from a release of it: post-processing, at no cost of privacy."""

from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from privmix.errors import REFUTED, InvalidInput, check_choice, check_integer, warn
from privmix.features.base import Extractor
from privmix.features.table_states import table_states
from privmix.features.tabular import Tabular
from privmix.jobs.columns import NO_LABEL
from privmix.jobs.planner import columns_of
from privmix.jobs.private_tables import WRITERS, check_out, write_table
from privmix.learning.table_mixture import ColumnStates, Reals
from privmix.learning.table_model import FINE, LARGEST_TABLE, PairFit, TableModel, fit_table
from privmix.planning.table import TableColumn, TableForecast, forecast_table, has_pairs, listed, untold_note
from privmix.plans.plan import Plan
from privmix.plans.registry import plan_from_dict
from privmix.progress import Progress
from privmix.publication.dataset import HasDataset, RecordTransform, ReleasedDataset
from privmix.publication.second_moments import SecondMoments
from privmix.releases.series_chain import dataset_of
from privmix.shown import Shown

LABEL: Final = "label"
"""Default name of the column of classes: the folder of a release holds no name of it."""

# Rows are drawn in memory: a mistyped number is then an error and fills no memory.
MOST_ROWS: Final = 10_000_000

_OPEN_END: Final = (
    'of the outer intervals of {}; rows have the end that is declared (declare both: "range" with the bins)'
)

# A share that is this number of standard deviations of its noise above 0 counts as present; one below the second
# number of them is hidden by the noise.
_SEEN, _HIDDEN = 4.0, 2.0


@dataclass(frozen=True, eq=False, repr=False)
class SampledTable(Shown):
    """Rows of a table that fit a release, in the columns that its specification declares.

    They are made of the released numbers alone: public as the release is, and no row is a record.

    Attributes:
        arrow: an Arrow table: the declared columns that are used, and the classes.
        label: name of the column of classes; None without a label.
        pairs: fit to the released numbers, by pair of columns, see :class:`privmix.learning.table_model.PairFit`.
        ignored: declared columns that are not in the release, and so not here; without the classes'.
        open_ended: columns whose first and last bin have one end: there cells are the number at that end.
        model: the mixture that rows are drawn from.
        released: columns, and whether the shares of their values were released, or mean and spread alone.
        share_error: standard deviation of the noise in a class's share, as its released count has it.
        value_error: the same of one value of a column.
        hidden: values that are too rare to be seen above that noise.
        forecast: the noise's effect on pairs of columns, by the plan; None where no shares were released.
        out: the file that was written, if any.
        narrow: whether records were clipped nearer to their mean than rows need.
    """

    arrow: pa.Table
    label: str | None
    pairs: tuple[PairFit, ...]
    ignored: tuple[str, ...]
    open_ended: tuple[str, ...]
    model: TableModel
    released: tuple[TableColumn, ...]
    share_error: float
    value_error: float
    hidden: tuple[str, ...]
    forecast: TableForecast | None
    out: Path | None = None
    narrow: bool = False

    def __len__(self) -> int:
        return int(self.arrow.num_rows)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns; the classes' last, unless the specification has a place for it."""
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
        """Effect of the release's noise in the rows' terms, a sentence each: columns, then pairs of columns."""
        untold = untold_note([one for one in self.released if not one.told])
        share = f"From class counts alone, a class's share is known to about {self.share_error:.2g}."
        found = [] if self.label is None else [share]
        if told := [one for one in self.released if one.told]:
            error = f"each to within {_HIDDEN * self.value_error:.2g} (95%)"
            found.append(f"Shares of values are released for {len(told)} of {len(self.released)} columns, {error}.")
        if hidden := self.hidden:
            found.append(f"{len(hidden):,} values are rarer than that, and rows have them by chance: {listed(hidden)}.")
        if self.narrow:
            found.append("Records were clipped for learners: a release at `residual_clip_norm` 0.55 has closer rows.")
        return (*found, *(untold if self.forecast is None else self.forecast.notes))

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
        return REFUTED if self.model.lost else 0

    def to_dict(self) -> dict[str, Any]:
        by = {} if self.forecast is None else {pair.columns: pair.variation for pair in self.forecast.pairs}
        fitted = [
            {**vars(pair), "columns": list(pair.columns), "lost": pair.lost, "variation": by.get(pair.columns)}
            for pair in self.pairs
        ]
        return {
            "rows": len(self),
            "columns": list(self.columns),
            "released": {one.name: "shares" if one.told else "mean and spread" for one in self.released},
            "hidden_values": list(self.hidden),
            "ignored": list(self.ignored),
            "warnings": list(self.cautions),
            "notes": list(self.notes),
            "variation": None if self.forecast is None else self.forecast.variation,
            "pairs": fitted,
        }

    def table(self, start: int = 0, stop: int | None = None) -> Any:
        return self.arrow.slice(start, None if stop is None else stop - start)

    def to_frame(self, library: str = "pandas") -> Any:
        """Return the rows as a frame: whole numbers of a column that can have missing values as ``Int64``.

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
        fields = zip(self.arrow.schema, self.arrow.columns, strict=True)
        mapped = {
            one.name: column.to_pandas(types_mapper=whole.get if one.nullable else None) for one, column in fields
        }
        return pandas.DataFrame(mapped)

    def shown(self) -> tuple[str, Mapping[str, object]]:
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
    label: str | None,
    seed: int,
    out: str | Path | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    plan: Plan | None = None,
) -> SampledTable:
    place = check_out(out, overwrite)
    dataset = dataset_of(release)
    label = getattr(release, "label", LABEL) if label is None else label
    label = None if label == NO_LABEL else label
    tabular, moments = checked_table(dataset, records, label, seed)
    label = label if len(dataset.classes) > 1 else None
    plan, columns, every = plan or plan_of(dataset), columns_of(tabular), table_states(tabular)
    tops = [one.features.max(axis=0) for one in every]
    spans = np.cumsum([len(top) for top in tops])[:-1]
    shares = [np.split(one, spans) for one in _value_shares(dataset, moments, plan, np.concatenate(tops))]
    states, hidden = [], list[str]()
    for one, column, top, told, errors in zip(every, columns, tops, *shares, strict=True):
        # Without the state of unlisted values, unless the released numbers show that there are some.
        # The noise of the shares is independent: the error of their sum is the norm.
        present = 1 - told.sum() > _SEEN * np.linalg.norm(errors)
        states.append(one if present else one.without_unlisted())
        # Only where a feature belongs to one state is its share the share of a value.
        if column.told and np.count_nonzero(one.features, axis=0).max() <= 1:
            rare = (told < _HIDDEN * errors) & (top > 0)
            hidden += [
                name for name, is_rare in zip(tabular.kinds[one.name].names(one.name), rare, strict=True) if is_rare
            ]
    noise = getattr(plan, "centre_noise_multiplier", None)
    # A declared or private count, or one of persons, is not the total of the records: the fit estimates that.
    counted = plan.records_declared or plan.records_noise_multiplier is not None or plan.per_person is not None
    model = fit_table(
        moments,
        dataset.label_offset,
        dataset.transform,
        [ColumnStates(one.name, one.features, one.shares) for one in states],
        label=label or "",
        mean_noise_std=0.0 if noise is None else noise * plan.clip_norm / moments.records,
        free_total=counted,
        seed=seed,
        progress=progress,
    )
    # A stream of its own: rows must not repeat the draws of the fit.
    generator = np.random.default_rng([seed, 1])
    places = model.sample(records or moments.records, generator)
    arrays = [one.cells(places[:, column], generator) for column, one in enumerate(states)]
    fields = [one.field for one in states]
    if label is not None:
        arrays.append(pa.array(np.array(dataset.classes)[places[:, -1]].tolist(), pa.string()))
        fields.append(pa.field(label, pa.string(), nullable=False))
    schema = pa.schema(fields)
    names = [entry["name"] for entry in tabular.options()["columns"]]
    found = SampledTable(
        pa.table(arrays, schema).select([name for name in dict.fromkeys((*names, label)) if name in schema.names]),
        label,
        model.pairs,
        tuple(name for name in tabular.ignored if name != label),
        tuple(one.name for one in states if one.open_end),
        model,
        columns,
        moments.noise_std_counts / moments.records,
        max((float(errors.max()) for one, errors in zip(columns, shares[1], strict=True) if one.told), default=0.0),
        tuple(hidden),
        forecast_table(plan, columns, label=label or "") if any(one.told for one in columns) else None,
        place,
        (plan.residual_clip_norm or plan.clip_norm) < Extractor.usual.residual * plan.clip_norm,
    )
    # Made of released numbers alone: anyone may read it.
    write_table(found, place, private=False)
    return found


def check_rows(rows: int, label: str | None, extractor: Extractor, plan: Plan | None) -> None:
    """Raise unless a release of this plan and extractor has rows to add; None: the planner chooses the plan later."""
    check_integer("with_rows", rows, low=1, high=MOST_ROWS)
    designs = "design moments, class-moments, corrected-moments, two-stage or three-stage"
    fits = plan is None or (has_pairs(plan) and plan.dim <= LARGEST_TABLE)
    if not isinstance(extractor, Tabular) or not fits:
        allowed = f"{designs} of a table (`features` tabular:SPEC.json) of at most {LARGEST_TABLE} features"
        raise InvalidInput("with_rows", rows, allowed)
    if label in extractor.columns:
        raise InvalidInput("with_rows", rows, "a label column that is no input")


def rows_file(
    plan: Plan, extractor: Mapping[str, Any], beside: Any, centre: Any, rows: int, label: str | None
) -> bytes:
    """Return the rows of a release that is being made, as CSV; cautions are warnings."""
    dataset = ReleasedDataset(
        # Rows of the release are not used.
        np.zeros((1, plan.dim), np.float32),
        np.zeros((1, plan.num_classes), np.float32),
        plan.design,
        *(1, 0.0, 0.0),
        plan.label_offset,
        plan.classes,
        RecordTransform(plan.clip_norm, plan.norm, centre, plan.residual_clip_norm),
        extractor,
        input_shape=(1,),
        release_id="",
        beside=beside,
    )
    # A fixed seed: a run that resumes, and a replay, make the same bytes.
    found = sampled(dataset, rows, label, 0, plan=plan)
    for text in found.cautions:
        warn(text)
    content = BytesIO()
    WRITERS[".csv"](found, content)
    return content.getvalue()


def plan_of(dataset: ReleasedDataset) -> Plan:
    if dataset.certificate is None:
        raise InvalidInput("release", "rows without a certificate", "a release, or its folder")
    return plan_from_dict(dataset.certificate["plan"])


def checked_table(
    dataset: ReleasedDataset, records: int | None, label: str | None, seed: int
) -> tuple[Tabular, SecondMoments]:
    """Return the columns of the rows to sample, and the released moments; raise where sampling is impossible."""
    check_integer("seed", seed, low=0)
    if records is not None:
        check_integer("records", records, low=1, high=MOST_ROWS)
    if dataset.moments is None:
        allowed = (
            "moments, class-moments, corrected-moments, two-stage or three-stage, whose X'X holds the table of every "
            "pair of columns; from rows of other designs `privmix fit` learns a classifier"
        )
        raise InvalidInput("design", dataset.design, allowed)
    if dataset.extractor.get("name") != Tabular.name:
        allowed = (
            "tabular features: others cannot be turned back into columns (Python: release.sample() draws features)"
        )
        raise InvalidInput("features of the release", dataset.extractor.get("name"), allowed)
    tabular = Tabular.from_options(dataset.extractor["options"])
    if len(dataset.classes) == 1:
        if label not in (None, LABEL):
            raise InvalidInput("label", label, "none: the release has no label")
    elif label in tabular.columns or not label:
        raise InvalidInput("label", label, "a name that no other column has: choose another one")
    return tabular, dataset.moments


def _value_shares(dataset: ReleasedDataset, moments: SecondMoments, plan: Any, top: Reals) -> tuple[Reals, Reals]:
    """(d,) shares of records that have each feature, at its ``top``, and standard deviations of the noise in them."""
    top = np.where(top > 0, top, 1.0)
    if (centre := dataset.transform.centre) is not None:
        return centre / top, plan.centre_noise_multiplier * plan.clip_norm / moments.records / top
    return np.diag(moments.second) / moments.records / top**2, moments.noise_std_second / moments.records / top**2
