"""What every job promises, tested on every kind of job: each test is of one of the guarantees of ``jobs.job.Job``."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

import privmix as pm
from privmix.data import open_dataset as open_source
from privmix.data.overlap import InputHashes
from privmix.errors import HeadFailed, StorageError
from privmix.jobs import job as order
from privmix.jobs.budget import Spent, spent_of
from privmix.jobs.columns import Columns
from privmix.jobs.dataset import Dataset
from privmix.jobs.job import Job, RunKey
from privmix.ledger.ledger import Ledger
from privmix.ledger.verify import verify_ledger
from privmix.mechanisms.run import Run
from privmix.world import World
from tests.jobs.kinds import CLASSES, DELTA, EPSILON, KINDS, LEDGER, OUT, PLACED, Kind, charges, numbers, prepare
from tests.refusals import refuses

each_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
each_placed = pytest.mark.parametrize("kind", PLACED.values(), ids=PLACED)
pytestmark = pytest.mark.filterwarnings("ignore:features are plain numbers", "ignore:.*NOT private")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("prepared") / "root"
    root.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        prepare()
        yield root


@pytest.fixture(autouse=True)
def place(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current folder has a ledger and what is audited. What an audit proves matters to no job."""
    shutil.copytree(prepared, tmp_path / "place")
    monkeypatch.chdir(tmp_path / "place")
    monkeypatch.setattr("privmix.attacks.one_run_proof.mahloujifar_epsilon", lambda *_, **__: 0.0)


def source(job: Job[Any, Any]) -> Any:
    """Its private records, which note when they are read."""
    return job.opened.source


def unread(job: Job[Any, Any]) -> bool:
    """Whether nobody looked at a record of it, not even to hash it."""
    return source(job).used == source(job).hashed == []


def left_over() -> set[str]:
    """What is there beside the ledger and what is audited; locks are empty files."""
    return {path.name for path in Path().iterdir() if path.suffix != ".lock"} - {"ledger.db", "MODEL"}


FREE_OF_CHARGE: Final[dict[str, Any]] = {"ledger": None, "dataset": None}


class Broken(Exception):
    """Raised at a step of a job."""


def broken(*_: Any, **__: Any) -> Any:
    raise Broken


# Reserve before reading, what is planned, and once; the key ends with the job.


@each_kind
def test_a_plan_is_charged_before_a_record_is_read_and_carried_out_once(kind: Kind) -> None:
    job = kind.make(**({"overwrite": True} if kind.placed else {}))
    planned = kind.plan(job)
    assert unread(job)
    assert charges() == 0
    streams = planned.key.streams()
    assert streams.live
    done = job.carry_out(planned)
    assert set(source(job).used) == {1}, "it reads records once they are paid for"
    assert not streams.live
    with pytest.raises(RuntimeError):
        planned.key.streams()
    with refuses("planned"):
        job.carry_out(planned)
    (entry,) = (one for one in Ledger.open(LEDGER).history("own") if one["kind"] == "reserve")
    assert 0.8 * EPSILON < Ledger.open(LEDGER).budget("own").spent <= EPSILON
    assert entry["purpose"] == kind.job.cost(job, planned).purpose
    if kind.job.made != "audit":
        certificate = getattr(done.result, "certificate", done.result)
        assert certificate["plan"] == planned.plan.to_dict()
        assert certificate["in_ledger"] == "planned"


@each_kind
def test_what_the_budget_does_not_hold_reads_nothing(kind: Kind) -> None:
    job = kind.make(dataset="small")
    planned = kind.plan(job)
    with pytest.raises(pm.BudgetExceeded) as refused:
        job.carry_out(planned)
    assert unread(job)
    assert spent_of(refused.value) is None
    assert left_over() == set()
    assert not planned.key.used, "it may be carried out once the budget is larger"


# Checked first.


@each_kind
@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"ledger": None}, "ledger, dataset"),
        ({"seed": 1}, "seed"),
        ({"seed": -1, "ledger": None, "dataset": None}, "seed"),
    ],
    ids=["no ledger", "seed with a ledger", "no seed"],
)
def test_options_that_do_not_go_together_cost_nothing(kind: Kind, wrong: dict[str, Any], field: str) -> None:
    job = kind.make(**wrong)
    with pytest.raises(pm.InvalidInput) as refused:
        kind.plan(job)
    assert refused.value.field == field
    assert unread(job)
    assert charges() == 0


@each_kind
def test_a_place_that_cannot_be_written_costs_nothing(kind: Kind) -> None:
    Path("file").touch()
    for name in ("store", "out") if kind.placed else ("store",):
        job = kind.make(**{name: Path("file/x")})
        with pytest.raises(StorageError, match=f"{name}: cannot write"):
            kind.plan(job)
        assert unread(job)
    assert charges() == 0


# One plan.


@each_kind
def test_a_plan_of_another_job_or_price_is_refused(kind: Kind) -> None:
    """Another job's could bring a ledger together with a seed, which either job alone refuses."""
    planned, job = kind.plan(kind.make(seed=1, **FREE_OF_CHARGE)), kind.make()
    for other in (job, kind.make(seed=1, **FREE_OF_CHARGE)):
        with refuses("planned"):
            other.carry_out(planned)
        assert unread(other)
    planned = kind.plan(job)
    with refuses("plan epsilon"):
        job.carry_out(replace(planned, plan=replace(planned.plan, epsilon=0.01)))
    assert unread(job)
    assert charges() == 0


# Told; done is done.

# Where a job is broken -> (owner of the step, its name), in order.
STEPS: Final[dict[str, tuple[Any, str]]] = {
    "price": (order, "check_price"),
    "public": (Job, "called_public"),
    "key": (RunKey, "streams"),
    "open": (Job, "open_run"),
    "charge": (Ledger, "reserve"),
    "overlap": (order, "refuse_overlap"),
    "read": (Job, "read"),
    "compute": (Job, "compute"),
    "bind": (Run, "bind"),
    "publish": (Run, "publish"),
}
FREE = ("price", "public", "key", "open")
IN_RUNS = ("open", "bind", "publish")


def broken_at(step: str, kind: Kind, patch: pytest.MonkeyPatch, action: Any = broken) -> None:
    owner, name = STEPS[step]
    patch.setattr(kind.job if owner is Job else owner, name, action)


def stopped(kind: Kind, step: str, **changes: Any) -> tuple[Any, Spent | None]:
    """A job that is broken at a step: what was planned, and what was told."""
    job = kind.make(**changes)
    planned = kind.plan(job)
    with pytest.MonkeyPatch.context() as patch:
        broken_at(step, kind, patch)
        with pytest.raises(Broken) as caught:
            job.carry_out(planned)
    told = spent_of(caught.value)
    assert getattr(caught.value, "__notes__", []) == ([] if told is None else [str(told)])
    return planned, told


@each_kind
@pytest.mark.parametrize("step", FREE)
def test_what_fails_before_the_charge_costs_and_leaves_nothing(kind: Kind, step: str) -> None:
    if step in IN_RUNS and not kind.placed:
        pytest.skip("it has no run")
    planned, told = stopped(kind, step)
    assert told is None
    assert charges() == 0
    assert source(planned.job).used == []
    assert left_over() == set()
    planned.job.carry_out(planned) if not planned.key.used else kind.run()
    assert charges() == 1


@each_kind
def test_what_fails_as_it_is_charged_goes_on_and_is_charged_once(kind: Kind) -> None:
    planned, told = stopped(kind, "charge")
    assert source(planned.job).used == []
    assert charges() == 0
    assert (told is not None and told.kept and not told.known) is kind.placed
    assert left_over() == ({f".{OUT}.run"} if kind.placed else set())
    kind.run(**({"resume": True} if kind.placed else {}))
    assert (charges(), charges("commit")) == (1, 1)


@each_kind
@pytest.mark.parametrize("step", [step for step in STEPS if step not in (*FREE, "charge")])
def test_what_fails_after_the_charge_tells_it_and_goes_on_at_no_cost(kind: Kind, step: str) -> None:
    if step in IN_RUNS and not kind.placed:
        pytest.skip("it has no run")
    planned, told = stopped(kind, step)
    assert (told.epsilon, told.delta, told.dataset) == (pytest.approx(EPSILON, rel=0.1), DELTA, "own")
    assert told.budget.spent <= EPSILON * (1 + 1e-9)
    kept = kind.placed
    assert told.kept is kept
    assert told.drawn is (step == "publish" if kind.placed else step == "compute")
    assert planned.key.used
    assert planned.key._streams is None or not planned.key._streams.live
    assert left_over() == ({f".{OUT}.run"} if kept else set())
    with refuses("planned"):
        planned.job.carry_out(planned)
    kind.run(resume=True) if kept else kind.run()
    # What was charged and led to no run is spent.
    assert (charges(), charges("commit")) == (1 if kept else 2, 1)
    assert left_over() == ({str(OUT)} if kind.placed else set())


@each_kind
def test_a_result_outlives_trouble_with_the_ledger(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: Any, **__: Any) -> None:
        raise StorageError("the ledger can't be reached")

    monkeypatch.setattr(Ledger, "commit", unreachable)
    done = kind.run()
    (warning,) = done.warnings
    assert warning.startswith(f"the {kind.job.made} is made and charged, but the ledger does not list it")
    assert warning.endswith("the ledger can't be reached")
    assert done.result is not None
    assert (charges(), charges("commit")) == (1, 0)


# No core dumps.


@each_kind
def test_core_dumps_are_forbidden_before_a_record_or_a_key_is_there(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = kind.make()
    planned = kind.plan(job)
    monkeypatch.setattr(order, "no_core_dumps", broken)
    with pytest.raises(Broken):
        job.carry_out(planned)
    assert unread(job)
    assert charges() == 0
    with pytest.raises(Broken):
        RunKey(None).streams()


# Apart, and nothing for nothing.


@each_kind
def test_public_records_that_are_private_ones_end_the_job_once_paid_for(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    def same(self: Job[Any, Any], planned: Any) -> Any:
        return {"public": InputHashes.of(kind.make(**FREE_OF_CHARGE).opened.source)}, []

    monkeypatch.setattr(kind.job, "called_public", same)
    monkeypatch.setattr(kind.job, "compute", broken)
    with refuses("public"):
        kind.run()
    assert (charges(), charges("commit")) == (1, 0)
    # Nothing was drawn: it goes on with other records.
    assert left_over() == ({f".{OUT}.run"} if kind.placed else set())


# One charge, one seed: of jobs whose runs go on.


def kept() -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in Path(f".{OUT}.run").iterdir() if path.is_file()}


@each_placed
def test_a_run_goes_on_with_the_records_that_it_began_with(kind: Kind) -> None:
    stopped(kind, "publish")
    held, place = kept(), "sqlite:///new.db"
    pm.Ledger.create(place).add_dataset("own", epsilon=9.0, delta=DELTA)
    options: list[dict[str, Any]] = [{"features": "pixels"}, {"epsilon": 3.0}, {"private_count": True}]
    for other in ({"seed_of": 1}, {"dataset": "other"}, {"ledger": place}, FREE_OF_CHARGE, *options):
        with pytest.raises(pm.InvalidInput):
            kind.run(resume=True, **other)
        assert kept() == held, other
    with refuses("out"):
        kind.run()
    assert kept() == held
    assert left_over() == {f".{OUT}.run", "new.db"}
    kind.run(resume=True)
    assert (charges(), charges("commit")) == (1, 1)
    # A run that is abandoned is charged anew.
    stopped(kind, "publish", overwrite=True)
    kind.run(overwrite=True)
    assert (charges(), charges("commit")) == (3, 2)


@each_placed
def test_a_charge_is_not_carried_to_data_of_another_name(kind: Kind) -> None:
    """Interrupted before the records were noted: the ledger still knows whose they are."""
    stopped(kind, "read")
    kind.run(seed_of=1, dataset="other", out=Path("OTHER"))
    with pytest.raises(pm.InvalidInput):
        kind.run(resume=True, seed_of=1)
    assert verify_ledger(Ledger.open(LEDGER))
    assert not OUT.exists()


@each_placed
def test_records_that_were_refused_are_mended_and_paid_for_once(kind: Kind) -> None:
    wrong = numbers()[1].astype(object)
    wrong[137] = "perhaps"
    for again in (False, True):
        with refuses("label") as caught:
            kind.run(y=wrong, resume=again)
        told = spent_of(caught.value)
        assert (told.kept, told.mended, told.drawn) == (True, True, False)
        assert not any(word in str(told) for word in ("perhaps", "137", "138"))
    key = Path(f".{OUT}.run/run.key")
    with key.open("rb") as held:
        assert kind.run(resume=True).warnings == ()
        assert held.read() == bytes(33), "another key, and the first one is gone"
    assert (charges(), charges("commit")) == (1, 1)


@each_placed
def test_a_run_that_took_the_place_of_the_interrupted_one_is_left_alone(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its charge and its records are not those that were looked at."""
    stopped(kind, "read")
    job = kind.make(resume=True)
    planned, left = kind.plan(job), job.left()
    other = replace(left, id="other")
    monkeypatch.setattr(kind.job, "left", lambda *_: other)
    monkeypatch.setattr(kind.job, "check_resumed", lambda *_: None)
    with pytest.raises(StorageError, match="replaced"):
        job.carry_out(planned)
    assert source(job).used == []
    found = kind.job.runs.interrupted(OUT)
    assert found == left, "it goes on as before"


@each_kind
def test_files_that_are_replaced_after_their_charge_end_the_job(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """The budget of one dataset never pays for another one of its shape."""

    def saved(seed: int) -> Path:
        x, y = numbers(seed)
        np.savez("data.npz", x=x, y=np.array(CLASSES)[y])
        return Path("data.npz").resolve()

    job = kind.make()
    job.__dict__["opened"] = Dataset(open_source(saved(0), classes=CLASSES), str(saved(0)), "train", Columns())
    charge = order.charge

    def then_replaced(*given: Any) -> Any:
        try:
            return charge(*given)
        finally:
            saved(1)

    monkeypatch.setattr(order, "charge", then_replaced)
    with refuses("data"):
        job.carry_out(kind.plan(job))
    assert charges() == 1
    assert not OUT.exists()


@each_placed
@pytest.mark.parametrize(("first", "then"), [(None, 3), (3, None), (3, 4)])
def test_a_run_goes_on_with_the_seed_that_it_began_with(kind: Kind, first: int | None, then: int | None) -> None:
    _, told = stopped(kind, "publish", **FREE_OF_CHARGE, seed=first)
    assert f"count epsilon {EPSILON:g} at delta {DELTA:g} as spent" in str(told)
    held = kept()
    wanted = f"seed: got {then}; allowed: {'no seed' if first is None else first}, as in the interrupted run"
    with pytest.raises(pm.InvalidInput, match=wanted):
        kind.run(**FREE_OF_CHARGE, seed=then, resume=True)
    assert held == kept()
    done = kind.run(**FREE_OF_CHARGE, seed=first, resume=True)
    assert getattr(done.result, "certificate", done.result)["insecure_seed"] is (first is not None)


@each_kind
def test_without_a_ledger_nothing_is_spent_before_noise_is_drawn(kind: Kind) -> None:
    for step in ("overlap", "read"):
        _, told = stopped(kind, step, **FREE_OF_CHARGE)
        assert "nothing was spent: no noise was drawn" in str(told)
        shutil.rmtree(f".{OUT}.run", ignore_errors=True)


# Together.


class Pair(World):
    """One of two processes, which notes what the head says to the other."""

    def __init__(self, rank: int, said: bytes = b"") -> None:
        super().__init__(rank)
        self.__dict__["heard"], self.__dict__["said"] = [], said

    def share(self, content: bytes) -> bytes:
        self.__dict__["heard"].append((content, charges()))
        return self.__dict__["said"] if not self.is_head else content


@each_kind
@pytest.mark.parametrize("step", ["price", "charge", "overlap", "read"])
def test_the_others_wait_until_the_head_has_paid(kind: Kind, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    job, head = kind.make(), Pair(0)
    planned = replace(kind.plan(job), world=head)
    broken_at(step, kind, monkeypatch)
    with pytest.raises(Broken):
        job.carry_out(planned)
    assert head.__dict__["heard"] == [(b"go", 1) if step == "read" else (b"failed", int(step == "overlap"))]


@each_kind
def test_beside_the_head_nothing_is_charged_and_nothing_read_before(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = kind.make()
    planned = replace(kind.plan(job), world=Pair(1, b"failed"))  # type: ignore[type-var]
    with pytest.raises(HeadFailed):
        job.carry_out(planned)
    assert unread(job)
    monkeypatch.setattr(kind.job, "read", lambda self, planned, work, progress: work)
    monkeypatch.setattr(kind.job, "compute", lambda self, planned, work, records, progress: records)
    work = job.carry_out(replace(planned, world=Pair(1, b"go"))).result  # type: ignore[type-var]
    assert (work.run, work.streams, work.charged.reservation) == (None, None, None)
    assert charges() == 0
