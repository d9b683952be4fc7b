"""Attacks that measure what a release or a model gives away, by name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from privmix.errors import InvalidInput, check_choice
from privmix.jobs.columns import Columns
from privmix.jobs.membership import Membership, MembershipJob
from privmix.jobs.poisoning import Poisoning, PoisoningJob
from privmix.jobs.progress import Asked, callback, shows_bars

_KINDS: Final = ("membership", "poisoning")


@shows_bars
def attack(
    target: str | Path | None,
    data: Any,
    kind: str = "membership",
    *,
    columns: Columns | str | Sequence[str] | None = None,
    label: str | None = None,
    progress: Asked = None,
    **options: Any,
) -> Membership | Poisoning:
    """Attack a release or a model, to see what it gives away, or the data that models are made of.

    ========== =============================================== ================= ==========================
    kind       asks                                            target            data
    ========== =============================================== ================= ==========================
    membership was this record there?                          a model's folder  members; ``held_out``: others
    poisoning  what do poisoned records reach?                 None              images to train on and to measure on
    ========== =============================================== ================= ==========================

    Args:
        target: see above; None: a plan by options.
        data: see above; as :func:`privmix.release` takes it.
        kind: see above.
        columns: names of the columns of numbers, or :class:`privmix.Columns`.
        label: the labels' column.
        progress: called with (stage, done, total), or True for bars.
        options: fields of :class:`privmix.jobs.membership.MembershipJob` or
            :class:`privmix.jobs.poisoning.PoisoningJob`.

    Returns:
        what it found, which can be kept as a record.

    Raises:
        InvalidInput: there is no such attack, or as its job.
        StorageError: as its job.

    Example:
        >>> attack("MODEL", "mnist", kind="guessing")
        Traceback (most recent call last):
        ...
        privmix.errors.InvalidInput: kind: got 'guessing'; allowed: one of membership, poisoning
    """
    check_choice("kind", kind, _KINDS)
    if columns is not None or label is not None:
        options["columns"] = Columns.declared(columns, label)
    if kind == "poisoning":
        if target is not None:
            raise InvalidInput("target", str(target), "None: what is attacked is said by `defences` or by `design`")
        return PoisoningJob(data=data, **options).run(callback(progress))
    if target is None:
        raise InvalidInput("target", None, "a model's folder")
    return MembershipJob(model=target, data=data, **options).run(callback(progress))
