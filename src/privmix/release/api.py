"""Release a dataset: in memory, or to a folder that partners can use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from privmix.errors import InvalidInput
from privmix.mechanisms.streams import SecretStreams
from privmix.release.card import data_card
from privmix.release.certificate import make_certificate
from privmix.release.dataset import ReleasedDataset
from privmix.release.engine import PrivateRecords, Progress, ReleaseEngine
from privmix.release.folder import (
    RELEASE_FOLDER,
    ShardWriter,
    assemble,
    write_centre,
    write_certificate,
    write_moments,
)
from privmix.release.moments_engine import MomentsEngine
from privmix.release.moments_plan import MomentsPlan
from privmix.release.plan import Plan


def release_to_memory(
    plan: Plan,
    records: PrivateRecords,
    streams: SecretStreams,
    *,
    target: tuple[float, float],
    extractor: Mapping[str, Any],
    input_shape: Sequence[int],
    records_declared: bool = False,
    progress: Progress | None = None,
) -> ReleasedDataset:
    """Run ``plan`` and return the release; the streams' key is destroyed.

    Args:
        plan: from :meth:`ReleaseConfig.calibrate`.
        records: extracted features and labels.
        streams: fresh secret streams; used up by this call.
        target: the (epsilon, delta) the plan was calibrated for.
        extractor: description of the feature extractor.
        input_shape: shape of one raw input.
        records_declared: ``plan.records`` is a declared figure, not the real count.
        progress: called as work proceeds.

    Example:
        >>> from privmix.release.config import ReleaseConfig
        >>> rng = np.random.default_rng(0)
        >>> records = PrivateRecords(rng.normal(size=(500, 8)), rng.integers(0, 2, 500))
        >>> plan = ReleaseConfig(records=500, dim=8, classes=("no", "yes"), mixup_degree=16).calibrate(4.0, 1e-4)
        >>> released = release_to_memory(plan, records, SecretStreams.from_entropy(), target=(4.0, 1e-4),
        ...                              extractor={"name": "identity"}, input_shape=(8,))
        >>> released.x.shape, released.certificate["guarantee"]["epsilon"] <= 4.0
        ((500, 8), True)
    """
    try:
        _check_shape(input_shape)
        engine = _engine(plan, records, streams)
        blocks = list(engine.rows(progress))
    finally:
        insecure = streams.insecure_seed
        streams.destroy()
    certificate = make_certificate(
        plan,
        target=target,
        extractor=extractor,
        input_shape=input_shape,
        insecure_seed=insecure,
        records_declared=records_declared,
        files=[],
    )
    x = np.concatenate([block.x for block in blocks]) if len(blocks) > 1 else blocks[0].x
    y = np.concatenate([block.y for block in blocks])
    moments = engine.moments if isinstance(engine, MomentsEngine) else None
    return assemble(plan, x, y, engine.transform.centre, certificate, moments)


def release_to_folder(
    plan: Plan,
    records: PrivateRecords,
    streams: SecretStreams,
    out: str | Path,
    *,
    target: tuple[float, float],
    extractor: Mapping[str, Any],
    input_shape: Sequence[int],
    records_declared: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Run ``plan`` and write Parquet shards, the released mean, certificate and data card to ``out``.

    Shards are written as they finish, so memory does not grow with the number of rows. ``out`` appears only when
    everything is in it. Returns the certificate. Arguments as in :func:`release_to_memory`.

    Raises:
        InvalidInput: ``out`` exists and ``overwrite`` is off.
        StorageError: ``out`` can't be written.
    """
    try:
        _check_shape(input_shape)
        with RELEASE_FOLDER.new(Path(out), overwrite=overwrite) as draft:
            engine = _engine(plan, records, streams)
            writer = ShardWriter(draft, plan.rows)
            for block in engine.rows(progress):
                writer.write(block)
            files = list(writer.files)
            if isinstance(engine, MomentsEngine):
                files.append(write_moments(draft, engine.moments))
            if engine.transform.centre is not None:
                files.append(write_centre(draft, engine.transform.centre))
            certificate = make_certificate(
                plan,
                target=target,
                extractor=extractor,
                input_shape=input_shape,
                insecure_seed=streams.insecure_seed,
                records_declared=records_declared,
                files=files,
            )
            write_certificate(draft, certificate)
            (draft / "README.md").write_text(data_card(plan, certificate), encoding="utf-8")
    finally:
        streams.destroy()
    return certificate


def _engine(plan: Plan, records: PrivateRecords, streams: SecretStreams) -> ReleaseEngine | MomentsEngine:
    if isinstance(plan, MomentsPlan):
        return MomentsEngine(plan, records, streams)
    return ReleaseEngine(plan, records, streams)


def _check_shape(input_shape: Sequence[int]) -> None:
    if not input_shape or any(int(size) < 1 for size in input_shape):
        raise InvalidInput("input_shape", tuple(input_shape), "positive sizes")
