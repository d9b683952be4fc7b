"""Access to the studio: one browser on this machine that has the address, and only pages of the studio."""
# Every program and user of the machine, and every open web page, can reach a server on 127.0.0.1.

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
    # Markup that a stranger's text might become can load nothing and send nothing.
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    # Pages name the owner's data: browsers must not keep copies.
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
"""Headers of every response, unless a response sets stricter ones."""


@dataclass(frozen=True)
class AccessGuard:
    """Check of a request's token or cookie, host and origin.

    Formal guarantees:
        * Shown: who has neither the token of the address nor the cookie that it was changed for learns nothing.
        * Constant time: both are compared in a time that does not depend on where they differ.
        * By name: the ``Host`` is this machine's loopback address at this port: a name that an attacker lets point here
          (DNS rebinding) does not get in.
        * Own pages only: a request that changes something comes from a page of the studio (``Origin``). The cookie goes
          to no other site (``SameSite=Strict``) and to no script (``HttpOnly``). Since cookies know no ports, it also
          stands under a path that no other server of the machine can know.
    """

    # token: in the printed address; session: of the cookie; fence: the first part of every path.

    port: int
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    session: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    fence: str = field(default_factory=lambda: secrets.token_urlsafe(12), repr=False)

    @property
    def root(self) -> str:
        return f"/{self.fence}/"

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}{self.root}?token={self.token}"

    @property
    def cookie(self) -> str:
        return f"{COOKIE}={self.session}; Path={self.root}; HttpOnly; SameSite=Strict"

    def refusal(self, method: str, path: str, headers: list[tuple[bytes, bytes]], query: bytes) -> str | None:
        """Return why a request is refused, or None; header names in lower case."""
        hosts = [f"127.0.0.1:{self.port}", f"localhost:{self.port}"]
        host = _only(headers, b"host")
        if host not in hosts:
            return "This address does not belong to the studio."
        if method not in ("GET", "POST"):
            return "The studio supports only GET and POST requests."
        if not path.startswith(self.root):
            return "This address is incomplete."
        if method == "POST" and _only(headers, b"origin") != f"http://{host}":
            return "This request came from another page."
        if self.enters(method, path, query):
            return None
        # Older browsers do not send this header.
        if _only(headers, b"sec-fetch-site") not in (None, "same-origin", "none"):
            return "This request came from another page."
        if not any(_equal(one, self.session) for one in _cookies(headers)):
            return "The address has no valid token, or the studio was restarted."
        return None

    def enters(self, method: str, path: str, query: bytes) -> bool:
        """Whether this is the address with the token."""
        given = parse_qs(query.decode("latin-1")).get("token", [])
        return method == "GET" and path == self.root and len(given) == 1 and _equal(given[0], self.token)


class Guard:
    """Middleware that lets requests in by `door` and sets security headers; app paths begin behind the fence."""

    def __init__(self, app: App, door: AccessGuard) -> None:
        self._app, self._door = app, door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            # There are no WebSockets: such a connection gets no answer.
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        door, path = self._door, scope["path"]
        method, headers, query = scope["method"], scope["headers"], scope["query_string"]
        refused = door.refusal(method, path, headers, query)
        if refused is not None:
            text = f"<h1>Access denied</h1><p>{refused} Use the address that privmix studio printed.</p>"
            await _answer(send, 403, text)
        elif door.enters(method, path, query):
            # A redirect would still count as coming from where the address was opened, and would get no cookie.
            text = f'<meta http-equiv="refresh" content="0; url={door.root}"><p><a href="{door.root}">Continue</a></p>'
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
    # Several are refused as a wrong one is: servers differ in which of them counts.
    found = [value.decode("latin-1") for key, value in headers if key.lower() == name]
    return None if not found else found[0] if len(found) == 1 else ""


def _cookies(headers: list[tuple[bytes, bytes]]) -> list[str]:
    """Values of the cookies with our name."""
    # Several, since cookies know no ports: another server of this machine may have set one of this name.
    pairs = [one.strip().partition("=") for one in (_only(headers, b"cookie") or "").split(";")]
    return [value for name, _, value in pairs if name == COOKIE]


def _equal(given: str, secret: str) -> bool:
    return compare_digest(given.encode(), secret.encode())
