"""Canaries in a release: records that are inserted by the toss of a coin, and what one release shows of the coins.

What is audited is the plan as it is: its rates, noise and public record count stay what they are. Under add/remove an
included canary is one record more, and replaces none; the guarantee is about just that, whatever the other records are.
Under replace-one the count stays: each canary takes a record's place, and its coin says which of two opposite records
stands there.

The attacker sees the released rows alone. It knows the plan, the canaries and, as the guarantee allows, the sums of all
other records, but not who joined which row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.attacks.canary_scores import ClassSums, RowScores, resolve
from privmix.attacks.one_run import OneRun
from privmix.attacks.one_run_proof import Mechanism, OneRunProof, best_guesses, check_enough, prove
from privmix.errors import InvalidInput, check_choice, check_integer, check_number
from privmix.mechanisms.membership import RECORD_TILE
from privmix.mechanisms.streams import SecretStreams
from privmix.release import RecordTransform, ReleasePlan
from privmix.release.api import make_engine
from privmix.release.engine import Progress
from privmix.release.plan import Plan
from privmix.release.tiles import RecordSource, RecordTiles, Tile, record_tiles, tiles_of

KINDS: Final = ("random", "mislabelled")
EVIDENCE: Final = ("rows", "neighbours", "tiles")
DESIGNS: Final = ("poisson", "hierarchical", "classwise", "fixed")
# Length of a canary in clipping bounds where nothing is centred: a mechanism that does not clip shows at once.
_REACH: Final = 10.0
# What a centred canary's residual is made longer by, so that the mean's noise does not leave it short of the bound.
_MARGIN: Final = 1.1
_BLOCK: Final = 1024


@dataclass(frozen=True)
class CanaryConfig:
    """How an audit with canaries is done; all of it is chosen before anything is looked at.

    Attributes:
        canaries: k.
        confidence: of all that is proven, together.
        guesses: r, or None for what proves most if the claim is just met.
        kind: ``"random"`` directions, as long as clipping lets them be; ``"mislabelled"`` records of the dataset.
        evidence: what is scored: ``"rows"``, the likelihood ratio of each row, the best attack on a mechanism that does
            what its plan says; ``"neighbours"``, differences of neighbouring rows, and ``"tiles"``, of rows in
            neighbouring row tiles: both show noise that was used twice.

    Example:
        >>> CanaryConfig(canaries=1000).confidence
        0.95
    """

    canaries: int = 1000
    confidence: float = 0.95
    guesses: int | None = None
    kind: str = "random"
    evidence: str = "rows"

    def __post_init__(self) -> None:
        check_enough(self.canaries, self.confidence)
        if self.guesses is not None:
            check_integer("guesses", self.guesses, low=1, high=self.canaries)
            check_enough(self.guesses, self.confidence, "guesses")
        check_choice("canaries' kind", self.kind, KINDS)
        check_choice("evidence", self.evidence, EVIDENCE)

    def guesses_for(self, mechanism: Mechanism, delta: float) -> int:
        """The number of guesses, from public figures."""
        if self.guesses is not None:
            return self.guesses
        return best_guesses(self.canaries, mechanism.epsilon(delta), delta, self.confidence)


@dataclass(frozen=True)
class CanaryAudit:
    """The outcome of an audit with canaries. Private, like the records it ran on.

    Attributes:
        proof: what is proven beside what was claimed.
        included: how many canaries were.
        method: how it was done, in words.
    """

    proof: OneRunProof
    included: int
    method: str

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {**self.proof.to_dict(), "included": self.included, "method": self.method}


@dataclass(frozen=True, eq=False)
class Canaries:
    """Canary records (k, d) and (k,), and in replace-one audits the records that may stand in their place.

    Attributes:
        features: (k, d) float32.
        labels: (k,) class numbers.
        opposites: None, or features and labels of the same shapes.
    """

    features: NDArray[np.float32]
    labels: NDArray[np.int64]
    opposites: tuple[NDArray[np.float32], NDArray[np.int64]] | None = None

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, eq=False)
class WithCanaries:
    """The first ``kept`` records of ``others``, and after them the canaries that stand in. Secret.

    Only the tile in which the two meet is copied.
    """

    others: RecordTiles
    kept: int
    features: NDArray[np.float32]
    labels: NDArray[np.int64]
    _meeting: list[Tile] = field(default_factory=list, init=False, repr=False)

    def __repr__(self) -> str:
        return "<WithCanaries>"

    @property
    def count(self) -> int:
        """How many records there are."""
        return self.kept + len(self.labels)

    @property
    def dim(self) -> int:
        """d."""
        return self.others.dim

    def tile(self, index: int) -> Tile:
        """See :class:`privmix.release.tiles.RecordTiles`."""
        start, end = index * RECORD_TILE, (index + 1) * RECORD_TILE
        own = slice(max(0, start - self.kept), max(0, end - self.kept))
        if start >= self.kept:
            return self.features[own], self.labels[own]
        x, y = self.others.tile(index)
        if end <= self.kept:
            return x, y
        if not self._meeting:
            real = self.kept - start
            features = np.empty((real + len(self.features[own]), self.dim), np.float32)
            features[:real], features[real:] = x[:real], self.features[own]
            self._meeting.append((features, np.concatenate([y[:real], self.labels[own]])))
        return self._meeting[0]


def audit_release(
    plan: Plan,
    records: RecordSource,
    config: CanaryConfig,
    *,
    delta: float,
    streams: SecretStreams,
    generator: np.random.Generator,
    progress: Progress | None = None,
) -> CanaryAudit:
    """Insert canaries into ``records``, release once by the real engine, guess who was in, and state what that proves.

    The release itself is not kept: rows are scored as they come, so memory is what the engine takes and some blocks.

    Formal guarantees:
        * Valid: for an engine that does what ``plan`` says, more than the claimed epsilon is proven with probability at
          most 1 - ``config.confidence``.
        * Fixed beforehand: canaries, coins and the number of guesses do not depend on the release.
        * Private: the figures come from private records and no noise protects them. They are for the owner.

    Args:
        plan: as it was, or is to be, released; one of :data:`DESIGNS` with Gaussian noise.
        records: the owner's records, as many as the plan says where its design needs that.
        config: see :class:`CanaryConfig`.
        delta: at which epsilon is claimed.
        streams: fresh secret streams for the run; used up.
        generator: of canaries and coins; nobody who guesses may know it.
        progress: called as work proceeds.

    Raises:
        InvalidInput: the plan's design has no canary audit, or the records do not fit it.

    Example:
        >>> from privmix.release import PrivateRecords, ReleaseConfig
        >>> rng = np.random.default_rng(0)
        >>> records = PrivateRecords(rng.normal(size=(500, 40)).astype(np.float32), rng.integers(0, 2, 500))
        >>> plan = ReleaseConfig(records=500, dim=40, classes=("no", "yes"), mixup_degree=16).calibrate(8.0, 1e-4)
        >>> audit = audit_release(plan, records, CanaryConfig(canaries=100), delta=1e-4,
        ...                       streams=SecretStreams.from_entropy(), generator=rng)
        >>> audit.proof.proven_epsilon <= audit.proof.claimed_epsilon
        True
    """
    check_number("delta", delta, low=0, high=1, low_open=True, high_open=True)
    checked = check_auditable(plan, config)
    mechanism = release_mechanism(checked)
    guesses = config.guesses_for(mechanism, delta)
    others = tiles_of(records)
    kept = others.count - (config.canaries if checked.design == "fixed" else 0)
    try:
        canaries = make_canaries(checked, others, config, generator)
        coins = generator.random(config.canaries) < 0.5
        scores = _scores(checked, others, kept, canaries, coins, config.evidence, streams, progress)
    finally:
        streams.destroy()
    proof = prove(OneRun.of(scores, coins, guesses), mechanism, delta, config.confidence)
    return CanaryAudit(
        proof, int(coins.sum()), f"{config.kind} canaries in one {plan.design} release, {config.evidence}"
    )


def check_auditable(plan: Plan, config: CanaryConfig) -> ReleasePlan:
    """Raise :class:`InvalidInput` unless canaries can audit such a plan; reads no data."""
    if not isinstance(plan, ReleasePlan) or plan.design not in DESIGNS:
        raise InvalidInput("design", plan.design, "one with mixed rows of equal weights: " + ", ".join(DESIGNS))
    if plan.noise != "gaussian":
        raise InvalidInput("noise", plan.noise, "gaussian for an audit with canaries")
    if plan.design == "fixed" and config.canaries > plan.records:
        allowed = f"at most {plan.records}, the records whose places they take"
        raise InvalidInput("canaries", config.canaries, allowed)
    return plan


def release_mechanism(plan: ReleasePlan) -> Mechanism:
    """The plan with its noise as the unknown."""

    def event(factor: float) -> Any:
        centre = plan.centre_noise_multiplier
        noise = plan.noise_multiplier * factor
        return replace(
            plan, noise_multiplier=noise, centre_noise_multiplier=None if centre is None else centre * factor
        ).event

    return Mechanism(event, plan.adjacency)


def make_canaries(
    plan: ReleasePlan, others: RecordTiles, config: CanaryConfig, generator: np.random.Generator
) -> Canaries:
    """Canaries that move the sums as far as the plan allows: at the clipping bound, in directions of their own.

    Where the plan centres, directions start from the records' own mean: what is left of a canary then points in its
    direction and not, with all others, against the mean.
    """
    size, classes = config.canaries, plan.num_classes
    if config.kind == "mislabelled":
        picked = np.sort(generator.choice(others.count, min(size, others.count), replace=False))
        picked = picked[np.arange(size) % len(picked)]
        features, true = _records_at(others, picked)
        shift = generator.integers(1, classes, size)
        opposites = None
        if plan.design == "fixed":
            opposites = -features, true
        return Canaries(features, (true + shift) % classes, opposites)
    directions = _directions(size, plan.dim, generator)
    labels = generator.integers(0, classes, size)
    start, length = np.zeros(plan.dim, np.float32), _REACH * plan.clip_norm
    if plan.centred:
        start = _mean(plan, others)
        room = plan.clip_norm**2 - float(start @ start)
        length = max(_MARGIN * plan.final_clip_norm, room**0.5 if room > 0 else 0.0)
    opposites = None
    if plan.design == "fixed":
        opposites = start - length * directions, (labels + 1) % classes
    return Canaries(start + length * directions, labels, opposites)


def _directions(count: int, dim: int, generator: np.random.Generator) -> NDArray[np.float32]:
    """(count, dim) random unit vectors; any ``dim`` in a row are orthogonal, so that they blur one another little."""
    made = np.empty((count, dim), np.float32)
    for start in range(0, count, dim):
        part = made[start : start + dim]
        part[:] = np.linalg.qr(generator.standard_normal((dim, len(part)), dtype=np.float32))[0].T
    return made


def _scores(
    plan: ReleasePlan,
    others: RecordTiles,
    kept: int,
    canaries: Canaries,
    coins: NDArray[np.bool_],
    evidence: str,
    streams: SecretStreams,
    progress: Progress | None,
) -> NDArray[np.float64]:
    """Run the engine on the records and the included canaries; score every canary by the rows."""
    features, labels = canaries.features[coins], canaries.labels[coins]
    if canaries.opposites is not None:
        features = np.concatenate([features, canaries.opposites[0][~coins]])
        labels = np.concatenate([labels, canaries.opposites[1][~coins]])
    engine = make_engine(plan, WithCanaries(others, kept, features, labels), streams)
    scores: list[RowScores] = []
    for block in engine.rows(progress):
        if not scores:
            sides = [(canaries.features, canaries.labels), *([canaries.opposites] if canaries.opposites else [])]
            others_sums = ClassSums.of(plan, engine.transform, _blocks(others, kept))
            for side in sides:
                # Half of the canaries are there.
                others_sums.add(engine.transform, *side, share=0.5)
            scores = [RowScores.prepare(plan, engine.transform, side, others_sums, evidence) for side in sides]
        for score in scores:
            score.add(block.start, block.x, block.y)
    return resolve(scores[0], scores[1] if len(scores) > 1 else None)


def _blocks(tiles: RecordTiles, kept: int) -> Iterator[Tile]:
    """The first ``kept`` records, some at a time: views, where the tiles are."""
    for index in range(record_tiles(tiles)):
        x, y = tiles.tile(index)
        for start in range(0, len(y), _BLOCK):
            left = kept - index * RECORD_TILE - start
            if left > 0:
                yield x[start : start + min(_BLOCK, left)], y[start : start + min(_BLOCK, left)]


def _mean(plan: ReleasePlan, tiles: RecordTiles) -> NDArray[np.float32]:
    """(d,) mean of the clipped records."""
    clip, total = RecordTransform(plan.clip_norm, plan.norm).clip, np.zeros(tiles.dim)
    for x, _ in _blocks(tiles, tiles.count):
        total += clip(x).sum(axis=0)
    return np.asarray(total / tiles.count, np.float32)


def _records_at(tiles: RecordTiles, indices: NDArray[np.int64]) -> Tile:
    """Features and labels of some records."""
    features = np.empty((len(indices), tiles.dim), np.float32)
    labels = np.empty(len(indices), np.int64)
    for index in range(record_tiles(tiles)):
        own = np.flatnonzero(indices // RECORD_TILE == index)
        if len(own):
            x, y = tiles.tile(index)
            features[own], labels[own] = x[indices[own] % RECORD_TILE], y[indices[own] % RECORD_TILE]
    return features, labels
