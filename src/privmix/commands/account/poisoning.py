"""Bound what poisoned records can do under a guarantee: of a folder, of a design, or of an epsilon alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privmix import accounting
from privmix.commands.account.account import priced_config
from privmix.commands.base import Command
from privmix.errors import InvalidInput, Unquoted, check_choice, check_integer, check_number
from privmix.jobs.options import DESIGN_HELP, DESIGN_KINDS, DESIGN_NAMES
from privmix.options import option
from privmix.progress import Progress
from privmix.rounding import exact, rounded_up
from privmix.shown import Shown

if TYPE_CHECKING:
    from privmix.accounting.poisoning import CertifiedLine, NeighbourCurve
    from privmix.plans.design import Design


@dataclass(frozen=True, repr=False)
class Certified(Shown):
    """A certified line, what its guarantee is, and what other routes to it give."""

    # Without a promise epsilon is None. whole_curve: the guarantee is the whole curve, not one point of it.
    line: CertifiedLine
    epsilon: float | None
    delta: float
    whole_curve: bool
    by_guarantee: float
    by_points: float

    def to_dict(self) -> dict[str, Any]:
        return {
            **self.line.to_dict(),
            "epsilon": self.epsilon,
            "delta": self.delta,
            "whole_curve": self.whole_curve,
            "by_guarantee": self.by_guarantee,
            "by_points": self.by_points,
        }

    def shown(self) -> tuple[str, Mapping[str, object]]:
        stated = "nothing" if self.epsilon is None else f"epsilon {rounded_up(self.epsilon, 6)}"
        facts = {"guarantee": f"{stated}, delta {exact(self.delta)}, {self.line.adjacency.value}"}
        if self.whole_curve:
            facts["from epsilon and delta only"] = f"at most {rounded_up(self.by_guarantee, 4)}"
        return str(self.line), facts


@dataclass(frozen=True, eq=False, repr=False)
class Poisoning(Command[Certified]):
    """Bound the success of poisoning attacks under a privacy guarantee.

    Give `release`, a `design` with its noise, or `epsilon` alone (Ma et al. 2019). For a release, a model or a
    design, the whole trade-off curve gives a smaller bound (Dong, Roth, Su 2021). With add_remove, a changed record
    counts twice.
    """

    example = (
        "privmix account poisoning --design poisson --records 60000 --epsilon 1 --poisoned 2 --clean-success 0.001"
    )

    poisoned: int = option(MISSING, "Number of records that the attacker controls.")
    clean_success: float | str | None = option(
        None, "Attacker's success without poisoning: a probability, or runs such as 3/1000."
    )
    confidence: float = option(0.95, "Confidence level of a measured success without poisoning.")
    how: str = option("changed", "Change to the records: changed, inserted or deleted.")
    release: Path | None = option(None, "Release or model whose plan states the guarantee.")
    epsilon: float | None = option(None, "Epsilon of the guarantee; with `design`, the target.")
    delta: float = option(1e-5, "Delta of the guarantee.")
    adjacency: str | None = option(
        None, "Neighbouring datasets, with `epsilon` alone: add_remove (default) or replace_one."
    )
    design: str | Design[Any] | None = option(None, DESIGN_HELP, names=DESIGN_NAMES, kinds=DESIGN_KINDS)
    records: int | None = option(None, "Public record count n, with `design`.")
    rows: int | None = option(None, "Number of released rows T, with `design`. Default: n.")
    classes: int = option(10, "Number of classes, with `design` hierarchical or classwise.")
    noise_multiplier: float | None = option(None, "Joint noise multiplier s, with `design`, instead of `epsilon`.")

    def run(self, progress: Progress) -> Certified:
        return certified_line(self)


@dataclass(frozen=True)
class _Promise:
    epsilon: float
    delta: float
    curve: NeighbourCurve
    whole: bool


def certified_line(asked: Poisoning) -> Certified:
    """Bound how often an attack by poisoned records succeeds.

    Example:
        >>> asked = Poisoning(
        ...     5, 0.01, how="inserted", epsilon=1.0, design="poisson:mixup_degree=64", records=60_000
        ... )
        >>> found = certified_line(asked)
        >>> round(found.line.success, 2), round(found.by_guarantee, 2)
        (0.16, 0.83)
    """
    check_integer("poisoned", asked.poisoned, low=0)
    base, confidence = _base(asked)
    promise = _promise(asked)
    line = accounting.CertifiedLine.of(promise.curve, base, asked.poisoned, poisoning=asked.how, confidence=confidence)
    point = accounting.NeighbourCurve.of_point(promise.epsilon, promise.delta, promise.curve.adjacency)
    return Certified(
        line,
        promise.epsilon if math.isfinite(promise.epsilon) else None,
        promise.delta,
        promise.whole,
        point.success(base, asked.poisoned, asked.how),
        promise.curve.success_by_points(base, asked.poisoned, asked.how),
    )


def _base(asked: Poisoning) -> tuple[float, float | None]:
    """Success without poisoning, and its confidence where it was measured."""
    happened, measured, runs = str(asked.clean_success).partition("/")
    try:
        if not measured:
            return check_number("clean_success", float(happened), low=0, high=1), None
        trials = check_integer("clean_success", int(runs), low=1)
        successes = check_integer("clean_success", int(happened), low=0, high=trials)
    except ValueError:
        raise InvalidInput("clean_success", asked.clean_success, "a probability, or RUNS/OF_ALL as 3/1000") from None
    check_number("confidence", asked.confidence, low=0, high=1, low_open=True, high_open=True)
    # Not needed, nor loaded, where the base rate is known.
    from privmix.audits.bounds import clopper_pearson

    # The upper end of the interval: a base rate that is too low would make the bound too small.
    return float(clopper_pearson(successes, trials, 1 - asked.confidence)[1]), asked.confidence


def _promise(asked: Poisoning) -> _Promise:
    if asked.release is not None and asked.design is not None:
        raise InvalidInput("release, design", (str(asked.release), asked.design), "one of them")
    if (asked.design is not None or asked.release is not None) and asked.adjacency is not None:
        raise InvalidInput("adjacency", asked.adjacency, "no value with `design`, which has its own")
    for name in ("records", "rows", "noise_multiplier") if asked.design is None else ():
        if (value := getattr(asked, name)) is not None:
            raise InvalidInput(name, value, "only with a `design`")
    if asked.release is not None:
        return _of_folder(asked, asked.release)
    return _of_point(asked) if asked.design is None else _of_design(asked, asked.design)


def _of_folder(asked: Poisoning, folder: Path) -> _Promise:
    if asked.epsilon is not None:
        raise InvalidInput("epsilon", asked.epsilon, "no value with `release`, which has its own")
    from privmix.certificate.guarantee import Guarantee
    from privmix.jobs.kinds import read_certified

    promised = Guarantee.of(read_certified(folder))
    curve = promised.neighbours
    return _Promise(promised.epsilon, promised.delta, curve, curve.epsilons.size > 1)


def _of_point(asked: Poisoning) -> _Promise:
    if asked.epsilon is None:
        raise InvalidInput("epsilon", None, "a number, or a `design`, or a `release`")
    check_number("epsilon", asked.epsilon, low=0, low_open=True)
    relations = [item.value for item in accounting.Adjacency]
    relation = accounting.Adjacency(
        check_choice("adjacency", asked.adjacency or accounting.Adjacency.ADD_REMOVE.value, relations)
    )
    curve = accounting.NeighbourCurve.of_point(asked.epsilon, asked.delta, relation)
    return _Promise(asked.epsilon, asked.delta, curve, False)


def _of_design(asked: Poisoning, design: str | Design[Any]) -> _Promise:
    if asked.records is None:
        raise InvalidInput("records", None, "the public record count")
    if (asked.noise_multiplier is None) == (asked.epsilon is None):
        raise InvalidInput("noise_multiplier, epsilon", Unquoted("both or neither"), "exactly one of the two")
    config = priced_config(asked.records, asked.classes, asked.rows, design)
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
    return _Promise(cost.epsilon, asked.delta, accounting.NeighbourCurve.of_event(event, adjacency), True)
