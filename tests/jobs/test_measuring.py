"""What measures releases and models, asked from Python: the same figures as on the command line, in order."""

import json
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privmix as pm
from privmix.data import Source
from privmix.errors import REFUTED, StorageError
from privmix.jobs.audit import Claim
from privmix.planning import ReleaseConfig
from privmix.reports.records import public_records, read_records
from privmix.research.collapse.verb import measure_collapse
from privmix.research.inversion.verb import invert
from tests.cli.helpers import privmix, refused
from tests.cli.training import LEDGER, train, write_all
from tests.refusals import refuses

pytestmark = pytest.mark.usefixtures("fixed_keys")


@pytest.fixture(scope="module", autouse=True)
def targets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The current folder holds ``own``; ``REL`` and ``MODEL`` of the same 300 digits; ``FIT`` of ``REL``."""
    root = tmp_path_factory.mktemp("targets")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        write_all(root)
        design = pm.designs.Poisson(mixup_degree=8)
        pm.release("own", classes=10, epsilon=8, delta=1e-4, design=design, centre="none", out="REL")
        pm.fit("REL").save("FIT")
        train().passed()
        yield


# Python's call, and the command line that asks the same.
SAME: dict[str, tuple[Callable[[], Any], str]] = {
    "evaluate": (
        lambda: pm.evaluate("FIT", "own", figure="picture.png"),
        "evaluate FIT --data=own --figure=picture.png",
    ),
    "evaluate a trained model beside no privacy": (
        lambda: pm.evaluate("MODEL", "own", reference="own", figure="p.png"),
        "evaluate MODEL --data=own --reference=own --figure=p.png",
    ),
    "audit": (
        lambda: pm.audit("REL", runs=200, confidence=0.9, seed=1),
        "audit REL --runs=200 --confidence=0.9 --seed=1",
    ),
    "canaries": (
        lambda: pm.audit("MODEL", "canaries", data="own", canaries=60, evidence="neighbours", guesses=20, seed=1),
        "audit MODEL --data=own --canaries=60:evidence=neighbours,guesses=20 --seed=1",
    ),
    "membership": (lambda: pm.attack("FIT", "own"), "attack membership FIT --data=own"),
    "collapse": (lambda: measure_collapse(release="REL", data="own"), "attack collapse REL --data=own"),
}


@pytest.mark.parametrize(("asked", "line"), SAME.values(), ids=SAME)
def test_the_command_line_prints_what_python_returns(asked: Callable[[], Any], line: str, tmp_path: Path) -> None:
    found = asked()
    told = privmix(*line.split(), "--json", "--record=RUN").json()
    # JSON has no tuples.
    assert told == json.loads(json.dumps(found.to_dict()))
    kept = json.loads(found.keep(tmp_path / "OWN").read_text())
    (again,) = (one for one in read_records(Path("RUN")) if one.content == kept["content"])
    for part in ("kind", "subject", "private", "settings", "title", "statements", "versions"):
        assert kept[part] == again.to_dict()[part], part


def test_what_has_seen_private_records_is_in_no_public_record() -> None:
    shown = pm.evaluate("FIT", "own", public_data=True)
    beside = pm.evaluate("FIT", "own", reference="own", public_data=True)
    assert not shown.measurement.private
    assert beside.measurement.private
    assert beside.reference_words in beside.measurement.statements[-1]
    # Every output names what was fitted without privacy.
    assert beside.to_dict()["reference_words"] == beside.reference_words
    assert beside.reference_words in str(beside.shown()[1]["accuracy without privacy"])


@pytest.mark.parametrize("place", ["REL/picture.png", "MODEL/x/picture.svg", "picture.txt", "folder.png"])
def test_pictures_are_refused_before_a_record_is_read(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Source, "batches", _unread)
    Path("folder.png").mkdir(exist_ok=True)
    with refuses("figure"):
        pm.evaluate("MODEL", "own", figure=place)
    for measure in (invert, measure_collapse):
        with refuses("figure"):
            measure(release="REL", data="own", figure=place)


def test_no_figure_is_made_that_can_not_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    records = pm.evaluate("FIT", "own").quality.n
    monkeypatch.setattr("privmix.jobs.features.features_in_memory", _unread)
    monkeypatch.setattr("privmix.commands.evaluate._MOST_GROUPS", 9)
    Path("file").touch()
    for option in ("--record=file", "--figure=file/picture.png"):
        outcome = privmix("evaluate", "FIT", "--data=own", option)
        assert outcome.code == StorageError.exit_code
        assert "cannot write file" in outcome.err
    with refuses("group_by"):
        pm.evaluate("FIT", "own", group_by=range(records))


def test_a_design_is_audited_under_its_claim() -> None:
    config = ReleaseConfig(records=1000, dim=1, classes=("a", "b"), rows=50, centre="none")
    line = "audit --design=poisson --records=1000 --rows=50 --classes=2 --delta=1e-5 --seed=2 --epsilon=2 --runs=300"
    found = pm.audit(Claim.of_design(config, 2.0, 1e-5, as_published=True), runs=300, seed=2)
    assert found.to_dict() == privmix(*line.split(), "--as-published", "--json").json()
    said = {"records": 1000, "rows": 50, "classes": 2, "epsilon": 2.0, "as_published": True}
    assert pm.audit(design="poisson", runs=300, seed=2, **said).to_dict() == found.to_dict()
    assert found.measurement.statements[0] == "The noise follows the papers' formula, which is not a bound."


@pytest.mark.parametrize(
    "wrong",
    [
        {"ledger": LEDGER},
        {"ledger": LEDGER, "dataset": "own", "seed": 1},
        {"seed": -1},
        {"canaries": 4},
        {"canaries": 100_000},
        {"target": "REL"},
        {"data": "public.npz"},
        {"evidence": "rows"},
        {"store": "own/train.npz/store"},
    ],
    ids=str,
)
def test_canaries_refused_cost_nothing_and_read_nothing(wrong: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Source, "batches", _unread)
    monkeypatch.setattr("privmix.jobs.job.charge", _unread)
    given = {"target": "MODEL", "data": "own", "canaries": 60, **wrong}
    with pytest.raises((pm.InvalidInput, StorageError)):
        pm.audit(given.pop("target"), "canaries", **given)


def test_figures_of_canaries_are_private_unless_the_data_are_public(monkeypatch: pytest.MonkeyPatch) -> None:
    line = ["audit", "MODEL", "--data=own", "--canaries=60"]
    told = privmix(*line, "--json", "--record=CANARIES")
    # At confidence 0.95 a true claim may be refuted, now and then.
    assert told.code in (0, REFUTED), told.err
    content = json.loads(told.out)
    assert (content["canaries"], content["claimed_epsilon"]) == (60, pytest.approx(8, abs=0.01))
    assert "only the owner may see them" in told.err
    assert "No ledger was charged" in told.err
    (record,) = read_records(Path("CANARIES"))
    assert (record.kind, record.subject["kind"], record.content) == ("canary-audit", "model", content)
    assert not public_records([record])
    # Nothing of the run itself is kept.
    (file,) = (path for path in Path("CANARIES").rglob("*") if path.is_file())
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    told = privmix(*line, "--public-data", "--record=PUBLIC")
    assert (told.code in (0, REFUTED), "the owner" in told.err) == (True, False)
    assert len(public_records(read_records(Path("PUBLIC")))) == 1
    monkeypatch.setattr("privmix.jobs.audit.AuditResult.violated", True)
    told = privmix(*line)
    assert (told.code, "refuted" in told.out) == (REFUTED, True)


def test_canaries_among_other_data_are_refused() -> None:
    np.savez("fewer.npz", x=np.zeros((50, 8, 8), np.uint8), y=np.arange(50) % 10)
    np.savez("wider.npz", x=np.zeros((300, 8, 9), np.uint8), y=np.arange(300) % 10)
    told = privmix("audit", "MODEL", "--data=fewer.npz", "--canaries=60")
    refused(told, "the 300 records of the target: give its data and split")
    assert "50" not in told.err
    refused(privmix("audit", "MODEL", "--data=wider.npz", "--canaries=60"), "inputs of shape (8, 8)")


def test_options_of_other_audits_are_refused() -> None:
    with refuses("model"):
        pm.evaluate("REL", "own")
    word = {"data": "own", "canaries": "60:guesses=20", "guesses": 20}
    for options in ({"kind": "noise", "runs": 9}, {"canaries": 60}, {"kind": "colours"}, {"epsilon": 1.0}, word):
        with pytest.raises(pm.InvalidInput):
            pm.audit("REL", **options)


def test_a_report_takes_folders_and_what_was_measured() -> None:
    audit, private = pm.audit("REL", runs=200, confidence=0.9), pm.evaluate("FIT", "own")
    audit.keep("KEPT")
    private.keep("KEPT")
    # Records stay out of what is handed on.
    for place in ("REL", "MODEL", "REL/data"):
        with refuses("record"):
            audit.keep(place)
    assert len(public_records(read_records(Path("KEPT")))) == 1
    made = pm.report(["REL", "FIT", "KEPT"], out="page.html")
    assert Path("page.html").read_text() == made.page
    assert ("Worst-case audit" in made.page, "Accuracy on split" in made.page) == (True, False)
    assert "Accuracy on split" in pm.report(["REL", private], audience="owner").page
    privmix("report", "REL", "FIT", "KEPT", "--out=other.html").passed()
    assert Path("other.html").read_text() == made.page
    with pytest.raises(pm.InvalidInput, match="about release"):
        pm.report(["MODEL", audit])


def _unread(*_: Any, **__: Any) -> Any:
    raise AssertionError("a record was read, or a budget charged")
