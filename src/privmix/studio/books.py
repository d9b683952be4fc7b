"""The page of the ledger: what each dataset may cost in all, what is gone, and a new budget."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from privmix.errors import PrivmixError, check_number
from privmix.ledger.ledger import Budget, Ledger
from privmix.studio.asked import PERSON, RECORD, Problem, plain
from privmix.studio.desk import Desk

_FILTER = "gdp"
_START = {"file": "ledger.db", "dataset": "", "epsilon": "", "delta": "1e-5", "unit": "", "mode": "adaptive"}


class Ledgers:
    """The pages of ledgers. A ledger holds public figures and no records."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._file = _START["file"]

    def routes(self) -> list[Route]:
        return [
            Route("/ledger", self.show, methods=["GET"]),
            Route("/ledger", self.look, methods=["POST"]),
            Route("/ledger/budget", self.begin, methods=["POST"]),
        ]

    def address(self, file: str) -> str:
        return f"sqlite:///{self._desk.path(file)}"

    async def show(self, request: Request) -> Response:
        return await run_in_threadpool(self._page, _START, [])

    async def look(self, request: Request) -> Response:
        given = dict(await self._desk.form(request))
        self._file = given.get("file", "").strip() or _START["file"]
        return self._desk.to("ledger")

    async def begin(self, request: Request) -> Response:
        """Give a dataset its budget, once and for all."""
        given = {**_START, **dict(await self._desk.form(request))}
        said = {name: given[name].strip() for name in _START}
        return await run_in_threadpool(self._begin, said)

    def _begin(self, said: dict[str, str]) -> Response:
        problems = []
        if said["unit"] not in (RECORD, PERSON):
            problems.append(Problem("unit", "Choose the unit of privacy: a budget keeps its unit."))
        if not said["dataset"]:
            problems.append(Problem("dataset", "Enter a name for the dataset."))
        if problems:
            return self._page(said, problems, 422)
        try:
            epsilon, delta = _number("epsilon", said["epsilon"]), _number("delta", said["delta"])
            self._file = said["file"] or _START["file"]
            Ledger.create(self.address(self._file)).add_dataset(
                said["dataset"],
                epsilon=epsilon,
                delta=delta,
                adaptive=_FILTER if said["mode"] == "adaptive" else None,
                unit=said["unit"],
            )
        except PrivmixError as error:
            field = getattr(error, "field", "")
            return self._page(said, [Problem(field if field in said else "", plain(error))], 422)
        return self._desk.to("ledger")

    def _page(self, said: dict[str, str], problems: list[Problem], status: int = 200) -> Response:
        budgets, words = self._budgets()
        return self._desk.page(
            "ledger", status, file=self._file, said=said, budgets=budgets, words=words, problems=problems
        )

    def _budgets(self) -> tuple[list[Budget], str]:
        if not self._desk.is_there(self._file):
            return [], "This file holds no ledger yet. The first budget creates it."
        try:
            book = Ledger.open(self.address(self._file))
            return [book.stated_budget(name) for name in book.names()], ""
        except PrivmixError as error:
            return [], plain(error)


def _number(name: str, text: str) -> float:
    try:
        return check_number(name, float(text))
    except ValueError:
        return check_number(name, text)
