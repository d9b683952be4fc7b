"""``privmix report``: from folders of every verb to one page, and an error for whatever doesn't belong together."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privmix as pm
from privmix.accounting import Adjacency, Gaussian, event_from_dict, tradeoff_curve
from privmix.engine.rows import PrivateRecords
from privmix.jobs.inspection import folder_guarantee
from privmix.ledger.ledger import Ledger
from privmix.planning import ReleaseConfig
from privmix.reports.records import RunRecord, write_record
from privmix.rounding import rounded_up
from tests.cli.helpers import Outcome, privmix, refused
from tests.cli.training import certificate
from tests.releases.helpers import own_options, write_release
from tests.releases.test_folder import edit

COUNT, DIM = 400, 4
CLASSES = ("well", "ill")
IDENTITY = {"name": "identity", "version": 1, "options": {}}
SECRET = 0.123454321


def points() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, COUNT)
    return (np.eye(2, DIM)[y] * 0.7 + rng.normal(0, 0.05, (COUNT, DIM))).astype(np.float32), y


def make_release(
    folder: Path, *, insecure: bool = False, epsilon: float = 4.0, delta: float = 1e-4, **changes: Any
) -> Path:
    config = own_options({"mixup_degree": 16, "rows": 300, "centre": "none", **changes})
    plan = ReleaseConfig(records=COUNT, dim=DIM, classes=CLASSES, **config).calibrate(epsilon, delta)
    write_release(folder, plan, PrivateRecords(*points()), 1 if insecure else None, extractor=IDENTITY)
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("made")
    make_release(root / "REL")
    make_release(root / "OTHER")
    assert privmix("fit", root / "REL", "--out", root / "MODEL").code == 0
    given = {"classes": CLASSES, "features": "identity", "epsilon": 4.0, "delta": 1e-4, "epochs": 2}
    pm.train(points(), **given, out=root / "TRAINED")
    return root


@pytest.fixture
def work(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with copies of all of them, to spoil at will; commands run in it."""
    shutil.copytree(made, tmp_path / "work")
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def note(run: Path, about: str | None, *, private: bool = False, kind: str = "audit", **content: Any) -> Path:
    subject = {"kind": "design" if about is None else "release", "id": about}
    return write_record(RunRecord(kind, subject, private, content or {"proven_epsilon": SECRET}, {"runs": 1}), run)


def id_of(folder: Path) -> str:
    return str(certificate(folder)["id"])


def stopped(outcome: Outcome, *words: str) -> None:
    refused(outcome, *words)
    assert not Path("report.html").exists()


def test_a_release_alone(work: Path) -> None:
    privmix("report", "REL").passed()
    page = Path("report.html").read_text()
    assert all(words in page for words in ("Guarantee: epsilon 4, delta", id_of(work / "REL"), "NOT a bound"))
    assert Path("report.html").stat().st_mode & 0o044
    privmix("verify", "REL").passed()
    assert privmix("report", "REL").code == 2
    privmix("report", "REL", "--overwrite").passed()
    assert Path("report.html").read_text() == page
    privmix("report", "TRAINED", "--out", "new/page.html").passed()
    page = Path("new/page.html").read_text()
    assert all(words in page for words in ("DP-SGD", "epsilon 4, delta", "tuned on the same private records"))


def test_the_owner_is_told_of_a_refutation_that_the_public_may_not_see(work: Path) -> None:
    for violated in (False, True):
        note(Path(f"RUN-{violated}"), id_of(work / "REL"), private=True, kind="canary-audit", violated=violated)
        told = privmix("report", f"RUN-{violated}", "REL", "--out", f"{violated}.html").passed()
        assert ("a private record refutes a claim" in told.err) is violated
    assert Path("True.html").read_bytes() == Path("False.html").read_bytes()


def test_a_run_folder_holds_all_parts(work: Path) -> None:
    run = work / "RUN"
    shutil.copytree("REL", run / "release")
    shutil.copytree("MODEL", run / "model")
    note(run, id_of(work / "REL"))
    note(run, id_of(work / "REL"), private=True, kind="canary-audit", proven_epsilon=0.7654)
    note(run, None, proven_epsilon=0.5678)
    privmix("report", "RUN").passed()
    page = Path("report.html").read_text()
    assert [figure in page for figure in ("0.123", "0.567", "0.765")] == [True, True, False]
    # Records of designs need no release.
    note(work / "DESIGNS", None)
    privmix("report", "DESIGNS", "--for", "owner", "--overwrite").passed()
    assert "privmix report RUN RELEASE" in Path("report.html").read_text()


def test_records_and_models_of_another_release(work: Path) -> None:
    note(work / "RUN", id_of(work / "OTHER"))
    stopped(privmix("report", "RUN", "REL"), "record audit", id_of(work / "OTHER"), id_of(work / "REL"))
    stopped(privmix("report", "RUN"), id_of(work / "OTHER"), "no release or model")
    stopped(privmix("report", "MODEL", "OTHER"), "MODEL", id_of(work / "REL"), id_of(work / "OTHER"))
    stopped(privmix("report", "MODEL"), id_of(work / "REL"), "no release or model")
    privmix("report", "RUN", "REL", "OTHER").passed()


@pytest.mark.parametrize("part", ["REL", "TRAINED"])
def test_no_certificate(part: str, work: Path) -> None:
    Path(part, "certificate.json").unlink()
    note(Path(part), None)
    stopped(privmix("report", part), part, "certificate")


@pytest.mark.parametrize("rehash", [False, True])
@pytest.mark.parametrize("part", ["REL", "TRAINED"])
def test_a_certificate_that_promises_more_than_it_keeps(part: str, rehash: bool, work: Path) -> None:
    """Also one whose hash was made anew: its price is recomputed."""
    edit(lambda content: content["guarantee"].update(epsilon=0.1), rehash=rehash)(Path(part))
    stopped(privmix("report", part), "certificate", "epsilon" if rehash else "content_sha256")


def test_a_guarantee_is_never_taken_from_a_record(work: Path) -> None:
    note(work / "RUN", id_of(work / "REL"), kind="guarantee", epsilon=0.01, delta=0.0, is_upper_bound=True)
    stopped(privmix("report", "RUN", "REL"), "record guarantee", "certificates")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("NOWHERE", ["RUN", "NOWHERE"]),
        ("EMPTY", ["RUN", "certificate.json"]),
        ("REL --for everyone", ["--for", "owner, public"]),
        ("REL --out EMPTY", ["--out"]),
        ("REL --out notes.txt --overwrite", ["--out", "privmix report"]),
        ("REL --out REL/report.html", ["--out", "outside"]),
    ],
)
def test_bad_input(line: str, words: list[str], work: Path) -> None:
    Path("EMPTY").mkdir()
    Path("notes.txt").write_text("mine")
    stopped(privmix("report", *line.split()), *words)
    assert Path("notes.txt").read_text() == "mine"
    privmix("verify", "REL").passed()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"centre": "private", "residual_clip_norm": 0.5},
        {"design": "fixed", "rows": 50},
        {"design": "moments"},
        {"design": "classwise", "full_batch": True, "rows": None},
    ],
    ids=["poisson", "centred", "fixed", "moments", "classwise"],
)
def test_the_record_says_what_accounting_says(changes: dict[str, Any], tmp_path: Path) -> None:
    record = folder_guarantee(make_release(tmp_path / "REL", **changes))
    content = record.content
    assert content["recomputed_epsilon"] <= content["epsilon"] * (1 + 1e-6) <= 4.0 * (1 + 1e-6)
    assert record.to_dict() == folder_guarantee(tmp_path / "REL").to_dict()
    event = event_from_dict(certificate(tmp_path / "REL")["event"])
    beta = tradeoff_curve(event, [0.05], adjacency=Adjacency(content["adjacency"]))[0]
    assert content["power"]["caught"] == pytest.approx(1 - beta)
    alpha, curve = (np.array(content["tradeoff"][name]) for name in ("alpha", "beta"))
    # No point of the curve promises more than the stated pair, and the even bet is the curve's best point.
    assert content["power"]["right"] >= (1 + (1 - alpha - curve).max()) / 2 - 1e-9
    stated = np.argmin(np.abs(np.array(content["epsilon_delta"]["epsilon"]) - content["epsilon"]))
    assert content["epsilon_delta"]["delta"][stated] <= 1e-4 * (1 + 1e-6)


@pytest.fixture
def charged(work: Path) -> str:
    """A ledger that was charged for something else than the release."""
    url = f"sqlite:///{work / 'l.db'}"
    ledger = Ledger.create(url)
    ledger.add_dataset("visits", epsilon=9.0, delta=1e-5)
    taken = ledger.reserve("visits", Gaussian(1.0), purpose="release")
    ledger.commit(taken, result="release " + "1" * 32)
    ledger.reserve("visits", Gaussian(4.0), purpose="training")
    return url


def test_the_datasets_total_stands_in_front(work: Path, charged: str) -> None:
    line = ("report", "REL", "--ledger", charged, "--dataset", "visits", "--overwrite", "--out", "page.html")
    privmix(*line).passed()
    page = (work / "page.html").read_text()
    assert f"ε ≤ {rounded_up(Ledger.open(charged).budget('visits').spent, 4)}" in page
    assert "Read from the ledger when this page was made" in page
    # No ledger was charged for this release, and how runs ended is nothing for the public.
    assert "states that no ledger was charged" in page
    assert "Without a result" not in page
    privmix(*line, "--for", "owner").passed()
    assert "Without a result" in (work / "page.html").read_text()


def test_a_statement_is_shown_with_what_its_signature_is_worth(work: Path, charged: str) -> None:
    assert privmix("keygen", "ana").code == privmix("keygen", "bo").code == 0
    state = ("ledger", "statement", "--ledger", charged, "--dataset", "visits", "--outcomes", "--overwrite", "--out")
    assert privmix(*state, "signed.json", "--key", "ana.pem").code == 0
    assert privmix(*state, "plain.json").code == 0
    line = ("report", "REL", "--overwrite", "--out", "page.html", "--statement")
    for file, key, words in (
        ("signed.json", ["--key", "ana.pub.pem"], "its signature was checked"),
        ("signed.json", [], "signature was NOT checked"),
        ("plain.json", [], "an unsigned statement"),
    ):
        assert privmix(*line, file, *key).code == 0
        page = (work / "page.html").read_text()
        assert words in page
        assert "Without a result" not in page
    for wrong in (
        (*line, "signed.json", "--key", "bo.pub.pem"),
        (*line, "plain.json", "--key", "ana.pub.pem"),
        (*line, "REL/certificate.json"),
        (*line, "signed.json", "--ledger", charged, "--dataset", "visits"),
        ("report", "REL", "--ledger", charged, "--out", "other.html"),
        ("report", "REL", "--key", "ana.pub.pem", "--out", "other.html"),
    ):
        assert privmix(*wrong).code == 2
    assert not (work / "other.html").exists()


def test_a_total_in_a_run_folder_is_refused(work: Path) -> None:
    """Whoever hands over a run can't make a page say that a ledger was read."""
    total = {"source": "ledger", "spent": 0.1, "epsilon": 9.0, "delta": 1e-5}
    write_record(RunRecord("ledger", {"kind": "dataset", "id": None}, False, total, {}), work / "RUN")
    refused(privmix("report", "RUN", "REL", "--out", "page.html"), "only totals in ledgers and statements")
