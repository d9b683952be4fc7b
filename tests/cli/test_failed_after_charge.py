"""A failure after the charge tells what it cost, what is left and how to go on.

What every job tells of its charges is tested in tests/jobs/test_job.py.
"""

import os
from pathlib import Path

import numpy as np
import pytest

from privmix.cli.console import tell_spent
from privmix.jobs.budget import Spent
from privmix.jobs.release import ReleaseJob
from tests.cli.helpers import privmix
from tests.cli.training import LEDGER, open_ledger


def write(*, spoilt: bool = False) -> None:
    numbers = np.random.default_rng(0).normal(size=(200, 2))
    lines = [f"{a:.3f},{b:.3f},{'yes' if a > 0 else 'no'}" for a, b in numbers]
    if spoilt:
        lines[137] = "0.123,0.456,yess"
    Path("own.csv").write_text("a,b,label\n" + "\n".join(lines) + "\n")


LINE = ["--data=own.csv", "--classes=yes,no", "--features=identity", "--epsilon=2", "--delta=1e-5"]


@pytest.mark.usefixtures("own_folder")
@pytest.mark.parametrize(
    ("verb", "out", "more"), [("release", "REL", "--design=poisson:mixup_degree=8"), ("train", "MODEL", "--epochs=1")]
)
def test_a_misspelt_label_is_mended_and_paid_for_once(verb: str, out: str, more: str) -> None:
    write(spoilt=True)
    open_ledger(3)
    line = [verb, *LINE, f"--out={out}", more, f"--ledger={LEDGER}", "--dataset=own"]
    outcome = privmix(*line)
    assert outcome.code == 2
    for words in (
        "a private value (hidden)",
        "epsilon 2 at delta 1e-05 was charged to dataset 'own' and stays charged: epsilon ",
        "of 3 is spent",
        "No noise was drawn and nothing was published.",
        f"continue: privmix {verb} --data=own.csv",
    ):
        assert words in outcome.err.replace("\n", " ")
    assert "--resume" in outcome.err.splitlines()[-1]
    assert not any(secret in outcome.err for secret in ("yess", "137", "138", "0.123"))
    write()
    privmix(*line, "--resume").passed()
    assert set(os.listdir()) == {"own.csv", "ledger.db", out}


@pytest.mark.usefixtures("own_folder")
def test_what_its_user_stops_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    write()
    monkeypatch.setattr(ReleaseJob, "read", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    line = ["release", *LINE, "--out=REL", "--design=moments"]
    outcome = privmix(*line)
    assert (outcome.code, outcome.err.endswith("stopped\n")) == (130, True)
    again = privmix(*line)
    assert (again.code, "--resume" in again.err, "--overwrite" in again.err) == (2, True, True)
    assert set(os.listdir()) == {"own.csv", ".REL.run"}


def test_a_command_with_a_password_is_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    error = ValueError()
    error.spent = Spent(1.0, 1e-5, "own", None, drawn=False, kept=True, mended=True)  # type: ignore[attr-defined]
    tell_spent(error, ["release", f"--ledger={LEDGER}"])
    assert f"continue: privmix release --ledger={LEDGER} --resume" in capsys.readouterr().err
    tell_spent(error, ["release", "--ledger", "postgresql://me:secret@host/books"])
    told = capsys.readouterr().err
    assert "with --resume" in told
    assert "secret" not in told
