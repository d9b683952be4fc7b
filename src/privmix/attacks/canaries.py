"""Canary audits of a training: the settings, and the result with its proof. Both need no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

from privmix.attacks.one_run_proof import Mechanism, OneRunProof, best_guesses, check_enough
from privmix.audits.bounds import ShownProof
from privmix.errors import InvalidInput, check_integer
from privmix.fields import Choice, check_fields
from privmix.mechanisms.plan import MOST_OF_ONE, RECORD, Unit, unit_named
from privmix.options import option
from privmix.rounding import rounded_down, rounded_up

KINDS: Final = ("planted", "mislabelled", "blank")
EVIDENCE: Final = ("steps", "neighbours")


@dataclass(frozen=True)
class CanaryConfig:
    """Settings of a canary audit, fixed before the run. Steps are scored by likelihood ratio, the best attack."""

    canaries: int = 1000
    confidence: float = 0.95
    guesses: int | None = option(None, "Number of guesses. Default: the number that proves most.")
    kind: Annotated[str, Choice(*KINDS)] = option("planted", "Kind of canary: planted, mislabelled or blank.")
    evidence: Annotated[str, Choice(*EVIDENCE)] = option(
        "steps", "Evidence of planted canaries: steps, or neighbours for repeated noise."
    )
    canary_records: int | None = option(None, "Records of each canary person. Default: K of TARGET.")

    def __post_init__(self) -> None:
        check_fields(self)
        # With too few canaries even perfect guesses prove nothing: refuse before a training is spent on them.
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
        # The number follows from the claim and not from scores: a choice after the run would need a correction.
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
    def proves(self) -> OneRunProof:
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


def canaries_in_words(config: CanaryConfig, unit: Unit) -> str:
    if unit.per_person is None:
        return f"{config.kind} canaries"
    if config.kind == "mislabelled":
        return "mislabelled canary persons with all their records"
    each = config.records_each(unit.per_person)
    return f"{config.kind} canary persons with {each:,} record{'s' if each > 1 else ''} each"
