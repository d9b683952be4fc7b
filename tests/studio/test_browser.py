"""The studio in a real browser, from the first click to a verified release; by keyboard, on a phone, in the dark."""

import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="serves the studio; in privmix[studio]")
pytest.importorskip("uvicorn", reason="serves the studio; in privmix[studio]")

from privmix.studio.server import StudioServer

playwright = pytest.importorskip("playwright.sync_api", reason="drives a browser; in privmix[dev]")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="checks accessibility; in privmix[dev]")

pytestmark = pytest.mark.thorough
expect = playwright.expect
# The machine may have other work: what is waited for comes.
PATIENCE = 600_000


@dataclass
class Served:
    """A listening studio; ``said``: the browser's complaints, ``asked``: requested addresses."""

    folder: Path
    server: StudioServer
    context: Any
    page: Any
    said: list[str]
    asked: list[str]

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.server.door.port}{self.server.door.root}"

    def look(self) -> None:
        """What axe finds here, at a desk in the light and on a phone in the dark: nothing; and nothing is cut off."""
        for width, scheme in ((1280, "light"), (360, "dark")):
            self.page.set_viewport_size({"width": width, "height": 800})
            self.page.emulate_media(color_scheme=scheme)
            assert self.page.evaluate("document.documentElement.scrollWidth") <= width
            found = axe.Axe().run(self.page).response["violations"]
            assert [(one["id"], one["nodes"][0]["html"][:160]) for one in found] == []
        self.page.set_viewport_size({"width": 1280, "height": 800})

    def press(self, selector: str) -> None:
        self.page.focus(selector)
        self.page.keyboard.press("Enter")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, browser: Any) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("studio")
    server = StudioServer(folder)
    thread = threading.Thread(target=server.serve)
    thread.start()
    context = browser.new_context(viewport={"width": 1280, "height": 800}, accept_downloads=True)
    context.set_default_timeout(PATIENCE)
    said: list[str] = []
    asked: list[str] = []
    context.on("console", lambda message: said.append(message.text))
    context.on("weberror", lambda error: said.append(str(error.error)))
    context.on("request", lambda request: asked.append(request.url))
    yield Served(folder, server, context, context.new_page(), said, asked)
    context.close()
    server.stop()
    thread.join(60)
    assert not thread.is_alive()


def test_from_the_first_click_to_a_verified_release(served: Served) -> None:
    page, folder = served.page, served.folder
    page.goto(served.server.door.address)
    page.wait_for_url(served.root)
    served.look()
    # The skip link comes first.
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"

    served.press("text=Try it on a public example")
    page.wait_for_selector("#rows fieldset")
    assert [path.name for path in folder.iterdir()] == ["privmix-example.csv"]
    # The unit is nobody's guess.
    assert page.locator("input[name=unit]:checked").count() == 0
    page.wait_for_selector("#live a[href='#unit']")
    page.locator("#live a[href='#unit']").press("Enter")
    assert page.evaluate("document.activeElement.name") == "unit"
    page.keyboard.press("Space")

    said = page.locator("#said")
    expect(said).to_have_text(re.compile("^Epsilon 4:"), timeout=PATIENCE)
    # Numbers move while sliders do.
    right = float(re.findall(r"at most ([\d.]+)% of", said.text_content())[0])
    page.focus("#epsilon-slider")
    page.keyboard.press("ArrowLeft")
    assert page.input_value("#epsilon") == "3"
    assert page.get_attribute("#epsilon-slider", "aria-valuetext") == "3"
    expect(said).to_have_text(re.compile("^Epsilon 3:"), timeout=PATIENCE)
    assert float(re.findall(r"at most ([\d.]+)% of", said.text_content())[0]) < right
    expect(page.locator("#forecast circle")).to_have_count(7, timeout=PATIENCE)
    assert page.locator("#forecast progress").count() == 0
    page.press("summary:has-text('The exact command')", "Enter")
    assert "--epsilon 3.0" in page.locator("#command").text_content()
    served.look()

    # A budget, and what it says.
    page.goto(f"{served.root}ledger")
    served.look()
    for field, value in (("dataset", "cells"), ("epsilon", "3.5")):
        page.fill(f"#{field}", value)
    served.press("text=Give it this budget")
    page.wait_for_selector("#problems")
    # A script moves the focus there. A predicate in words would be evaluated by the page, whose policy forbids it.
    expect(page.locator("#problems")).to_be_focused(timeout=PATIENCE)
    served.look()
    page.check("input[name=unit][value=record]")
    served.press("text=Give it this budget")
    page.wait_for_selector("th:has-text('cells')")
    served.look()
    page.goto(served.root)
    # What was typed is still there.
    assert page.input_value("#epsilon") == "3"
    page.fill("#ledger", "ledger.db")
    page.fill("#dataset", "cells")
    page.wait_for_selector("text=This release fits the budget.")

    served.press("button.main")
    page.wait_for_url("**/run/*")
    served.look()
    page.wait_for_url("**/folder/*")
    page.wait_for_selector("#verdict")
    assert page.inner_text("#verdict") == "PASS: verified"
    served.press("text=Make sample rows")
    page.wait_for_selector("#sampled tbody tr")
    assert page.locator("#sampled tbody tr").count() == 12
    assert {"malignant", "benign"} >= set(page.locator("#sampled td:last-child").all_text_contents())
    served.look()
    with page.expect_download() as download:
        page.click("text=Save certificate.json")
    assert Path(download.value.path()).read_bytes() == (folder / "example-release" / "certificate.json").read_bytes()
    with served.context.expect_page() as report:
        page.click("text=Open the report")
    report.value.wait_for_load_state()
    assert report.value.title().startswith("Privacy report")
    assert report.value.evaluate("getComputedStyle(document.querySelector('.card')).borderTopWidth") == "1px"
    report.value.close()

    # What was spent stands in the ledger, and a page that is loaded again releases nothing.
    page.reload()
    page.goto(f"{served.root}ledger")
    assert 2.9 < float(page.inner_text("tbody td >> nth=0")) <= 3
    assert page.inner_text("tbody td >> nth=-1") == "1"


def test_a_folder_that_somebody_sent(served: Served) -> None:
    page, release = served.page, served.folder / "example-release"
    assert (release / "certificate.json").is_file(), "the test before this one made no release"
    page.goto(f"{served.root}verify")
    served.look()
    page.fill("#folder", str(release))
    page.keyboard.press("Enter")
    page.wait_for_selector("#verdict")
    assert page.inner_text("#verdict") == "PASS: verified"
    certificate = release / "certificate.json"
    whole = certificate.read_bytes()
    certificate.write_bytes(whole.replace(b"malignant", b"malignanT", 1))
    page.goto(f"{served.root}verify")
    page.fill("#folder", str(release))
    page.keyboard.press("Enter")
    page.wait_for_selector("#verdict")
    assert page.inner_text("#verdict") == "FAIL: this folder does not pass verification"
    served.look()
    certificate.write_bytes(whole)
    page.goto(f"{served.root}words")
    served.look()


def test_nothing_left_the_machine_and_no_policy_was_broken(served: Served) -> None:
    assert len(served.asked) > 30
    assert [url for url in served.asked if not url.startswith(served.root)] == []
    # What is asked for by GET holds nothing that was typed.
    assert [url for url in served.asked if "malignant" in url] == []
    # The browser says of pages that were refused that they were.
    assert [text for text in served.said if "status of 4" not in text] == []


def test_a_stranger_sees_nothing(served: Served) -> None:
    stranger = served.context.browser.new_context()
    page = stranger.new_page()
    for address in (served.root, served.root.replace("127.0.0.1", "localhost"), f"{served.root}?token=guess"):
        answer = page.goto(address)
        assert answer.status == 403
        assert "Access denied" in page.content()
    stranger.close()
