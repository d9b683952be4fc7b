"""The averaging trap: dividing by the real batch, or by a count that follows from the data, is another mechanism.

Zero gradients in every world: all that is released is the scale of the noise. Neighbours differ by one record more. The
attacker scores all released numbers by the exact likelihood ratio of their scales. Each audit has confidence 1 - 5e-7.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from privmix.accounting import Adjacency
from privmix.audits.audit import judge
from privmix.audits.bounds import AuditVerdict, check_audit
from privmix.audits.worst_case import AttackScores
from privmix.mechanisms.streams import SecretStreams
from privmix.training.batches import PoissonBatches
from privmix.training.certificate import statements_of_count
from privmix.training.config import TrainingConfig
from privmix.training.dp_sgd import SAMPLING, TrainingRecords
from privmix.training.noise import noise_scale
from privmix.training.plan import TrainingPlan
from privmix.training.worst_case import linear_steps

RECORDS, WIDTH, RUNS = 10, 15, 60
DELTA, CONFIDENCE = 1e-3, 1 - 5e-7
Numbers = NDArray[np.float64]


def default_plan(records: int, *, declared: bool = False) -> TrainingPlan:
    """What ``train`` makes of so many records, with a noise that was given: batches are a share of the count."""
    config = TrainingConfig.for_model("linear", records=records, epsilon=1.0, delta=DELTA, epochs=20.0)
    plan = TrainingPlan(records, config.batch_size, 4, 8.0, config.clip_norm, DELTA, records_declared=declared)
    return plan.priced()


def released(plan: TrainingPlan, records: int, seed: int, *, real_batch: bool = False) -> Numbers:
    """(steps, 2 WIDTH) what a run releases of records without a gradient, in clipping norms."""
    streams, empty = SecretStreams.from_seed(seed), np.zeros((records, WIDTH), np.float32)
    data = TrainingRecords.of(empty, np.zeros(records, np.int64), classes=2)
    run = replace(plan, records_declared=True)
    drawn = [run.units] * run.steps
    if real_batch:
        sampling = SecretStreams.from_seed(seed).derive(SAMPLING)
        batches = PoissonBatches(run, sampling, records)
        drawn = [max(1, len(batches.draw(step).indices)) for step in range(run.steps)]
    rate = 1e-3
    moved = [step.numpy().ravel() / rate for step in linear_steps(run, data, rate, streams)]
    return np.stack(moved) / plan.clip_norm * (run.units / np.array(drawn))[:, None]


def ratio(numbers: Numbers, one: TrainingPlan, other: TrainingPlan) -> float:
    """Log-likelihood ratio of the world with the record more, from the scale of the noise."""
    scales = [noise_scale(plan) / plan.clip_norm / plan.units for plan in (one, other)]
    squares = float(np.square(numbers).sum())
    return numbers.size * np.log(scales[0] / scales[1]) + squares / 2 * (scales[0] ** -2 - scales[1] ** -2)


def audited(without: list[float], present: list[float], plan: TrainingPlan) -> AuditVerdict:
    one, other, claimed = np.array(without), np.array(present), plan.cost().epsilon
    none = np.zeros_like(one)
    return judge(
        AttackScores(one, other, one, other, none, none),
        design="averaging",
        event=plan.event,
        adjacency=Adjacency.ADD_REMOVE,
        claimed_epsilon=claimed,
        priced_epsilon=claimed,
        delta=DELTA,
        confidence=CONFIDENCE,
        share=check_audit(claimed, DELTA, 2 * RUNS, CONFIDENCE),
        own_price=True,
    )


def test_a_public_count_shows_in_the_noise_and_the_certificate_says_so() -> None:
    """A tenth record and an eleventh: the default batch, and with it the divisor, is rounded to 1 and to 2."""
    plan, more = default_plan(RECORDS), default_plan(RECORDS + 1)
    assert (plan.units, more.units) == (1, 2)
    without = [ratio(released(plan, RECORDS, seed), plan, more) for seed in range(RUNS)]
    present = [ratio(released(more, RECORDS + 1, RUNS + seed), plan, more) for seed in range(RUNS)]
    assert audited(without, present, plan).violated
    assert "10, is taken as public: the guarantee does not hide it" in statements_of_count(plan)


def test_a_declared_count_shows_nothing() -> None:
    """The plan is the declared figure's in both worlds: divisor, rate and noise are the same, and so are the bits."""
    plan = default_plan(RECORDS, declared=True)
    for seed in range(3):
        np.testing.assert_array_equal(released(plan, RECORDS, seed), released(plan, RECORDS + 1, seed))
    assert "declared as 10; the real count was not used" in statements_of_count(plan)


def test_the_real_batch_as_a_divisor_is_caught() -> None:
    """Records of no gradient, all in every batch: how many there are shows, since the noise is divided by it."""
    plan = replace(default_plan(RECORDS), batch_size=1, records=1).priced()

    def score(numbers: Numbers) -> float:
        # One record in the batch or two: the plan with one unit, or the plan with two.
        return ratio(numbers, plan, replace(plan, batch_size=2, records=2))

    without = [score(released(plan, 1, seed, real_batch=True)) for seed in range(RUNS)]
    present = [score(released(plan, 2, RUNS + seed, real_batch=True)) for seed in range(RUNS)]
    assert audited(without, present, plan).violated
    right = [[score(released(plan, records, seed)) for seed in range(RUNS)] for records in (1, 2)]
    assert not audited(*right, plan).violated
