"""Pages without a browser: nothing private is read before "release", and nothing is released twice."""

import json
import re
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from privmix.studio import server
from tests.cli.helpers import privmix

pytest.importorskip("starlette", reason="serves the studio; in privmix[studio]")
pytest.importorskip("uvicorn", reason="serves the studio; in privmix[studio]")

import privmix as pm
from privmix.errors import StorageError
from privmix.ledger.ledger import Ledger
from privmix.studio import price as pricing
from privmix.studio import worker
from privmix.studio.asked import Column, FormData, Unready
from privmix.studio.order import Order
from privmix.studio.price import DataFacts, Forecasts, RunningForecast, between, facts_of, price_of
from privmix.studio.runs import FAILED, RUNNING, Busy, FormKeys, Runs, StudioRun
from tests.commands.test_report import make_release
from tests.studio.helpers import AUTO, IMAGES, PERSONS, TABLE, ask, form_of, studio, visits

_opened: list[str] = []
_watching = False


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if _watching and event in ("open", "os.listdir", "os.scandir") and args:
        _opened.append(str(args[0]))


sys.addaudithook(_hook)


@pytest.fixture
def opened() -> Iterator[list[str]]:
    global _watching
    _watching = True
    yield _opened
    _watching = False


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Order, bool]]:
    """Orders of the visits that were begun; none is carried out."""
    found: list[tuple[Order, bool]] = []

    def start(self: Runs, order: Order, folder: Path, *, resume: bool = False) -> StudioRun:
        if self.running is not None:
            raise Busy
        found.append((order, resume))
        self.last = self._all["run"] = StudioRun(order, folder, id="run")
        return self.last

    visits(tmp_path / "visits.csv")
    monkeypatch.setattr(Runs, "start", start)
    return found


def key_of(app: Any) -> str:
    return re.findall(r'name="key" value="([^"]+)"', ask(app, "GET", "/fence/").text)[0]


def test_nothing_of_the_data_is_opened_before_release_is_pressed(
    tmp_path: Path, opened: list[str], started: list[Any]
) -> None:
    Ledger.create(f"sqlite:///{tmp_path / 'ledger.db'}").add_dataset("visits", epsilon=4, delta=1e-5, unit="person")
    app = studio(tmp_path).app
    opened.clear()
    for asked in (TABLE, PERSONS, AUTO):
        assert "The guarantee" in ask(app, "POST", "/fence/live", form=form_of(asked)).text
        ask(app, "POST", "/fence/columns", form=form_of(asked, names="age,dose"))
        for path in ("", "forecast", "ledger", "verify", "words"):
            assert ask(app, "GET", f"/fence/{path}").status == 200
    # Not by this process when it is pressed, either: another one reads them.
    form = form_of(PERSONS, key=key_of(app))
    assert ask(app, "POST", "/fence/release", form=form).status == 303
    assert len(started) == 1
    assert [name for name in opened if "visits.csv" in name] == []
    # What is opened would be found.
    (tmp_path / "visits.csv").read_bytes()
    assert [name for name in opened if "visits.csv" in name] != []


def test_a_question_never_releases(tmp_path: Path, started: list[Any]) -> None:
    app = studio(tmp_path).app
    key = key_of(app)
    ask(app, "POST", "/fence/live", form=form_of(TABLE))
    query = "&".join(f"{name}={value}" for name, value in form_of(TABLE, key=key))
    for path in ("release", "", "run/x/finish", "run/x/stop", "example", "ledger/budget", "live", "columns"):
        ask(app, "GET", f"/fence/{path}", query=query)
    assert started == []
    assert [path.name for path in tmp_path.iterdir()] == ["visits.csv"]


def test_a_page_that_is_sent_twice_releases_once(tmp_path: Path, started: list[Any]) -> None:
    app = studio(tmp_path).app

    def release(key: str) -> Any:
        return ask(app, "POST", "/fence/release", form=form_of(TABLE, key=key))

    key = key_of(app)
    first = release(key)
    assert (first.status, first.headers["location"]) == (303, "/fence/run/run")
    # Nor does another page while the first release is made.
    for other in (key, key_of(app), "", "made-up"):
        assert release(other).status == 409
    assert len(started) == 1


def test_a_key_is_good_once() -> None:
    keys = FormKeys()
    key = keys.new()
    assert (keys.use(key), keys.use(key), keys.use("")) == (True, False, False)
    old = keys.new()
    for _ in range(300):
        keys.new()
    assert not keys.use(old)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (replace(TABLE, unit=""), "Choose the unit of privacy"),
        (replace(TABLE, data="elsewhere.csv"), "no such file"),
        (replace(TABLE, ledger="none.db", dataset="d"), "ledger"),
        (replace(TABLE, ledger="l.db", dataset="visits", epsilon="3"), "exceeds the remaining budget"),
        (replace(PERSONS, ledger="l.db"), "unit"),
        (replace(TABLE, columns=(Column("age", "number", "9:1"),)), "greater|&gt; 9"),
    ],
)
def test_what_is_not_right_is_not_begun(asked: FormData, words: str, tmp_path: Path, started: list[Any]) -> None:
    Ledger.create(f"sqlite:///{tmp_path / 'l.db'}").add_dataset("visits", epsilon=2, delta=1e-5)
    app = studio(tmp_path).app
    found = ask(app, "POST", "/fence/release", form=form_of(asked, key=key_of(app)))
    assert (found.status, 'id="problems"' in found.text) == (422, True)
    assert re.search(words, found.text)
    assert started == []


def test_what_is_typed_is_shown_as_text(tmp_path: Path) -> None:
    app = studio(tmp_path).app
    evil = '"><script>alert(1)</script>'
    forms = {
        "live": form_of(replace(TABLE, out=evil, data=evil)),
        "columns": form_of(TABLE, names=evil),
        "verify": [("folder", evil)],
        "ledger/budget": [("dataset", evil), ("epsilon", evil)],
    }
    shown = [ask(app, "POST", f"/fence/{path}", form=form).text for path, form in forms.items()]
    assert all("<script>alert" not in text for text in (*shown, ask(app, "GET", "/fence/").text))


def test_paths_that_no_system_has_and_marks_that_cannot_be_printed(tmp_path: Path) -> None:
    found, long = studio(tmp_path), "x" * 5_000
    for path, form, status in (
        ("release", form_of(replace(TABLE, data=long), key=key_of(found.app)), 422),
        ("verify", [("folder", long)], 422),
        ("verify", [("folder", "."), ("key", long)], 422),
        ("verify", [("folder", "\x00")], 422),
        ("live", form_of(replace(TABLE, out=long, ledger=long, dataset="d")), 200),
        ("ledger", [("file", "\x00")], 303),
        ("ledger", [("file", long)], 303),
    ):
        assert ask(found.app, "POST", f"/fence/{path}", form=form).status == status
    assert ask(found.app, "GET", "/fence/ledger").status == 200
    for name in ("data", "ledger", "out", "label"):
        form = form_of(replace(TABLE, dataset="d", **{name: "a\x00\x1b[31mb"}))
        assert ask(found.app, "POST", "/fence/live", form=form).status == 200
        assert getattr(found.asked, name) == "a[31mb"


def test_a_budget_is_given_once_with_a_unit_that_was_chosen(tmp_path: Path) -> None:
    app = studio(tmp_path).app
    form = {"file": "l.db", "dataset": "visits", "epsilon": "4", "delta": "1e-5", "mode": "adaptive"}
    for more, status in (({}, 422), ({"unit": "person"}, 303), ({"unit": "person"}, 422)):
        assert ask(app, "POST", "/fence/ledger/budget", form={**form, **more}.items()).status == status
        assert (tmp_path / "l.db").exists() == bool(more)
    budget = Ledger.open(f"sqlite:///{tmp_path / 'l.db'}").stated_budget("visits")
    assert (budget.epsilon, budget.unit, budget.mode) == (4.0, "person", "adaptive")
    assert "visits" in ask(app, "GET", "/fence/ledger").text


def test_a_folder_that_does_not_hold_shows_nothing_more(tmp_path: Path) -> None:
    app = studio(tmp_path).app
    (tmp_path / "sent").mkdir()
    (tmp_path / "sent" / "certificate.json").write_text('{"epsilon": 0.1, "evil": "<script>"}')
    place = ask(app, "POST", "/fence/verify", form=[("folder", "sent"), ("key", "")]).headers["location"]
    assert "does not pass" in ask(app, "GET", f"{place}/verified").text
    assert [ask(app, "GET", f"{place}/{page}").status for page in ("report", "certificate")] == [422, 422]
    assert "Sample rows are not possible" in ask(app, "GET", f"{place}/rows").text
    assert ask(app, "GET", "/fence/folder/other/verified").status == 404
    assert ask(app, "POST", "/fence/verify", form=[("folder", "nowhere")]).status == 422


@pytest.mark.parametrize("seeded", [False, True])
def test_a_seeded_release_does_not_pass(seeded: bool, tmp_path: Path) -> None:
    make_release(tmp_path / "sent", insecure=seeded)
    assert repr(pm.verify(tmp_path / "sent")).startswith("FAIL: not private" if seeded else "PASS: release")
    app = studio(tmp_path).app
    place = ask(app, "POST", "/fence/verify", form=[("folder", "sent"), ("key", "")]).headers["location"]
    page = ask(app, "GET", f"{place}/verified").text
    assert ("FAIL: not private" in page, "PASS" in page, "right at most" in page) == (seeded, not seeded, not seeded)


def test_the_price_is_the_plans_and_follows_from_what_is_declared() -> None:
    facts = facts_of(TABLE)
    # Age with a place for empty cells, two wards, one truth; the name is not used.
    assert (facts.dim, facts.classes, facts.persons) == (5, ("no", "yes"), False)
    found = price_of(facts, 2.0)
    assert found.plan is not None
    assert found.epsilon <= 2.0
    assert 0.5 < found.right < price_of(facts, 4.0).right < 1
    assert 0.05 < found.caught < 1
    assert price_of(facts_of(PERSONS), 2.0).unit.one == "person"
    assert facts_of(IMAGES).dim == 256
    # Where the planner is to choose, no more is said than any plan promises.
    open_to_all = price_of(facts_of(AUTO), 2.0)
    assert open_to_all.plan is None
    assert open_to_all.right >= found.right
    with pytest.raises(Unready, match="got"):
        facts_of(replace(TABLE, columns=(Column("age", "number", "9:1"),)))
    # The curve is read between its points and not beyond.
    assert between({}, 1.0) is between({1.0: 0.5, 4.0: 0.9}, 8.0) is None
    assert between({1.0: 0.5, 4.0: 0.9}, 4.0) == pytest.approx(0.9)


def test_a_forecast_that_nobody_waits_for_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    first = facts_of(TABLE)
    second = replace(first, records=500)
    begun, told = threading.Event(), threading.Event()
    stale: list[DataFacts] = []

    def forecast(facts: DataFacts, tell: Any) -> None:
        if facts == second:
            return tell(RunningForecast({1.0: 0.7}, 1, 1))
        begun.set()
        assert told.wait(10)
        try:
            tell(RunningForecast(done=1, total=2))
        except Exception:
            stale.append(facts)
            raise

    monkeypatch.setattr(pricing, "forecast_of", forecast)
    forecasts = Forecasts()
    assert not forecasts.ask(first).ready
    assert begun.wait(10)
    forecasts.ask(second)
    told.set()
    assert until(lambda: forecasts.ask(second).ready)
    assert stale == [first]
    forecasts.close()


def test_a_forecast_that_fails_is_said_and_made_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    def forecast(facts: DataFacts, tell: Any) -> None:
        raise StorageError("no encoder here")

    monkeypatch.setattr(pricing, "forecast_of", forecast)
    forecasts, facts = Forecasts(), facts_of(TABLE)
    assert until(lambda: forecasts.ask(facts).ready)
    assert forecasts.ask(facts).failed == "no encoder here"
    forecasts.close()


def test_a_forecast_grows_to_its_end_and_is_of_the_area_under_the_curve_where_shares_are_given() -> None:
    found: list[RunningForecast] = []
    pricing.forecast_of(replace(facts_of(TABLE), dim=3), found.append)
    assert len(found) == len(pricing.EPSILONS)
    assert (found[0].ready, found[-1].ready) == (False, True)
    curve = found[-1].curve
    assert curve[max(curve)] > curve[min(curve)]
    pricing.forecast_of(replace(facts_of(replace(TABLE, shares="97, 3", attainable="80")), dim=3), found.append)
    # Always naming the first class is right in 97 of 100: an accuracy would be there at every epsilon.
    assert max(found[-1].curve.values()) < 0.85


def worked(order: Order) -> dict[str, Any]:
    """The last that a worker tells, of whose words none is a record's."""
    told: list[dict[str, Any]] = []
    worker.work(order, told.append, resume=False)
    assert "secretvalue" not in json.dumps(told)
    return told[-1]


def test_the_worker_tells_hundredths_and_no_value_of_a_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    visits(tmp_path / "visits.csv", answers=("no", "secretvalue"))
    last = worked(Order.of(replace(TABLE, records="404")))
    assert (bool(last["error"]), last["stopped"]) == (True, False)
    assert "nothing was spent" in last["spent"] or last["kept"]
    # A column of the header that was not declared ends it before a charge.
    last = worked(Order.of(replace(TABLE, columns=TABLE.columns[:2])))
    assert "no declaration of name, a=b" in last["error"]
    assert last["spent"] == ""
    for error in (RuntimeError("secretvalue"), KeyboardInterrupt()):
        monkeypatch.setattr(Order, "carry_out", lambda *_, error=error, **__: (_ for _ in ()).throw(error))
        last = worked(Order.of(TABLE))
        assert ("RuntimeError" in last["error"], bool(last["stopped"])) in ((True, False), (False, True))


def test_the_worker_is_a_process_that_takes_no_code_from_the_folder(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("open('taken', 'w').close()")
    (tmp_path / "privmix.py").write_text("open('taken', 'w').close()")
    runs = Runs()
    run = runs.start(Order.of(replace(TABLE, data="nowhere.csv")), tmp_path)
    with pytest.raises(Busy):
        runs.start(run.order, tmp_path)
    assert until(lambda: run.state != RUNNING, 90)
    assert run.state == FAILED
    assert "nowhere.csv" in run.error
    assert not (tmp_path / "taken").exists()
    runs.close()


def until(true: Any, seconds: float = 20.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if true():
            return True
        time.sleep(0.02)
    return False


def test_it_serves_the_folder_and_prints_the_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def run(folder: Path, port: int, *, browser: bool, say: Any) -> None:
        asked.append((folder, port, browser))
        say("http://127.0.0.1:1/f/?token=t")

    monkeypatch.setattr(server, "run", run)
    found = privmix("studio", tmp_path, "--no-browser", "--port", "8124").passed()
    assert asked == [(tmp_path, 8124, False)]
    assert found.out.startswith("studio: http://127.0.0.1:1/f/?token=t\n")
