"""Private count, of jobs that plan with one: requested once for a run, charged before it is drawn, and reported."""

import hashlib
import hmac
import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.accounting.api import epsilon
from privmix.accounting.events import Adjacency, Gaussian
from privmix.errors import WITHHELD, InvalidInput
from privmix.jobs.budget import Charge, JobCost, Spending, charged_note, check_held, new_note, telling
from privmix.jobs.job import Job, RunKey
from privmix.jobs.persons import records_of_each
from privmix.mechanisms.plan import unit_of
from privmix.mechanisms.private_count import PrivateCount, private_count
from privmix.mechanisms.run import Run
from privmix.mechanisms.run_folder import RunState

STAND_IN: Final = 2**23
"""Stand-in for a count that is not paid for yet: above every setting's need, within every design's limit."""


@dataclass(frozen=True)
class Counted:
    """A private count's estimates and charge; `persons`: a keyed hash of the records' persons, and its key. Secret."""

    found: PrivateCount
    charge: Charge
    persons: dict[str, str] | None = None


def count(job: Job[Any, Any], asked: Any, key: RunKey, state: RunState | None) -> Counted:
    """Estimate the number of units, and of K where needed, to plan with; return the charge, too.

    Formal guarantees:
        * Once: a run has its key and the id of the charge on disk before the count is charged, and the estimate before
          that is used. One that goes on has the estimate that it began with. A second one would be a second query.
        * The same persons: what is done later is refused for records that are dealt to persons in another way
          (:func:`check_same_persons`).
        * The same records: the ledger knows what was counted, by a keyed hash, before the count is drawn.
        * Reserve before reading: the charge is durable before a record or an identifier is read.
    """
    event = Gaussian(asked.records_noise_multiplier)
    price, unit = epsilon(event, job.delta).epsilon, unit_of(asked).one
    cost = JobCost(event, Adjacency.ADD_REMOVE, "private record count", price, job.delta, unit)
    if state is not None and state.complete and not state.extra:
        # Its notes were lost to a kill after it was complete: the plan has the estimates.
        plan = state.settings["plan"]
        most = asked.per_person if asked.person_quantile is None else plan.get("per_person")
        return Counted(PrivateCount(plan["records"], most), Charge())
    note = job.note(state, "count")
    if state is not None and "counted" in state.extra:
        found, persons = PrivateCount(**state.extra["counted"]), state.extra["persons"]
        return Counted(found, job.charge(cost, note), persons)
    # Before the run is made: a budget that is too small leaves no run behind.
    if state is None:
        check_held(job.ledger, job.dataset, cost, job.most_per_person)
    told = Spending(price, job.delta, job.left_over, asked=job.dataset)
    with telling(told), _run_of(job, key, state, note) as run:
        told.charged = charge = job.charge(cost, note)
        if run is not None:
            # Once the ledger may know the records, a refusal leaves the run its key.
            run.paid = note is not None and not note.get("bound")
            run.note(count=charged_note(note))
        whose, persons = job.whose(), None
        if whose is not None:
            # Keyed: a plain hash would confirm guesses of who has which records.
            digest_key = secrets.token_bytes(32)
            persons = {"key": digest_key.hex(), "digest": _digest(whose, digest_key)}
        held = job.opened.schema.records if whose is None else records_of_each(whose)
        if run is not None:
            run.bind_steps = charge.bind_steps
            # Noted before the ledger learns the records: an attempt that resumes then keeps the key of the run.
            run.note(count=None if note is None else {**note, "charged": True, "bound": True})
            # With the settings: another question about the same records is another query.
            query = [asked.per_person, asked.person_quantile, _digest(np.atleast_1d(held), run.fingerprint_key)]
            run.bind_charge(json.dumps(query))
        # Set before the draw: one that fails midway counts as drawn.
        told.drawn = True
        found = private_count(asked, held, key.streams() if run is None else run.streams)
        if run is not None:
            run.note(counted=asdict(found), persons=persons)
    return Counted(found, charge, persons)


@contextmanager
def _run_of(job: Job[Any, Any], key: RunKey, state: RunState | None, note: Any) -> Iterator[Run | None]:
    """Yield the run that the count is the first part of, for jobs that have a place."""
    if job.runs is None or job.out is None:
        yield None
        return
    extra = {"reservation": new_note(job.dataset), "count": note, "seed": job.seed}
    streams = key.streams() if state is None else None
    given = {"overwrite": job.overwrite, "resume": state is not None}
    with job.runs.before_plan(job.out, streams=streams, extra=extra if state is None else state.extra, **given) as run:
        key.run = run.id
        yield run


def check_same_persons(counted: Counted | None, whose: NDArray[np.int64] | None) -> None:
    """Raise unless the persons of a job are those of its private count."""
    # A person counted as several moved the count by more than its noise allows for. The message shows none.
    if counted is None or whose is None:
        return
    # A run from before this note states nothing of its persons, and is not trusted.
    known = counted.persons
    if known is None or not hmac.compare_digest(_digest(whose, bytes.fromhex(known["key"])), known["digest"]):
        allowed = "the persons of the private count: for other persons start a new run"
        raise InvalidInput("person", WITHHELD, allowed)


def _digest(whose: NDArray[np.int64], key: bytes) -> str:
    # One width and byte order: every machine gets the same hash.
    return hashlib.blake2b(np.ascontiguousarray(whose, "<i8").data, key=key, digest_size=32).hexdigest()


def check_asked(job: Any) -> None:
    """Raise :class:`InvalidInput` where a private count, or its absence, does not go with a job's other options."""
    if job.private_count and (job.records is not None or job.dry_run):
        raise InvalidInput("private_count", True, "only without `records` and `dry_run`, since it reads the count")
    if job.private_count and job.most_per_person is not None:
        # The count decided how the records were treated; with another count this could cost a person more.
        allowed = "no cap with `private_count`: the cost of several records together is not known then"
        raise InvalidInput("most_per_person", job.most_per_person, allowed)
    if job.of_persons and job.epsilon != 0 and job.records is None and not job.private_count:
        # The number of records counts as public; how many persons they are of does not.
        allowed = "the number of persons: declare it, or estimate it with `private_count`"
        raise InvalidInput("records", None, allowed)
