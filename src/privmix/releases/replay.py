"""Replay a release from its records and key, and compare every byte with the released one."""
# Statistical tests cannot see noise of another law or size, or noise used twice; a replay can.

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.certificate.certificate import CERTIFICATE_FILE
from privmix.certificate.sealed_key import Commitment
from privmix.engine.engines import make_engine
from privmix.engine.record_tree import commitment_key, records_root
from privmix.engine.records import RecordSource, cores, tiles_of
from privmix.errors import InvalidInput
from privmix.mechanisms.private_count import PrivateCount, private_count
from privmix.mechanisms.run import Run
from privmix.mechanisms.streams import SecretStreams
from privmix.packages import package_version
from privmix.plans.registry import made_by
from privmix.progress import Progress
from privmix.releases.certificate import told_in_shards
from privmix.releases.folder import CENTRE_FILE, DATA_FOLDER, ShardCutter, beside_bytes, centre_bytes
from privmix.releases.folder import shard_name as name_of
from privmix.releases.shards import ShardForm, read_shard
from privmix.releases.verify import VerifiedFolder
from privmix.untrusted import open_plain

SHOWN_ROWS: Final = 20
"""How many rows that differ are listed of a file."""


@dataclass(frozen=True)
class Difference:
    """A difference in words; ``rows``: how many rows differ, ``first``: number over the whole release."""

    file: str
    what: str
    rows: int = 0
    first: tuple[int, ...] = ()

    def __str__(self) -> str:
        if not self.rows:
            return f"{self.file}: {self.what}"
        more = "" if self.rows <= len(self.first) else ", ..."
        numbers = ", ".join(map(str, self.first))
        return f"{self.file}: {self.what}: {self.rows:,} rows ({numbers}{more})"

    def to_dict(self) -> dict[str, Any]:
        return {"file": self.file, "what": self.what, "rows": self.rows, "first": list(self.first)}


@dataclass(frozen=True)
class ReplayComparison:
    """Result of a replay; no differences where every byte is equal."""

    # records: whether they are those of the certificate; other_versions: of packages, (at the release, here).

    records: bool
    differences: tuple[Difference, ...]
    files: int
    rows: int
    other_versions: Mapping[str, tuple[str, str]]

    @property
    def equal(self) -> bool:
        """Whether the records are the committed ones and every byte is as it is made again."""
        return self.records and not self.differences


def replay_release(
    root: Path,
    held: VerifiedFolder,
    commitment: Commitment,
    streams: SecretStreams,
    records: RecordSource,
    *,
    counted: int | NDArray[np.int64] | None = None,
    engine: str = "local",
    memory_gb: float | None = None,
    workers: int | None = None,
    address: str | None = None,
    progress: Progress | None = None,
) -> ReplayComparison:
    """Make a release again and compare; the streams' key is destroyed at the end, with any outcome.

    Formal guarantees:
        * Certain: rows that differ in one bit from those that plan, key and records give are found, with any law. So
          are other records, another order or other labels, a released mean or array that is not as made, and a private
          count that is not as drawn. So is a seed that the certificate does not admit.
        * Same on every engine: what is compared does not depend on it.
        * Nothing leaves: neither key nor noise nor record is in the result; it is nevertheless private, since it shows
          whether records are those of a release.
    """
    # held: of check_but_numbers; streams: under the sealed key; counted: the real number of records, or each person's
    # number, where the plan has a private estimate.
    certificate, plan = held.certificate, held.plan
    try:
        found: list[Difference] = []
        tiles = tiles_of(records)
        root_now = records_root(tiles, commitment_key(streams), cores())
        if certificate.insecure_seed != streams.insecure_seed:
            found.append(Difference(CERTIFICATE_FILE, "insecure_seed differs from that of the key"))
        if plan.records_noise_multiplier is not None:
            assert counted is not None, "a private count is made again, too"
            if private_count(plan, counted, streams) != PrivateCount(plan.records, plan.per_person):
                found.append(Difference(CERTIFICATE_FILE, "the private count is not the one that the key draws"))
        maker = make_engine(plan, tiles, streams, engine, memory_gb=memory_gb, workers=workers, address=address)
        shards = _ShardComparison(root, held)
        for block in maker.rows(progress):
            shards.write(block)
        found += shards.found
        made: dict[str, bytes] = {}
        declared = made_by(plan).beside(plan)
        if declared is not None and (content := beside_bytes(plan, maker.beside)) is not None:
            made[declared.file] = content
        if maker.transform.centre is not None:
            made[CENTRE_FILE] = centre_bytes(maker.transform.centre)
        found += _compared(root, held, made)
    finally:
        streams.destroy()
    # Other versions may draw other noise from one key: a difference then has an honest cause.
    versions = {name: (str(certificate["versions"].get(name)), package_version(name)) for name in Run.packages}
    other = {name: both for name, both in versions.items() if both[0] != both[1]}
    files = len(held.shards) + len(made)
    return ReplayComparison(root_now == commitment.records_root, tuple(found), files, plan.rows, other)


def _compared(root: Path, held: VerifiedFolder, made: Mapping[str, bytes]) -> list[Difference]:
    found, listed = [], {item["file"]: item["sha256"] for item in held.certificate.files}
    for name, content in made.items():
        with open_plain(root / name, name) as stream:
            # One byte more shows a longer file, and bounds what is read of it.
            released = stream.read(len(content) + 1)
        if released != content:
            found.append(Difference(name, "other numbers than are made again"))
        elif hashlib.sha256(content).hexdigest() != listed[name]:
            found.append(Difference(name, "not the file that the certificate lists"))
    return found


class _ShardComparison(ShardCutter):
    """Compares rows, shard by shard, with the released ones, bit by bit."""

    def __init__(self, root: Path, held: VerifiedFolder) -> None:
        super().__init__(held.plan.rows)
        self._root, self._held, self.found = root, held, list[Difference]()
        self._told = told_in_shards(held.certificate)

    def _shard(self, number: int, start: int, x: NDArray[np.float32], y: NDArray[np.float32]) -> None:
        item, plan = self._held.shards[number], self._held.plan
        name = f"{DATA_FOLDER}/{name_of(number, len(self._held.shards))}"
        assert item["file"] == name
        made = {"x": _bits(x), "y": _bits(y)}
        differs, hasher = np.zeros(len(x), bool), hashlib.sha256()
        form = ShardForm(len(x), plan.dim, plan.num_classes, self._told)
        with open_plain(self._root / name, name) as stream:
            try:
                for place, values in read_shard(stream, form, name, hasher.update):
                    part = slice(place.start, place.stop)
                    differs[part] |= (made[place.column][part] != _bits(values)).any(axis=1)
            # A damaged shard is a finding: the others are still compared.
            except InvalidInput as error:
                self.found.append(Difference(name, f"not readable as a shard of this release ({error.field})"))
                return
        if differs.any():
            rows = np.flatnonzero(differs) + start
            first = tuple(int(row) for row in rows[:SHOWN_ROWS])
            self.found.append(Difference(name, "other rows than are made again", len(rows), first))
        elif hasher.hexdigest() != item["sha256"]:
            self.found.append(Difference(name, "not the file that the certificate lists"))


def _bits(values: NDArray[np.float32]) -> NDArray[np.uint32]:
    # As bits zeros of both signs differ, and NaN equals itself.
    return np.ascontiguousarray(values, np.float32).view(np.uint32)
