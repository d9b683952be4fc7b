"""What a verification found, of a release or of a trained model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from privmix.accounting import PrivacyCost
from privmix.certificate.certificate import Certificate
from privmix.certificate.replay_end import Ended, sealed_state
from privmix.certificate.sealed_key import Commitment, commitment_of
from privmix.mechanisms.plan import RECORD, Unit, relation_of
from privmix.rounding import exact, rounded_up
from privmix.shown import Bar, Bars, Shown

COUNT_UNCHECKED: Final = "that the record count is what it says, and that each person has one record"
"""Of every release and model for records; of those for persons the next one takes its place."""
_PERSONS_UNCHECKED: Final = "that the number of persons is what it says, and that each has an identifier of their own"


class NoiseFinding(Protocol):
    """A test of released numbers for the certified noise, that held.

    Attributes:
        name: what was tested.
        tests: how many numbers were compared.
        lowest: the least noise found, as a share of the certified one.
        caught: the share below which noise is caught.
        false_alarm: probability, at most, that an honest release does not pass it.
    """

    @property
    def name(self) -> str: ...
    @property
    def tests(self) -> int: ...
    @property
    def lowest(self) -> float | None: ...
    @property
    def caught(self) -> float | None: ...
    @property
    def false_alarm(self) -> float: ...

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""


@dataclass(frozen=True, repr=False)
class Verification(Shown):
    """What held. Every check that fails raises instead.

    Attributes:
        kind: release or model.
        id: names it.
        epsilon, delta, adjacency: as stated.
        recomputed_epsilon: of the event, computed here.
        files: how many files have their certified hashes.
        warnings: the certificate's.
        unchecked: what was not and can't be checked, in words.
        extractor: description of the feature extractor.
        tests: of released numbers; a model's weights can't be tested.
        unit: what neighbours differ by; records' goes without saying among the figures for machines.
        false_alarm: probability, at most, that an honest release is refused by any of them.
        sealed: whom the run's key was sealed for; None: it was destroyed.
        ended: what somebody stated of the sealed key's end, which nobody checked; None where nothing is.
    """

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
    tests: tuple[NoiseFinding, ...] = ()
    unit: Unit = RECORD
    sealed: Commitment | None = None
    ended: Ended | None = None

    @classmethod
    def of(
        cls,
        certificate: Certificate,
        cost: PrivacyCost,
        *,
        extractor: Mapping[str, Any],
        unchecked: tuple[str, ...],
        tests: tuple[NoiseFinding, ...] = (),
        ended: Ended | None = None,
    ) -> Verification:
        """Of a certificate that holds, at the price that was recomputed."""
        return cls(
            kind=certificate.kind,
            id=certificate.id,
            epsilon=certificate.epsilon,
            delta=certificate.delta,
            adjacency=certificate.adjacency,
            recomputed_epsilon=cost.epsilon,
            files=len(certificate.files),
            warnings=certificate.warnings,
            unchecked=unchecked if certificate.unit.per_person is None else tuple(map(_of_persons, unchecked)),
            extractor=extractor,
            tests=tests,
            unit=certificate.unit,
            sealed=commitment_of(certificate),
            ended=ended,
        )

    @property
    def relation(self) -> str:
        """Adjacency and unit, as they are printed."""
        return relation_of(self.adjacency, self.unit)

    @property
    def false_alarm(self) -> float:
        return math.fsum(test.false_alarm for test in self.tests)

    def shown(self) -> tuple[str, Mapping[str, object]]:
        """What holds."""
        return f"{self.kind} {self.id}: holds", {
            "epsilon": f"{rounded_up(self.epsilon, 6)} at delta {exact(self.delta)}",
            "recomputed": rounded_up(self.recomputed_epsilon, 6),
            "adjacency": self.relation,
            "files": f"the hashes of {'1 file' if self.files == 1 else f'{self.files} files'}",
            "tests of its noise": len(self.tests),
            "not checked": f"{len(self.unchecked)} things",
            **({"warnings": "; ".join(self.warnings)} if self.warnings else {}),
        }

    def picture(self) -> Bars:
        """What is stated beside what was recomputed."""
        stated = Bar("stated", self.epsilon, rounded_up(self.epsilon, 5), strong=False)
        found = Bar("recomputed", self.recomputed_epsilon, rounded_up(self.recomputed_epsilon, 5))
        return Bars(f"Epsilon at delta {exact(self.delta)}", [stated, found])

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        apart = (tuple, Mapping, Unit, Commitment, Ended, type(None))
        own = {name: value for name, value in vars(self).items() if not isinstance(value, apart)}
        if self.unit.per_person is not None:
            own["unit"] = self.unit.one
        return {
            **own,
            "warnings": list(self.warnings),
            "false_alarm": self.false_alarm,
            "tests": [test.to_dict() for test in self.tests],
            "unchecked": list(self.unchecked),
            **({} if self.sealed is None else {"sealed_key": sealed_state(self.sealed, self.ended)}),
        }


def _of_persons(text: str) -> str:
    return _PERSONS_UNCHECKED if text == COUNT_UNCHECKED else text
