"""Rows of a release beside real records of the table, for the owner of these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privmix.bars import Asked, callback, shows_bars
from privmix.engine import PrivateRecords
from privmix.features.table_states import table_states
from privmix.features.tabular import Tabular
from privmix.jobs.columns import Columns
from privmix.jobs.evaluation import open_for_model
from privmix.jobs.features import features_in_memory
from privmix.jobs.sampling import SampledTable, checked_table, sampled
from privmix.jobs.table_quality import TableQuality, table_quality
from privmix.learning.base import ReleaseFacts
from privmix.publication import ReleasedDataset
from privmix.publication.dataset import HasDataset
from privmix.releases.at_hand import dataset_of
from privmix.shown import Shown

STATEMENT = "Of real records, and covered by no guarantee: for their owner alone, unless they are public."


@dataclass(frozen=True, eq=False, repr=False)
class TableEvaluation(Shown):
    """How near the rows of a release are to real records. It is about these, and private as they are.

    Attributes:
        quality: see :class:`privmix.jobs.table_quality.TableQuality`.
        records: how many real ones there are.
        rows: the rows that were compared.
    """

    quality: TableQuality
    records: int
    rows: SampledTable

    def shown(self) -> tuple[str, Mapping[str, object]]:
        """What ``privmix evaluate --table`` prints."""
        found = self.quality
        names = {"one column": found.one_way, "two columns": found.two_way, "three columns": found.three_way}
        distances = {f"total variation, {way}": f"{mean:.4f} (most {most:.4f})" for way, (mean, most) in names.items()}
        real = found.real_tree
        return f"Table of {len(self.rows):,} rows beside {self.records:,} real records", {
            **({"WARNING": "; ".join(self.rows.cautions)} if self.rows.cautions else {}),
            **distances,
            "furthest off": " x ".join(found.worst_pair),
            "Cramer's V, mean error": f"{found.association:.4f}",
            "tree trained on the rows": _tree(found.tree),
            **({} if real is None else {"tree trained on real records": _tree(real)}),
            "note": STATEMENT,
        }

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {**self.quality.to_dict(), "records": self.records, "rows": len(self.rows), "statement": STATEMENT}


def _tree(found: Any) -> str:
    auc = "" if found.auc is None else f", AUC {found.auc:.3f}"
    return f"accuracy {100 * found.accuracy:.2f}%{auc}"


@shows_bars
def evaluate_table(
    release: HasDataset | ReleasedDataset | str | Path,
    against: Any,
    *,
    split: str | None = None,
    columns: Columns | str | Sequence[str] | None = None,
    label: str | None = None,
    classes: Any = None,
    records: int | None = None,
    seed: int = 0,
    progress: Asked = None,
) -> TableEvaluation:
    """Sample rows from a release of a table and compare them with real records of it.

    What comes out is about the real records: it is covered by no guarantee and, where they are private, for their
    owner alone.

    Args:
        release: a release that :func:`privmix.sample` takes, or its folder.
        against: real records with labels, as :func:`privmix.release` takes them.
        split: which part of them; None: ``train``, or all of what is in memory.
        columns, label, classes: as :func:`privmix.evaluate` takes them.
        records, seed: of the rows, see :func:`privmix.sample`.
        progress: called with (stage, done, total); True: bars; None: bars where somebody looks on.

    Raises:
        InvalidInput: the release is of no table or has no second moments, or the records have other columns or classes.
        StorageError: something can't be read.
    """
    tell = callback(progress)
    dataset = dataset_of(release)
    declared = Columns.declared(columns, label)
    extractor, _ = checked_table(dataset, records, declared.label_column, seed)
    facts = ReleaseFacts.of(dataset)
    # The real records first: what is wrong with them shows before the fit, which takes much longer.
    opened = open_for_model(facts, extractor, against, split or "train", classes, declared)
    found: PrivateRecords = features_in_memory(opened.source, extractor, tell)
    rows = sampled(dataset, records, declared.label_column, seed, progress=tell)
    states = table_states(extractor)
    sizes = [*(len(one.shares) for one in states), len(facts.classes)]
    real = np.column_stack([_places(found.features, extractor), found.labels])
    made = np.column_stack([_places(_encoded(rows, extractor), extractor), _labels(rows, facts.classes)])
    names = [*(one.name for one in states), rows.label]
    return TableEvaluation(table_quality(made, real, sizes, names), len(real), rows)


def _encoded(rows: SampledTable, extractor: Tabular) -> NDArray[np.float32]:
    """The rows' cells as features."""
    cells = np.empty((len(rows), len(extractor.columns)), dtype=object)
    for place, name in enumerate(extractor.columns):
        cells[:, place] = rows.arrow.column(name).to_pylist()
    return extractor.transform(cells)


def _labels(rows: SampledTable, classes: Sequence[str]) -> NDArray[np.int64]:
    places = {name: place for place, name in enumerate(classes)}
    return np.array([places[name] for name in rows.arrow.column(rows.label).to_pylist()], np.int64)


def _places(features: NDArray[np.float32], extractor: Tabular) -> NDArray[np.int64]:
    found, start = [], 0
    for states in table_states(extractor):
        width = states.features.shape[1]
        found.append(states.nearest(features[:, start : start + width].astype(np.float64)))
        start += width
    return np.column_stack(found)
