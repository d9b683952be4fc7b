"""Pages of folders, verified before they are shown, and of the ledger."""

import secrets
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from privmix.certificate.certificate import RELEASE, Certificate
from privmix.certificate.guarantee import Guarantee
from privmix.commands.report import report
from privmix.commands.verify import verify
from privmix.errors import PrivmixError
from privmix.jobs.checking import CheckedFolder
from privmix.jobs.kinds import read_certified
from privmix.jobs.sampling import sampled
from privmix.ledger.entries import Budget
from privmix.ledger.ledger import Ledger
from privmix.studio.asked import PERSON, RECORD, Problem, number_in, plain
from privmix.studio.pages import Desk

# It carries every design; the other filter refuses bounds with a failure probability.
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
            epsilon, delta = number_in("epsilon", said["epsilon"]), number_in("delta", said["delta"])
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


_ROWS: Final = 12
# A report has its style inside and no script; it may do nothing else.
REPORT_POLICY: Final = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; frame-ancestors 'none'; sandbox"


@dataclass
class OpenFolder:
    """A named folder; ``label``: name of the class column in sampled rows; ``key``: required signer's, if any."""

    path: Path
    label: str = "label"
    key: Path | None = None
    lock: Lock = field(default_factory=Lock, repr=False)
    parts: dict[str, Any] = field(default_factory=dict, repr=False)

    def once(self, name: str, make: Any) -> Any:
        """Return a part that was made before, or make it now."""
        # Two requests of one page must not verify a large folder twice.
        with self.lock:
            if name not in self.parts:
                self.parts[name] = make()
            return self.parts[name]


@dataclass(frozen=True)
class FolderPage:
    """View of a verified folder; ``right``, ``caught``: bounds on the best attack, None without a certificate."""

    # forecast: accuracy with and without privacy, by the planner.

    checked: CheckedFolder
    certificate: Certificate | None = None
    right: float | None = None
    caught: float | None = None
    forecast: tuple[float, float] | None = None


class Folders:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._open: dict[str, OpenFolder] = {}

    def routes(self) -> list[Route]:
        return [
            Route("/verify", self.ask, methods=["GET"]),
            Route("/verify", self.verify, methods=["POST"]),
            Route("/folder/{id}", self.folder, methods=["GET"]),
            Route("/folder/{id}/verified", self.verified, methods=["GET"]),
            Route("/folder/{id}/rows", self.rows, methods=["GET"]),
            Route("/folder/{id}/report", self.report, methods=["GET"]),
            Route("/folder/{id}/certificate", self.certificate, methods=["GET"]),
        ]

    def open(self, path: Path, label: str = "label", key: Path | None = None) -> str:
        """Remember a folder and return its name in addresses. No file is read yet."""
        # A folder keeps its address: links of earlier pages stay valid.
        for known, found in self._open.items():
            if (found.path, found.key) == (path, key):
                return known
        # No path stands in an address, which browsers keep and may send on.
        name = secrets.token_urlsafe(9)
        self._open[name] = OpenFolder(path, label, key)
        return name

    def _found(self, request: Request) -> OpenFolder:
        if (found := self._open.get(request.path_params["id"])) is None:
            raise HTTPException(404)
        return found

    async def ask(self, request: Request) -> Response:
        return self._desk.page("verify", folder_text="", key_text="", problems=[])

    async def verify(self, request: Request) -> Response:
        given = dict(await self._desk.form(request))
        named, key = given.get("folder", "").strip(), given.get("key", "").strip()
        place = self._desk.path(named)
        problems = []
        if not named or not self._desk.is_there(named):
            problems.append(Problem("folder", "Enter a folder on this machine."))
        if key and not self._desk.is_there(key, file=True):
            problems.append(Problem("key", "This file does not exist or holds no public key."))
        if problems:
            return self._desk.page("verify", 422, folder_text=named, key_text=key, problems=problems)
        name = self.open(place, key=self._desk.path(key) if key else None)
        # A repeated request checks the folder again.
        self._open[name].parts.clear()
        return self._desk.to(f"folder/{name}")

    async def folder(self, request: Request) -> Response:
        return self._desk.page("folder", id=request.path_params["id"], opened=self._found(request))

    async def verified(self, request: Request) -> Response:
        """Return the result of verification; a folder that fails shows nothing."""
        opened = self._found(request)
        try:
            shown = await run_in_threadpool(opened.once, "shown", lambda: shown_of(opened))
        except PrivmixError as error:
            # The page alone: a folder that fails shows no figure of its own.
            return self._desk.page("_broken", words=plain(error))
        return self._desk.page("_verified", id=request.path_params["id"], shown=shown, release=RELEASE)

    async def rows(self, request: Request) -> Response:
        """Return a few sampled rows; no row is a real record."""
        opened = self._found(request)
        try:
            table = await run_in_threadpool(opened.once, "rows", lambda: _rows(opened))
        except PrivmixError as error:
            return self._desk.page("_rows", table=None, words=plain(error))
        return self._desk.page("_rows", table=table, words="")

    async def report(self, request: Request) -> Response:
        opened = self._found(request)
        try:
            text = await run_in_threadpool(opened.once, "report", lambda: report(opened.path).page)
        except PrivmixError as error:
            return self._desk.page("refused", 422, words=plain(error))
        return HTMLResponse(text, headers={"content-security-policy": REPORT_POLICY})

    async def certificate(self, request: Request) -> Response:
        """Return the certificate's file after verification passed."""
        opened = self._found(request)
        try:
            shown = await run_in_threadpool(opened.once, "shown", lambda: shown_of(opened))
        except PrivmixError as error:
            return self._desk.page("refused", 422, words=plain(error))
        if shown.certificate is None:
            raise HTTPException(404)
        headers = {"content-disposition": 'attachment; filename="certificate.json"'}
        return Response(shown.certificate.to_bytes(), media_type="application/json", headers=headers)


def shown_of(opened: OpenFolder) -> FolderPage:
    """Verify a folder and return its view, or raise PrivmixError."""
    checked = verify(opened.path, key=opened.key, progress=False)
    if checked.held is None:
        return FolderPage(checked)
    certificate = read_certified(opened.path)
    promise = Guarantee.of(certificate)
    choice = certificate.get("choice")
    forecast = (choice["predicted"][choice["chosen"]], choice["attainable"][1]) if choice else None
    return FolderPage(checked, certificate, promise.right, promise.caught(0.05), forecast)


def _rows(opened: OpenFolder) -> tuple[list[str], list[list[Any]]]:
    found = sampled(opened.path, _ROWS, opened.label, 0)
    return list(found.columns), [list(row.values()) for row in found.table().to_pylist()]
