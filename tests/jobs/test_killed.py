"""Jobs that SIGKILL ends at every step: the charge stays, is made once, and pays for one result."""

import shutil
from pathlib import Path

import pytest

import privmix as pm
from tests.jobs.kinds import KINDS, LEDGER, OUT, Kind, charges
from tests.processes import run_in
from tests.refusals import refuses

# Step -> (what dies as it is called, entries of the ledger by then, whether there is a run to go on with).
STEPS = {
    "key": ("RunFolder.save_key", 0, False),
    "notes": ("RunFolder.write_notes", 0, False),
    "room": ("RunFolder.make_room", 0, True),
    "charge": ("Ledger.reserve", 0, True),
    "charged": ("Run.note", 1, True),
    "overlap": ("order.refuse_overlap", 1, True),
    "read": ("kind.job.read", 1, True),
    "bind": ("Run.bind", 1, True),
    "compute": ("kind.job.compute", 1, True),
    "publish": ("Run.publish", 1, True),
    "renaming": ("run.put_in_place", 1, True),
    "noting": ("Ledger.commit", 1, False),
}
OF_RUNS = ("key", "notes", "room", "charged", "bind", "publish", "renaming")
CASES = [
    (name, step)
    for name, kind in KINDS.items()
    for step in STEPS
    if kind.placed or (name == "audit" and step not in OF_RUNS)
]

# Each child is forked before anything has started a thread, and dies at one place.
SCRIPT = """
import os, signal, shutil, sys, warnings
from pathlib import Path
import torch
torch.set_num_threads(1)
from privmix.jobs import job as order
from privmix.ledger.ledger import Ledger
from privmix.mechanisms import run
from privmix.mechanisms.run import Run
from privmix.mechanisms.run_folder import RunFolder
from tests.jobs.kinds import KINDS
warnings.simplefilter("ignore")

def dies(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGKILL)

for line in Path("cases.txt").read_text().splitlines():
    place, name, what = line.split("\\t")
    pid = os.fork()
    if pid == 0:
        shutil.copytree("prepared", place)
        os.chdir(place)
        kind = KINDS[name]
        owner, _, step = what.rpartition(".")
        setattr(eval(owner), step, dies)
        kind.run()
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code == -signal.SIGKILL, (place, code)
"""
PREPARE = """
import os
from tests.jobs.kinds import prepare
os.mkdir("prepared")
os.chdir("prepared")
prepare()
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("killed")
    lines = [f"{name} {step}\t{name}\t{STEPS[step][0]}" for name, step in CASES]
    (root / "cases.txt").write_text("\n".join(lines) + "\n")
    for script in (PREPARE, SCRIPT):
        run_in(root, script, timeout=600)
    return root


@pytest.mark.parametrize(("name", "step"), CASES)
@pytest.mark.filterwarnings("ignore:features are plain numbers")
def test_what_was_charged_pays_for_one_result(
    name: str, step: str, killed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(killed / f"{name} {step}", tmp_path / "left")
    monkeypatch.chdir(tmp_path / "left")
    monkeypatch.setattr("privmix.attacks.one_run_proof.mahloujifar_epsilon", lambda *_, **__: 0.0)
    kind: Kind = KINDS[name]
    _, charged, kept = STEPS[step]
    assert (charges(), charges("commit")) == (charged, 0)
    keys = [path for path in Path().rglob("*.key") if path.is_file()]
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in keys)
    assert all(path.stat().st_mode & 0o777 == 0o700 for path in Path().glob(".*.run"))
    if not kind.placed:
        assert not keys
        kind.run()
        assert charges() == charged + 1
        return
    if step == "noting":
        # The result is there, and its charge stands in the books as one that nothing came of.
        assert OUT.is_dir()
        return
    assert not OUT.exists()
    if kept:
        with refuses("out"):
            kind.run()
        kind.run(resume=True)
    else:
        with refuses("resume"):
            kind.run(resume=True)
        kind.run()
    assert charges() == (1 if kept else charged + 1)
    # A run that only had to be renamed has lost its notes, so nobody can tell the ledger.
    assert charges("commit") == (0 if step == "renaming" else 1)
    assert pm.verify(OUT).held.epsilon <= 2
    assert not [path for path in OUT.rglob("*") if path.suffix in (".key", ".run")]
    budget = pm.Ledger.open(LEDGER).budget("own")
    assert budget.uncommitted == charges() - charges("commit")
