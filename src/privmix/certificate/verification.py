"""Findings of a verification, of a release or of a trained model."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from privmix.accounting.base import PrivacyCost
from privmix.certificate.certificate import Certificate
from privmix.certificate.sealed_key import Commitment, commitment_of
from privmix.fields import stored
from privmix.mechanisms.plan import RECORD, Unit, relation_of
from privmix.rounding import exact, rounded_up
from privmix.shown import Bar, Bars, Shown

COUNT_UNCHECKED: Final = "that the record count is what it says, and that each person has one record"
"""Stated for results whose unit is a record; the next text replaces it where the unit is a person."""
_PERSONS_UNCHECKED: Final = "that the number of persons is what it says, and that each has an identifier of their own"


@dataclass(frozen=True, repr=False)
class Verification(Shown):
    """The results of passed checks; a failed check raises."""

    # unchecked: in words; tests: of released numbers (privmix.audits.noise_tests.NoiseTest), none of a model's weights;
    # false_alarm: bound for an honest release by any test. sealed: for whom the run's key is, None if destroyed.

    kind: str
    id: str
    epsilon: float
    delta: float
    adjacency: str
    recomputed_epsilon: float
    files: int
    warnings: tuple[str, ...]
    unchecked: tuple[str, ...]
    extractor: Mapping[str, Any] = field(default_factory=dict, repr=False)
    tests: tuple[Any, ...] = ()
    unit: Unit = RECORD
    sealed: Commitment | None = None
    insecure_seed: bool = False

    @classmethod
    def of(
        cls,
        certificate: Certificate,
        cost: PrivacyCost,
        *,
        extractor: Mapping[str, Any],
        unchecked: tuple[str, ...],
        tests: tuple[Any, ...] = (),
    ) -> "Verification":
        """Verification of a certificate that holds, at the price that was recomputed."""
        if certificate.unit.per_person is not None:
            also = ", the same in all steps" if certificate.unit.where else ""
            said = f"{_PERSONS_UNCHECKED}{also}"
            unchecked = tuple(said if text == COUNT_UNCHECKED else text for text in unchecked)
        return cls(
            kind=certificate.kind,
            id=certificate.id,
            epsilon=certificate.epsilon,
            delta=certificate.delta,
            adjacency=certificate.adjacency,
            recomputed_epsilon=cost.epsilon,
            files=len(certificate.files),
            warnings=certificate.warnings,
            unchecked=unchecked,
            extractor=extractor,
            tests=tests,
            unit=certificate.unit,
            sealed=commitment_of(certificate),
            insecure_seed=certificate.insecure_seed,
        )

    @property
    def relation(self) -> str:
        return relation_of(self.adjacency, self.unit)

    @property
    def verdict(self) -> str:
        """PASS, unless anyone who guesses the seed of the noise can remove it."""
        return "FAIL: not private, since the noise came from a seed" if self.insecure_seed else "PASS"

    @property
    def false_alarm(self) -> float:
        # A union bound: the tests depend on one another.
        return math.fsum(test.false_alarm for test in self.tests)

    def shown(self) -> tuple[str, Mapping[str, object]]:
        return f"{self.verdict}: {self.kind} {self.id}", {
            "epsilon": f"{rounded_up(self.epsilon, 6)} at delta {exact(self.delta)}",
            "recomputed": rounded_up(self.recomputed_epsilon, 6),
            "adjacency": self.relation,
            "files": f"the hashes of {'1 file' if self.files == 1 else f'{self.files} files'}",
            "tests of its noise": len(self.tests),
            "not checked": f"{len(self.unchecked)} things",
            **({"warnings": "; ".join(self.warnings)} if self.warnings else {}),
        }

    def picture(self) -> Bars:
        stated = Bar("stated", self.epsilon, rounded_up(self.epsilon, 5), strong=False)
        found = Bar("recomputed", self.recomputed_epsilon, rounded_up(self.recomputed_epsilon, 5))
        return Bars(f"Epsilon at delta {exact(self.delta)}", [stated, found])

    def to_dict(self) -> dict[str, Any]:
        apart = (tuple, Mapping, Unit, Commitment, type(None))
        own = {name: value for name, value in vars(self).items() if not isinstance(value, apart)}
        if self.unit.per_person is not None:
            own["unit"] = self.unit.one
        return {
            **own,
            "warnings": list(self.warnings),
            "false_alarm": self.false_alarm,
            "tests": [test.to_dict() for test in self.tests],
            "unchecked": list(self.unchecked),
            **({} if self.sealed is None else {"sealed_key": stored(self.sealed)}),
        }
