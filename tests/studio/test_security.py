"""Nobody gets in but the browser that was shown the address, and no page but the studio's own."""

import stat
import webbrowser
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="serves the studio; in privmix[studio]")
pytest.importorskip("uvicorn", reason="serves the studio; in privmix[studio]")

from privmix.errors import StorageError
from privmix.studio import server
from privmix.studio.folders import REPORT_POLICY
from privmix.studio.security import HEADERS, AccessGuard, Guard
from tests.refusals import refuses
from tests.studio.helpers import BROWSER, DOOR, HOST, TABLE, ask, form_of, studio


class Reached(Exception):
    """A request got in."""


async def inner(scope: Any, receive: Any, send: Any) -> None:
    raise Reached(scope["path"])


GUARDED = Guard(inner, DOOR)


def gets_in(method: str = "GET", path: str = "/fence/", headers: dict[str, str] | None = None) -> bool:
    try:
        found = ask(GUARDED, method, path, BROWSER if headers is None else headers)
    except Reached:
        return True
    assert found.status == 403
    assert "session" not in str(found.headers) + found.text
    return False


def without(name: str) -> dict[str, str]:
    return {key: value for key, value in BROWSER.items() if key != name}


def test_the_browser_that_was_shown_the_address_gets_in() -> None:
    assert gets_in("POST")
    for more in (
        {},
        {"host": "localhost:8000"},
        {"sec-fetch-site": "same-origin"},
        # Cookies of other servers at this address come along, also such as hide ours.
        {"cookie": "privmix-studio=evil; privmix-studio=session"},
        {"cookie": 'a="b; privmix-studio=session'},
        {"cookie": "x; y=;privmix-studio=session"},
    ):
        assert gets_in(headers=BROWSER | more)


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("cookie", [None, "", "privmix-studio=", "privmix-studio=sessio", "other=session", "\x00;;=a"])
def test_without_the_cookie_nobody_does(method: str, cookie: str | None) -> None:
    assert not gets_in(method, headers=without("cookie") | ({} if cookie is None else {"cookie": cookie}))


@pytest.mark.parametrize(
    "host", [None, "evil.example", "evil.example:8000", "127.0.0.1", "127.0.0.1:80", "0.0.0.0:8000"]
)
def test_a_name_that_somebody_lets_point_here_does_not_get_in(host: str | None) -> None:
    """DNS rebinding: the page's own name is the Host then."""
    headers = without("host") | ({} if host is None else {"host": host, "origin": f"http://{host}"})
    assert not gets_in(headers=headers)
    assert not gets_in("POST", headers=headers)


@pytest.mark.parametrize(
    "origin", [None, "null", "http://evil.example", "http://127.0.0.1:9000", f"https://{HOST}", "http://localhost:8000"]
)
def test_another_pages_form_does_not_get_in(origin: str | None) -> None:
    """A page at another port of this machine is the same site: cookies go with its forms."""
    assert not gets_in("POST", headers=without("origin") | ({} if origin is None else {"origin": origin}))


@pytest.mark.parametrize(
    "request_",
    [
        *({"headers": BROWSER | {"sec-fetch-site": site}} for site in ("cross-site", "same-site", "nonsense")),
        *({"path": path} for path in ("/", "/fence", "/other/", "//fence/", "/fence2/")),
        *({"method": method} for method in ("HEAD", "PUT", "DELETE", "OPTIONS", "TRACE")),
    ],
    ids=str,
)
def test_another_pages_request_and_other_paths_and_methods_lead_nowhere(request_: dict[str, Any]) -> None:
    assert not gets_in(**request_)


def test_a_header_that_is_there_twice_is_no_header() -> None:
    twice = [(b"host", HOST.encode()), (b"host", HOST.encode()), (b"cookie", b"privmix-studio=session")]
    assert DOOR.refusal("GET", "/fence/", twice, b"") is not None


def test_the_token_is_changed_for_a_cookie_that_scripts_and_other_sites_never_see() -> None:
    visitor = without("cookie") | {"sec-fetch-site": "cross-site"}
    found = ask(GUARDED, "GET", "/fence/", visitor, query="token=token")
    assert found.status == 200
    assert found.headers["set-cookie"] == "privmix-studio=session; Path=/fence/; HttpOnly; SameSite=Strict"
    # A redirect would count as coming from elsewhere, and bring no cookie.
    assert 'content="0; url=/fence/"' in found.text
    for query in ("", "token=", "token=toke", "token=tokenn", "token=token&token=token", "other=token"):
        assert ask(GUARDED, "GET", "/fence/", visitor, query=query).status == 403
    assert ask(GUARDED, "GET", "/fence/words", visitor, query="token=token").status == 403
    assert ask(GUARDED, "POST", "/fence/", without("cookie"), query="token=token").status == 403


def test_secrets_are_long_and_never_the_same() -> None:
    one, other = AccessGuard(1), AccessGuard(1)
    assert len({one.token, other.token, one.session, other.session, one.fence, other.fence}) == 6
    assert min(map(len, (one.token, one.session))) >= 43
    assert one.token not in repr(one)
    assert one.session not in one.address


def test_every_answer_forbids_what_pages_do_not_need(tmp_path: Path) -> None:
    app = studio(tmp_path).app
    pages = ["/", *(f"/fence/{path}" for path in ("", "words", "ledger", "verify", "nowhere", "static/studio.js"))]
    for found in (*(ask(app, "GET", page) for page in pages), ask(app, "POST", "/fence/live", form=form_of(TABLE))):
        assert {name: found.headers.get(name) for name in HEADERS} == HEADERS
    policy = HEADERS["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert not any(word in policy for word in ("unsafe", "http"))
    # A report's style is in the page; nothing of it may run, be framed or load.
    assert ("sandbox" in REPORT_POLICY, "script" in REPORT_POLICY) == (True, False)


def test_pages_load_nothing_from_elsewhere_and_have_no_code_inside_and_assets_are_listed(tmp_path: Path) -> None:
    app = studio(tmp_path).app
    for path in ("", "words", "ledger", "verify"):
        text = ask(app, "GET", f"/fence/{path}").text
        for banned in ("http:", "https:", "//", " onclick", " style=", "<style", "javascript:"):
            assert banned not in text.replace("<!doctype", "").replace("http://www.w3.org", ""), (path, banned)
    for name in ("../app.py", "..%2fapp.py", "words.md", "htmx.LICENSE.txt"):
        assert ask(app, "GET", f"/fence/static/{name}").status == 404
    # A form has an end.
    assert ask(app, "POST", "/fence/live", form=[("data", "x" * 2**20)]).status == 413
    assert ask(app, "POST", "/fence/live", form=[("data", "x")] * 5001).status == 400


def test_it_listens_on_the_loopback_address_alone(tmp_path: Path) -> None:
    found = server._listening(0)
    try:
        assert found.getsockname()[0] == "127.0.0.1"
        with pytest.raises(StorageError, match="cannot listen"):
            server._listening(found.getsockname()[1])
    finally:
        found.close()
    with refuses("port"):
        server._listening(70_000)
    with refuses("folder"):
        server.StudioServer(tmp_path / "nowhere")


def test_the_browser_is_given_a_closed_file_and_no_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever lists the machine's processes sees what a browser was started with."""
    given: list[str] = []
    monkeypatch.setattr(webbrowser, "open", given.append)
    server._open(DOOR.address, tmp_path)
    assert "token" not in given[0]
    file = tmp_path / "studio.html"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert DOOR.address in file.read_text()
