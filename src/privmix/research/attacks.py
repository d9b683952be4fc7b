"""Attacks that are studied here, by name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from privmix.bars import Asked, callback, shows_bars
from privmix.errors import InvalidInput, check_choice
from privmix.jobs.columns import Columns
from privmix.research.collapse.job import Collapse, CollapseJob
from privmix.research.inversion.job import Inversion, InversionJob
from privmix.research.poisoning.job import Poisoning, PoisoningJob
from privmix.signatures import spelt_out

_KINDS: Final = ("inversion", "collapse", "poisoning")


@shows_bars
@spelt_out(InversionJob, CollapseJob, PoisoningJob, but=("release", "proxy"))
def attack(
    target: str | Path | None,
    data: Any,
    kind: str,
    *,
    columns: Columns | str | Sequence[str] | None = None,
    label: str | None = None,
    progress: Asked = None,
    **options: Any,
) -> Inversion | Collapse | Poisoning:
    """Attack a release, to see what it gives away, or the data that models are made of; :func:`privmix.attack` asks of
    membership.

    ========== =============================================== ================= ==========================
    kind       asks                                            target            data
    ========== =============================================== ================= ==========================
    inversion  what images can be got out of rows?             a release or None images that rows are made of
    collapse   do classes survive mixing and noise?            a release or None a PUBLIC proxy
    poisoning  what do poisoned records reach?                 None              images to train on and to measure on
    ========== =============================================== ================= ==========================

    Args:
        target: see above; None: a plan by options.
        data: see above; as :func:`privmix.release` takes it.
        kind: see above.
        columns: names of the columns of numbers, or :class:`privmix.Columns`.
        label: the labels' column.
        progress: called with (stage, done, total); True: bars; None: bars where somebody looks on.
        options: fields of :class:`privmix.research.inversion.InversionJob`,
            :class:`privmix.research.collapse.CollapseJob` or :class:`privmix.research.poisoning.PoisoningJob`.

    Returns:
        what it found, which can be kept as a record.

    Raises:
        InvalidInput: there is no such attack, or as its job.
        StorageError: as its job.

    Example:
        >>> attack(None, "mnist", kind="guessing")
        Traceback (most recent call last):
        ...
        privmix.errors.InvalidInput: kind: got 'guessing'; allowed: one of inversion, collapse, poisoning
    """
    check_choice("kind", kind, _KINDS)
    if columns is not None or label is not None:
        options["columns"] = Columns.declared(columns, label)
    if kind == "inversion":
        return InversionJob(release=target, data=data, **options).run(callback(progress))
    if kind == "poisoning":
        if target is not None:
            raise InvalidInput("target", str(target), "None: `defences` or `design` say what is attacked")
        return PoisoningJob(data=data, **options).run(callback(progress))
    return CollapseJob(release=target, proxy=data, **options).run(callback(progress))
