"""A series of second moments: what each step releases, beside exact arithmetic, and what all of them show together."""

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from privmix.accounting import Composed, Gaussian
from privmix.audits.audit import audit_plan
from privmix.audits.empty_runs import release_noises
from privmix.audits.worst_case import attack, real_engine, worst_case_of
from privmix.designs import MomentsSeries, SeriesPlan
from privmix.designs.series import engine as series_engine
from privmix.designs.series.audit import empty_series, matrix_of
from privmix.designs.series.engine import Before, SeriesEngine
from privmix.engine.rows import PrivateRecords
from privmix.errors import InvalidInput
from privmix.mechanisms.noise import SquareRoot, correlated_noise
from privmix.mechanisms.streams import SecretStreams
from privmix.planning import ReleaseConfig
from privmix.plans.plan import Plan
from privmix.plans.registry import plan_from_dict
from privmix.publication.second_moments import SecondMoments
from tests.audits.test_planted_bugs import weaker
from tests.mechanisms.statistics import Z_LIMIT
from tests.refusals import refuses
from tests.releases.helpers import CLASSES, TARGET, make_records

STEPS, DIM = 4, 7


def plan_of(records: int = 200, dim: int = DIM, **choices: Any) -> SeriesPlan:
    given: dict[str, Any] = {"design": "moments-series", "steps": STEPS, **choices}
    return ReleaseConfig(records=records, dim=dim, classes=CLASSES, **given).calibrate(*TARGET)


def released(plan: SeriesPlan, months: Sequence[PrivateRecords], seed: int = 1, **machine: Any) -> list[SeriesEngine]:
    """Engines of all steps, each once it ran; each has a copy of the key."""
    found: list[SeriesEngine] = []
    for month in months:
        engine = SeriesEngine(plan, month, SecretStreams.from_seed(seed), workers=1, **machine)
        if found:
            engine.goes_on(Before(found[-1].beside, found[-1].transform.centre))
        for _ in engine.rows():
            pass
        found.append(engine)
        if not plan.is_last:
            plan = plan.after(50)
    return found


def months_of(count: int = STEPS) -> list[PrivateRecords]:
    return [make_records(200 if month == 0 else 50, DIM, seed=month) for month in range(count)]


@pytest.mark.parametrize("centre", ["none", "private"])
def test_each_step_is_the_exact_sum_so_far_with_rounded_noise(centre: str) -> None:
    """y_t = A x + round(B z), each off by what float32 rounds of the numbers that were released."""
    plan, months = plan_of(centre=centre), months_of()
    engines = released(plan, months)
    unit, key = plan.part("second").unit, SecretStreams.from_seed(1)
    total = np.zeros((DIM, DIM), object)
    for step, (engine, month) in enumerate(zip(engines, months, strict=True), start=1):
        units = engine.transform(month.features) / plan.final_clip_norm
        steps = np.trunc(units * 2.0**plan.lattice_bits).astype(object)
        total = total + steps.T @ steps
        std = plan.independent_std["second"]
        name, told = "series second moment noise", (plan.factor, step)
        noise, _ = correlated_noise(key, name, (0,), (DIM, DIM), std / math.sqrt(2), *told)
        diagonal, _ = correlated_noise(key, f"{name}: diagonal", (0,), (DIM,), std, *told)
        noise[np.arange(DIM), np.arange(DIM)] = diagonal
        wanted = np.tril((total + noise).astype(np.float64)) * unit
        rounding = step * 2.0**-23 * np.abs(wanted).max() + unit
        assert np.abs(np.tril(engine.beside.second) - wanted).max() <= rounding
        np.testing.assert_array_equal(engine.beside.second, engine.beside.second.T)


def test_what_leaves_is_a_function_of_the_exact_increment() -> None:
    """Guarantee: whatever the step before is said to have released, also numbers that float64 can't add exactly."""
    plan, months = plan_of(centre="none").after(50), months_of(2)
    sums = ((DIM, DIM), 1e30), ((DIM, 3), -1e30), (3, 1e-30)
    wild = SecondMoments(*(np.full(shape, value, np.float32) for shape, value in sums), 200, 1.0, 1.0, 1.0)
    found = []
    for month in (months[1], make_records(50, DIM, seed=9)):
        engine = SeriesEngine(plan, month, SecretStreams.from_seed(1), workers=1)
        engine.goes_on(Before(wild, None))
        for _ in engine.rows():
            pass
        found.append(engine.beside)
    # Of sums that the number before swallows nothing is left; of label sums all.
    assert np.array_equal(found[0].second, found[1].second)
    assert not np.array_equal(found[0].label_sums, found[1].label_sums)


def test_panels_and_rows_change_no_bit() -> None:
    plan = plan_of(90, 300, steps=2)
    months = [make_records(90, 300), make_records(50, 300, seed=1)]
    whole, parts = (released(plan, months, memory_bytes=memory)[-1].beside for memory in (2**40, 1))
    for name in ("second", "cross", "label_sums"):
        assert np.array_equal(getattr(whole, name), getattr(parts, name))


def test_covariance_of_releases_is_that_of_b() -> None:
    """Empirical covariance over steps of each part of empty releases; right within errors, 2/3 of sigma is not."""
    plan = plan_of(dim=40, centre="none")
    lower, factor = matrix_of(plan), plan.factor
    runs = [empty_series(plan, STEPS, SecretStreams.from_seed(seed)) for seed in range(12)]
    off = [np.stack([one.second[np.tril_indices(40, -1)] for one in moments]) for moments in runs]
    cross = [np.stack([one.cross.ravel() for one in moments]) for moments in runs]
    first = plan.noise_std["second"] / plan.growth, plan.noise_std["cross"] / plan.growth
    for drawn, std in ((off, first[0] / math.sqrt(2)), (cross, first[1])):
        noise = np.concatenate(drawn, axis=1).astype(np.float64)
        count, wanted = noise.shape[1], (std * factor.sensitivity) ** 2 * lower @ lower.T
        error = np.sqrt((np.outer(np.diag(wanted), np.diag(wanted)) + wanted**2) / count)
        found = noise @ noise.T / count
        assert (np.abs(found - wanted) < Z_LIMIT * error).all()
        assert (np.abs(np.diag(found) - 4 / 9 * np.diag(wanted)) > Z_LIMIT * 4 / 9 * np.diag(error)).all()


def test_the_plan_of_a_step_states_its_own_noise() -> None:
    noises = list(release_noises(plan_of().after(50).after(50), 6_000, seed=3))
    for noise in noises:
        ratio = float(np.square(noise.values).mean() / noise.expected**2)
        assert abs(ratio - 1) * math.sqrt(noise.values.size / 2) < Z_LIMIT, noise.name
    seconds = ["second moments: diagonal", "second moments: off diagonal"]
    assert [noise.name for noise in noises] == ["mean", *seconds, "cross moments", "label sums"]


def test_price_is_of_all_steps_and_the_same_in_each() -> None:
    plan = plan_of()
    assert plan.event == Composed((Gaussian(plan.centre_noise_multiplier), Gaussian(plan.noise_multiplier)))
    later = plan.after(50).after(70)
    assert later.event == plan.event
    assert (later.step, later.records, later.counts) == (3, 320, (200, 50, 70))
    assert later.of_first() == plan
    assert plan_from_dict(later.to_dict()) == later
    single = ReleaseConfig(records=200, dim=DIM, classes=CLASSES, design="moments").calibrate(*TARGET)
    last = later.after(50)
    for name in ("second", "cross", "counts"):
        assert last.noise_std[name] / single.noise_std[name] == pytest.approx(SquareRoot(STEPS).growth(STEPS))
    # The mean is the first step's, of 200 records.
    assert last.noise_std_centre == plan.noise_std_centre == single.noise_std_centre
    with refuses("counts"):
        last.after(50)


def test_few_first_records_get_a_better_mean_and_sums_room_for_later_ones() -> None:
    assert 16 * 10**6 * 4 ** plan_of(records=10**6).lattice_bits < 2**53
    many, few = (plan_of(records, 1600).centre_noise_multiplier for records in (10**5, 10))
    assert few == many / 2


@pytest.mark.parametrize(("steps", "most"), [(STEPS, 1), (STEPS, 2), (STEPS, STEPS), (9, 3), (9, 5)])
def test_a_person_moves_all_rows_of_c_x_by_at_most_the_noise_is_scaled_to(steps: int, most: int) -> None:
    """In whichever K steps they are: exact fractions of what (C x)_t moves, in standard deviations of z."""
    plan = plan_of(centre="none", per_person=1, steps=steps, steps_per_person=most)
    b = [[Fraction(float(value)) for value in row] for row in matrix_of(plan)]
    columns: list[list[Fraction]] = []
    for s in range(steps):
        column: list[Fraction] = []
        for row in range(steps):
            column.append((int(row >= s) - sum(b[row][k] * column[k] for k in range(row))) / b[row][row])
        columns.append(column)
    moved = {
        chosen: sum(sum(columns[s][row] for s in chosen) ** 2 for row in range(steps))
        for chosen in combinations(range(steps), most)
    }
    assert max(moved.values()) <= Fraction(plan.factor.sensitivity) ** 2
    # The bound is reached in the first K steps, and one step less would not do.
    assert float(moved[tuple(range(most))]) == pytest.approx(plan.factor.sensitivity**2, rel=1e-8)
    assert most == 1 or max(moved.values()) > SquareRoot(steps, most - 1).sensitivity ** 2


def test_noise_of_persons_is_larger_by_what_their_steps_can_move() -> None:
    """Also where their contributions to the steps point in other ways: no more than where all point the same way."""
    record, person = plan_of(), plan_of(per_person=1, steps_per_person=3)
    factor = person.factor.sensitivity / record.factor.sensitivity
    assert person.event == record.event
    assert factor > 2
    for name, std in person.noise_std.items():
        assert std / record.noise_std[name] == pytest.approx(factor)
    c = np.linalg.inv(matrix_of(person)) @ np.tril(np.ones((STEPS, STEPS)))
    vectors = np.random.default_rng(0).normal(size=(2000, 3, DIM))
    vectors /= np.linalg.norm(vectors, axis=2, keepdims=True)
    for chosen in combinations(range(STEPS), 3):
        assert np.linalg.norm(c[:, chosen] @ vectors, axis=(1, 2)).max() <= person.factor.sensitivity


def refuted(plan: Plan, make: Any = real_engine) -> bool:
    return audit_plan(plan, 4.0, 1e-2, runs=4096, confidence=1 - 5e-7, seed=0, make=make, workers=1).violated


def audited_plan(steps: int = 3, **choices: Any) -> Plan:
    config = ReleaseConfig(100, 5, CLASSES, "moments-series", centre="none", steps=steps, **choices)
    return config.calibrate(4.0, 1e-2)


OF_UNITS = pytest.mark.parametrize("unit", [{}, {"per_person": 1, "steps_per_person": 2}], ids=["record", "person"])


@OF_UNITS
def test_the_worst_case_is_attacked_through_all_steps(unit: dict[str, Any]) -> None:
    """The likelihood ratio of the whole series has the law of the one Gaussian query that it is priced as."""
    plan = audited_plan(**unit)
    scores, mu = attack(worst_case_of(plan), 2048, seed=0, workers=1), 1 / plan.noise_multiplier
    for found, sign in ((scores.present, 1), (scores.without, -1)):
        assert abs(found.mean() - sign * mu**2 / 2) < Z_LIMIT * mu / math.sqrt(1024) + 0.02
    # From a later step's certificate the same case follows.
    assert worst_case_of(plan.after(10)).plan == worst_case_of(plan).plan


@OF_UNITS
def test_two_thirds_of_the_noise_are_caught_and_the_right_noise_passes(unit: dict[str, Any]) -> None:
    plan = audited_plan(**unit)
    assert not refuted(plan)
    assert refuted(plan, weaker(2 / 3))


def test_noise_of_each_step_alone_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps whose noise has nothing in common: a record is shown six times, each time under noise of its own."""

    def alone(
        streams: Any, purpose: str, number: Any, shape: Any, std: float, factor: SquareRoot, step: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        drawn = []
        for one in (step, step - 1):
            with streams.lent(purpose, one, *number) as generator:
                drawn.append(np.rint(std * generator.standard_normal(shape)) * (one > 0))
        return drawn[0], drawn[1]

    monkeypatch.setattr(series_engine, "correlated_noise", alone)
    assert refuted(audited_plan(6))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"counts": (100, 100, 1)}, "records"),
        ({"counts": (40, 40, 40, 40, 40)}, "counts"),
        ({"per_person": 1}, "steps_per_person"),
        ({"steps_per_person": 1}, "steps_per_person"),
        ({"per_person": 1, "steps_per_person": STEPS + 1}, "steps_per_person"),
        ({"records_noise_multiplier": 2.0}, "records_noise_multiplier"),
        ({"design": "moments"}, "design"),
    ],
)
def test_plans_that_make_no_sense(change: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        replace(plan_of(), **change)


def test_options_that_are_refused() -> None:
    for steps in (1, 10_000):
        with refuses("steps"):
            MomentsSeries(steps=steps)
    with refuses("steps_per_person"):
        plan_of(steps_per_person=2)
    with refuses("private_count"):
        plan_of(records_noise_multiplier=3.0)


def test_a_later_step_goes_on_from_the_one_before_and_from_nothing_else() -> None:
    plan, months = plan_of(), months_of(2)
    first = released(plan, months[:1])[0]
    later = SeriesEngine(plan.after(50), months[1], SecretStreams.from_seed(1), workers=1)
    with pytest.raises(RuntimeError, match="goes on"):
        later.rows()
    with refuses("step before"):
        later.goes_on(Before(first.beside, None))
    with refuses("step before"):
        SeriesEngine(plan, months[0], SecretStreams.from_seed(1)).goes_on(Before(first.beside, first.transform.centre))
