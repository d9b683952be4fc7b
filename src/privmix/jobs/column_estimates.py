"""A table's specification by private estimates: charged before a record is read, drawn once, and stated in the file."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np

from privmix.accounting.api import calibrate_noise
from privmix.accounting.events import Adjacency
from privmix.accounting.pld import PldAccountant
from privmix.data.frames import settled
from privmix.data.source import Source
from privmix.errors import InvalidInput, check_number
from privmix.features.table_cells import Missing, is_blank, number_in, token_of
from privmix.features.tabular import PLACEHOLDER, DraftedColumns, estimated_mark
from privmix.fields import is_printable
from privmix.folders import no_core_dumps
from privmix.jobs.budget import JobCost, Spending, charge, check_budget, check_held, new_note, telling
from privmix.jobs.columns import Columns
from privmix.jobs.dataset import Dataset
from privmix.jobs.options import EstimateOptions
from privmix.jobs.table_words import opened_table
from privmix.ledger.pricing import RECORD
from privmix.mechanisms.private_columns import ColumnQueries, estimate_columns
from privmix.mechanisms.streams import SecretStreams
from privmix.progress import Progress

_STEP: Final = 4096
# Share of delta for values that one record alone has: small, since deltas of later releases add up with it in a ledger,
# while the threshold hardly moves.
_SELECTION: Final = 0.1
# Characters of an estimated category: a specification of several columns must fit into a certificate.
LONGEST_VALUE: Final = 64
_HIDDEN: Final = "noise hides its values at this epsilon: declare it from public knowledge, or ignore"

T = TypeVar("T")


def estimated_columns(
    data: Any,
    declared: Columns,
    split: str,
    budget: EstimateOptions,
    wanted: Mapping[str, str],
    whole: Sequence[str],
    missing: Mapping[str | None, list[str]],
    finish: Callable[[DraftedColumns], T],
    progress: Progress,
) -> T:
    """Return what ``finish`` makes of an entry for each column of ``wanted`` (column -> ``number`` or ``category``).

    Formal guarantees:
        * Reserve before reading: the ledger is charged, durably, before a record is read.
        * Price: what is charged is ``ColumnQueries.event``, and one call of :func:`estimate_columns` is all that sees
          the records.
        * Per record: a cell that a table can hold and that is no number, or no printable text of usual length, is left
          out without a message. A cell that no table can hold ends the job after the charge, as in a release.
        * Stated: the specification names the cost, and so do certificates that depend on it. An error after the charge
          reports it.
    """
    epsilon = check_number("epsilon", budget.epsilon, low=0, low_open=True)
    delta = check_number("delta", budget.delta, low=0, low_open=True, high=1, high_open=True)
    check_budget(budget.ledger, budget.dataset, None, "a specification")
    if declared.person is not None:
        allowed = "no persons with `epsilon`: private estimates protect single records"
        raise InvalidInput("person", declared.person, allowed)
    names = {field: [name for name, said in wanted.items() if said == field] for field in ("number", "category")}
    queries = calibrated(names["number"], names["category"], epsilon, delta)
    # A query runs once here: what is charged is what is read.
    data = data if isinstance(data, str | Path) else settled(data)
    place = str(data) if isinstance(data, str | Path) else None
    opened = Dataset(opened_table(data, list(wanted), declared, split, names["number"]), place, split, declared, data)
    cost = JobCost(queries.event, Adjacency.ADD_REMOVE, "table specification", epsilon, delta, RECORD)
    no_core_dumps()
    with telling(Spending(epsilon, delta)) as told:
        check_held(budget.ledger, budget.dataset, cost, None)
        told.asked = budget.dataset
        told.charged = charged = charge(budget.ledger, new_note(budget.dataset), cost, opened, None)
        gone = {name: _missing(missing.get(name, missing.get(None, []))) for name in wanted}
        cells = _cells(opened.source, wanted, gone, progress)
        # The files may have changed since they were hashed, and the charge is for those bytes alone.
        opened.check_charged(charged.files)
        numbers = {name: np.array(cells[name], np.float64) for name in names["number"]}
        categories = {name: Counter(value for value in cells[name] if value) for name in names["category"]}
        told.drawn = True
        streams = SecretStreams.from_entropy()
        try:
            found = estimate_columns(queries, numbers, categories, streams, whole)
        finally:
            streams.destroy()
        entries = {
            name: {PLACEHOLDER: _HIDDEN} if entry is None else entry | with_tokens(name, missing)
            for name in wanted
            for entry in [found[name]]
        }
        made = finish(DraftedColumns(entries, estimated_mark(epsilon, delta)))
        charged.done("table specification")
    return made


def with_tokens(name: str, missing: Mapping[str | None, list[str]]) -> dict[str, Any]:
    """Return the declaration of a column's missing values, if there is one."""
    tokens = missing.get(name, missing.get(None))
    return {"missing_tokens": tokens} if tokens else {}


def _missing(tokens: list[str]) -> Missing:
    numbers = (number_in(text) for text in tokens)
    return Missing(own=True, texts=frozenset(tokens), numbers=frozenset(one for one in numbers if not math.isnan(one)))


def calibrated(numbers: Sequence[str], categories: Sequence[str], epsilon: float, delta: float) -> ColumnQueries:
    """Return the queries that cost at most ``epsilon`` at ``delta`` together, one record added or removed."""

    def queries(noise: float) -> ColumnQueries:
        return ColumnQueries(tuple(numbers), tuple(categories), noise, _SELECTION * delta if categories else 0.0)

    accountant, adjacency = PldAccountant(), Adjacency.ADD_REMOVE
    found = calibrate_noise(lambda noise: queries(noise).event, epsilon, delta, accountant, adjacency)
    return queries(found.noise_multiplier)


def _cells(
    source: Source, wanted: Mapping[str, str], gone: Mapping[str, Missing], progress: Progress
) -> dict[str, list[Any]]:
    """Return the columns' cells: numbers, NaN without one, or texts, None without one."""
    cells: dict[str, list[Any]] = {name: [] for name in wanted}
    done = 0
    for part in source.inputs(_STEP):
        for place, (name, field) in enumerate(wanted.items()):
            cells[name] += [_cell(cell, field, gone[name]) for cell in part[:, place].tolist()]
        done += len(part)
        progress("estimates", done, source.schema.records)
    return cells


def _cell(cell: Any, field: str, gone: Missing) -> Any:
    if field == "number":
        return math.nan if gone.holds(cell) else number_in(cell)
    text = "" if is_blank(cell) else token_of(cell).strip()
    return text if text and text not in gone.texts and len(text) <= LONGEST_VALUE and is_printable(text) else None
