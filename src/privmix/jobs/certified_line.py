"""What poisoned records can do against a guarantee: of a folder, of a design, or of an epsilon alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from privmix import accounting
from privmix.accounting import Adjacency, CertifiedLine, NeighbourCurve
from privmix.errors import InvalidInput, check_choice, check_integer, check_number
from privmix.jobs.options import CertifiedLineOptions
from privmix.planning.config import ReleaseConfig
from privmix.rounding import exact, rounded_up


@dataclass(frozen=True)
class Certified:
    """A certified line, what its guarantee is, and what other routes to it give.

    Attributes:
        line: the bound.
        epsilon, delta: of the guarantee; epsilon is None where nothing is promised.
        whole_curve: the whole curve of what ran is promised; else this one point.
        by_guarantee: the bound that follows from epsilon and delta alone.
        by_points: the best that one point of the curve gives.
    """

    line: CertifiedLine
    epsilon: float | None
    delta: float
    whole_curve: bool
    by_guarantee: float
    by_points: float

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {
            **self.line.to_dict(),
            "epsilon": self.epsilon,
            "delta": self.delta,
            "whole_curve": self.whole_curve,
            "by_guarantee": self.by_guarantee,
            "by_points": self.by_points,
        }

    def __str__(self) -> str:
        stated = "nothing" if self.epsilon is None else f"epsilon {rounded_up(self.epsilon, 6)}"
        other = ""
        if self.whole_curve:
            other = f"; from that epsilon and delta alone: at most {rounded_up(self.by_guarantee, 4)}"
        return f"{self.line} ({stated}, delta {exact(self.delta)}, {self.line.adjacency.value}{other})"


@dataclass(frozen=True)
class _Promise:
    epsilon: float
    delta: float
    curve: NeighbourCurve
    whole: bool


def certified_line(
    asked: CertifiedLineOptions, design: str | None = None, options: Mapping[str, Any] | None = None
) -> Certified:
    """Bound how often an attack by poisoned records succeeds.

    Args:
        asked: the guarantee, the records and the base rate.
        design: by whose price, where the guarantee is a design's.
        options: of the design.

    Raises:
        InvalidInput: an option is missing, out of range or of another kind of guarantee.
        StorageError: the folder can't be read.

    Example:
        >>> asked = CertifiedLineOptions(poisoned=5, clean_success=0.01, how="inserted", epsilon=1.0, records=60_000)
        >>> found = certified_line(asked, "poisson", {"mixup_degree": 64})
        >>> round(found.line.success, 2), round(found.by_guarantee, 2)
        (0.16, 0.83)
    """
    check_integer("poisoned", asked.poisoned, low=0)
    base, confidence = _base(asked)
    promise = _promise(asked, design, options or {})
    line = CertifiedLine.of(promise.curve, base, asked.poisoned, poisoning=asked.how, confidence=confidence)
    point = NeighbourCurve.of_point(promise.epsilon, promise.delta, promise.curve.adjacency)
    return Certified(
        line,
        promise.epsilon if math.isfinite(promise.epsilon) else None,
        promise.delta,
        promise.whole,
        point.success(base, asked.poisoned, asked.how),
        promise.curve.success_by_points(base, asked.poisoned, asked.how),
    )


def _base(asked: CertifiedLineOptions) -> tuple[float, float | None]:
    """Success without poisoning, and its confidence where it was measured."""
    measured = asked.clean_successes is not None or asked.clean_trials is not None
    if (asked.clean_success is None) != measured:
        raise InvalidInput(
            "clean_success", asked.clean_success, "a probability, or `clean_successes` and `clean_trials` in its place"
        )
    if asked.clean_success is not None:
        return check_number("clean_success", asked.clean_success, low=0, high=1), None
    trials = check_integer("clean_trials", asked.clean_trials, low=1)
    successes = check_integer("clean_successes", asked.clean_successes, low=0, high=trials)
    check_number("confidence", asked.confidence, low=0, high=1, low_open=True, high_open=True)
    # Not needed, nor loaded, where the base rate is known.
    from privmix.audits.bounds import clopper_pearson

    return float(clopper_pearson(successes, trials, 1 - asked.confidence)[1]), asked.confidence


def _promise(asked: CertifiedLineOptions, design: str | None, options: Mapping[str, Any]) -> _Promise:
    if asked.folder is not None and design is not None:
        raise InvalidInput("folder, design", (str(asked.folder), design), "one of them")
    if (design is not None or asked.folder is not None) and asked.adjacency is not None:
        raise InvalidInput("adjacency", asked.adjacency, "none: the design's own")
    if design is None:
        _only_with_a_design(asked, options)
    if asked.folder is not None:
        return _of_folder(asked)
    return _of_point(asked) if design is None else _of_design(asked, design, options)


def _only_with_a_design(asked: CertifiedLineOptions, options: Mapping[str, Any]) -> None:
    given = {name: getattr(asked, name) for name in ("records", "rows", "noise_multiplier")} | dict(options)
    for name, value in given.items():
        if value is not None:
            raise InvalidInput(name, value, "only with a `design`")


def _of_folder(asked: CertifiedLineOptions) -> _Promise:
    if asked.epsilon is not None:
        raise InvalidInput("epsilon", asked.epsilon, "none: the folder's own")
    from privmix.certificate.guarantee import Guarantee
    from privmix.jobs.kinds import certified

    assert asked.folder is not None
    promised = Guarantee.of(certified(asked.folder).read(asked.folder))
    curve = promised.neighbours
    return _Promise(promised.epsilon, promised.delta, curve, curve.epsilons.size > 1)


def _of_point(asked: CertifiedLineOptions) -> _Promise:
    if asked.epsilon is None:
        raise InvalidInput("epsilon", None, "a number, or a `design`, or a `folder`")
    check_number("epsilon", asked.epsilon, low=0, low_open=True)
    relations = [item.value for item in Adjacency]
    relation = Adjacency(check_choice("adjacency", asked.adjacency or Adjacency.ADD_REMOVE.value, relations))
    curve = NeighbourCurve.of_point(asked.epsilon, asked.delta, relation)
    return _Promise(asked.epsilon, asked.delta, curve, False)


def _of_design(asked: CertifiedLineOptions, design: str, options: Mapping[str, Any]) -> _Promise:
    if asked.records is None:
        raise InvalidInput("records", None, "the public record count")
    if (asked.noise_multiplier is None) == (asked.epsilon is None):
        raise InvalidInput("noise_multiplier, epsilon", "both or neither", "exactly one of the two")
    classes = tuple(str(number) for number in range(asked.classes))
    config = ReleaseConfig(
        records=asked.records, dim=1, classes=classes, design=design, rows=asked.rows, centre="none", **options
    )
    if asked.epsilon is not None:
        config = config.resolved(asked.epsilon, asked.delta)
    adjacency = config.draft().adjacency
    by: dict[str, Any] = {"accountant": "pld" if asked.delta > 0 else "pure", "adjacency": adjacency}
    multiplier = asked.noise_multiplier
    if asked.epsilon is not None:
        multiplier = accounting.calibrate(
            lambda one: config.with_noise(one).event, asked.epsilon, asked.delta, **by
        ).noise_multiplier
    assert multiplier is not None
    check_number("noise_multiplier", multiplier, low=0, low_open=True)
    event = config.with_noise(multiplier).event
    cost = accounting.epsilon(event, asked.delta, **by)
    return _Promise(cost.epsilon, asked.delta, NeighbourCurve.of_event(event, adjacency), True)
