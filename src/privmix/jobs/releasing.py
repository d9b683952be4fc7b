"""Planning and releasing from Python: ``privmix.plan`` and ``privmix.release``."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from privmix.bars import Asked, callback, shows_bars
from privmix.certificate.about import About
from privmix.errors import InvalidInput
from privmix.jobs.arguments import ReleaseArguments
from privmix.jobs.columns import Columns
from privmix.jobs.persons import Persons
from privmix.jobs.release import Planned, ReleaseJob
from privmix.jobs.release_options import Assumptions, Prior, ReleaseOptions, ReplayTerms
from privmix.jobs.released import Release
from privmix.jobs.spending import not_kept
from privmix.ledger import Ledger
from privmix.progress import Progress
from privmix.scratch import ScratchFolder
from privmix.signatures import spelt_out

_takes = spelt_out(Columns, ReleaseOptions, Assumptions, Prior, About, Persons, ReplayTerms, types=ReleaseArguments)


@shows_bars
@_takes
def plan(
    data: Any, *, epsilon: float, delta: float, progress: Asked = None, **settings: Unpack[ReleaseArguments]
) -> Planned:
    """Plan a release from public facts: what it will cost, and with which noise. No private record is read.

    Args:
        data: the private dataset: a path or address as on the command line; ``(x, y)`` of arrays, tensors or lists; a
            pandas or polars frame; or a Hugging Face ``Dataset``. See :func:`privmix.data.open_dataset`.
        epsilon, delta: the budget; delta well below 1/n.
        progress: called with (stage, done, total); True: bars; None: bars where somebody looks on.
        settings: the options below. In Python ``classes`` may be integers or names, ``design`` an object such as
            ``pm.designs.Moments()``, ``features`` a :class:`privmix.features.Extractor`, ``public`` and ``proxy`` data
            in memory. ``person`` is the name of a column, or an array of identifiers: privacy is then for persons with
            all their records, and ``records`` is how many there are.

    Returns:
        the plan, which prints readably; give it to :func:`release`.

    Raises:
        InvalidInput: settings are out of range or do not go together, or the data do not open.
        StorageError: the data, or what is public beside them, can't be read.

    Example:
        >>> import numpy as np
        >>> import privmix as pm
        >>> data = np.eye(300)[:, :9], np.arange(300) % 2
        >>> planned = pm.plan(data, classes=2, features="identity", epsilon=1, delta=1e-4)
        >>> planned.cost.epsilon <= 1, planned.plan.design == planned.choice.best.plan.design
        (True, True)
    """
    return _job(data, epsilon, delta, settings, dry_run=True).plan(callback(progress))


@shows_bars
@_takes
def release(
    data: Any,
    plan: Planned | None = None,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    out: str | Path | None = None,
    ledger: str | Ledger | None = None,
    dataset: str | None = None,
    most_per_person: int | None = None,
    private_count: bool = False,
    person_quantile: float | None = None,
    store: str | Path | None = None,
    engine: str = "local",
    memory_gb: float | None = None,
    workers: int | None = None,
    ray_address: str | None = None,
    seed: int | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Asked = None,
    **settings: Unpack[ReleaseArguments],
) -> Release:
    """Turn a private dataset into a differentially private release, as ``privmix release`` does.

    Everything is checked before anything is charged, and the ledger is charged before a record is read: if that fails
    later, the budget is spent.

    Formal guarantees:
        * the same job as the command line's: with a seed, the same rows bit for bit;
        * without ``out``, the run is in a private temporary folder; its key and features are gone when it ends, and
          the release, which is public, when the returned object is;
        * a plan is of its dataset: other record counts, features or classes than it was made for are refused.

    Args:
        data: the private dataset; see :func:`plan`.
        plan: made by :func:`plan`, in place of a budget and settings.
        epsilon, delta, settings: see :func:`plan`.
        out: folder to create; None keeps the release in memory and in a temporary place, see :meth:`Release.save`.
        ledger, dataset: a budget ledger, or its address, and the name of the dataset there.
        most_per_person: nobody has more records than this, which you vouch for: what so many cost is charged to a
            budget of persons.
        private_count: keep the record count private: estimate it with noise, for a tenth of the budget.
        person_quantile: with that, estimate K, too: so many records that this share of the persons have no more.
        store: a folder to keep features in (private!) and to reuse them from.
        engine, memory_gb, workers, ray_address: ``"local"``, or ``"ray"`` for a cluster; GiB for sums and records;
            threads, or tasks of a cluster; its address.
        seed: for tests and benchmarks; the release is then NOT private.
        resume, overwrite: finish an interrupted run that was making ``out``; replace a release that is there.
        progress: called with (stage, done, total), where numbers can tell the count of records; True: bars; None: bars
            where somebody looks on; False: none.

    Raises:
        InvalidInput: settings are out of range or do not go together, a record is not as declared.
        BudgetExceeded: the ledger does not hold the cost; nothing was read.
        StorageError: reading or writing failed.

    Example:
        >>> import numpy as np
        >>> import privmix as pm
        >>> data = np.eye(300)[:, :9], np.arange(300) % 2
        >>> found = pm.release(data, classes=2, features="identity", design=pm.designs.Moments(), epsilon=1, delta=1e-4)
        >>> found.x.shape, found.certificate.epsilon <= 1
        ((300, 9), True)
    """
    if out is None and (resume or overwrite):
        raise InvalidInput("out", None, "a folder, with `resume` or `overwrite`")
    running: dict[str, Any] = {
        "ledger": ledger,
        "dataset": dataset,
        "most_per_person": most_per_person,
        "private_count": private_count,
        "person_quantile": person_quantile,
        "store": None if store is None else Path(store),
        "engine": engine,
        "memory_gb": memory_gb,
        "workers": workers,
        "ray_address": ray_address,
        "seed": seed,
        "resume": resume,
        "overwrite": overwrite,
    }
    if plan is None:
        job = _job(data, epsilon, delta, settings, **running)
    else:
        given = [*settings, *(name for name, value in (("epsilon", epsilon), ("delta", delta)) if value is not None)]
        counting = {"private_count": private_count, "person_quantile": person_quantile is not None}
        if given := [*given, *(name for name, asked in counting.items() if asked)]:
            raise InvalidInput("plan", given, "none of these beside a plan")
        job = replace(plan.job, data=data, dry_run=False, **running)
    if out is None and job.auditor is not None:
        raise InvalidInput("out", None, "a folder, with `replay_for`: the sealed key is kept beside it")
    if out is not None:
        return carried_out(replace(job, out=Path(out)), plan, callback(progress))
    scratch = ScratchFolder()
    try:
        return carried_out(replace(job, out=scratch.path / "release"), plan, callback(progress), scratch)
    except BaseException as error:
        # Nobody could go on with it.
        scratch.remove()
        not_kept(error)
        raise


def carried_out(
    job: ReleaseJob, made: Planned | None, progress: Progress, scratch: ScratchFolder | None = None
) -> Release:
    """Plan a job, or take its plan, and make the release; warnings go to the caller of the public function."""
    assert job.out is not None
    planned = job.plan(progress, made)
    for text in planned.warnings:
        warnings.warn(text, stacklevel=5)
    for text in job.carry_out(planned, progress).warnings:
        warnings.warn(text, stacklevel=5)
    return Release(job.out, scratch)


def _job(data: Any, epsilon: Any, delta: Any, settings: ReleaseArguments, **running: Any) -> ReleaseJob:
    given: dict[str, Any] = dict(settings)
    for name, value in (("epsilon", epsilon), ("delta", delta)):
        if value is None:
            raise InvalidInput(name, None, "a budget: `epsilon` and `delta`, or a plan")
    assumed = {name: given.pop(name, None) for name in Assumptions.__dataclass_fields__}
    prior = {name: given.pop(name, None) for name in Prior.__dataclass_fields__}
    about = {name: given.pop(name, None) for name in About.__dataclass_fields__}
    replay = {name: given.pop(name, None) for name in ReplayTerms.__dataclass_fields__}
    persons, person = Persons.taken_from(given, data)
    columns = Columns.taken_from(given, person)
    return ReleaseJob(
        data=data,
        epsilon=epsilon,
        delta=delta,
        columns=columns,
        assumptions=Assumptions(**assumed),
        prior=Prior(**prior),
        about=About(**about),
        replay=ReplayTerms(**replay),
        persons=persons,
        **given,
        **running,
    )
