"""The page in a real browser: loads nothing, fits phones and desks, is reached by keyboard, has contrast, prints."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from privmix.reports.page import render_page
from tests.reports import samples

axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="checks accessibility; in privmix[dev]")

WIDTHS = (390, 1440)
SCHEMES = ("light", "dark")
PAGES = ("owner", "public", "violated", "little")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Pages on disk: full ones, a loud one, and one of two records with long names."""
    folder = tmp_path_factory.mktemp("pages")
    long = "a-name-without-any-place-to-break-it-" * 4
    seeded = samples.guarantee(insecure_seed=True, warnings=["insecure_seed: no privacy."])
    classes = samples.evaluation(private=False, classes=tuple(f"{long}{number}" for number in range(12)))
    named = samples.record("utility", {"metric": long}, settings={long: long}, title=long, command=long * 3)
    made = {
        "owner": render_page(samples.everything(), "owner"),
        "public": render_page(samples.everything(private=False), "public"),
        "violated": render_page([seeded, samples.audit(violated=True)], "public"),
        "little": render_page([classes, named], "public"),
    }
    for name, text in made.items():
        (folder / f"{name}.html").write_text(text)
    return {name: folder / f"{name}.html" for name in made}


@pytest.fixture
def opened(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens pages; they are closed after the test."""

    def page_of(file: Path, width: int = 1440, scheme: str = "light") -> Any:
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page.goto(file.as_uri())
        return page

    yield page_of
    for context in browser.contexts:
        context.close()


@pytest.mark.parametrize("name", PAGES)
def test_it_loads_without_errors_or_requests(name: str, files: dict[str, Path], browser: Any) -> None:
    said, asked = [], []
    page = browser.new_page()
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(files[name].as_uri())
    page.wait_for_load_state("networkidle")
    assert [url for url in asked if not url.startswith("data:")] == [files[name].as_uri()]
    assert said == []
    assert page.evaluate("[...document.images].every(image => image.complete && image.naturalWidth > 0)")
    page.close()


def test_its_policy_stops_scripts(files: dict[str, Path], opened: Any, tmp_path: Path) -> None:
    """Were a text ever to become markup, it still could not run or load."""
    planted = tmp_path / "planted.html"
    attack = '<script>document.title = "taken"</script><img src="http://127.0.0.1:9/x.png" onerror="document.title=1">'
    planted.write_text(files["public"].read_text().replace("<footer>", f"<footer>{attack}"))
    page = opened(planted)
    assert page.title().startswith("Privacy report")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", PAGES)
def test_nothing_overflows(name: str, width: int, files: dict[str, Path], opened: Any) -> None:
    page = opened(files[name], width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    outside = page.evaluate(
        """width => [...document.querySelectorAll('main *, nav *, header *, footer *')]
            .filter(one => !one.closest('.scroll, pre, svg') && !one.matches('.hero > h2'))
            .filter(one => one.getBoundingClientRect().right > width + 0.5 || one.getBoundingClientRect().left < -0.5)
            .map(one => one.outerHTML.slice(0, 80))""",
        width,
    )
    assert outside == []


@pytest.mark.parametrize("width", WIDTHS)
def test_text_in_figures_is_inside_and_large_enough(width: int, files: dict[str, Path], opened: Any) -> None:
    page = opened(files["owner"], width)
    found = page.evaluate(
        """() => [...document.querySelectorAll('svg text')].map(text => {
            const own = text.getBoundingClientRect(), svg = text.closest('svg').getBoundingClientRect();
            const shift = Math.max(
                svg.left - own.left, own.right - svg.right, svg.top - own.top, own.bottom - svg.bottom);
            return [text.textContent, Math.min(own.width, own.height), shift];
        })"""
    )
    assert len(found) > 50
    assert [text for text, size, _ in found if size < 8 and len(text) > 1] == []
    assert [text for text, _, shift in found if shift > 4] == []


@pytest.mark.parametrize("width", WIDTHS)
def test_the_keyboard_reaches_everything(width: int, files: dict[str, Path], opened: Any) -> None:
    """The skip link first, then every link and every region that may scroll, in the order of the page."""
    page = opened(files["owner"], width)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    assert page.evaluate("document.activeElement.getBoundingClientRect().top") >= 0
    # What is folded is reached when it is opened.
    wanted = page.evaluate(
        """() => [...document.querySelectorAll('a, summary, [tabindex="0"]')]
            .filter(one => one.checkVisibility()).length"""
    )
    reached = 1
    while page.evaluate("document.activeElement !== document.body"):
        page.keyboard.press("Tab")
        reached += 1
        assert reached <= wanted + 1
    assert reached == wanted + 1
    scrolling = page.evaluate(
        """() => [...document.querySelectorAll('main *')]
            .filter(one => one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).overflowX !== 'visible')
            .filter(one => !one.closest('svg') && one.tabIndex !== 0 && !one.matches('.hero > h2'))
            .map(one => one.outerHTML.slice(0, 80))"""
    )
    assert scrolling == []


@pytest.mark.parametrize(("width", "scheme"), zip(WIDTHS, reversed(SCHEMES), strict=True))
@pytest.mark.parametrize("name", PAGES)
def test_no_serious_finding_of_axe(name: str, width: int, scheme: str, files: dict[str, Path], opened: Any) -> None:
    page = opened(files[name], width, scheme)
    found = axe.Axe().run(page).response["violations"]
    assert [(item["id"], item["impact"], item["nodes"][0]["html"][:120]) for item in found] == []


def test_light_and_dark_are_different_and_both_have_contrast(files: dict[str, Path], opened: Any) -> None:
    """Lines of figures stand out from their card by 3:1 at least, as WCAG 2.2 asks of graphics."""
    cards = []
    for scheme in SCHEMES:
        page = opened(files["public"], scheme=scheme)
        card = page.evaluate("getComputedStyle(document.querySelector('.card')).backgroundColor")
        cards.append(card)
        strokes = page.evaluate(
            """() => [...new Set([...document.querySelectorAll('svg path')]
                .map(path => getComputedStyle(path))
                .filter(style => style.stroke !== 'none' && style.strokeWidth.replace('px', '') >= 1.2)
                .map(style => style.stroke))]"""
        )
        assert len(strokes) > 3
        # Dots have a rim in the card's colour, to stand out from lines.
        ratios = {stroke: contrast(stroke, card) for stroke in strokes if stroke != card}
        assert min(ratios.values()) >= 3, ratios
    assert cards[0] != cards[1]


def contrast(one: str, other: str) -> float:
    """WCAG's contrast ratio of two CSS colours."""

    def luminance(colour: str) -> float:
        channels = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
        linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    bright, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("name", PAGES)
def test_it_prints_whole(name: str, files: dict[str, Path], opened: Any) -> None:
    """Laid out for A4 nothing is wider than the paper or hidden behind a scroll bar; it comes out as a PDF."""
    width = round(210 / 25.4 * 96)
    page = opened(files[name], width, "dark")
    page.emulate_media(media="print")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    clipped = page.evaluate(
        """() => [...document.querySelectorAll('.scroll, pre, figure, .card')]
            .filter(one => one.scrollWidth > one.clientWidth + 1)
            .map(one => one.outerHTML.slice(0, 120))"""
    )
    assert clipped == []
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    content = page.pdf(format="A4", print_background=True)
    assert content.startswith(b"%PDF")
