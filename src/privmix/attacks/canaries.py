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
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.attacks.canary_records import CANARY_SHARE, KINDS, Canaries, WithCanaries, blocks_of, make_canaries
from privmix.attacks.canary_scores import Filters, RowScores, resolve
from privmix.attacks.one_run import OneRun
from privmix.attacks.one_run_proof import Mechanism, OneRunProof, best_guesses, check_enough, prove
from privmix.engine.engines import make_engine
from privmix.engine.records import RecordSource, RecordTiles, tiles_of
from privmix.errors import WITHHELD, InvalidInput, check_choice, check_integer, check_number
from privmix.fields import Choice, check_fields
from privmix.mechanisms.plan import check_of_records
from privmix.mechanisms.streams import SecretStreams
from privmix.plans import Plan, ReleasePlan, averaging_plan
from privmix.progress import Progress

EVIDENCE: Final = ("rows", "neighbours", "tiles")


@dataclass(frozen=True)
class CanaryConfig:
    """How an audit with canaries is done; all of it is chosen before anything is looked at.

    Attributes:
        canaries: k.
        confidence: of all that is proven, together.
        guesses: r, or None for what proves most if the claim is just met.
        kind: ``"planted"``, what reveals most; ``"mislabelled"`` records of the dataset; ``"blank"`` ones (models).
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
    kind: Annotated[str, Choice(*KINDS)] = "planted"
    evidence: Annotated[str, Choice(*EVIDENCE)] = "rows"

    def __post_init__(self) -> None:
        check_fields(self)
        check_enough(self.canaries, self.confidence)
        if self.guesses is not None:
            check_integer("guesses", self.guesses, low=1, high=self.canaries)
            check_enough(self.guesses, self.confidence, "guesses")

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
        plan: as it was, or is to be, released; of a design whose rows are averages, with Gaussian noise.
        records: the owner's records, as many as the plan says where its design needs that.
        config: see :class:`CanaryConfig`.
        delta: at which epsilon is claimed.
        streams: fresh secret streams for the run; used up.
        generator: of canaries and coins; nobody who guesses may know it.
        progress: called as work proceeds.

    Raises:
        InvalidInput: the plan's design has no canary audit, or the records do not fit it.

    Example:
        >>> from privmix.engine import PrivateRecords
        >>> from privmix.planning import ReleaseConfig
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
    if others.starts(0) is not None:
        raise InvalidInput("persons", WITHHELD, "none: a canary is a record, and stands for no person")
    kept = others.count - (config.canaries if _takes_places(checked, config) else 0)
    if kept < 0:
        raise InvalidInput("canaries", config.canaries, "at most the number of records, whose places they take")
    try:
        canaries = make_canaries(checked, others, config.canaries, config.kind, generator)
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
    plan = averaging_plan(plan, "one with mixed rows of equal weights")
    check_of_records(plan.per_person)
    if plan.noise != "gaussian":
        raise InvalidInput("noise", plan.noise, "gaussian for an audit with canaries")
    check_choice("canaries' kind", config.kind, KINDS[:2])
    if _takes_places(plan, config) and config.canaries > plan.records:
        allowed = f"at most {plan.records}, the records whose places they take"
        raise InvalidInput("canaries", config.canaries, allowed)
    return plan


def _takes_places(plan: ReleasePlan, config: CanaryConfig) -> bool:
    """Whether canaries stand where the last records stood: the count is fixed, or they are those records, mislabelled.

    Nobody is in the data twice then, and what the run costs each person is what its plan says.
    """
    return plan.kind.fixed_size or config.kind == "mislabelled"


def release_mechanism(plan: ReleasePlan) -> Mechanism:
    """The plan with its noise as the unknown."""

    def event(factor: float) -> Any:
        centre = plan.centre_noise_multiplier
        noise = plan.noise_multiplier * factor
        return replace(
            plan, noise_multiplier=noise, centre_noise_multiplier=None if centre is None else centre * factor
        ).event

    return Mechanism(event, plan.adjacency)


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
    """Run the engine on the records and what the coins chose; score every canary by the rows."""
    engine = make_engine(plan, WithCanaries(others, kept, *canaries.chosen(coins)), streams)

    def known() -> Iterator[tuple[NDArray[Any], NDArray[np.int64], float]]:
        for x, y in blocks_of(others, kept):
            yield x, y, 1.0
        for x, y in canaries.sides:
            yield x, y, CANARY_SHARE

    scores: list[RowScores] = []
    for block in engine.rows(progress):
        if not scores:
            transform = engine.transform
            for side in canaries.sides:
                filters = Filters.prepare(plan, transform, side, known)
                scores.append(RowScores(plan, transform, filters, known, evidence))
        for score in scores:
            score.add(block.start, block.x, block.y)
    return resolve(scores[0], scores[1] if len(scores) > 1 else None)
