"""A release whose key is sealed for an auditor, and what it takes to make it again."""

from pathlib import Path
from typing import Any

from privmix.certificate.sealed_key import SEALED_FILE, Auditor, AuditorKey, bound_to, commitment_of, open_sealed
from privmix.engine.records import RecordSource
from privmix.mechanisms.run_folder import beside
from privmix.mechanisms.streams import SecretStreams
from privmix.plans.plan import Plan
from privmix.releases.replay import ReplayComparison, replay_release
from privmix.releases.run import ReleaseRun
from privmix.releases.verify import check_but_numbers

UNTIL = "2099-12-31"


def release_for(
    out: Path, plan: Plan, records: RecordSource | None, key: AuditorKey, seed: int | None = None, **options: Any
) -> None:
    """Make a release whose key is sealed for one auditor; with a seed, the same rows each time."""
    streams = None if seed is None else SecretStreams.from_seed(seed)
    asked = {"extractor": {"name": "identity"}, "input_shape": (plan.dim,), **options}
    with ReleaseRun(out, plan, auditor=Auditor(key.public, UNTIL), streams=streams, **asked) as run:
        run.release(records)


def opened(out: Path, key: AuditorKey) -> SecretStreams:
    """The streams of the release at ``out``, by its sealed key."""
    certificate = check_but_numbers(out).certificate
    sealed = commitment_of(certificate)
    bound = bound_to(sealed, certificate.id, certificate.plan, sealed.records_root)
    content = beside(out, SEALED_FILE).read_bytes()
    return SecretStreams.of_entrusted(open_sealed(content, sealed, bound, key))


def replayed(out: Path, records: RecordSource, key: AuditorKey, **options: Any) -> ReplayComparison:
    """The release at ``out``, made again."""
    held = check_but_numbers(out)
    sealed = commitment_of(held.certificate)
    return replay_release(out, held, sealed, opened(out, key), records, **options)
