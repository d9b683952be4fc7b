"""A studio without a browser: requests as a browser on this machine makes them."""

import asyncio
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

from privmix.studio.app import Studio
from privmix.studio.asked import Column, FormData
from privmix.studio.security import COOKIE, AccessGuard

DOOR = AccessGuard(8000, token="token", session="session", fence="fence")
HOST = "127.0.0.1:8000"
BROWSER = {"host": HOST, "cookie": f"{COOKIE}=session", "origin": f"http://{HOST}"}

TABLE = FormData(
    data="visits.csv",
    label="ill",
    classes="no,yes",
    columns=(
        Column("age", "number", "0:120", empty=True),
        Column("ward", "category", "A,B"),
        Column("name", "ignore"),
        Column("a=b", "boolean"),
    ),
    unit="record",
    records="400",
    epsilon="2",
    out="REL",
)
IMAGES = FormData(
    what="images", data="scans", classes="2", image_size="16", colour="grey", unit="record", records="90", out="R"
)
PERSONS = replace(TABLE, unit="person", person="id", ledger="ledger.db", dataset="visits")
AUTO = replace(TABLE, design="auto", attainable="85")
UNEVEN = replace(AUTO, shares="88, 12")


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    text: str


def ask(
    app: Any, method: str, path: str, headers: Mapping[str, str] = BROWSER, form: Any = None, query: str = ""
) -> Answer:
    body = urlencode([] if form is None else list(form)).encode()
    sent: list[Any] = []
    parts = [{"type": "http.request", "body": body, "more_body": False}]
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }

    async def receive() -> dict[str, Any]:
        return parts.pop() if parts else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    start = next(one for one in sent if one["type"] == "http.response.start")
    content = b"".join(one.get("body", b"") for one in sent if one["type"] == "http.response.body")
    told = {name.decode().lower(): value.decode() for name, value in start["headers"]}
    return Answer(start["status"], told, content.decode())


def form_of(asked: FormData, **more: str) -> list[tuple[str, str]]:
    plain = {item.name: getattr(asked, item.name) for item in fields(asked) if item.name != "columns"}
    columns = [
        (f"column_{name}", value)
        for column in asked.columns
        for name, value in {**vars(column), "empty": "allowed" if column.empty else "refused"}.items()
    ]
    return [*plain.items(), *columns, *more.items()]


def studio(folder: Path) -> Studio:
    """A studio in a folder, behind :data:`DOOR`."""
    return Studio(folder, DOOR)


def visits(file: Path, rows: int = 400, answers: tuple[str, ...] = ("no", "yes")) -> None:
    lines = ["age,ward,name,a=b,ill"]
    lines += [f"{20 + number % 60},{'AB'[number % 2]},n{number},1,{answers[number % 2]}" for number in range(rows)]
    file.write_text("\n".join(lines) + "\n")
