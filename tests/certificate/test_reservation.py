"""That a ledger was charged is said by a ledger, and by nobody else."""

import copy
import dataclasses
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from privmix.accounting import Gaussian
from privmix.certificate.notes import ReservationNote, mode_of
from privmix.errors import StorageError
from privmix.ledger.entries import Reservation
from privmix.ledger.ledger import Ledger
from privmix.mechanisms.streams import SecretStreams
from privmix.planning import ReleaseConfig
from privmix.releases.run import ReleaseRun, release_to_memory
from tests.certificate.helpers import a_reservation
from tests.refusals import refuses
from tests.releases.helpers import make_plan, make_records
from tests.training.runs import job_of, private

FACTS: dict[str, Any] = {"extractor": {"name": "identity"}, "input_shape": (7,)}


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    found = Ledger.create(f"sqlite:///{tmp_path / 'budget.db'}")
    found.add_dataset("fixed", epsilon=1e4, delta=1e-3)
    found.add_dataset("free", epsilon=1e4, delta=1e-3, adaptive="rdp")
    return found


def test_a_note_is_the_ledgers_own_word(ledger: Ledger) -> None:
    plan = make_plan(rows=30)
    for dataset, mode in (("fixed", "planned"), ("free", "adaptive")):
        note = ReservationNote(ledger, ledger.reserve(dataset, plan.charge, purpose="release"))
        assert note.mode == mode_of(note, plan) == mode
        # Neither names nor figures of the ledger.
        fields = {field.name: getattr(note, field.name) for field in dataclasses.fields(note)}
        assert fields == {"mode": mode, "event": plan.event}
    assert mode_of(None, plan) == "none"


def test_there_is_none_without_a_charge(ledger: Ledger) -> None:
    taken = ledger.reserve("fixed", Gaussian(5.0), purpose="release")
    for wrong in (Reservation("0" * 32, "fixed", 1.0), dataclasses.replace(taken, dataset="free")):
        with refuses("reservation"):
            ReservationNote(ledger, wrong)
    ledger.commit(taken, result="release")
    with refuses("reservation"):
        ReservationNote(ledger, taken)
    with pytest.raises(TypeError):
        ReservationNote("planned")  # type: ignore[call-arg, arg-type]
    with refuses("reservation"):
        ReservationNote("planned", "planned")  # type: ignore[arg-type]
    note = ReservationNote(ledger, ledger.reserve("fixed", Gaussian(9.0), purpose="release"))
    with pytest.raises((TypeError, ValueError)):
        dataclasses.replace(note, event=Gaussian(1.0))
    with pytest.raises(dataclasses.FrozenInstanceError):
        note.mode = "adaptive"  # type: ignore[misc]


def test_a_note_is_of_its_own_plan(ledger: Ledger, tmp_path: Path) -> None:
    """A cheap charge does not pay for a dear release, nor one plan's for another's, nor does anybody else's word."""
    plan = make_plan(rows=30)
    cheap = ReservationNote(ledger, ledger.reserve("fixed", Gaussian(100.0), purpose="release"))
    other = ReservationNote(ledger, ledger.reserve("fixed", make_plan(rows=20).charge, purpose="release"))
    for note in (cheap, other, True, "planned", {"mode": "planned"}, 1):
        with refuses("reservation"):
            release_to_memory(plan, make_records(), SecretStreams.from_entropy(), reservation=note, **FACTS)
        with refuses("reservation"):
            ReleaseRun(tmp_path / "REL", plan, reservation=note, **FACTS)
        with refuses("reservation"):
            job_of().run(private(), reservation=note)
    assert not list(tmp_path.glob("*REL*"))


def test_a_note_serves_one_release_or_model(ledger: Ledger, tmp_path: Path) -> None:
    """Two releases of one plan are two queries: one charge does not pay for both."""
    trained = ReservationNote(ledger, ledger.reserve("fixed", job_of().plan.charge, purpose="training"))
    job_of().run(private(), reservation=trained)
    with refuses("reservation"):
        job_of().run(private(), reservation=trained)
    plan, records = make_plan(rows=30), make_records()
    taken = ledger.reserve("fixed", plan.charge, purpose="release")
    note, copied = ReservationNote(ledger, taken), ReservationNote(ledger, taken)
    release_to_memory(plan, records, SecretStreams.from_entropy(), reservation=note, **FACTS)
    for again in (note, copied, copy.copy(note), ReservationNote(ledger, taken)):
        with refuses("reservation"):
            release_to_memory(plan, records, SecretStreams.from_entropy(), reservation=again, **FACTS)
        with refuses("reservation"):
            ReleaseRun(tmp_path / "REL", plan, reservation=again, **FACTS)
    assert not list(tmp_path.glob("*REL*"))


def test_of_two_releases_that_began_with_one_note_one_is_made(ledger: Ledger, tmp_path: Path) -> None:
    plan, records = make_plan(rows=30), make_records()
    note = ReservationNote(ledger, ledger.reserve("fixed", plan.charge, purpose="release"))
    runs = [ReleaseRun(tmp_path / name, plan, reservation=note, **FACTS) for name in ("FIRST", "SECOND")]
    with runs[0] as first:
        first.release(records)
    with refuses("reservation"), runs[1] as second:
        second.release(records)
    assert (tmp_path / "FIRST").exists()
    assert not (tmp_path / "SECOND").exists()


def test_a_release_that_is_finished_later_uses_its_note_once(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, records = make_plan(rows=30), make_records()
    taken = ledger.reserve("fixed", plan.charge, purpose="release")
    with monkeypatch.context() as broken:
        # The certificate is there, and what holds it can't be written.
        broken.setattr("privmix.releases.run.croissant", Mock(side_effect=OSError(28, "No space left on device")))
        with (
            pytest.raises((OSError, StorageError)),
            ReleaseRun(tmp_path / "REL", plan, reservation=ReservationNote(ledger, taken), **FACTS) as run,
        ):
            run.release(records)
    note = ReservationNote(ledger, taken)
    with ReleaseRun(tmp_path / "REL", plan, reservation=note, resume=True, **FACTS) as run:
        assert run.release(records)["plan"] == plan.to_dict()


def test_after_a_private_count_the_rest_of_the_budget_is_charged() -> None:
    plan = ReleaseConfig(records=500, dim=7, classes=("a", "b"), records_noise_multiplier=20.0).calibrate(4.0, 1e-4)
    assert 3.0 < plan.charge.epsilon < 4.0
    assert mode_of(a_reservation(plan), plan) == "planned"
    with refuses("reservation"):
        mode_of(a_reservation(plan), dataclasses.replace(plan, epsilon=5.0))
