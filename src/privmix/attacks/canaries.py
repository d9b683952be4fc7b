"""Canary audits of a release: coin tosses insert units, and an attacker guesses the coins from the released rows.

A canary is the plan's unit: a record, or a person with all of their records. The plan keeps its rates, noise and public
count. Under add/remove, an included canary is one extra unit, and the guarantee holds for it with any other records.
Under replace-one, each canary takes the place of a unit, and its coin picks one of two opposite canaries.

The attacker sees the released rows. It knows the plan, the canaries and the sums of all other records, as the
guarantee allows, but not the members of each row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.attacks.canary_records import (
    KINDS,
    Blocks,
    Canaries,
    CanaryBlock,
    WithCanaries,
    blocks_of,
    make_canaries,
    person_blocks,
    persons_of,
    with_persons,
)
from privmix.attacks.canary_scores import Filters, RowScores, resolve
from privmix.attacks.one_run import OneRun
from privmix.attacks.one_run_proof import Mechanism, OneRunProof, best_guesses, check_enough, prove
from privmix.audits.verdict import Proof, ShownProof
from privmix.engine.engines import make_engine
from privmix.engine.records import RecordSource, RecordTiles, tiles_of
from privmix.errors import InvalidInput, check_choice, check_integer, check_number
from privmix.fields import Choice, check_fields
from privmix.mechanisms.plan import MOST_OF_ONE, RECORD, Unit, unit_named, unit_of
from privmix.mechanisms.streams import SecretStreams
from privmix.options import option
from privmix.plans.named import averaging_plan
from privmix.plans.plan import Plan
from privmix.plans.rows import ReleasePlan
from privmix.progress import Progress
from privmix.rounding import rounded_down, rounded_up

EVIDENCE: Final = ("rows", "neighbours", "tiles")


@dataclass(frozen=True)
class CanaryConfig:
    """Settings of a canary audit, fixed before the release. Rows are scored by likelihood ratio, the best attack."""

    canaries: int = 1000
    confidence: float = 0.95
    guesses: int | None = option(None, "Number of guesses. Default: the number that proves most.")
    kind: Annotated[str, Choice(*KINDS)] = option("planted", "Kind of canary: planted, mislabelled, or blank (models).")
    evidence: Annotated[str, Choice(*EVIDENCE)] = option(
        "rows", "Evidence: rows (or steps); neighbours or tiles for repeated noise."
    )
    canary_records: int | None = option(None, "Records of each canary person. Default: K of TARGET.")

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
        """Return the records of each planted canary; ``per_person`` is the plan's K, None where units are records."""
        if per_person is None and self.canary_records is not None:
            allowed = "none where the plan's unit is a record: each canary is one"
            raise InvalidInput("canary_records", self.canary_records, allowed)
        return self.canary_records or per_person or 1

    def guesses_for(self, mechanism: Mechanism, delta: float) -> int:
        if self.guesses is not None:
            return self.guesses
        return best_guesses(self.canaries, mechanism.epsilon(delta), delta, self.confidence)


WORDS: Final = {"NUMBER": CanaryConfig}
"""How many canaries, and their settings, as people write them (:mod:`privmix.named`)."""


@dataclass(frozen=True, repr=False)
class CanaryAudit(ShownProof):
    """Result of a canary audit. Private, like its records."""

    proof: OneRunProof
    included: int
    method: str
    unit: str = RECORD.one

    @property
    def canaries(self) -> str:
        return "canaries" if self.unit == RECORD.one else f"canary {unit_named(self.unit).many}"

    @property
    def proves(self) -> Proof:
        return self.proof

    def shown(self) -> tuple[str, Mapping[str, object]]:
        title, facts = super().shown()
        proof, run = self.proof, self.proof.run
        bounds = {"Steinke et al.": proof.steinke, "Mahloujifar et al.": proof.mahloujifar}
        return title, {
            **facts,
            "proven by": ", ".join(f"{name} {rounded_down(bound, 4)}" for name, bound in bounds.items()),
            "guessed": f"{run.correct} of {run.guesses} coins right, of {run.canaries} {self.canaries} ({self.method})",
            "so many perfect guesses would prove": f"epsilon {rounded_up(proof.provable_epsilon, 4)}",
        }

    def to_dict(self) -> dict[str, Any]:
        """JSON values; the unit where it is no record."""
        unit = {} if self.unit == RECORD.one else {"unit": self.unit}
        return {**self.proof.to_dict(), "included": self.included, "method": self.method, **unit}


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

    Formal guarantees:
        * Valid: if the engine follows ``plan``, the audit proves more than the claimed epsilon with probability at most
          1 - ``config.confidence``.
        * Fixed beforehand: canaries, coins and the number of guesses do not depend on the release.
        * Private: the figures come from private records and no noise protects them. They are for the owner.
    """
    # Rows are scored as they come and not kept: memory is the engine's and a few blocks.
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
    return CanaryAudit(proof, int(coins.sum()), method, unit.one)


def canaries_in_words(config: CanaryConfig, unit: Unit) -> str:
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
    """Whether canaries replace the last units: the count is fixed, or the canaries are those units, mislabelled."""
    # No person is in the data twice then, and the run costs each person what its plan states.
    return plan.kind.fixed_size or config.kind == "mislabelled"


def release_mechanism(plan: ReleasePlan) -> Mechanism:
    """Return the plan with its noise as the unknown."""

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
    """Yield the others and the canaries that the coins chose; and all that may be there, as the attacker knows it."""
    if plan.per_person is None:
        mixed: RecordTiles = WithCanaries(others, kept, *canaries.chosen(coins))
    else:
        mixed = with_persons(persons_of(others), kept, *canaries.chosen(coins), canaries.whose(coins), canaries.copies)

    def known() -> Iterator[CanaryBlock]:
        if plan.per_person is None:
            for x, y in blocks_of(others, kept):
                yield CanaryBlock(x, y, 1.0)
        else:
            for x, y, persons in person_blocks(plan, others, kept):
                yield CanaryBlock(x, y, 1.0, persons)
        for side in canaries.sides:
            yield side.block(plan)

    return mixed, known
