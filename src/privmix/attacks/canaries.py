"""Canaries in a release: units that are inserted by the toss of a coin, and what one release shows of the coins.

A canary is what the plan protects: a record, or, where its unit is a person, a person with several records, all of
which are there or none.

What is audited is the plan as it is: its rates, noise and public count stay what they are. Under add/remove an
included canary is one unit more, and replaces none; the guarantee is about just that, whatever the other records are.
Under replace-one the count stays: each canary takes a unit's place, and its coin says which of two opposite ones
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

from privmix.accounting.gdp import gdp_epsilon
from privmix.attacks.canary_persons import person_blocks, persons_of, with_persons
from privmix.attacks.canary_records import KINDS, Block, Blocks, Canaries, WithCanaries, blocks_of, make_canaries
from privmix.attacks.canary_scores import Filters, RowScores, resolve
from privmix.attacks.one_run import OneRun, apart_mu
from privmix.attacks.one_run_proof import Mechanism, OneRunProof, best_guesses, check_enough, prove
from privmix.audits.score_means import Assumed
from privmix.audits.verdict import Proof, ShownProof
from privmix.engine.engines import make_engine
from privmix.engine.records import RecordSource, RecordTiles, tiles_of
from privmix.errors import InvalidInput, check_choice, check_integer, check_number
from privmix.fields import Choice, check_fields
from privmix.mechanisms.plan import MOST_OF_ONE, RECORD, Unit, unit_named, unit_of
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
        canary_records: where the plan's unit is a person, how many records each canary has; None: K, as many as weigh
            as much as one of somebody with one. Many more try the cap.

    Example:
        >>> CanaryConfig(canaries=1000).confidence
        0.95
    """

    canaries: int = 1000
    confidence: float = 0.95
    guesses: int | None = None
    kind: Annotated[str, Choice(*KINDS)] = "planted"
    evidence: Annotated[str, Choice(*EVIDENCE)] = "rows"
    canary_records: int | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        check_enough(self.canaries, self.confidence)
        if self.guesses is not None:
            check_integer("guesses", self.guesses, low=1, high=self.canaries)
            check_enough(self.guesses, self.confidence, "guesses")
        if self.canary_records is not None:
            check_integer("canary_records", self.canary_records, low=1, high=MOST_OF_ONE)
            if self.kind == "mislabelled":
                allowed = "none for mislabelled canaries: they are persons of the dataset, with their own records"
                raise InvalidInput("canary_records", self.canary_records, allowed)

    def records_each(self, per_person: int | None) -> int:
        """How many records a canary that is made has.

        Args:
            per_person: of the plan: K; None where records are the units.

        Raises:
            InvalidInput: records are the units, and a number was given.
        """
        if per_person is None and self.canary_records is not None:
            allowed = "none where the plan's unit is a record: each canary is one"
            raise InvalidInput("canary_records", self.canary_records, allowed)
        return self.canary_records or per_person or 1

    def guesses_for(self, mechanism: Mechanism, delta: float) -> int:
        """The number of guesses, from public figures."""
        if self.guesses is not None:
            return self.guesses
        return best_guesses(self.canaries, mechanism.epsilon(delta), delta, self.confidence)


@dataclass(frozen=True)
class Apart:
    """What guesses prove if canaries do not influence one another and the curve of each is that of Gaussian DP.

    Attributes:
        run: guesses at half of the canaries, and successes.
        mu: lower bound by :func:`privmix.attacks.one_run.apart_mu`.
        epsilon: that of mu-GDP at the audit's delta.
    """

    run: OneRun
    mu: float
    epsilon: float

    def to_dict(self) -> dict[str, float]:
        """JSON values."""
        counted = {"apart_guesses": self.run.guesses, "apart_correct": self.run.correct}
        return {**counted, "apart_mu": self.mu, "apart_epsilon": self.epsilon}

    @classmethod
    def of(cls, scores: NDArray[np.float64], coins: NDArray[np.bool_], delta: float, confidence: float) -> Apart:
        """Guess half of the coins: at every budget about as many as prove most."""
        run = OneRun.of(scores, coins, -(-len(scores) // 2))
        mu = apart_mu(run, confidence)
        return cls(run, mu, gdp_epsilon(mu, delta))


@dataclass(frozen=True, repr=False)
class CanaryAudit(ShownProof):
    """The outcome of an audit with canaries. Private, like the records it ran on.

    Attributes:
        proof: what is proven beside what was claimed.
        included: how many canaries were.
        method: how it was done, in words.
        unit: what each was: a record, or a person with all records.
        assumed: bounds by the means of the scores of canaries that were in and of those that were out (Agrawal, Wei,
            Singh, Magdon-Ismail, Zikas 2026): they assume, beside what :class:`Assumed` says, that canaries do not
            influence one another. They decide nothing.
        apart: what guesses at half of the canaries prove under that assumption, whatever law scores have. It decides
            nothing either.
    """

    proof: OneRunProof
    included: int
    method: str
    unit: str = RECORD.one
    assumed: Assumed | None = None
    apart: Apart | None = None

    @property
    def canaries(self) -> str:
        """Many of them, in a word or two."""
        return "canaries" if self.unit == RECORD.one else f"canary {unit_named(self.unit).many}"

    @property
    def proves(self) -> Proof:
        """See :attr:`proof`."""
        return self.proof

    def to_dict(self) -> dict[str, Any]:
        """JSON values; the unit where it is no record."""
        unit = {} if self.unit == RECORD.one else {"unit": self.unit}
        parts = [part.to_dict() for part in (self.assumed, self.apart) if part is not None]
        assumed = {"assumed": {name: value for part in parts for name, value in part.items()}} if parts else {}
        return {**self.proof.to_dict(), "included": self.included, "method": self.method, **unit, **assumed}


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
        records: the owner's records, as many as the plan says where its design needs that; with persons exactly
            where its unit is a person.
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
    others, unit = tiles_of(records), unit_of(checked)
    if checked.per_person is not None:
        others = persons_of(others)
    kept = others.units - (config.canaries if _takes_places(checked, config) else 0)
    if kept < 0:
        allowed = f"at most the number of {unit.many}, whose places they take"
        raise InvalidInput("canaries", config.canaries, allowed)
    each = config.records_each(checked.per_person)
    try:
        canaries = make_canaries(checked, others, config.canaries, config.kind, generator, each)
        coins = generator.random(config.canaries) < 0.5
        scores = _scores(checked, others, kept, canaries, coins, config.evidence, streams, progress)
    finally:
        streams.destroy()
    proof = prove(OneRun.of(scores, coins, guesses), mechanism, delta, config.confidence)
    method = f"{canaries_in_words(config, unit)} in one {plan.design} release, {config.evidence}"
    return CanaryAudit(proof, int(coins.sum()), method, unit.one, *under_assumptions(scores, coins, mechanism, proof))


def under_assumptions(
    scores: NDArray[np.float64], coins: NDArray[np.bool_], mechanism: Mechanism, proof: OneRunProof
) -> tuple[Assumed, Apart]:
    """What canaries' scores prove by their means and by guesses at half of them, each at the proof's confidence."""
    event, alpha = mechanism.event(1.0), 1 - proof.confidence
    means = Assumed.of(scores[~coins], scores[coins], event, mechanism.adjacency, proof.delta, alpha)
    return means, Apart.of(scores, coins, proof.delta, proof.confidence)


def canaries_in_words(config: CanaryConfig, unit: Unit) -> str:
    """What the canaries are.

    Example:
        >>> from privmix.mechanisms.plan import PERSON
        >>> canaries_in_words(CanaryConfig(canary_records=4), PERSON)
        'planted canary persons with 4 records each'
    """
    if unit.per_person is None:
        return f"{config.kind} canaries"
    if config.kind == "mislabelled":
        return "mislabelled canary persons with all their records"
    each = config.records_each(unit.per_person)
    return f"{config.kind} canary persons with {each:,} record{'s' if each > 1 else ''} each"


def check_auditable(plan: Plan, config: CanaryConfig) -> ReleasePlan:
    """Raise :class:`InvalidInput` unless canaries can audit such a plan; reads no data."""
    plan = averaging_plan(plan, "one with mixed rows of equal weights")
    config.records_each(plan.per_person)
    if plan.noise != "gaussian":
        raise InvalidInput("noise", plan.noise, "gaussian for an audit with canaries")
    check_choice("canaries' kind", config.kind, KINDS[:2])
    if _takes_places(plan, config) and config.canaries > plan.records:
        allowed = f"at most {plan.records}, the {unit_of(plan).many} whose places they take"
        raise InvalidInput("canaries", config.canaries, allowed)
    return plan


def _takes_places(plan: ReleasePlan, config: CanaryConfig) -> bool:
    """Whether canaries stand where the last units stood: the count is fixed, or they are those units, mislabelled.

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
    mixed, known = _with_canaries(plan, others, kept, canaries, coins)
    engine = make_engine(plan, mixed, streams)

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


def _with_canaries(
    plan: ReleasePlan, others: RecordTiles, kept: int, canaries: Canaries, coins: NDArray[np.bool_]
) -> tuple[RecordTiles, Blocks]:
    """The others and the canaries that the coins chose; and all that may be there, as the attacker knows it."""
    if plan.per_person is None:
        mixed: RecordTiles = WithCanaries(others, kept, *canaries.chosen(coins))
    else:
        mixed = with_persons(persons_of(others), kept, *canaries.chosen(coins), canaries.whose(coins), canaries.copies)

    def known() -> Iterator[Block]:
        if plan.per_person is None:
            for x, y in blocks_of(others, kept):
                yield Block(x, y, 1.0)
        else:
            for x, y, persons in person_blocks(plan, others, kept):
                yield Block(x, y, 1.0, persons)
        for side in canaries.sides:
            yield side.block(plan)

    return mixed, known
