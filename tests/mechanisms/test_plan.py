"""What every plan must keep, whoever made it: each registered design, training, and designs from outside."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privmix.accounting import Adjacency
from privmix.engine.rows import PrivateRecords
from privmix.errors import InvalidInput
from privmix.mechanisms.plan import Plan, check_count, check_price, check_target
from privmix.mechanisms.streams import SecretStreams
from privmix.planning import ReleaseConfig
from privmix.releases.run import ReleaseRun, release_to_folder, release_to_memory
from privmix.training.plan import TrainingPlan, plan_training
from tests.refusals import refuses
from tests.releases.helpers import CLASSES, EVERY_DESIGN, design_name, own_options
from tests.training.runs import config_of, job_of, private

TARGET = (4.0, 1e-4)
Maker = Callable[..., Any]
FACTS: dict[str, Any] = {"extractor": {"name": "identity"}, "input_shape": (4,)}


def release_plan(choices: Mapping[str, Any], **given: Any) -> Plan:
    own = own_options({"mixup_degree": 8, "rows": 30, **choices})
    found: Plan = ReleaseConfig(records=80, dim=4, classes=CLASSES, **given, **own).calibrate(*TARGET)
    return found


def training_plan(microbatch_size: int, adjacency: Adjacency, **given: Any) -> Plan:
    batches = {"batch_size": 10, "epochs": 2, "microbatch_size": microbatch_size, "adjacency": adjacency}
    return plan_training(80, epsilon=TARGET[0], delta=TARGET[1], **batches, **given)


MAKERS: dict[str, Maker] = {
    **{design_name(one): lambda one=one, **given: release_plan(one, **given) for one in EVERY_DESIGN},
    "training": lambda **given: training_plan(1, Adjacency.ADD_REMOVE, **given),
    "training in microbatches": lambda **given: training_plan(2, Adjacency.REPLACE_ONE, **given),
}
every_plan = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


@every_plan
def test_draws_and_price_are_of_one_law(make: Maker) -> None:
    plan = make()
    assert plan.sampler == plan.sampler_for(plan.records)
    assert plan.sampler.records == plan.records == 80
    if isinstance(plan, TrainingPlan):
        assert plan.event_of(plan.steps) == plan.event
    else:
        # Training prices replaced records by the adjacency and not by another law of its batches.
        assert plan.sampler.adjacency is plan.adjacency


@every_plan
def test_a_plan_that_costs_more_than_it_says_is_refused(make: Maker) -> None:
    plan = make()
    for changes in ({"epsilon": 0.5}, {"delta": 1e-9}, {"noise_multiplier": plan.noise_multiplier / 2}):
        with refuses("plan epsilon"):
            check_price(replace(plan, **changes))
    unasked = replace(plan, epsilon=None) if isinstance(plan, TrainingPlan) else replace(plan, epsilon=None, delta=None)
    with refuses("plan epsilon"):
        check_price(unasked)
    asking = unasked.priced() if isinstance(plan, TrainingPlan) else unasked.priced(TARGET[1])
    assert asking.epsilon == check_price(asking).epsilon == plan.cost().epsilon
    for wrong in (0.0, -1.0, float("inf"), float("nan"), True, "4"):
        with refuses("epsilon"):
            replace(plan, epsilon=wrong)
    with refuses("records_declared"):
        replace(plan, records_declared="yes")


class Unread:
    """Records that nobody may look at."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} of the private records was asked for")


def test_no_record_is_read_for_such_a_plan(tmp_path: Path) -> None:
    """Neither to memory nor to a folder nor in a run of one's own; nothing is left on the disk."""
    plan = replace(release_plan({"design": "poisson"}), epsilon=0.5)
    unread: Any = Unread()
    with refuses("plan epsilon"):
        release_to_memory(plan, unread, SecretStreams.from_entropy(), **FACTS)
    with refuses("plan epsilon"):
        release_to_folder(plan, unread, SecretStreams.from_entropy(), tmp_path / "REL", **FACTS)
    with refuses("plan epsilon"):
        ReleaseRun(tmp_path / "REL", plan, **FACTS)
    assert not list(tmp_path.iterdir())
    job = job_of(config_of())
    job.plan = replace(job.plan, epsilon=0.5)
    with refuses("plan epsilon"):
        job.run(unread)
    job.plan = replace(job.plan, epsilon=8.0)
    assert job.run(private()).certificate["plan"]["epsilon"] == 8.0


def test_with_noise_asks_for_nothing_and_prices_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("privmix.plans.plan.price", lambda *_: pytest.fail("it was priced"))
    plan = ReleaseConfig(records=80, dim=4, classes=CLASSES, mixup_degree=8).with_noise(2.0)
    assert plan.epsilon is plan.delta is None
    with refuses("delta"):
        plan.cost()
    with refuses("plan epsilon, delta"):
        replace(plan, epsilon=1.0)


def test_counts() -> None:
    public, declared = (training_plan(1, Adjacency.ADD_REMOVE, records_declared=told) for told in (False, True))
    check_count(declared, 77)
    check_count(public, 80)
    with refuses("records") as caught:
        check_count(public, 77)
    assert "77" not in str(caught.value)


@pytest.mark.parametrize(
    ("asked", "at", "pure"), [(1.0, 0.0, False), (1.0, 1.0, True), (0.0, 0.1, True), (np.nan, 0.1, False)]
)
def test_bad_targets(asked: float, at: float, pure: bool) -> None:
    with pytest.raises(InvalidInput):
        check_target(asked, at, pure=pure)
    check_target(None, None)
    check_target(1.0, 0.0, pure=True)


class Flattering(float):
    """A number that is smaller than none and larger than none, and no noise is too little for."""

    def __le__(self, other: object) -> bool:
        return True

    __lt__ = __ge__ = __gt__ = __le__


def cheap(plan: Any) -> Any:
    """The plan as one of a class of its own, which says that it costs nothing, and that the charge was for it."""

    def said(self: Any) -> Any:
        return plan.event

    lies = {"event": property(said), "charge": property(said), "cost": lambda self: plan.cost()}
    kind = type(type(plan).__name__, (type(plan),), lies)
    found = object.__new__(kind)
    found.__dict__.update(vars(replace(plan, noise_multiplier=plan.noise_multiplier / 100)))
    return found


def refused_at_every_door(plan: Any, words: str, place: Path) -> None:
    if isinstance(plan, TrainingPlan):
        job = job_of()
        job.plan = plan
        with pytest.raises(InvalidInput, match=words):
            job.run(private())
        return
    records = np.zeros((80, 4), np.float32), np.zeros(80, np.int64)
    with pytest.raises(InvalidInput, match=words):
        release_to_memory(plan, PrivateRecords(*records), SecretStreams.from_entropy(), **FACTS)
    with pytest.raises(InvalidInput, match=words):
        ReleaseRun(place / "REL", plan, **FACTS)
    assert not list(place.glob("*REL*"))


@every_plan
def test_numbers_that_compare_as_they_like_are_refused(make: Maker, tmp_path: Path) -> None:
    plan = make()
    for changes in ({"epsilon": 0.5}, {"delta": 1e-9}, {"noise_multiplier": plan.noise_multiplier / 2}):
        lie = replace(plan, **{name: Flattering(value) for name, value in changes.items()})
        refused_at_every_door(lie, "a plain number", tmp_path)
    # NumPy's own numbers are plain.
    assert check_price(replace(plan, epsilon=np.float64(4.0))) == plan.cost()


@every_plan
def test_plans_of_a_class_of_their_own_are_refused(make: Maker, tmp_path: Path) -> None:
    lie = cheap(make())
    assert check_price(lie).epsilon <= TARGET[0]
    refused_at_every_door(lie, r"plan: got '\w*Plan'; allowed: one of", tmp_path)
