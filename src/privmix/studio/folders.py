"""Folders that hold a release or a model, one's own or somebody else's: verified first, shown after."""

from __future__ import annotations

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

from privmix.certificate import Certificate
from privmix.certificate.certificate import RELEASE
from privmix.certificate.guarantee import Guarantee
from privmix.commands.report import report
from privmix.commands.verify import verify
from privmix.errors import PrivmixError
from privmix.jobs.checking import Checked
from privmix.jobs.kinds import certified
from privmix.jobs.sampling import sampled
from privmix.studio.asked import Problem
from privmix.studio.desk import Desk

_ROWS: Final = 12
# A report has its style inside and no script; it may do nothing else.
REPORT_POLICY: Final = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; frame-ancestors 'none'; sandbox"


@dataclass
class Opened:
    """A folder that was named.

    Attributes:
        path: of it.
        label: what the column of classes is called in rows that are made of it.
        key: of whoever must have signed it, if that is to be checked.
    """

    path: Path
    label: str = "label"
    key: Path | None = None
    lock: Lock = field(default_factory=Lock, repr=False)
    parts: dict[str, Any] = field(default_factory=dict, repr=False)

    def once(self, name: str, make: Any) -> Any:
        """What was made of it before, or is made now."""
        with self.lock:
            if name not in self.parts:
                self.parts[name] = make()
            return self.parts[name]


@dataclass(frozen=True)
class Shown:
    """What is shown of a folder that holds.

    Attributes:
        checked: what was checked.
        certificate: of it; None where there is none.
        right, caught: what the best attack can do; None where there is no certificate.
    """

    checked: Checked
    certificate: Certificate | None = None
    right: float | None = None
    caught: float | None = None


class Folders:
    """The pages of folders."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._open: dict[str, Opened] = {}

    def routes(self) -> list[Route]:
        """Of these pages."""
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
        """Remember a folder; its name in addresses. Nothing is read yet."""
        for known, found in self._open.items():
            if (found.path, found.key) == (path, key):
                return known
        name = secrets.token_urlsafe(9)
        self._open[name] = Opened(path, label, key)
        return name

    def _found(self, request: Request) -> Opened:
        if (found := self._open.get(request.path_params["id"])) is None:
            raise HTTPException(404)
        return found

    async def ask(self, request: Request) -> Response:
        """The page on which a folder is named."""
        return self._desk.page("verify", folder_text="", key_text="", problems=[])

    async def verify(self, request: Request) -> Response:
        """Open the folder that was named."""
        given = dict(await self._desk.form(request))
        named, key = given.get("folder", "").strip(), given.get("key", "").strip()
        place = self._desk.path(named)
        problems = []
        if not named or not self._desk.is_there(named):
            problems.append(Problem("folder", "Name a folder that is on this machine."))
        if key and not self._desk.is_there(key, file=True):
            problems.append(Problem("key", "There is no such file with a public key."))
        if problems:
            return self._desk.page("verify", 422, folder_text=named, key_text=key, problems=problems)
        name = self.open(place, key=self._desk.path(key) if key else None)
        # Whoever asks again wants it looked at again.
        self._open[name].parts.clear()
        return self._desk.to(f"folder/{name}")

    async def folder(self, request: Request) -> Response:
        """The page of a folder."""
        return self._desk.page("folder", id=request.path_params["id"], opened=self._found(request))

    async def verified(self, request: Request) -> Response:
        """What verification finds; nothing is shown of a folder that does not hold."""
        opened = self._found(request)
        try:
            shown = await run_in_threadpool(opened.once, "shown", lambda: shown_of(opened))
        except PrivmixError as error:
            return self._desk.page("_broken", words=_plain(error))
        return self._desk.page("_verified", id=request.path_params["id"], shown=shown, release=RELEASE)

    async def rows(self, request: Request) -> Response:
        """A few rows that the release could be of; nobody's."""
        opened = self._found(request)
        try:
            table = await run_in_threadpool(opened.once, "rows", lambda: _rows(opened))
        except PrivmixError as error:
            return self._desk.page("_rows", table=None, words=_plain(error))
        return self._desk.page("_rows", table=table, words="")

    async def report(self, request: Request) -> Response:
        """The report for the public, as a page of its own."""
        opened = self._found(request)
        try:
            text = await run_in_threadpool(opened.once, "report", lambda: report(opened.path).page)
        except PrivmixError as error:
            return self._desk.page("refused", 422, words=_plain(error))
        return HTMLResponse(text, headers={"content-security-policy": REPORT_POLICY})

    async def certificate(self, request: Request) -> Response:
        """The certificate's file, once it is known to hold."""
        opened = self._found(request)
        try:
            shown = await run_in_threadpool(opened.once, "shown", lambda: shown_of(opened))
        except PrivmixError as error:
            return self._desk.page("refused", 422, words=_plain(error))
        if shown.certificate is None:
            raise HTTPException(404)
        headers = {"content-disposition": 'attachment; filename="certificate.json"'}
        return Response(shown.certificate.to_bytes(), media_type="application/json", headers=headers)


def shown_of(opened: Opened) -> Shown:
    """What is to be shown of a folder.

    Raises:
        PrivmixError: it does not hold, or can't be read.
    """
    checked = verify(opened.path, key=opened.key, progress=False)
    if checked.held is None:
        return Shown(checked)
    certificate = certified(opened.path).read(opened.path)
    promise = Guarantee.of(certificate)
    return Shown(checked, certificate, promise.right, promise.caught(0.05))


def _rows(opened: Opened) -> tuple[list[str], list[list[Any]]]:
    found = sampled(opened.path, _ROWS, opened.label, 0)
    return list(found.columns), [list(row.values()) for row in found.table().to_pylist()]


def _plain(error: PrivmixError) -> str:
    return str(error).replace("`", "")
