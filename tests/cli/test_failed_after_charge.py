"""Whoever has paid and got nothing is told what it cost, what is left and how to go on, and is not charged again.

From the command line and from Python, of releases and of trainings, with a ledger and without.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privmix as pm
from privmix.cli.spending import tell_spent
from privmix.jobs import release as release_job
from privmix.jobs import training as training_job
from privmix.jobs.spending import Spent, spent_of
from tests.cli.helpers import Outcome, privmix
from tests.cli.training import LEDGER, history

RECORDS = 200
NOTHING = "No noise was drawn and nothing was published."


def write(file: str = "own.csv", *, spoilt: bool = False, records: int = RECORDS, seed: int = 0) -> None:
    """Two numbers and a label, one of which may be misspelt."""
    rng = np.random.default_rng(seed)
    lines = [f"{a:.3f},{b:.3f},{'yes' if a > 0 else 'no'}" for a, b in rng.normal(size=(records, 2))]
    if spoilt:
        lines[137] = "0.123,0.456,yess"
    Path(file).write_text("a,b,label\n" + "\n".join(lines) + "\n")


class Verb:
    """A verb that is charged, from the command line and from Python."""

    def __init__(self, name: str, job: Any, out: str, flags: list[str], given: dict[str, Any]) -> None:
        self.name, self.job, self.out, self.flags, self.given = name, job, out, flags, given

    def line(self, *more: str, data: str = "own.csv", ledger: bool = True) -> list[str]:
        common = ["--classes=yes,no", "--features=identity", "--epsilon=2", "--delta=1e-5", f"--out={self.out}"]
        paid = [f"--ledger={LEDGER}", "--dataset=own"] if ledger else []
        return [self.name, f"--data={data}", *common, *self.flags, *paid, *more]

    def run(self, *more: str, **given: Any) -> Outcome:
        return privmix(*self.line(*more, **given))

    def python(self, data: Any = "own.csv", *, ledger: bool = True, **more: Any) -> Any:
        paid = {"ledger": LEDGER, "dataset": "own"} if ledger else {}
        common = {"classes": ["yes", "no"], "features": "identity", "epsilon": 2, "delta": 1e-5, "out": self.out}
        given = {**common, **self.given, **paid, **more}
        return getattr(pm, self.name)(data, **{name: value for name, value in given.items() if value is not None})


VERBS = {
    "release": Verb(
        "release",
        release_job,
        "REL",
        ["--design=poisson:mixup_degree=8"],
        {"design": pm.designs.Poisson(mixup_degree=8)},
    ),
    "train": Verb("train", training_job, "MODEL", ["--epochs=1"], {"epochs": 1}),
}
each_verb = pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(spoilt=True)
    init = ["ledger", "init", "--dataset", "own", "--epsilon", "3", "--delta", "1e-4", "--ledger", LEDGER]
    assert privmix(*init).code == 0


def raised(call: Callable[[], Any], kind: type[BaseException] = pm.InvalidInput) -> Spent | None:
    with pytest.raises(kind) as caught:
        call()
    spent = spent_of(caught.value)
    if spent is not None:
        assert caught.value.__notes__ == [str(spent)]
        secret = ("yess", "137", "138", "0.123", "199")
        assert not any(word in str(spent) for word in secret)
    return spent


@each_verb
def test_a_misspelt_label_is_mended_and_paid_for_once(verb: Verb) -> None:
    outcome = verb.run()
    assert outcome.code == 2
    notes = ("warning: ", "published names: ")
    assert len([line for line in outcome.err.splitlines() if not line.startswith(notes)]) == 3
    assert "a private value (hidden)" in outcome.err
    assert "epsilon 2 at delta 1e-05 was charged to dataset 'own' and stays charged: epsilon " in outcome.err
    assert "of 3 is spent" in outcome.err
    assert NOTHING in outcome.err
    assert "correct the data (same number of records) and run the same command with --resume" in outcome.err
    assert f"continue: privmix {verb.name} --data=own.csv" in outcome.err.replace("\n", " ")
    assert "--resume" in outcome.err.splitlines()[-1]
    assert "yess" not in outcome.err
    write()
    outcome = verb.run("--resume")
    assert outcome.code == 0, outcome.err
    assert set(os.listdir()) == {"own.csv", "ledger.db", verb.out}


@each_verb
def test_mended_data_have_as_many_records_and_the_same_name(verb: Verb) -> None:
    """The plan that was paid for is one of the record count; and each file has one budget."""
    assert verb.run().code == 2
    write(records=RECORDS - 1)
    outcome = verb.run("--resume")
    assert outcome.code == 2
    assert "as in the interrupted run" in outcome.err
    init = ["ledger", "init", "--dataset", "other", "--epsilon", "9", "--delta", "1e-4", "--ledger", LEDGER]
    assert privmix(*init).code == 0
    write("other.csv", seed=5)
    book = pm.Ledger.open(LEDGER)
    pm.release("other.csv", **{**WISHES, "design": "poisson", "ledger": book, "dataset": "other"})
    outcome = verb.run("--resume", data="other.csv")
    assert outcome.code == 2
    assert "the name with this data's budget" in outcome.err
    write()
    assert verb.run("--resume").code == 0


WISHES: dict[str, Any] = {"classes": ["yes", "no"], "features": "identity", "epsilon": 1, "delta": 1e-5}


@each_verb
def test_a_run_without_a_place_is_not_kept_and_says_so(verb: Verb) -> None:
    spent = raised(lambda: verb.python(out=None))
    assert spent is not None
    assert not spent.kept
    assert "No run is kept: a new run costs its epsilon again." in str(spent)
    assert "and stays charged" in str(spent)
    assert NOTHING in str(spent)


@each_verb
def test_ctrl_c_tells_what_was_spent(verb: Verb, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(verb.job, "records_of" if verb.name == "release" else "features_in_memory", stop)
    outcome = verb.run()
    assert outcome.code == 130
    assert outcome.err.endswith("stopped\n")
    assert "finish it with the same command and --resume, at no further cost" in outcome.err


def test_a_command_with_a_password_is_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    error = ValueError()
    error.spent = Spent(1.0, 1e-5, "own", None, drawn=False, kept=True, mended=True)  # type: ignore[attr-defined]
    tell_spent(error, ["release", f"--ledger={LEDGER}"])
    assert f"continue: privmix release --ledger={LEDGER} --resume" in capsys.readouterr().err
    tell_spent(error, ["release", "--ledger", "postgresql://me:secret@host/books"])
    told = capsys.readouterr().err
    assert "with --resume" in told
    assert "secret" not in told


def test_a_private_count_that_led_to_no_plan_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The count is a charge of its own; the release's own may be refused after it."""
    write()
    init = ["ledger", "init", "--dataset", "small", "--epsilon", "1", "--delta", "1e-4", "--ledger", LEDGER]
    assert privmix(*init).code == 0
    line = VERBS["release"].line("--private-count")
    outcome = privmix(*[part.replace("--dataset=own", "--dataset=small") for part in line])
    assert outcome.code == 3
    assert "was charged to dataset 'small' and stays charged" in outcome.err
    assert "The run is kept: continue it with the same command and --resume" in outcome.err
    assert [entry["kind"] for entry in history("small")].count("reserve") == 1
