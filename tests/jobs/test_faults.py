"""Kills and full disks at each step up to the first draw: the job goes on, is charged once, and draws a count once."""

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privmix as pm
from privmix.errors import InvalidInput
from privmix.folders import HeldFolder
from privmix.jobs import counting
from privmix.ledger.ledger import Ledger
from privmix.ledger.verify import verify_ledger
from privmix.mechanisms.run import Run
from privmix.mechanisms.streams import SecretStreams
from privmix.releases.series import private_place
from tests.refusals import refuses

LEDGER, OUT, SERIES = "sqlite:///ledger.db", Path("OUT"), Path("visits")
RECORDS = 1500
RNG = np.random.default_rng(0)
Y = RNG.integers(0, 2, RECORDS)
X = (np.eye(2, 3)[Y] * 0.6 + RNG.normal(0, 0.1, (RECORDS, 3))).astype(np.float32)
BAD = np.where(np.arange(RECORDS)[:, None] == 3, np.float32(np.nan), X)
GIVEN: dict[str, Any] = {"epsilon": 2, "delta": 1e-4, "classes": 2, "features": "identity", "progress": False}
CHARGED: dict[str, Any] = {**GIVEN, "ledger": LEDGER, "dataset": "own"}
MOMENTS = {**CHARGED, "design": pm.designs.Moments(), "out": OUT}
TRAINED = {**CHARGED, "epochs": 1, "out": OUT}
PERSONS = {"person": np.arange(RECORDS) // 2, "dataset": "persons", "private_count": True}
# What is made, and how often it is charged.
JOBS: dict[str, tuple[Callable[..., Any], int]] = {
    "release": (lambda data=(X, Y), **more: pm.release(data, **MOMENTS, **more), 1),
    "release of a count": (lambda data=(X, Y), **more: pm.release(data, **MOMENTS, private_count=True, **more), 2),
    "release of persons": (lambda data=(X, Y), **more: pm.release(data, **{**MOMENTS, **PERSONS, **more}), 2),
    "training": (lambda data=(X, Y), **more: pm.train(data, **TRAINED, **more), 1),
    "training of a count": (lambda data=(X, Y), **more: pm.train(data, **TRAINED, private_count=True, **more), 2),
    "series": (lambda data=(X, Y), **more: pm.series.begin(SERIES, data, steps=3, **CHARGED, **more), 1),
    "later step": (lambda data=(X, Y), **more: pm.series.step(SERIES, data, ledger=LEDGER, **more), 1),
}
pytestmark = pytest.mark.filterwarnings("ignore:features are plain numbers", "ignore:delta")


def created() -> Ledger:
    """A ledger with room for one job alone."""
    ledger = Ledger.create(LEDGER)
    for name, unit in (("own", "record"), ("persons", "person")):
        ledger.add_dataset(name, epsilon=2, delta=2.5e-4, unit=unit)
    return ledger


@pytest.fixture
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    monkeypatch.chdir(tmp_path)
    return created()


class Killed(BaseException):
    """Ends a process at a step."""


class Bound(BaseException):
    """The records are bound, and steps after that are tested elsewhere."""


@contextmanager
def fault_at(number: int, fault: str, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """A kill at the so many-th thing that is made durable, a charge included; or from then on no room for new files."""
    done, sync, reserve, create, save = 0, os.fsync, Ledger.reserve, HeldFolder.create, SecretStreams.save

    def step() -> None:
        nonlocal done
        done += 1
        if fault == "killed" and done == number:
            raise Killed
        if fault != "killed" and done >= number:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def after(found: Any) -> Any:
        step()
        return found

    def before(action: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given, **more: (step(), action(*given, **more))[1]

    def bound(*_: Any) -> None:
        raise Bound

    with patch.context() as inner:
        if fault == "killed":
            inner.setattr(os, "fsync", before(sync))
            inner.setattr(Ledger, "reserve", lambda *given, **more: after(reserve(*given, **more)))
        else:
            inner.setattr(HeldFolder, "create", before(create))
            inner.setattr(SecretStreams, "save", before(save))
        inner.setattr(Run, "bind", bound)
        yield


def entries(kind: str) -> int:
    book = Ledger.open(LEDGER)
    return sum(entry["kind"] == kind for name in book.names() for entry in book.history(name))


@pytest.mark.parametrize("fault", ["killed", "full disk"])
@pytest.mark.parametrize("job", JOBS)
def test_a_fault_before_the_first_draw_costs_nothing(
    job: str, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, charges = JOBS[job]
    drawn: list[Any] = []
    draw = counting.private_count
    monkeypatch.setattr(counting, "private_count", lambda *given: drawn.append(draw(*given)) or drawn[-1])
    for number in range(1, 60):
        (tmp_path / str(number)).mkdir()
        monkeypatch.chdir(tmp_path / str(number))
        created()
        if job == "later step":
            JOBS["series"][0]()
        drawn.clear()
        try:
            with fault_at(number, fault, monkeypatch):
                run()
        except Bound:
            break
        except (Killed, pm.PrivmixError):
            pass
        try:
            run(resume=True)
        except InvalidInput as refused:
            begun = refused.field
            assert entries("reserve") == (1 if job == "later step" else 0), "it was not charged yet"
            run()
        else:
            begun = "resume"
        assert begun == "resume", number
        assert entries("reserve") == charges, number
        assert len(set(drawn)) <= 1, "noise is drawn once"
        assert verify_ledger(Ledger.open(LEDGER))
        kept = {private_place(SERIES).name} if job in ("series", "later step") else set()
        assert {path.name for path in Path().iterdir() if path.is_dir()} - {OUT.name, SERIES.name} == kept
    else:
        pytest.fail("the records were never bound")
    assert number > 3


def test_a_full_disk_leaves_room_for_what_a_refused_record_needs(book: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mark that lets mended records take their place is written in the room that was kept for it."""
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def later(self: Run, **extra: Any) -> None:
        """From the charge on the disk is full, but for the room."""

        def refused(folder: Any, name: str, **given: Any) -> Any:
            if folder.has("run.room"):
                raise full
            return create(folder, name, **given)

        monkeypatch.setattr(HeldFolder, "create", refused)

    create = HeldFolder.create
    with monkeypatch.context() as patch:
        patch.setattr(Run, "note", later)
        with refuses("inputs"):
            pm.release((BAD, Y), **MOMENTS)
    monkeypatch.setattr(HeldFolder, "create", create)
    assert not Path(".OUT.run/run.room").exists()
    assert pm.release((X, Y), **MOMENTS, resume=True).certificate.epsilon <= 2
    assert entries("reserve") == 1


def test_an_answer_of_the_ledger_that_is_lost_is_told_and_found(book: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    reserve = Ledger.reserve
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "reserve", lambda *given, **more: lost(reserve(*given, **more)))
        with pytest.raises(pm.StorageError) as caught:
            pm.release((X, Y), **MOMENTS)
    told: Any = vars(caught.value)["spent"]
    assert (told.known, told.kept, told.pending, told.drawn) == (False, True, True, False)
    pm.release((X, Y), **MOMENTS, resume=True)
    assert (entries("reserve"), entries("commit")) == (1, 1)


COPIED = [
    (job, part)
    for job, (_, charges) in JOBS.items()
    for part in ("count", "reservation")
    if (charges == 2 or part == "reservation") and job not in ("series", "later step")
]


@pytest.mark.parametrize(("job", "part"), COPIED)
def test_a_copied_run_folder_gives_one_result_for_one_charge(
    job: str, part: str, book: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed at the charge, before its folder knows the records: two results under one key differ without noise."""
    run, charges = JOBS[job]
    kept, note = Path(".OUT.run"), Run.note

    def killed(self: Run, **extra: Any) -> None:
        if part in extra:
            raise Killed
        note(self, **extra)

    with monkeypatch.context() as patch:
        patch.setattr(Run, "note", killed)
        with pytest.raises(Killed):
            run()
    shutil.copytree(kept, "copy")
    # Once it is noted what came of a charge, no run begins for it at all.
    monkeypatch.setattr(Ledger, "commit", lost)
    run(resume=True)
    first = result()
    OUT.rename("first")
    number = RECORDS - 2 if part == "count" else RECORDS
    other: dict[str, Any] = {"data": (X[:number] + np.float32(0.01), Y[:number])}
    if job == "release of persons":
        other["person"] = PERSONS["person"][:number]
    shutil.copytree("copy", kept)
    with refuses("data"):
        run(resume=True, **other)
    assert not OUT.exists()
    shutil.rmtree(kept)
    shutil.copytree("copy", kept)
    run(resume=True)
    assert result() == first
    assert (entries("reserve"), entries("commit")) == (charges, 0)
    assert verify_ledger(book)


def lost(*_: Any, **__: Any) -> None:
    raise pm.StorageError("ledger: connection lost")


def result() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in OUT.rglob("*") if path.suffix in (".safetensors", ".parquet")}


@pytest.mark.parametrize("job", ["release", "training", "training of a count"])
def test_a_kill_while_the_records_are_bound_eats_no_budget(
    job: str, book: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused records in between do not take the key from what the ledger knows."""
    run, charges = JOBS[job]
    bind = Ledger.bind

    def after(self: Ledger, *given: Any) -> None:
        bind(self, *given)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "bind", after)
        with pytest.raises(Killed):
            run()
    for data in ((X[1:], Y[1:]), (BAD, Y)):
        with pytest.raises(InvalidInput):
            run(data, resume=True)
    run(resume=True)
    assert (entries("reserve"), entries("commit")) == (charges, charges)
