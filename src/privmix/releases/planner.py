"""The planner: which design, at which settings, is expected to serve best for a budget."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from privmix.designs import Design, Plan, all_designs, design_named
from privmix.errors import InvalidInput, check_integer, check_number
from privmix.releases.config import ReleaseConfig
from privmix.releases.prediction import DataModel, predict_accuracy
from privmix.rounding import exact

Progress = Callable[[str, int, int], None]

_DRAWS: Final = 3
_INDIFFERENT: Final = 0.003
# Epsilons of the picture, relative to the one asked for.
_CURVE: Final = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
DECLARED: Final = "a declared spectrum"
PUBLIC: Final = "records that the owner declared public"
_MODEL_WORDS: Final = re.compile(rf"{DECLARED}|\d+ {PUBLIC}")
_RECORD_FIELDS: Final = {
    "epsilon",
    "delta",
    "chosen",
    "labels",
    "predicted",
    "settings",
    "epsilons",
    "curves",
    "model",
    "reasons",
}


@dataclass(frozen=True)
class Candidate:
    """A design at its best settings, and what is expected of it.

    Attributes:
        name: a candidate of a design; see :func:`labels`.
        config: the settings.
        plan: with the noise that the budget asks for.
        accuracy: predicted, from 0 to 1.
    """

    name: str
    config: ReleaseConfig
    plan: Plan
    accuracy: float


@dataclass(frozen=True)
class Choice:
    """What the planner found. All of it is public.

    Attributes:
        epsilon, delta: the budget.
        candidates: the best of every design, most accurate first.
        curves: predicted accuracy by design at each of ``epsilons``.
        model: how the records were modelled, in words.
    """

    epsilon: float
    delta: float
    candidates: tuple[Candidate, ...]
    epsilons: tuple[float, ...]
    curves: dict[str, list[float]]
    model: str

    @property
    def best(self) -> Candidate:
        """The design to use."""
        return self.candidates[0]

    @property
    def reasons(self) -> list[str]:
        """Sentences for people."""
        return list(self.to_dict()["reasons"])

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready record: for the certificate, and for drawing."""
        record: dict[str, Any] = {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "chosen": self.best.name,
            "labels": {item.name: labels()[item.name] for item in self.candidates},
            "predicted": {item.name: round(item.accuracy, 4) for item in self.candidates},
            "settings": {item.name: item.config.design.settings() for item in self.candidates},
            "epsilons": list(self.epsilons),
            "curves": {name: [round(value, 4) for value in values] for name, values in self.curves.items()},
            "model": self.model,
        }
        return {**record, "reasons": reasons_of(record)}


def labels() -> dict[str, str]:
    """What the planner calls the candidates of all designs, by name."""
    return {name: label for design in all_designs() for name, label in design.labels.items()}


def choose_design(
    config: ReleaseConfig,
    epsilon: float,
    delta: float,
    model: DataModel | None = None,
    *,
    model_words: str = DECLARED,
    curve: bool = True,
    seed: int = 0,
    progress: Progress | None = None,
) -> Choice:
    """Predict every design's accuracy over its settings and choose. Reads no private row.

    Args:
        config: what is given: records, dim, classes, clipping, centring, rows. Its design and the settings that
            belong to one design are replaced.
        epsilon, delta: the budget.
        model: the assumed records; None declares the default spectrum.
        model_words: where ``model`` comes from: :data:`DECLARED`, or a number and :data:`PUBLIC`.
        curve: predict at other epsilons too, for the picture.
        seed: of the simulation; it is public and protects nothing.
        progress: called with a stage's name, steps done, steps in all.

    Example:
        >>> config = ReleaseConfig(records=2000, dim=32, classes=("no", "yes"))
        >>> choose_design(config, 1.0, 1e-5, curve=False).best.name in labels()
        True
    """
    check_number("epsilon", epsilon, low=0, low_open=True)
    check_number("delta", delta, low=0, high=1, low_open=True, high_open=True)
    check_integer("seed", seed, low=0)
    if model is None:
        model = DataModel.declared(config.dim, len(config.classes), np.random.default_rng(seed))
        model_words = DECLARED
    if model.dim != config.dim or len(model.means) != len(config.classes):
        raise InvalidInput("model", (model.dim, len(model.means)), "a model of the release's features and classes")
    trials = _trials(config)
    steps = len(trials) + (len(_CURVE) if curve else 0)
    best: dict[str, Candidate] = {}
    for done, (name, trial) in enumerate(trials, start=1):
        candidate = _evaluated(name, trial, epsilon, delta, model, seed)
        if name not in best or candidate.accuracy > best[name].accuracy:
            best[name] = candidate
        if progress:
            progress("planning", done, steps)
    ordered = tuple(sorted(best.values(), key=lambda item: -item.accuracy))
    epsilons = tuple(float(f"{point:.3g}") for point in (epsilon * factor for factor in _CURVE)) if curve else ()
    curves: dict[str, list[float]] = {item.name: [] for item in ordered} if curve else {}
    for done, at in enumerate(epsilons, start=len(trials) + 1):
        for item in ordered:
            curves[item.name].append(_predicted(item.config.calibrate(at, delta), model, seed))
        if progress:
            progress("planning", done, steps)
    if not _MODEL_WORDS.fullmatch(model_words):
        raise InvalidInput("model_words", model_words, f"{DECLARED!r} or '5 {PUBLIC}'")
    return Choice(epsilon, delta, ordered, epsilons, curves, model_words)


def _trials(config: ReleaseConfig) -> list[tuple[str, ReleaseConfig]]:
    """Settings that need a noise of their own."""
    found = []
    for kind in all_designs():
        for name, design in kind.trials(config):
            # What the owner asked of one design is asked of the others that know it.
            asked = {one.name: getattr(config.design, one.name) for one in design.options() if _keeps(config, one.name)}
            design = replace(design, **asked)
            found.append((name, replace(config, design=design, rows=None if design.rows_follow else config.rows)))
    return found


def _keeps(config: ReleaseConfig, option: str) -> bool:
    return option == "label_noise_ratio" and hasattr(config.design, option)


def _evaluated(
    name: str, config: ReleaseConfig, epsilon: float, delta: float, model: DataModel, seed: int
) -> Candidate:
    """The candidate at its price, with the best of the options that do not change that."""
    plan = config.calibrate(epsilon, delta)
    found = []
    for design in config.design.variants():
        variant = replace(config, design=design)
        divided = variant.with_noise(plan.noise_multiplier, plan.centre_noise_multiplier)
        divided = replace(divided, epsilon=plan.epsilon, delta=plan.delta)
        found.append(Candidate(name, variant, divided, _predicted(divided, model, seed)))
    # Where options make no difference that a simulation can tell, the design's own preference decides.
    best = max(item.accuracy for item in found)
    return next(item for item in found if item.accuracy >= best - _INDIFFERENT)


def _predicted(plan: Plan, model: DataModel, seed: int) -> float:
    # The same draws for every plan: what tells plans apart is then not chance.
    return float(
        np.mean([predict_accuracy(plan, model, np.random.default_rng((seed, draw))) for draw in range(_DRAWS)])
    )


def reasons_of(record: Mapping[str, Any]) -> list[str]:
    """The sentences that follow from the numbers of :meth:`Choice.to_dict`."""
    chosen, predicted = record["chosen"], record["predicted"]
    settings = ", ".join(f"{key} {value}" for key, value in record["settings"][chosen].items() if key != "design")
    sentences = [
        f"{_start(labels()[chosen])} was chosen ({settings}): its predicted accuracy at epsilon "
        f"{exact(record['epsilon'])} is {100 * predicted[chosen]:.1f}%, the highest of {len(predicted)} designs.",
    ]
    sentences += [
        f"{_start(labels()[name])}: {100 * accuracy:.1f}% predicted."
        for name, accuracy in predicted.items()
        if name != chosen
    ]
    sentences.append(
        f"Predictions come from a simulation of {record['model']}; no record of the private data was looked at. They "
        "rank designs; the real accuracy may be higher or lower."
    )
    return sentences


def check_choice_record(record: Mapping[str, Any]) -> None:
    """Raise :class:`InvalidInput` unless ``record`` has the form of :meth:`Choice.to_dict`, words and numbers agreeing.

    Whether the predictions are those that the planner would make is not checked.
    """
    try:
        sound = (
            set(record) == _RECORD_FIELDS
            and record["chosen"] in record["predicted"]
            and list(record["settings"]) == list(record["predicted"])
            and record["labels"] == {name: labels()[name] for name in record["predicted"]}
            and all(0 <= value <= 1 for value in record["predicted"].values())
            and max(record["predicted"].values()) == record["predicted"][record["chosen"]]
            and all(_are_settings(record["settings"][name]) for name in record["predicted"])
            and _MODEL_WORDS.fullmatch(record["model"]) is not None
            and record["reasons"] == reasons_of(record)
            and all(_is_number(value) for value in record["epsilons"])
            and set(record["curves"]) <= set(record["predicted"])
            and all(
                len(values) == len(record["epsilons"]) and all(_is_number(value) for value in values)
                for values in record["curves"].values()
            )
        )
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError):
        sound = False
    if not sound:
        raise InvalidInput("certificate choice", "another record", "numbers and words as the planner writes them")


def check_choice_settings(record: Mapping[str, Any], plan: Plan) -> None:
    """Raise :class:`InvalidInput` unless the settings that a sound ``record`` names as chosen are the plan's."""
    settings = record["settings"][record["chosen"]]
    kind: type[Design[Any]] = plan.kind
    if settings["design"] != plan.design or not kind.agrees(plan, settings):
        raise InvalidInput("certificate choice", record["chosen"], "the design and settings of the plan")


def _are_settings(settings: Mapping[str, Any]) -> bool:
    options = {one.name for one in design_named(settings["design"]).options()}
    given = {name: value for name, value in settings.items() if name != "design"}
    return set(given) <= options and all(isinstance(value, int | float) for value in given.values())


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _start(text: str) -> str:
    return text[0].upper() + text[1:]
