"""Attack a model: was this record among those that it was made of? Figures, bands and the records most at risk."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.attacks.membership.references import ReferenceTrainer, train_references
from privmix.attacks.membership.scores import (
    LEAST_REFERENCES,
    ReferenceModels,
    Roc,
    TprAt,
    auc_interval,
    class_scores,
    fit_temperature,
    gives_probabilities,
    lira_scores,
    newcombe,
    rmia_scores,
    roc_with_band,
    tpr_at,
    tpr_bound,
    true_class_logits,
)
from privmix.audits.defaults import ATTACKS, LOSS
from privmix.engine.rows import PrivateRecords
from privmix.errors import WITHHELD, InvalidInput, check_integer
from privmix.fields import Choice, Count, Number, Proportion, Rate, Share, Size, check_fields
from privmix.mechanisms.plan import check_of_records
from privmix.mechanisms.streams import SecretStreams
from privmix.progress import Progress

# Attacks whose scores rank the records at risk: the first of these that ran.
_RANKS: Final = ("lira", "rmia", "lira-offline", "rmia-offline", LOSS)


@dataclass(frozen=True)
class MembershipConfig:
    # ``loss`` (Yeom et al. 2018) needs the model alone, the others reference models; ``-offline``: only those without
    # the record.

    attacks: tuple[Annotated[str, Choice(*ATTACKS)], ...] = (LOSS,)
    references: Count = 16
    confidence: Share = 0.95
    fprs: tuple[Rate, ...] = (0.01, 0.001)
    gamma: Annotated[float, Number(1)] = 1.0
    offline_a: Proportion = 0.3
    highest: Size = 10

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.attacks or len(set(self.attacks)) != len(self.attacks):
            raise InvalidInput("attacks", ",".join(self.attacks), "at least one, each once")

    @property
    def needs_references(self) -> bool:
        return any(attack != LOSS for attack in self.attacks)

    def check_references(self, members: int, nonmembers: int) -> None:
        """Raise :class:`InvalidInput` unless this many references leave out and take in each record often enough."""
        share = members / (members + nonmembers)
        rarest = min(share, 1 - share) if {"lira", "rmia"} & set(self.attacks) else 1 - share
        # Less a little: rounding in the quotient must not cost a whole model.
        least = int(np.ceil(LEAST_REFERENCES / rarest - 1e-9))
        if self.needs_references and self.references < least:
            allowed = f"at least {least}: each record must be left out by two of them and, online, be in two"
            raise InvalidInput("references", self.references, allowed)


@dataclass(frozen=True)
class AttackResult:
    """Result of one attack; ``bounds``: largest true positive rates under the guarantee, as ``tpr_at`` and ``roc``."""

    name: str
    auc: float
    auc_low: float
    auc_high: float
    tpr_at: tuple[TprAt, ...]
    roc: Roc
    bounds: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None

    def to_dict(self) -> dict[str, Any]:
        rates, curve = [vars(point).copy() for point in self.tpr_at], dict(self.roc.to_dict())
        if self.bounds is not None:
            for rate, bound in zip(rates, self.bounds[0], strict=True):
                rate["bound"] = float(bound)
            curve["bound"] = [float(f"{value:.6g}") for value in self.bounds[1]]
        plain = {name: getattr(self, name) for name in ("name", "auc", "auc_low", "auc_high")}
        return {**plain, "tpr_at": rates, "roc": curve}


@dataclass(frozen=True)
class MembershipResult:
    """Result of all attacks. Private: computed from private records.

    Formal guarantees:
        * single records are named by ``highest_risk`` and by ``to_dict(owner=True)``, and by no ``repr``.
    """

    # gap: train minus test accuracy with Newcombe's interval (1998, method 10). highest_risk: (place among members,
    # score).

    members: int
    nonmembers: int
    confidence: float
    train_accuracy: float
    test_accuracy: float
    gap: float
    gap_low: float
    gap_high: float
    attacks: tuple[AttackResult, ...]
    highest_risk: tuple[tuple[int, float], ...] = field(repr=False)
    reference_models: int

    def to_dict(self, *, owner: bool = False) -> dict[str, Any]:
        """JSON values; single records are in it for the data's owner only."""
        content = {**vars(self), "attacks": [attack.to_dict() for attack in self.attacks]}
        content["highest_risk"] = [{"record": record, "score": score} for record, score in self.highest_risk]
        if not owner:
            del content["highest_risk"]
        return content


def infer_membership(
    model: Any,
    records: PrivateRecords,
    member: NDArray[np.bool_],
    *,
    classes: int,
    config: MembershipConfig | None = None,
    trainer: ReferenceTrainer | None = None,
    streams: SecretStreams | None = None,
    certificate: Mapping[str, Any] | None = None,
    work: Path | None = None,
    progress: Progress | None = None,
) -> MembershipResult:
    """Attack ``model`` with each configured attack and compare members' scores with non-members'.

    Members and non-members must be records of one kind: an attack takes any other difference for membership. Reference
    models hold as many records as there are members, drawn from all (Carlini et al. 2022: half).

    ``member`` (n,) marks the records that the model was made of; the others are also RMIA's population.
    """
    # streams: of the reference models; destroyed at the end. certificate: adds the guarantee's bounds on any attack.
    config = config or MembershipConfig()
    if certificate is not None:
        check_of_records(certificate["plan"].get("per_person"))
    features, labels = records.features, records.labels
    _check_records(records, member, classes)
    count = int(member.sum())
    if config.needs_references:
        config.check_references(count, len(labels) - count)
        if trainer is None:
            raise InvalidInput("trainer", None, "a trainer of reference models, for attacks other than loss")
    scores = class_scores(model, features, classes)
    right = scores.argmax(axis=1) == labels
    # By non-members alone: an attacker has such records, and members are what is to be guessed.
    temperature = 1.0 if gives_probabilities(model) else fit_temperature(scores[~member], labels[~member])
    target = true_class_logits(scores, labels, temperature)
    references = None
    if config.needs_references and trainer is not None:
        own = streams or SecretStreams.from_entropy()
        try:
            references = train_references(
                trainer,
                features,
                labels,
                size=count,
                references=config.references,
                streams=own,
                logits_of=lambda made: true_class_logits(class_scores(made, features, classes), labels, temperature),
                work=work,
                progress=progress,
            )
        finally:
            own.destroy()
    result = _result(score_records(target, references, ~member, config), right, member, config)
    if certificate is None:
        return result
    # All attacks have the same rates, so that what the guarantee leaves is computed once.
    points, rates = result.attacks[0].tpr_at, result.attacks[0].roc.fpr
    bound = tpr_bound(certificate, np.concatenate([[point.fpr for point in points], rates]))
    bounds = (bound[: len(points)], bound[len(points) :])
    return replace(result, attacks=tuple(replace(attack, bounds=bounds) for attack in result.attacks))


def score_records(
    target: NDArray[np.float64],
    references: ReferenceModels | None,
    population: NDArray[np.bool_],
    config: MembershipConfig,
) -> dict[str, NDArray[np.float64]]:
    """Return each attack's (n,) scores from log-odds of target and reference models; ``population``: non-members."""
    found = {}
    for attack in config.attacks:
        kind, _, offline = attack.partition("-")
        if kind == LOSS or references is None:
            found[attack] = target
        elif kind == "lira":
            found[attack] = lira_scores(target, references, online=not offline)
        else:
            found[attack] = rmia_scores(
                target, references, population, online=not offline, gamma=config.gamma, offline_a=config.offline_a
            )
    return found


def _result(
    found: Mapping[str, NDArray[np.float64]],
    right: NDArray[np.bool_],
    member: NDArray[np.bool_],
    config: MembershipConfig,
) -> MembershipResult:
    level, results = config.confidence, []
    for name, scores in found.items():
        sides = scores[member], scores[~member]
        points = tuple(tpr_at(*sides, rate, level) for rate in config.fprs)
        results.append(AttackResult(name, *auc_interval(*sides, level), points, roc_with_band(*sides, level)))
    ranking = found[next(name for name in _RANKS if name in found)][member]
    first = np.argsort(-ranking, kind="stable")[: config.highest]
    inside, outside = right[member], right[~member]
    gap = newcombe(int(inside.sum()), len(inside), int(outside.sum()), len(outside), config.confidence)
    return MembershipResult(
        members=len(inside),
        nonmembers=len(outside),
        confidence=config.confidence,
        train_accuracy=float(inside.mean()),
        test_accuracy=float(outside.mean()),
        gap=gap[0],
        gap_low=gap[1],
        gap_high=gap[2],
        attacks=tuple(results),
        highest_risk=tuple((int(record), float(ranking[record])) for record in first),
        reference_models=config.references if config.needs_references else 0,
    )


def _check_records(records: PrivateRecords, member: NDArray[np.bool_], classes: int) -> None:
    check_integer("classes", classes, low=2)
    features, labels = records.features, records.labels
    if features.ndim != 2 or labels.shape != features.shape[:1]:
        raise InvalidInput("records", WITHHELD, "features of shape (n, d) with one label each")
    if member.shape != labels.shape or member.dtype != np.bool_:
        raise InvalidInput("member", WITHHELD, "one mark, true or false, a record")
    if min(int(member.sum()), int((~member).sum())) < 2:
        raise InvalidInput("member", WITHHELD, "at least two members and two others")
    if labels.min() < 0 or labels.max() >= classes:
        raise InvalidInput("labels", WITHHELD, f"integers from 0 to {classes - 1}")
