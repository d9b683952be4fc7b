"""Canaries in a DP-SGD run: planted gradients, seen step by step, or odd inputs, seen through the final model.

The real engine draws batches, clips, adds noise and moves the weights. An observer of its steps adds the canaries'
gradients to a batch's sum, by the run's own clipping, and reads the noisy sums.

The audited plan keeps the sampling rate of its public record count; an included canary is one extra record. Under
replace-one, a canary is always there, and its coin turns its gradient's sign. If the unit is a person, so is a
canary: the run itself finds its records, draws up to K for a step, and clips their mean once.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privmix.accounting.events import Adjacency, Event
from privmix.attacks.canaries import CanaryAudit, CanaryConfig, canaries_in_words
from privmix.attacks.one_run import OneRun
from privmix.attacks.one_run_proof import Mechanism, prove
from privmix.errors import InvalidInput
from privmix.mechanisms.plan import RECORD, unit_of
from privmix.mechanisms.streams import SecretStreams
from privmix.progress import Progress
from privmix.training.batches import Batch
from privmix.training.config import TrainingConfig
from privmix.training.dp_sgd import StepObserver, TrainingRecords, drawn_records
from privmix.training.examples import ModelFacts
from privmix.training.gradients.parameters import Clipping
from privmix.training.mechanisms.base import mechanism_of
from privmix.training.models.base import Classifier
from privmix.training.plan import TrainingPlan
from privmix.training.trainer import Trainer

# Length of a planted gradient in clipping norms: a run that does not clip shows at once.
_REACH: Final = 10.0
# Exponents beyond which a step's ratio is cut: it separates "here" from "not here" as clearly as any.
_CERTAIN: Final = 60.0
_LEAST_PROBABILITY: Final = 1e-12
# Median of a squared standard normal variable.
_MEDIAN_SQUARE: Final = 0.4549
# Noise, as a share of the planned one, below which it is taken to be this.
_LEAST_NOISE: Final = 0.01


def audit_training_canaries(
    config: TrainingConfig,
    facts: ModelFacts,
    records: TrainingRecords,
    canaries: CanaryConfig,
    *,
    plan: TrainingPlan | None = None,
    network: Classifier | None = None,
    streams: SecretStreams,
    generator: np.random.Generator,
    progress: Progress | None = None,
) -> CanaryAudit:
    """Train once with canaries by the real engine, guess who was in, and state what that proves. The model is not kept.

    ``"planted"`` canaries are gradients, each on a weight of its own, ten clipping norms long. The attacker sees the
    noisy sum of every step and knows all of it but canaries and noise: the accountant's pair of distributions.
    ``"mislabelled"`` canaries are records with a wrong label, ``"blank"`` ones have one value throughout; the attacker
    sees the final model's probability of the trained label.

    Formal guarantees:
        * Valid: if the engine follows the plan, the audit proves more than the claimed epsilon with probability at most
          1 - ``canaries.confidence``.
        * Fixed beforehand: canaries, coins and the number of guesses do not depend on the run.
        * Private: the figures come from private records and no noise protects them. They are for the owner.
    """
    check_auditable_training(config, canaries)
    count = len(records) if plan is None else plan.records
    job = Trainer(config, facts, count, records_declared=True, network=network)
    unit = unit_of(job.plan)
    check_room(canaries, weights=job.weights, records=len(records), units=unit.many)
    if plan is not None:
        # Calibrated by whichever version ran it; canaries come on top of the count that it states.
        job.plan = replace(plan, records_declared=True)
    mechanism = training_mechanism(job.plan)
    guesses = canaries.guesses_for(mechanism, job.plan.delta)
    coins = generator.random(canaries.canaries) < 0.5
    score = _planted_scores if canaries.kind == "planted" else _input_scores
    scores = score(job, records, coins, canaries, streams, generator, progress)
    proof = prove(OneRun.of(scores, coins, guesses), mechanism, job.plan.delta, canaries.confidence)
    seen = "noisy sums of every step" if canaries.kind == "planted" else "final model"
    named = mechanism_of(job.plan).called
    method = f"{canaries_in_words(canaries, unit)} in one {named} run, {seen}"
    return CanaryAudit(proof, int(coins.sum()), method, unit.one)


def check_auditable_training(config: TrainingConfig, canaries: CanaryConfig) -> None:
    """Raise :class:`InvalidInput` unless canaries can audit such a run; reads no data."""
    canaries.records_each(config.per_person)
    if config.microbatch_size > 1:
        raise InvalidInput("microbatch_size", config.microbatch_size, "1 for an audit with canaries")
    if config.bank_views or config.views.k_diff:
        raise InvalidInput("views", "a bank or a pool", "views made of the record alone for an audit with canaries")
    if config.scenario != "cold":
        raise InvalidInput("scenario", config.scenario, "cold, without public data, for an audit with canaries")
    if canaries.kind != "planted" and config.adjacency is not Adjacency.ADD_REMOVE:
        allowed = f"planted under {config.adjacency.value}, where a coin does not decide who is there"
        raise InvalidInput("canaries' kind", canaries.kind, allowed)


def check_room(canaries: CanaryConfig, *, weights: int, records: int, units: str = RECORD.many) -> None:
    """Raise :class:`InvalidInput` for more canaries than ``weights`` (planted) or ``records`` (mislabelled)."""
    if canaries.kind == "planted" and canaries.canaries > weights:
        raise InvalidInput("canaries", canaries.canaries, f"at most {weights}, the weights that are trained")
    if canaries.kind == "mislabelled" and canaries.canaries >= records:
        allowed = f"fewer than there are {units}: mislabelled ones are made of them"
        raise InvalidInput("canaries", canaries.canaries, allowed)


def training_mechanism(plan: TrainingPlan) -> Mechanism:
    """Return the plan with its noise as the unknown."""

    def event(factor: float) -> Event:
        return replace(plan, noise_multiplier=plan.noise_multiplier * factor).event

    return Mechanism(event, plan.adjacency)


@dataclass(eq=False, repr=False)
class _Planted(StepObserver):
    """Planted gradients, which stand for the last records, and their scores in clipping norms. Secret."""

    # places: (k,) weight of each canary; members: (c,) canaries behind the ``real`` records; signs: (c,) of their
    # gradients. evidence: ``"steps"`` or ``"neighbours"`` (differences of two steps).

    plan: TrainingPlan
    clipping: Clipping
    records: TrainingRecords
    places: Tensor
    members: NDArray[np.int64]
    signs: NDArray[np.float64]
    real: int
    each: int
    evidence: str
    scores: NDArray[np.float64] = field(init=False)
    _here: tuple[NDArray[np.int64], NDArray[np.float64]] | None = field(default=None, init=False)
    _others: NDArray[np.float64] | None = field(default=None, init=False)
    _before: NDArray[np.float64] | None = field(default=None, init=False)
    _medians: list[float] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.scores = np.zeros(len(self.places))

    def drawn(self, batch: Batch, step: int) -> Batch:
        most = self.plan.per_person
        # As the run itself finds and draws a unit's records: what goes wrong there shows.
        found = (
            batch.indices[:, None] if most is None else drawn_records(self.records, batch.indices, batch.seeds, most)
        )
        real = (found < self.real).all(axis=1)
        self._here = self._planted((found[~real] - self.real) // self.each)
        return Batch(batch.indices[real], batch.seeds[real])

    def _planted(self, found: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the (e,) canaries with records in a step, (b, K), and their clipped gradients, summed by unit."""
        units = np.repeat(np.arange(len(found)), found.shape[1])
        own = found.reshape(-1) >= 0
        pairs, counts = np.unique(units[own] * len(self.members) + found.reshape(-1)[own], return_counts=True)
        units, canaries = np.divmod(pairs, max(1, len(self.members)))
        lengths = _REACH * self.plan.clip_norm * counts / found.shape[1]
        norms = torch.from_numpy(np.sqrt(np.bincount(units, lengths**2, minlength=len(found))))
        return canaries, lengths * self.clipping.factors(norms).numpy()[units] * self.signs[canaries]

    def summed(self, total: Tensor, step: int) -> None:
        """Add the clipped gradients of the canaries that were drawn to the sum of the others'."""
        assert self._here is not None
        here, added = self._here
        self._others = total[self.places].double().cpu().numpy()
        places = self.places[torch.from_numpy(self.members[here])]
        total.index_add_(0, places, torch.from_numpy(added).to(total.device, total.dtype))

    def noised(self, mean: Tensor, step: int) -> None:
        assert self._others is not None
        total = mean[self.places].double().cpu().numpy() * self.plan.units
        shown = (total - self._others) / self.plan.clip_norm
        noise, rate = self.plan.noise_multiplier * self.plan.sensitivity / self.plan.clip_norm, self.plan.sampling_rate
        if self.evidence == "steps":
            noise = self._measured(shown, noise)
            self.scores += _ratio(shown, noise, rate)
            if self.plan.adjacency is Adjacency.REPLACE_ONE:
                self.scores -= _ratio(-shown, noise, rate)
            return
        if self._before is None:
            self._before = shown
            return
        # Each step is in one difference alone, so that differences have independent noise.
        gaps, self._before = shown - self._before, None
        noise = self._measured(gaps, 2**0.5 * noise)
        up, down = (_expm1(sign * gaps, noise) for sign in (1, -1))
        self.scores += np.log1p(rate * (1 - rate) * (up + down))

    def _measured(self, shown: NDArray[np.float64], planned: float) -> float:
        """Return the noise's standard deviation: as planned, or less if all steps show less. Most canaries are out."""
        self._medians.append(float(np.median(np.square(shown))) / _MEDIAN_SQUARE)
        measured = math.sqrt(float(np.mean(self._medians)))
        return min(planned, max(measured, _LEAST_NOISE * planned))


def _ratio(shown: NDArray[np.float64], noise: float, rate: float) -> NDArray[np.float64]:
    """log(1 - q + q e^u): of a step that shows a clipped gradient with probability q."""
    return np.asarray(np.log1p(np.maximum(rate * _expm1(shown, noise), -1 + _LEAST_PROBABILITY)))


def _expm1(shown: NDArray[np.float64], noise: float) -> NDArray[np.float64]:
    return np.asarray(np.expm1(np.clip((2 * shown - 1) / (2 * noise**2), -_CERTAIN, _CERTAIN)))


def _planted_scores(
    job: Trainer,
    records: TrainingRecords,
    coins: NDArray[np.bool_],
    canaries: CanaryConfig,
    streams: SecretStreams,
    generator: np.random.Generator,
    progress: Progress | None,
) -> NDArray[np.float64]:
    size, each = len(coins), canaries.records_each(job.plan.per_person)
    places = torch.from_numpy(generator.choice(job.weights, size, replace=False)).to(job.device)
    if job.plan.adjacency is Adjacency.ADD_REMOVE:
        members, signs = np.flatnonzero(coins), np.ones(int(coins.sum()))
    else:
        members, signs = np.arange(size), np.where(coins, 1.0, -1.0)
    # Their features are never looked at.
    features, labels = np.zeros((len(members), records.dim), np.float32), np.zeros(len(members), np.int64)
    joined = _joined(records, features, labels, np.arange(len(members)), each)
    clipping, real = Clipping(job.config.clip_norm, job.config.clipping), len(joined.x) - each * len(members)
    planted = _Planted(job.plan, clipping, joined, places, members, signs, real, each, canaries.evidence)
    job.observed(joined, [planted], streams=streams, progress=progress)
    return planted.scores


def _input_scores(
    job: Trainer,
    records: TrainingRecords,
    coins: NDArray[np.bool_],
    canaries: CanaryConfig,
    streams: SecretStreams,
    generator: np.random.Generator,
    progress: Progress | None,
) -> NDArray[np.float64]:
    size, classes, each = len(coins), records.classes, canaries.records_each(job.plan.per_person)
    if canaries.kind == "mislabelled":
        order, whose, each = generator.permutation(len(records)), records.whose(), 1
        number = np.full(len(records) + 1, size)
        number[np.sort(order[:size])] = np.arange(size)
        # The last entry is that of records which do not count.
        number = number[whose]
        picked = np.flatnonzero((number < size) & (whose >= 0))
        of = number[picked]
        features = np.array(records.x[picked])
        labels = (records.labels[picked] + generator.integers(1, classes, size)[of]) % classes
        records = records.kept(np.flatnonzero((number == size) & (whose >= 0)))
    else:
        of = np.arange(size)
        features = np.repeat(np.linspace(0, 1, size, dtype=np.float32)[:, None], records.dim, axis=1)
        labels = generator.integers(0, classes, size)
    there = coins[of]
    joined = _joined(records, features[there], labels[there], of[there], each)
    model = job.run(joined, streams=streams, progress=progress)
    # The logit of the probability of a canary's label.
    chance = model.predict_proba(features).astype(np.float64)[np.arange(len(labels)), labels]
    chance = np.clip(chance, _LEAST_PROBABILITY, 1 - _LEAST_PROBABILITY)
    scores = np.bincount(of, np.log(chance) - np.log1p(-chance), minlength=size)
    return np.asarray(scores / np.bincount(of, minlength=size))


def _joined(
    records: TrainingRecords, features: NDArray[np.float32], labels: NDArray[np.int64], of: NDArray[np.int64], each: int
) -> TrainingRecords:
    """Return records, followed by the (c, d) records of canaries, ``each`` times; ``of``: the canary of each one."""
    if records.units is None:
        x = np.concatenate([records.x, features])
        return TrainingRecords(x, np.concatenate([records.labels, labels]), records.classes)
    whose = records.whose()
    if (whose < 0).any():
        counted = whose >= 0
        records, whose = replace(records, x=records.x[counted], labels=records.labels[counted]), whose[counted]
    return TrainingRecords.of(
        np.concatenate([records.x, np.repeat(features, each, axis=0)]),
        np.concatenate([records.labels, np.repeat(labels, each)]),
        classes=records.classes,
        persons=np.concatenate([whose, len(records) + np.repeat(of, each)]),
    )
