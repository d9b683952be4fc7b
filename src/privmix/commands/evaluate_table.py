"""Compare rows of a release with real records of the table, for the owner of these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, MISSING, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.commands.base import Command, function
from privmix.errors import WITHHELD, InvalidInput, check_choice
from privmix.jobs.columns import TableColumns
from privmix.options import option
from privmix.progress import Progress
from privmix.shown import Shown

if TYPE_CHECKING:
    from privmix.attacks.table_rows import RowAttacks
    from privmix.features.tabular import Tabular
    from privmix.jobs.quality import TableQuality
    from privmix.jobs.sampling import SampledTable
    from privmix.publication.dataset import HasDataset, ReleasedDataset

NO_TREE = "none: the release has no label; `target` names a column to predict"
STATEMENT = "No guarantee covers these figures of real records: for their owner only, unless the records are public."


@dataclass(frozen=True, eq=False, repr=False)
class TableEvaluation(Shown):
    """How near the rows of a release are to real records. It is about these, and private as they are.

    Attributes:
        quality: see :class:`privmix.jobs.quality.TableQuality`.
        records: how many real ones there are.
        rows: the rows that were compared.
        attacks: see :class:`privmix.attacks.table_rows.RowAttacks`; None without a control.
        target: column that the trees predict, where it is not the label.
    """

    quality: TableQuality
    records: int
    rows: SampledTable
    attacks: RowAttacks | None = None
    target: str | None = None

    def shown(self) -> tuple[str, Mapping[str, object]]:
        """Return the distances, and what trees learn."""
        found = self.quality
        names = {"one column": found.one_way, "two columns": found.two_way, "three columns": found.three_way}
        distances = {f"total variation, {way}": f"{mean:.4f} (most {most:.4f})" for way, (mean, most) in names.items()}
        real, of = found.real_tree, "" if self.target is None else f" for {self.target}"
        name = "tree" if found.tree is None else found.tree.learner
        return f"Table of {len(self.rows):,} rows compared with {self.records:,} real records", {
            **({"WARNING": "; ".join(self.rows.cautions)} if self.rows.cautions else {}),
            **distances,
            "furthest off": " x ".join(found.worst_pair),
            "Cramer's V, mean error": f"{found.association:.4f}",
            **({"tree": NO_TREE} if found.tree is None else {f"{name} trained on the rows{of}": found.tree.shown()}),
            **({} if real is None else {f"{name} trained on real records": real.shown()}),
            **({} if found.forecast is None else {"forecast by the rows alone": found.forecast.shown()}),
            **({} if self.attacks is None else self.attacks.shown()),
            "note": STATEMENT,
        }

    def to_dict(self) -> dict[str, Any]:
        attacks = {} if self.attacks is None else self.attacks.to_dict()
        attacks |= {} if self.target is None else {"target": self.target}
        shared = {"records": self.records, "rows": len(self.rows), "statement": STATEMENT}
        return {**self.quality.to_dict(), **attacks, **shared}


@dataclass(frozen=True, eq=False, repr=False)
class EvaluateTable(TableColumns, Command[TableEvaluation]):
    """Compare rows sampled from a release with real records.

    Reports the total variation of one, two and three columns. A tree trained on the rows predicts the records' label
    or `target`, and its accuracy is reported. A number is predicted by the mean of ridge regression and a tree, with R2
    and RMSE. A forecast of the same takes the rows alone. With a control it attacks the rows: singling out, linking,
    inference and membership. No guarantee covers these figures: keep them private.

    Raises:
        InvalidInput: the release is of no table or has no second moments, or the records have other columns or classes.
        StorageError: something can't be read.
    """

    example = "privmix evaluate-table REL --data real.csv --label-column income"

    release: HasDataset | ReleasedDataset | str | Path = option(
        MISSING, "Folder of a release that privmix sample accepts.", in_python="Also a release.", argument=True
    )
    data: Any = option(
        MISSING,
        "Real labelled records: file, folder, pattern or address.",
        in_python="Also arrays, frames and tensors.",
    )
    _: KW_ONLY
    split: str | None = option(None, "Split of the records. Default: train, or all data in memory.")
    person: str | None = field(default=None, init=False)
    control: Any = option(None, "Records that are not in the release, for attacks.", in_python="Also frames.")
    target: str | None = option(None, "Column to predict, a number or a state. Default: the label.")
    records: int | None = option(None, "Number of rows to sample. Default: the release's record count.")
    seed: int = option(0, "Seed of the rows.")

    def run(self, progress: Progress) -> TableEvaluation:
        from privmix.attacks.table_rows import attack_rows, check_control
        from privmix.features.table_states import table_states
        from privmix.jobs.features import features_in_memory
        from privmix.jobs.models import open_for_model
        from privmix.jobs.quality import table_quality
        from privmix.jobs.sampling import checked_table, sampled
        from privmix.learning.base import ReleaseFacts
        from privmix.releases.series_chain import dataset_of

        dataset = dataset_of(self.release)
        extractor, _ = checked_table(dataset, self.records, self.label, self.seed)
        if self.target is not None:
            check_choice("target", self.target, extractor.columns)
        if len(extractor.columns) + (len(dataset.classes) > 1) < 2:
            raise InvalidInput("release", "one column", "a table of at least two columns, its label included")
        facts, columns = ReleaseFacts.of(dataset), self.as_columns()
        labelled = len(facts.classes) > 1
        # The real records first: what is wrong with them shows before the fit, which takes much longer.
        given = [self.data] if self.control is None else [self.data, self.control]
        real, numbers = list[NDArray[np.int64]](), list[NDArray[np.float64]]()
        for one in given:
            columns = columns if labelled else replace(columns, label=None)
            opened = open_for_model(facts, extractor, one, self.split or "train", columns)
            found = features_in_memory(opened.source, extractor, progress)
            if not real and self.target is not None:
                at = extractor.columns.index(self.target)
                column = [cell for x in opened.source.inputs(extractor.step) for cell in x[:, at].tolist()]
                numbers += _numbers(extractor, self.target, column)
            real.append(np.column_stack([_places(found.features, extractor), *([found.labels] if labelled else [])]))
        if self.control is not None:
            check_control(*real)
        rows = sampled(dataset, self.records, self.label, self.seed, progress=progress)
        states = table_states(extractor)
        sizes, names = [len(one.shares) for one in states], [one.name for one in states]
        cells = np.empty((len(rows), len(extractor.columns)), dtype=object)
        for place, name in enumerate(extractor.columns):
            cells[:, place] = rows.arrow.column(name).to_pylist()
        made = _places(extractor.transform(cells), extractor)
        if rows.label is not None:
            of_class = {name: place for place, name in enumerate(facts.classes)}
            labels = [of_class[name] for name in rows.arrow.column(rows.label).to_pylist()]
            made = np.column_stack([made, np.array(labels, np.int64)])
            sizes, names = [*sizes, len(facts.classes)], [*names, rows.label]
        attacks = None
        if self.control is not None:
            attacks = attack_rows(made, rows.model, real[0], real[1], sizes, self.seed)
        if numbers and self.target is not None:
            numbers = [*_numbers(extractor, self.target, rows.arrow.column(self.target).to_pylist()), *numbers]
        if min(int(np.isfinite(one).sum()) for one in numbers or [np.zeros(len(one)) for one in (made, real[0])]) < 4:
            raise InvalidInput("data", WITHHELD, "at least 4 records and rows with a value of the target")
        target = names.index(self.target) if self.target is not None else len(names) - 1 if labelled else None
        quality = table_quality(made, real[0], sizes, names, target=target, numbers=numbers or None)
        return TableEvaluation(quality, len(real[0]), rows, attacks, self.target)


evaluate_table: Final = function(EvaluateTable)


def _numbers(extractor: Tabular, target: str, cells: list[Any]) -> list[NDArray[np.float64]]:
    """Return the numbers of a column, NaN where one is missing; nothing where the column is of another kind."""
    from privmix.features.table_cells import NumberKind

    kind = extractor.kinds[target]
    return [np.array(kind.values(cells, target), np.float64)] if isinstance(kind, NumberKind) else []


def _places(features: NDArray[np.float32], extractor: Tabular) -> NDArray[np.int64]:
    from privmix.features.table_states import table_states

    found, start = [], 0
    for states in table_states(extractor):
        width = states.features.shape[1]
        found.append(states.nearest(features[:, start : start + width].astype(np.float64)))
        start += width
    return np.column_stack(found)
