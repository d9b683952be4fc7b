"""Engines by name: where a plan is carried out. Each gives the same rows under one key."""

from collections.abc import Callable

from privmix.engine.ray import Cluster
from privmix.engine.records import RecordSource, tiles_of
from privmix.engine.rows import Engine
from privmix.errors import WITHHELD, InvalidInput, check_choice, check_number
from privmix.mechanisms.streams import SecretStreams
from privmix.plans.plan import Plan
from privmix.plans.registry import behind, check_unit, made_by


def make_engine(
    plan: Plan,
    records: RecordSource,
    streams: SecretStreams,
    engine: str = "local",
    *,
    memory_gb: float | None = None,
    workers: int | None = None,
    address: str | None = None,
) -> Engine:
    """Return the engine ``"local"`` or ``"ray"`` for the plan. Both give the same rows under one key."""
    check_choice("engine", engine, ["local", "ray"])
    memory = None
    if memory_gb is not None:
        memory = int(check_number("memory_gb", memory_gb, low=0, low_open=True) * 2**30)
    known = made_by(plan).engines
    if not known:
        raise InvalidInput("design", plan.design, "a plan with an engine (see 'engines')")
    if engine not in known:
        raise InvalidInput("engine", engine, f"{', '.join(known)} for design {plan.design}")
    check_unit(made_by(plan), plan.per_person)
    records = tiles_of(records)
    # Either mismatch would give a guarantee for another unit than the stated one.
    if (records.starts(0) is None) is not (plan.per_person is None):
        raise InvalidInput("persons", WITHHELD, "persons if and only if the plan's unit is a person")
    make: Callable[..., Engine] = behind(made_by(plan), "engines", known[engine])
    machine = {"cluster": Cluster(address)} if engine == "ray" else {}
    return make(plan, records, streams, workers=workers, memory_bytes=memory, **machine)
