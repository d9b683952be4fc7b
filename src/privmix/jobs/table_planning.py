"""The columns of a declared table, as the planner takes them; no record is read for it."""

from __future__ import annotations

from typing import Any

import numpy as np

from privmix.errors import InvalidInput, check_choice
from privmix.features.table_states import States, table_states
from privmix.features.tabular import Tabular
from privmix.jobs.options import AUTO, GOALS, TABLE
from privmix.planning.table import TableColumn


def check_goal(goal: str, extractor: Any, *, design: str = AUTO) -> None:
    """Raise unless a release can be planned for this.

    Raises:
        InvalidInput: there is no such goal, or ``table`` where features are not those of a table, or beside a design.
    """
    check_choice("goal", goal, GOALS)
    if goal == TABLE and not isinstance(extractor, Tabular):
        allowed = "classify; `table` needs the columns of a table: features tabular:SPEC, as they are"
        raise InvalidInput("goal", goal, allowed)
    if goal == TABLE and design != AUTO:
        raise InvalidInput("goal", goal, f"`table` with design {AUTO} alone: design {design} was given")


def columns_of(tabular: Tabular) -> tuple[TableColumn, ...]:
    """The declared columns that are used, and whether the features tell the share of each of their states."""
    return tuple(TableColumn(one.name, len(one.shares), _told(one, tabular.scale)) for one in table_states(tabular))


def _told(states: States, scale: float) -> bool:
    """Whether the mean features of a column determine the shares of its states."""
    count = len(states.shares)
    known = np.column_stack([states.features / scale, np.ones(count)])
    return count <= known.shape[1] and int(np.linalg.matrix_rank(known)) == count
