"""That a ledger was charged is said by a ledger, and by nobody else."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from privmix.accounting import Gaussian
from privmix.certificate.reservation import ReservationNote, mode_of
from privmix.errors import InvalidInput
from privmix.ledger import Ledger, Reservation
from privmix.mechanisms.streams import SecretStreams
from privmix.releases import ReleaseRun, release_to_memory
from tests.releases.helpers import make_plan, make_records
from tests.training.runs import job_of, private

FACTS: dict[str, Any] = {"extractor": {"name": "identity"}, "input_shape": (7,)}


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    found = Ledger.create(f"sqlite:///{tmp_path / 'budget.db'}")
    found.add_dataset("fixed", epsilon=4.0, delta=1e-5)
    found.add_dataset("free", epsilon=4.0, delta=1e-5, adaptive="rdp")
    return found


def test_a_note_is_the_ledgers_own_word(ledger: Ledger) -> None:
    for dataset, mode in (("fixed", "planned"), ("free", "adaptive")):
        taken = ledger.reserve(dataset, Gaussian(5.0), purpose="release")
        note = ReservationNote(ledger, taken)
        assert note.mode == mode_of(note) == mode
        # Neither names nor figures.
        assert [field.name for field in dataclasses.fields(note)] == ["mode"]
    assert mode_of(None) == "none"


def test_there_is_none_without_a_charge(ledger: Ledger) -> None:
    never = Reservation("0" * 32, "fixed", 1.0)
    with pytest.raises(InvalidInput, match="reservation"):
        ReservationNote(ledger, never)
    taken = ledger.reserve("fixed", Gaussian(5.0), purpose="release")
    with pytest.raises(InvalidInput, match="reservation"):
        ReservationNote(ledger, dataclasses.replace(taken, dataset="free"))
    ledger.commit(taken, result="release")
    with pytest.raises(InvalidInput, match="not committed"):
        ReservationNote(ledger, taken)
    with pytest.raises(TypeError):
        ReservationNote("planned")  # type: ignore[call-arg, arg-type]
    with pytest.raises(InvalidInput, match="an open ledger"):
        ReservationNote("planned", "planned")  # type: ignore[arg-type]
    note = ReservationNote(ledger, ledger.reserve("fixed", Gaussian(9.0), purpose="release"))
    with pytest.raises((TypeError, ValueError)):
        dataclasses.replace(note, mode="adaptive")
    with pytest.raises(dataclasses.FrozenInstanceError):
        note.mode = "adaptive"  # type: ignore[misc]


@pytest.mark.parametrize("said", [True, "planned", {"mode": "planned"}, 1], ids=str)
def test_no_door_takes_anybody_elses_word(said: Any, tmp_path: Path) -> None:
    plan = make_plan(rows=30)
    with pytest.raises(InvalidInput, match=r"reservation: .*ReservationNote"):
        release_to_memory(plan, make_records(), SecretStreams.from_entropy(), reservation=said, **FACTS)
    with pytest.raises(InvalidInput, match=r"reservation: .*ReservationNote"):
        ReleaseRun(tmp_path / "REL", plan, reservation=said, **FACTS)
    with pytest.raises(InvalidInput, match=r"reservation: .*ReservationNote"):
        job_of().run(private(), reservation=said)
    assert not list(tmp_path.iterdir())
