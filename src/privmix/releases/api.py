"""Release a dataset: in memory, or to a folder that partners can use."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from privmix.certificate.certificate import Certificate
from privmix.certificate.notes import ReservationNote, mode_of
from privmix.engine.engines import make_engine
from privmix.engine.records import RecordSource
from privmix.errors import InvalidInput
from privmix.mechanisms.streams import SecretStreams
from privmix.plans.plan import Plan
from privmix.plans.registry import check_plan
from privmix.progress import Progress
from privmix.publication.dataset import ReleasedDataset
from privmix.releases.certificate import make_certificate
from privmix.releases.folder import assemble
from privmix.releases.run import ReleaseRun


def release_to_memory(
    plan: Plan,
    records: RecordSource,
    streams: SecretStreams,
    *,
    extractor: Mapping[str, Any],
    input_shape: Sequence[int],
    reservation: ReservationNote | None = None,
    progress: Progress | None = None,
) -> ReleasedDataset:
    """Run ``plan``, from :meth:`ReleaseConfig.calibrate`, on extracted records; the streams' key is destroyed.

    A plan that costs more than its target raises :class:`InvalidInput` before a record is read.
    """
    try:
        # Before a record is read: a later refusal would be an answer about the records.
        check_plan(plan)
        mode_of(reservation, plan)
        if not input_shape or any(int(size) < 1 for size in input_shape):
            raise InvalidInput("input_shape", tuple(input_shape), "positive sizes")
        engine = make_engine(plan, records, streams)
        blocks = list(engine.rows(progress))
    # Also after an error: the key in memory could remove the noise.
    finally:
        insecure = streams.insecure_seed
        streams.destroy()
    certificate = make_certificate(
        plan, extractor=extractor, input_shape=input_shape, insecure_seed=insecure, files=[], reservation=reservation
    )
    # A single block is taken as it is: a copy would double the memory.
    x = np.concatenate([block.x for block in blocks]) if len(blocks) > 1 else blocks[0].x
    y = np.concatenate([block.y for block in blocks])
    return assemble(plan, x, y, engine.transform.centre, certificate, engine.beside)


def release_to_folder(
    plan: Plan,
    records: RecordSource,
    streams: SecretStreams | None,
    out: str | Path,
    *,
    extractor: Mapping[str, Any],
    input_shape: Sequence[int],
    reservation: ReservationNote | None = None,
    choice: Mapping[str, Any] | None = None,
    picture: bytes | None = None,
    overwrite: bool = False,
    resume: bool = False,
    extra: Mapping[str, Any] | None = None,
    engine: str = "local",
    memory_gb: float | None = None,
    workers: int | None = None,
    address: str | None = None,
    progress: Progress | None = None,
) -> Certificate:
    """Run ``plan`` and write Parquet shards, the released mean, certificate and data card to ``out``.

    ``out`` appears once complete; memory does not grow with the rows. ``resume`` finishes a killed or stopped run.
    Arguments as in :func:`release_to_memory` and :class:`privmix.releases.run.ReleaseRun`; ``streams`` None: fresh key.
    """
    try:
        with ReleaseRun(
            out,
            plan,
            extractor=extractor,
            input_shape=input_shape,
            reservation=reservation,
            choice=choice,
            picture=picture,
            streams=streams,
            extra=extra,
            overwrite=overwrite,
            resume=resume,
        ) as run:
            return run.release(
                records, engine=engine, memory_gb=memory_gb, workers=workers, address=address, progress=progress
            )
    finally:
        if streams is not None:
            streams.destroy()
