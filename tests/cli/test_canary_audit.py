"""``privmix audit MODEL --data DIR --canaries N`` on small digits: figures, who may see them, who pays, wrong data."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from privmix.errors import REFUTED
from privmix.reports.records import public_records, read_records
from tests.cli.helpers import Outcome, privmix
from tests.jobs.helpers import write_targets

# Thresholds of a random result hold for these keys: no run fails by chance.
pytestmark = pytest.mark.usefixtures("fixed_keys")

KEYS = {
    "canaries", "included", "guesses", "correct", "delta", "confidence", "claimed_epsilon", "proven_epsilon",
    "provable_epsilon", "proven_by", "violated", "method",
}  # fmt: skip


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A release and a model of the same 300 digits."""
    root = tmp_path_factory.mktemp("canaries")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        write_targets(root)
        yield root


# At confidence 0.95 a true claim may be refuted, now and then.
DONE = (0, REFUTED)


def audit(*arguments: str) -> Outcome:
    return privmix("audit", *arguments)


def test_a_refuted_claim_is_an_exit_code(targets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("privmix.jobs.audit.AuditResult.violated", True)
    told = audit("MODEL", "--data=own", "--canaries=60")
    assert told.code == REFUTED
    assert "refuted" in told.out


def test_figures_stand_beside_the_claim_and_are_private(targets: Path) -> None:
    run = targets / "RUN-private"
    told = audit("MODEL", "--data=own", "--canaries=60", "--json", f"--record={run}")
    assert told.code in DONE, told.err
    content = json.loads(told.out)
    assert set(content) == KEYS
    assert content["canaries"] == 60
    assert not content["violated"]
    assert content["claimed_epsilon"] == pytest.approx(8, abs=0.01)
    assert "only the owner may see them" in told.err
    assert "No ledger was charged" in told.err
    (record,) = read_records(run)
    assert (record.kind, record.subject["kind"]) == ("canary-audit", "model")
    assert record.content == content
    assert not public_records([record])
    (file,) = (run / "records").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    # Nothing of the run itself is kept.
    assert {entry.name for entry in run.iterdir()} == {"records"}


def test_public_data_give_public_figures(targets: Path) -> None:
    run = targets / "RUN-public"
    told = audit("MODEL", "--data=own", "--canaries=60", "--public-data", f"--record={run}")
    assert told.code in DONE, told.err
    assert "the owner" not in told.err
    assert len(public_records(read_records(run))) == 1


def test_other_data_are_refused(targets: Path) -> None:
    np.savez(targets / "fewer.npz", x=np.zeros((50, 8, 8), np.uint8), y=np.arange(50) % 10)
    np.savez(targets / "wider.npz", x=np.zeros((300, 8, 9), np.uint8), y=np.arange(300) % 10)
    told = audit("MODEL", "--data=fewer.npz", "--canaries=60")
    assert (told.code, told.out) == (2, "")
    assert "the 300 records of the target: give its data and split" in told.err
    assert "50" not in told.err
    told = audit("MODEL", "--data=wider.npz", "--canaries=60")
    assert told.code == 2
    assert "inputs of shape (8, 8)" in told.err
