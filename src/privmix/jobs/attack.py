"""The attack that measures what a model gives away: who was in its data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from privmix.bars import Asked, callback, shows_bars
from privmix.jobs.columns import Columns
from privmix.jobs.membership import Membership, MembershipJob


@shows_bars
def attack(
    model: str | Path,
    data: Any,
    *,
    columns: Columns | str | Sequence[str] | None = None,
    label: str | None = None,
    progress: Asked = None,
    **options: Any,
) -> Membership:
    """Ask of each record whether a model was made of it, and measure how often that is right.

    The research wing studies other attacks.

    Args:
        model: its folder.
        data: members, as :func:`privmix.release` takes data; ``held_out``: others.
        columns: names of the columns of numbers, or :class:`privmix.Columns`.
        label: the labels' column.
        progress: called with (stage, done, total); True: bars; None: bars where somebody looks on.
        options: fields of :class:`privmix.jobs.membership.MembershipJob`.

    Returns:
        what it found, which can be kept as a record.

    Raises:
        InvalidInput: as its job.
        StorageError: as its job.

    Example:
        >>> attack("MODEL", "mnist", references=0)
        Traceback (most recent call last):
        ...
        privmix.errors.InvalidInput: references: got 0; allowed: an integer >= 1
    """
    if columns is not None or label is not None:
        options["columns"] = Columns.declared(columns, label)
    return MembershipJob(model=model, data=data, **options).run(callback(progress))
