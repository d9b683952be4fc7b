"""The studio's pages and what they do: from a dataset that is named to a release that holds."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import Route

from privmix.errors import PrivmixError
from privmix.studio import asked as asking
from privmix.studio.asked import FormData, Problem, Unready
from privmix.studio.folders import Folders, Ledgers
from privmix.studio.order import Order
from privmix.studio.pages import ASSETS, Desk, write_example
from privmix.studio.price import DataFacts, Forecasts, Standing, between, facts_of, price_of, standing
from privmix.studio.runs import DONE, RUNNING, Busy, StudioRun
from privmix.studio.security import AccessGuard, Guard


class Studio:
    """State of one studio: form data, the running release, opened folders.

    Formal guarantees:
        * Nothing private is read before "release" is pressed: until then no file is opened but a ledger and the
          folders that are verified; columns, classes and counts are declared.
        * In another process: the private data are read by a process of its own (:class:`privmix.studio.runs.Runs`).
        * No question changes anything: releases, ledgers and files are made by POST alone, a release by a key that is
          good once.
        * Nothing leaves the machine: pages load nothing from elsewhere, and may not.
    """

    def __init__(self, folder: Path, door: AccessGuard) -> None:
        self.desk: Final = Desk(folder, door)
        self.asked: FormData = FormData()
        self._forecasts = Forecasts()
        self._folders, self._books = Folders(self.desk), Ledgers(self.desk)
        inner = Starlette(routes=[*self._routes(), *self._folders.routes(), *self._books.routes()])
        inner.add_exception_handler(404, self._missing)
        inner.add_exception_handler(500, self._defect)
        self.app: Final = Guard(inner, door)

    def _routes(self) -> list[Route]:
        return [
            Route("/", self.new, methods=["GET"]),
            Route("/words", self.words, methods=["GET"]),
            Route("/forecast", self.forecast, methods=["GET"]),
            Route("/static/{name}", self.asset, methods=["GET"]),
            Route("/run/{id}", self.run, methods=["GET"]),
            Route("/run/{id}/progress", self.progress, methods=["GET"]),
            Route("/live", self.live, methods=["POST"]),
            Route("/columns", self.columns, methods=["POST"]),
            Route("/example", self.example, methods=["POST"]),
            Route("/release", self.release, methods=["POST"]),
            Route("/run/{id}/stop", self.stop, methods=["POST"]),
            Route("/run/{id}/finish", self.finish, methods=["POST"]),
        ]

    def close(self) -> None:
        """End what is going on; a release that is made can be finished later."""
        self._forecasts.close()
        self.desk.runs.close()

    async def new(self, request: Request) -> Response:
        return self._new()

    def _new(self, problems: list[Problem] | None = None) -> Response:
        status = 422 if problems else 200
        return self.desk.page(
            "new", status, asked=self.asked, problems=problems or [], key=self.desk.keys.new(), asking=asking
        )

    async def words(self, request: Request) -> Response:
        return self.desk.page("words")

    async def asset(self, request: Request) -> Response:
        # A fixed list: no path of a request reaches the disk.
        if (found := ASSETS.get(request.path_params["name"])) is None:
            raise HTTPException(404)
        return FileResponse(found[0], media_type=found[1])

    async def columns(self, request: Request) -> Response:
        """Rows for the columns whose names were typed, or one more row."""
        pairs = await self.desk.form(request)
        found = FormData.of_form(pairs)
        typed = next((value for name, value in pairs if name == "names"), "")
        names = [name.strip().strip('"') for line in typed.splitlines() for name in line.split(",")]
        apart = (found.label, found.person)
        found = found.with_columns([name for name in names if name not in apart])
        if not any(names):
            found = replace(found, columns=(*found.columns, asking.Column("")))
        self.asked = found
        return self.desk.page("_columns", asked=found, asking=asking)

    async def example(self, request: Request) -> Response:
        try:
            self.asked = await run_in_threadpool(write_example, self.desk.folder)
        except PrivmixError as error:
            return self._new([Problem("", str(error))])
        return self.desk.to("")

    async def live(self, request: Request) -> Response:
        """Price, ledger and commands of the current form."""
        self.asked = FormData.of_form(await self.desk.form(request))
        # In a thread: a price takes up to a second, in which other requests would wait.
        return await run_in_threadpool(self._live)

    def _live(self) -> Response:
        try:
            facts, price = self._priced()
        except Unready as unready:
            return self.desk.page("_live", ready=False, problems=unready.problems)
        order = Order.of(self.asked)
        return self.desk.page(
            "_live", ready=True, price=price, stands=self._standing(price), order=order, **self._forecast(facts)
        )

    def _priced(self) -> tuple[DataFacts, Any]:
        facts = facts_of(self.asked)
        return facts, price_of(facts, asking.number(self.asked, "epsilon"))

    def _standing(self, price: Any) -> Standing | None:
        return standing(self.asked, price, self._books.address(self.asked.ledger))

    def _forecast(self, facts: DataFacts) -> dict[str, Any]:
        found, epsilon = self._forecasts.ask(facts), asking.number(self.asked, "epsilon")
        # A simulated figure below guessing is noise.
        expected = between(found.curve, epsilon)
        return {
            "forecast": found,
            "epsilon": epsilon,
            "expected": None if expected is None else max(expected, facts.chance),
            "chance": facts.chance,
            "always": max(facts.shares, default=None),
            "attainable": facts.attainable,
        }

    async def forecast(self, request: Request) -> Response:
        try:
            facts = await run_in_threadpool(facts_of, self.asked)
        except Unready:
            return HTMLResponse("")
        return self.desk.page("_forecast", **self._forecast(facts))

    async def release(self, request: Request) -> Response:
        """Begin the release. From here on private data are read."""
        pairs = await self.desk.form(request)
        self.asked = FormData.of_form(pairs)
        return await run_in_threadpool(self._release, dict(pairs).get("key", ""))

    def _release(self, key: str) -> Response:
        try:
            # Priced again: what was sent may differ from the form whose price was shown.
            _, price = self._priced()
        except Unready as unready:
            return self._new(list(unready.problems))
        stands = self._standing(price)
        if stands is not None and stands.fits is False:
            return self._new([Problem("dataset", stands.words)])
        # A pattern or an address is no single file: the release reports on these.
        if not set("*?[:") & set(self.asked.data) and not self.desk.is_there(self.asked.data):
            return self._new([Problem("data", "There is no such file or folder on this machine.")])
        return self._begin(Order.of(self.asked), key)

    def _begin(self, order: Order, key: str, *, resume: bool = False) -> Response:
        if not self.desk.keys.use(key):
            return self.desk.page("refused", 409, words="This form was already submitted: it was not processed again.")
        try:
            run = self.desk.runs.start(order, self.desk.folder, resume=resume)
        except Busy:
            return self.desk.page("refused", 409, words="A release is running: wait for it, or stop it first.")
        return self.desk.to(f"run/{run.id}")

    def _found(self, request: Request) -> StudioRun:
        if (run := self.desk.runs.get(request.path_params["id"])) is None:
            raise HTTPException(404)
        return run

    async def run(self, request: Request) -> Response:
        run = self._found(request)
        if run.state == DONE:
            return self.desk.to(f"folder/{self._folders.open(run.out, run.order.columns.get('label', 'label'))}")
        return self.desk.page("run", run=run, key=self.desk.keys.new())

    async def progress(self, request: Request) -> Response:
        """How far a release is; at its end the browser goes on to what came of it."""
        run = self._found(request)
        found = self.desk.page("_progress", run=run)
        if run.state != RUNNING:
            found.headers["HX-Redirect"] = f"{self.desk.root}run/{run.id}"
        return found

    async def stop(self, request: Request) -> Response:
        """Stop the release that is made; what was paid for is kept."""
        run = self._found(request)
        # A page that was left open may name a run that has ended.
        if run is self.desk.runs.running:
            await run_in_threadpool(self.desk.runs.close)
        return self.desk.to(f"run/{run.id}")

    async def finish(self, request: Request) -> Response:
        """Finish a release that was interrupted: it is not charged again."""
        run = self._found(request)
        key = dict(await self.desk.form(request)).get("key", "")
        if not run.kept:
            return self.desk.page("refused", 409, words="There is no interrupted run to finish.")
        return self._begin(run.order, key, resume=True)

    async def _defect(self, request: Request, error: Exception) -> Response:
        # The kind alone: the text of an error may hold a private value.
        return self.desk.page("refused", 500, words=f"This is a bug in privmix ({type(error).__name__}).")

    async def _missing(self, request: Request, error: Exception) -> Response:
        return self.desk.page("refused", 404, words="There is no such page.")
