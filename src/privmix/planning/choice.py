"""A planner's choice on record: numbers, and the sentences that follow from them. All of it is public."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from privmix.errors import InvalidInput
from privmix.learning.holdings import Holdings
from privmix.planning.config import ReleaseConfig
from privmix.plans.plan import Plan
from privmix.plans.registry import all_designs, design_named, made_by
from privmix.plans.setting import MOST_SHARES
from privmix.rounding import exact
from privmix.shown import Bar, Bars, Shown

DECLARED: Final = "a declared spectrum"
PUBLIC: Final = "records that the owner declared public"
_MODEL_WORDS: Final = re.compile(rf"{DECLARED}|\d+ {PUBLIC}")
_ROUNDING: Final = 2e-4
# Far more than the planner's own curves have, and larger than any setting.
_MOST_EPSILONS: Final = 32
_LARGEST: Final = 2**63
_PROJECT: Final = "project"
_PERSONS: Final = "records_per_person"
_SHARES: Final = "class_shares"
_RECORD_FIELDS: Final = {
    "epsilon",
    "delta",
    "chosen",
    "labels",
    "predicted",
    "ranges",
    "settings",
    "learners",
    "attainable",
    "epsilons",
    "curves",
    "model",
    "reasons",
}


def compared(accuracy: float, auc: float | None, always: float) -> float:
    """Return the figure that designs are compared by: accuracy, or the area under the curve where shares are known.

    The area counts for less where the rule is right less often than ``always`` naming the most frequent class.
    """
    return accuracy if auc is None else auc - max(0.0, always - accuracy)


@dataclass(frozen=True)
class PredictedAccuracy:
    """An accuracy from 0 to 1, and the learner that reaches it; more where shares of the classes are known."""

    # balanced: mean recall of the classes; auc: area under the curve; always: share of the largest class.

    accuracy: float
    learner: str
    balanced: float | None = None
    auc: float | None = None
    always: float = 0.0

    @property
    def counted(self) -> float:
        """The figure that designs are compared by."""
        return compared(self.accuracy, self.auc, self.always)


@dataclass(frozen=True, kw_only=True)
class Candidate(PredictedAccuracy):
    """A design at its best settings, with its plan and predicted accuracy."""

    # low, high: accuracy where records are harder, and easier, to separate; auc_range: likewise. project: width of
    # projected features, or None.

    name: str
    config: ReleaseConfig
    plan: Plan
    low: float
    high: float
    project: int | None = None
    auc_range: tuple[float, float] = (0.0, 0.0)

    @property
    def settings(self) -> dict[str, Any]:
        return {**self.config.design.settings(), **({} if self.project is None else {_PROJECT: self.project})}


@dataclass(frozen=True)
class LeftOut:
    """Settings of a design, by its candidate's name, without a plan at the budget, and the reason."""

    name: str
    settings: Mapping[str, Any]
    reason: str

    def __str__(self) -> str:
        chosen = ", ".join(f"{key} {value}" for key, value in self.settings.items() if key != "design")
        return f"{_start(labels()[self.name])}" + (f" ({chosen})" if chosen else "") + f" was left out: {self.reason}."


@dataclass(frozen=True, repr=False)
class PlannerChoice(Shown):
    """The planner's result; all of it is public.

    Attributes:
        epsilon, delta: the budget.
        candidates: the best of every design, the most accurate first; margins of designs count.
        curves: predicted accuracy by design at each of ``epsilons``.
        model: source of the data model, in words.
        attainable: accuracy of the learner without privacy: low, predicted, high.
        left_out: settings without a plan at the budget.
        records_per_person: declared number of records of each person, or None.
        class_shares: declared shares of the classes, or None.
    """

    epsilon: float
    delta: float
    candidates: tuple[Candidate, ...]
    epsilons: tuple[float, ...]
    curves: dict[str, list[float]]
    model: str
    attainable: tuple[float, float, float]
    left_out: tuple[LeftOut, ...] = ()
    records_per_person: tuple[int, ...] | None = None
    class_shares: tuple[float, ...] | None = None

    @property
    def best(self) -> Candidate:
        return self.candidates[0]

    def shown(self) -> tuple[str, Mapping[str, object]]:
        return f"Choice of a design: {labels()[self.best.name]}", {
            "epsilon, delta": f"{exact(self.epsilon)}, {exact(self.delta)}",
            "forecast": f"{100 * self.best.accuracy:.1f}% ({100 * self.best.low:.0f} to {100 * self.best.high:.0f}%)",
            **({} if self.best.auc is None else {"forecast AUC": auc_of(self.best)}),
            "assumed without privacy": f"{100 * self.attainable[1]:.1f}%",
            "why": " ".join(self.reasons),
        }

    def picture(self) -> Bars:
        """Forecast of each design."""
        names = labels()
        bars = [
            Bar(names[one.name], one.accuracy, f"{100 * one.accuracy:.1f}%", one is self.best)
            for one in self.candidates
        ]
        return Bars("Predicted accuracy", bars, full=1.0)

    @property
    def reasons(self) -> list[str]:
        return list(self.to_dict()["reasons"])

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready record: for the certificate, and for drawing."""
        record: dict[str, Any] = {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "chosen": self.best.name,
            "labels": {item.name: labels()[item.name] for item in self.candidates},
            "predicted": {item.name: round(item.accuracy, 4) for item in self.candidates},
            "ranges": {item.name: [round(item.low, 4), round(item.high, 4)] for item in self.candidates},
            "settings": {item.name: item.settings for item in self.candidates},
            "learners": {item.name: item.learner for item in self.candidates},
            "attainable": [round(value, 4) for value in self.attainable],
            "epsilons": list(self.epsilons),
            "curves": {name: [round(value, 4) for value in values] for name, values in self.curves.items()},
            "model": self.model,
        }
        # Names alone: a certificate holds no words but its own.
        missing = {item.name for item in self.left_out} - {item.name for item in self.candidates}
        if missing:
            record["left_out"] = sorted(missing)
        if self.records_per_person is not None:
            record[_PERSONS] = list(self.records_per_person)
        if self.class_shares is not None:
            record[_SHARES] = {
                "declared": [round(value, 4) for value in self.class_shares],
                "auc": {
                    item.name: [round(v, 4) for v in (item.auc or 0.0, *item.auc_range)] for item in self.candidates
                },
                "balanced": {item.name: round(item.balanced or 0.0, 4) for item in self.candidates},
            }
        return {**record, "reasons": reasons_of(record)}


def auc_of(found: Candidate) -> str:
    low, high = found.auc_range
    return f"{found.auc:.2f} ({low:.2f} to {high:.2f})"


def labels() -> dict[str, str]:
    return {name: label for design in all_designs() for name, label in design.labels.items()}


def counted_error(name: str, accuracy: float, *, before: bool = False) -> float:
    """Return the predicted error plus the margin of the candidate's design (``before``: that of earlier builds)."""
    kind = next(design for design in all_designs() if name in design.labels)
    return (1 - accuracy) / (1 - kind.margins[before])


def is_model_words(words: str) -> bool:
    """Whether ``words`` are the planner's own: :data:`DECLARED`, or a number and :data:`PUBLIC`."""
    return _MODEL_WORDS.fullmatch(words) is not None


def chosen_by_data(record: Mapping[str, Any] | None) -> bool:
    """Whether a choice on record was made with records that the owner declared public; None is no choice."""
    return record is not None and str(record.get("model")).endswith(PUBLIC)


def forecast_of(record: Mapping[str, Any], name: str) -> str:
    return (
        f"{_accuracy(record['predicted'][name], record['ranges'][name])} of records like those that it assumes, with "
        f"learner {record['learners'][name]}"
    )


def reasons_of(record: Mapping[str, Any], *, before: bool = False) -> list[str]:
    """Return the sentences that follow from :meth:`PlannerChoice.to_dict` (``before``: those of earlier builds)."""
    chosen, predicted, ranges = record["chosen"], record["predicted"], record["ranges"]
    settings = ", ".join(f"{key} {value}" for key, value in record["settings"][chosen].items() if key != "design")
    # Candidates with a higher forecast, but not with so much more that they are chosen.
    compared = _compared(record)
    better = [name for name, figure in compared.items() if figure > compared[chosen]]
    if before:
        others = ", but for such as are taken only where they err clearly less" if better else ""
        sentences = [
            f"{_start(labels()[chosen])} was chosen ({settings}): with learner {record['learners'][chosen]} its "
            f"predicted accuracy at epsilon {exact(record['epsilon'])} is "
            f"{_accuracy(predicted[chosen], ranges[chosen])}, the highest of {len(predicted)} designs{others}."
        ]
    else:
        forecast = f"with learner {record['learners'][chosen]} the forecast at epsilon {exact(record['epsilon'])} is"
        also = "".join(
            f" `{record['settings'][name]['design']}` was forecast at {_accuracy(predicted[name], ranges[name])}, "
            "within the margin, so the simpler design was chosen."
            for name in better
        )
        sentences = [
            f"{_start(labels()[chosen])} was chosen ({settings}): {forecast} "
            f"{_accuracy(predicted[chosen], ranges[chosen])}{_area(record, chosen)}, the best of {len(predicted)} "
            f"designs.{also}"
        ]
    sentences += [
        f"{_start(labels()[name])}: {_accuracy(accuracy, ranges[name])}{_area(record, name)} predicted."
        for name, accuracy in predicted.items()
        if name != chosen
    ]
    sentences += [
        f"{_start(labels()[name])} was left out: no noise was found that meets the budget."
        for name in record.get("left_out", ())
    ]
    if (counts := record.get(_PERSONS)) is not None:
        sentences.append(_held(counts))
    if (known := record.get(_SHARES)) is not None:
        always, balanced = max(known["declared"]), known["balanced"][chosen]
        sentences.append(
            f"By the declared class shares, always naming the most frequent class is right {100 * always:.1f}% of the "
            f"time; the balanced accuracy of the chosen design is forecast at {100 * balanced:.1f}%."
        )
    low, expected, high = record["attainable"]
    sentences.append(
        f"Predictions come from a simulation of {record['model']}, on which a learner without privacy reaches "
        f"{_accuracy(expected, (low, high))}; no record of the private data was looked at. They tell what privacy "
        "costs; how well the real classes can be told apart is assumed."
    )
    return sentences


def _area(record: Mapping[str, Any], name: str) -> str:
    """Return the forecast area under the curve in words; empty where no shares of classes were declared."""
    if (known := record.get(_SHARES)) is None:
        return ""
    middle, low, high = known["auc"][name]
    return f", AUC {middle:.2f} ({low:.2f} to {high:.2f})"


def _accuracy(value: float, between: tuple[float, float] | list[float]) -> str:
    low, high = between
    return f"{100 * value:.1f}%" + (f" ({100 * low:.0f} to {100 * high:.0f}%)" if high - low >= 0.01 else "")


def _held(counts: list[int]) -> str:
    """Return the declared record counts of persons, in words."""
    if len(set(counts)) == 1:
        told = f"have {counts[0]:,} record{'s' * (counts[0] > 1)} each"
    else:
        told = f"have {', '.join(f'{count}' for count in counts)} records, equally many of them each"
    return f"Persons were taken to {told}, as was declared; no private data were looked at for it."


def check_choice_record(record: Mapping[str, Any]) -> None:
    """Raise InvalidInput unless ``record`` is a :meth:`PlannerChoice.to_dict` whose texts and numbers agree."""
    # Whether the predictions are those that the planner would make is not checked.
    try:
        names = list(record["predicted"])
        sound = (
            set(record) - {"left_out", _PERSONS, _SHARES} == _RECORD_FIELDS
            and _are_left_out(record.get("left_out"), names)
            and (_PERSONS not in record or _are_counts(record[_PERSONS]))
            and (_SHARES not in record or _are_known(record[_SHARES], names))
            and record["chosen"] in names
            and list(record["settings"]) == list(record["ranges"]) == list(record["learners"]) == names
            and record["labels"] == {name: labels()[name] for name in names}
            and all(_is_number(record[name]) and 0 < record[name] <= _LARGEST for name in ("epsilon", "delta"))
            and _are_shares(list(record["predicted"].values()), len(names))
            and _is_best(record["chosen"], _compared(record))
            and all(_are_shares(value, 2) for value in record["ranges"].values())
            and _are_shares(record["attainable"], 3)
            # Words: a data card repeats them.
            and all(re.fullmatch(r"[a-z][a-z0-9-]{0,40}", value) for value in record["learners"].values())
            and all(_are_settings(record["settings"][name]) for name in names)
            and is_model_words(record["model"])
            and record["reasons"] in (reasons_of(record), reasons_of(record, before=True))
            and len(record["epsilons"]) <= _MOST_EPSILONS
            and all(_is_number(value) for value in record["epsilons"])
            and set(record["curves"]) <= set(names)
            and all(_are_shares(values, len(record["epsilons"])) for values in record["curves"].values())
        )
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError):
        sound = False
    if not sound:
        raise InvalidInput("certificate choice", "another record", "numbers and words as the planner writes them")


def _are_left_out(left_out: Any, tried: list[str]) -> bool:
    """Whether it is None, or candidates that were not tried, in order."""
    return left_out is None or (
        isinstance(left_out, list) and bool(left_out) and left_out == sorted({*left_out} & (labels().keys() - {*tried}))
    )


def _are_counts(counts: Any) -> bool:
    """Whether these are numbers of records as persons are declared to have them."""
    whole = isinstance(counts, list) and all(type(count) is int for count in counts)
    return whole and list(Holdings(tuple(counts)).counts) == sorted(counts) == counts


def _are_known(known: Any, names: list[str]) -> bool:
    """Whether these are declared shares of classes, and what follows from them for each candidate."""
    declared = known["declared"]
    return (
        set(known) == {"declared", "auc", "balanced"}
        and list(known["auc"]) == list(known["balanced"]) == names
        and 2 <= len(declared) <= MOST_SHARES
        and _are_shares(declared, len(declared))
        # Each is rounded to four decimals.
        and abs(sum(declared) - 1) <= len(declared) * 5.1e-5
        and all(_are_shares(values, 3) and values[1] <= values[0] <= values[2] for values in known["auc"].values())
        and _are_shares(list(known["balanced"].values()), len(names))
    )


def _compared(record: Mapping[str, Any]) -> dict[str, float]:
    known = record.get(_SHARES)
    if known is None:
        return dict(record["predicted"])
    always = max(known["declared"])
    return {name: compared(record["predicted"][name], one[0], always) for name, one in known["auc"].items()}


def _is_best(chosen: str, predicted: Mapping[str, float]) -> bool:
    def among(before: bool) -> bool:
        errors = {name: counted_error(name, accuracy, before=before) for name, accuracy in predicted.items()}
        # Predictions on record are rounded.
        return errors[chosen] <= min(errors.values()) + _ROUNDING

    return among(before=False) or among(before=True)


def check_choice_settings(record: Mapping[str, Any], plan: Plan) -> None:
    """Raise :class:`InvalidInput` unless the settings that a sound ``record`` names as chosen are the plan's."""
    settings = dict(record["settings"][record["chosen"]])
    kind, dim = made_by(plan), settings.pop(_PROJECT, plan.dim)
    known = record.get(_SHARES)
    if known is not None and len(known["declared"]) != plan.num_classes:
        raise InvalidInput("certificate choice", len(known["declared"]), "a share for each class of the plan")
    if settings["design"] != plan.design or dim != plan.dim or not kind.agrees(plan, settings):
        raise InvalidInput("certificate choice", record["chosen"], "the design and settings of the plan")


def _are_settings(settings: Mapping[str, Any]) -> bool:
    options = {one.name for one in design_named(settings["design"]).options()}
    given = {name: value for name, value in settings.items() if name not in ("design", _PROJECT)}
    width = settings.get(_PROJECT, 1)
    return (
        set(given) <= options
        and type(width) is int
        and 0 < width < _LARGEST
        and all(isinstance(value, bool) or (_is_number(value) and abs(value) <= _LARGEST) for value in given.values())
    )


def _are_shares(values: Any, count: int) -> bool:
    return isinstance(values, list) and len(values) == count and all(_is_number(v) and 0 <= v <= 1 for v in values)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _start(text: str) -> str:
    return text[0].upper() + text[1:]
