"""Engines by name: where a plan is carried out. Each gives the same rows under one key."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

from privmix.designs import (
    BasePlan,
    EmbeddingPlan,
    GaussianMixingPlan,
    MomentsPlan,
    Plan,
    ReleasePlan,
    ThreeStagePlan,
    TwoStagePlan,
)
from privmix.errors import InvalidInput, check_choice, check_number
from privmix.mechanisms.streams import SecretStreams
from privmix.releases.embedding_engine import EmbeddingEngine
from privmix.releases.engine import Engine, ReleaseEngine
from privmix.releases.gaussian_mixing_engine import GaussianMixingEngine
from privmix.releases.moments_engine import MomentsEngine
from privmix.releases.three_stage_engine import ThreeStageEngine
from privmix.releases.tiles import RecordSource
from privmix.releases.two_stage_engine import TwoStageEngine


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
    """The engine of that name, ``"local"`` or ``"ray"``, for the plan. Each gives the same rows under one key."""
    check_choice("engine", engine, ["local", "ray"])
    memory = None
    if memory_gb is not None:
        memory = int(check_number("memory_gb", memory_gb, low=0, low_open=True) * 2**30)
    if engine not in plan.kind.engines:
        raise InvalidInput("engine", engine, f"{', '.join(plan.kind.engines)} for design {plan.design}")
    return engine_for(plan, records, streams, engine=engine, memory=memory, workers=workers, address=address)


@singledispatch
def engine_for(plan: BasePlan, records: RecordSource, streams: SecretStreams, **machine: Any) -> Engine:
    """What carries out plans of a class; :func:`make_engine` has checked ``machine``.

    Raises:
        InvalidInput: nobody said what does.
    """
    raise InvalidInput("design", plan.design, "one that an engine carries out")


@engine_for.register
def _(
    plan: ReleasePlan,
    records: RecordSource,
    streams: SecretStreams,
    *,
    engine: str,
    memory: int | None,
    workers: int | None,
    address: str | None,
) -> Engine:
    if engine == "ray":
        from privmix.releases.ray_engine import RayReleaseEngine

        return RayReleaseEngine(plan, records, streams, address=address, workers=workers, memory_bytes=memory)
    return ReleaseEngine(plan, records, streams, workers=workers, memory_bytes=memory)


@engine_for.register
def _(
    plan: MomentsPlan,
    records: RecordSource,
    streams: SecretStreams,
    *,
    workers: int | None,
    memory: int | None,
    **_: Any,
) -> Engine:
    return MomentsEngine(plan, records, streams, workers=workers, memory_bytes=memory)


@engine_for.register
def _(plan: EmbeddingPlan, records: RecordSource, streams: SecretStreams, *, workers: int | None, **_: Any) -> Engine:
    return EmbeddingEngine(plan, records, streams, workers=workers)


@engine_for.register
def _(
    plan: TwoStagePlan,
    records: RecordSource,
    streams: SecretStreams,
    *,
    workers: int | None,
    memory: int | None,
    **_: Any,
) -> Engine:
    return TwoStageEngine(plan, records, streams, workers=workers, memory_bytes=memory)


@engine_for.register
def _(
    plan: GaussianMixingPlan,
    records: RecordSource,
    streams: SecretStreams,
    *,
    workers: int | None,
    memory: int | None,
    **_: Any,
) -> Engine:
    return GaussianMixingEngine(plan, records, streams, workers=workers, memory_bytes=memory)


@engine_for.register
def _(
    plan: ThreeStagePlan,
    records: RecordSource,
    streams: SecretStreams,
    *,
    workers: int | None,
    memory: int | None,
    **_: Any,
) -> Engine:
    return ThreeStageEngine(plan, records, streams, workers=workers, memory_bytes=memory)
