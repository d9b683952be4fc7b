"""State that every page of the studio shares: the folder, the release that is made, forms, pages."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse

from privmix.fields import printable
from privmix.studio.pages import render
from privmix.studio.runs import FormKeys, Runs, StudioRun
from privmix.studio.security import AccessGuard

_MOST_BYTES: Final = 2**20
_MOST_FIELDS: Final = 5000


class Desk:
    """State that pages share: `folder`: base of paths, `door`: access."""

    def __init__(self, folder: Path, door: AccessGuard) -> None:
        self.folder, self.root = folder, door.root
        self.runs, self.keys = Runs(), FormKeys()

    @property
    def running(self) -> StudioRun | None:
        return self.runs.running

    def page(self, name: str, status: int = 200, **content: Any) -> HTMLResponse:
        shared = {"root": self.root, "place": self.folder, "running": self.running}
        return HTMLResponse(render(name, **shared, **content), status)

    def to(self, path: str) -> RedirectResponse:
        return RedirectResponse(self.root + path, 303)

    def path(self, text: str) -> Path:
        """Return a path as it was typed: in the studio's folder, unless it is a whole one."""
        return self.folder / Path(text)

    def is_there(self, text: str, *, file: bool = False) -> bool:
        """Whether such a path, or file, is on this machine; False for a name that the system refuses."""
        return (os.path.isfile if file else os.path.exists)(self.path(text))

    async def form(self, request: Request) -> list[tuple[str, str]]:
        """Return a form's fields; raise HTTPException for one too large."""
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > _MOST_BYTES:
                raise HTTPException(413)
        try:
            pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors="strict")
        except ValueError:
            raise HTTPException(400) from None
        return [(name, "\n".join(printable(line, "") for line in text.split("\n"))) for name, text in pairs]
