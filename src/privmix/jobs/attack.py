"""The attack that measures what a model gives away: who was in its data."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Unpack

from privmix.bars import Asked, callback, shows_bars
from privmix.jobs.arguments import MembershipArguments
from privmix.jobs.columns import Columns
from privmix.jobs.membership import Membership, MembershipJob
from privmix.signatures import spelt_out


@shows_bars
@spelt_out(Columns, MembershipJob, types=MembershipArguments)
def attack(
    model: str | Path,
    data: Any,
    *,
    progress: Asked = None,
    **options: Unpack[MembershipArguments],
) -> Membership:
    """Ask of each record whether a model was made of it, and measure how often that is right.

    The research wing studies other attacks.

    Args:
        model: its folder.
        data: members, as :func:`privmix.release` takes data; ``held_out``: others.
        progress: called with (stage, done, total); True: bars; None: bars where somebody looks on.
        options: the options below.

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
    given: dict[str, Any] = dict(options)
    return MembershipJob(model=model, data=data, columns=Columns.taken_from(given), **given).run(callback(progress))
