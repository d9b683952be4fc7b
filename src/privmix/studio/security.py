"""Who gets in: one browser on this machine, which was shown the address, and no page but the studio's own.

A server on 127.0.0.1 is reached by every program and every user of the machine, and by every web page that the browser
has open. So each request is looked at before anything else sees it.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from hmac import compare_digest
from typing import Any, Final
from urllib.parse import parse_qs

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

COOKIE: Final = "privmix-studio"
HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
"""What every answer says, unless it says something stricter of its own."""


@dataclass(frozen=True)
class Door:
    """What a request must know or have, to get in.

    Formal guarantees:
        * Shown: who has neither the token of the address nor the cookie that it was changed for learns nothing.
        * Constant time: both are compared in a time that does not depend on where they differ.
        * By name: the ``Host`` is this machine's loopback address at this port: no name that somebody lets point here
          (DNS rebinding) gets in.
        * Own pages only: what changes something comes from a page of the studio (``Origin``); the cookie goes to no
          other site (``SameSite=Strict``), to no script (``HttpOnly``), and, since cookies know no ports, under a path
          that no other server of the machine can know.

    Attributes:
        port: at which the studio listens.
        token: of the address; whoever has it gets in.
        session: of the cookie.
        fence: the first part of every path.

    Example:
        >>> Door(8080, token="t", fence="f").address
        'http://127.0.0.1:8080/f/?token=t'
    """

    port: int
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    session: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    fence: str = field(default_factory=lambda: secrets.token_urlsafe(12), repr=False)

    @property
    def root(self) -> str:
        """What every path of the studio begins with."""
        return f"/{self.fence}/"

    @property
    def address(self) -> str:
        """The address with the token."""
        return f"http://127.0.0.1:{self.port}{self.root}?token={self.token}"

    @property
    def cookie(self) -> str:
        """The header that gives a browser its cookie."""
        return f"{COOKIE}={self.session}; Path={self.root}; HttpOnly; SameSite=Strict"

    def refusal(self, method: str, path: str, headers: list[tuple[bytes, bytes]], query: bytes) -> str | None:
        """Why a request is not let in, in words; None where it is.

        Args:
            method: of the request.
            path: as it was asked for.
            headers: in lower case.
            query: behind the question mark.
        """
        hosts = [f"127.0.0.1:{self.port}", f"localhost:{self.port}"]
        host = _only(headers, b"host")
        if host not in hosts:
            return "This address is not the studio's."
        if method not in ("GET", "POST"):
            return "The studio knows no such request."
        if not path.startswith(self.root):
            return "This address is not whole."
        if method == "POST" and _only(headers, b"origin") != f"http://{host}":
            return "This request came from another page."
        if self.enters(method, path, query):
            return None
        if _only(headers, b"sec-fetch-site") not in (None, "same-origin", "none"):
            return "This request came from another page."
        if not any(_equal(one, self.session) for one in _cookies(headers)):
            return "The address lacks its token, or the studio was started anew since."
        return None

    def enters(self, method: str, path: str, query: bytes) -> bool:
        """Whether this is the address with the token."""
        given = parse_qs(query.decode("latin-1")).get("token", [])
        return method == "GET" and path == self.root and len(given) == 1 and _equal(given[0], self.token)


class Guard:
    """Lets in who may come in, and says of every answer what browsers are to allow.

    Args:
        app: what answers those who are let in; its paths begin behind the fence.
        door: who that is.
    """

    def __init__(self, app: App, door: Door) -> None:
        self._app, self._door = app, door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI has it."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        door, path = self._door, scope["path"]
        method, headers, query = scope["method"], scope["headers"], scope["query_string"]
        refused = door.refusal(method, path, headers, query)
        if refused is not None:
            text = f"<h1>Not let in</h1><p>{refused} Use the address that privmix studio printed in the terminal.</p>"
            await _answer(send, 403, text)
        elif door.enters(method, path, query):
            # A redirect would still count as coming from where the address was opened, and would get no cookie.
            text = f'<meta http-equiv="refresh" content="0; url={door.root}"><p><a href="{door.root}">Go on</a></p>'
            await _answer(send, 200, text, {"set-cookie": door.cookie})
        else:
            inner = {**scope, "path": "/" + path.removeprefix(door.root), "root_path": ""}
            await self._app(inner, receive, _with_headers(send))


def _with_headers(send: Send) -> Send:
    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            own = {name for name, _ in message["headers"]}
            more = [(name.encode(), value.encode()) for name, value in HEADERS.items() if name.encode() not in own]
            message = {**message, "headers": [*message["headers"], *more]}
        await send(message)

    return sending


async def _answer(send: Send, status: int, body: str, more: dict[str, str] | None = None) -> None:
    page = f'<!doctype html><html lang="en"><head><title>privmix studio</title></head><body>{body}</body></html>'
    headers = {"content-type": "text/html; charset=utf-8", **HEADERS, **(more or {})}
    start = {"type": "http.response.start", "status": status}
    await send({**start, "headers": [(name.encode(), value.encode()) for name, value in headers.items()]})
    await send({"type": "http.response.body", "body": page.encode()})


def _only(headers: list[tuple[bytes, bytes]], name: bytes) -> str | None:
    """A header that is there once; several are as good as a wrong one."""
    found = [value.decode("latin-1") for key, value in headers if key.lower() == name]
    return None if not found else found[0] if len(found) == 1 else ""


def _cookies(headers: list[tuple[bytes, bytes]]) -> list[str]:
    """What cookies of our name hold: other servers of this machine may have set some, of this name too."""
    pairs = [one.strip().partition("=") for one in (_only(headers, b"cookie") or "").split(";")]
    return [value for name, _, value in pairs if name == COOKIE]


def _equal(given: str, secret: str) -> bool:
    return compare_digest(given.encode(), secret.encode())
