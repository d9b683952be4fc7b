"""Checks the built site: ``PYTHONPATH=docs python -m _site.check FOLDER``.

Every link within it leads somewhere, nothing that a page shows or runs comes from elsewhere, and each page has what
readers of its structure go by: a language, a title, headings in order, words for pictures and for links.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# What a page loads by itself, and the attributes that say from where.
LOADS = {
    "link": ("href",),
    "script": ("src",),
    "img": ("src", "srcset"),
    "iframe": ("src",),
    "source": ("src", "srcset"),
    "video": ("src", "poster"),
    "audio": ("src",),
    "object": ("data",),
    "embed": ("src",),
}
_CSS = re.compile(r"(?:@import\s+(?:url\()?|url\()\s*['\"]?([^'\")\s;]+)")
# Links that say what a page is, and load nothing.
_SAID = {"canonical", "license", "help"}


class Page(HTMLParser):
    """What the checks need of one page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.headings: list[int] = []
        self.language = self.title = ""
        self.silent: list[str] = []
        self.wordless: list[str] = []
        self._in_title = False
        self._link: tuple[str, str] | None = None
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        own = {name: value or "" for name, value in attrs}
        self.ids.update(own[name] for name in ("id", "name") if own.get(name))
        if tag == "a" and "href" in own:
            self.links.append(own["href"])
            if self._link is not None and not self._link[1].strip():
                self.wordless.append(self._link[0])  # a browser ends it where another one begins
            self._link = own["href"], own.get("aria-label", own.get("title", ""))
        elif tag in LOADS and not (tag == "link" and set(own.get("rel", "").split()) & _SAID):
            self.loads += [own[name] for name in LOADS[tag] if own.get(name)]
        if tag == "html":
            self.language = own.get("lang", "")
        elif tag == "title":
            self._in_title = not self.title
        elif re.fullmatch(r"h[1-6]", tag):
            self.headings.append(int(tag[1]))
        elif tag == "img" and not own.get("alt", "").strip():
            self.silent.append(own.get("src", ""))
        elif tag == "img":
            self._say(own["alt"])

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        elif tag == "a" and self._link is not None:
            address, words = self._link
            if not words.strip():
                self.wordless.append(address)
            self._link = None

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title += data
        self._say(data)

    def _say(self, words: str) -> None:
        if self._link is not None:
            self._link = self._link[0], self._link[1] + words


@cache
def page(path: Path) -> Page:
    return Page(path)


def elsewhere(address: str) -> bool:
    """Whether loading this asks another host; what is written into the page does not."""
    parts = urlsplit(address.strip())
    return bool(parts.netloc) or parts.scheme not in ("", "data")


def problems(folder: Path) -> Iterator[str]:
    """Everything that is wrong, a line each."""
    pages = sorted(folder.rglob("*.html"))
    if not pages:
        yield f"{folder}: no pages"
    for path in pages:
        yield from (f"{path.relative_to(folder)}: {what}" for what in _of_page(page(path)))
    for path in sorted(folder.rglob("*.css")):
        for address in _CSS.findall(path.read_text(encoding="utf-8")):
            if elsewhere(address):
                yield f"{path.relative_to(folder)}: loads {address}"


def _of_page(one: Page) -> Iterator[str]:
    if not one.language:
        yield "no language"
    if not one.title.strip():
        yield "no title"
    if one.headings.count(1) != 1:
        yield f"{one.headings.count(1)} headings of the first level"
    last = 0
    for level in one.headings:
        if level > last + 1:
            yield f"a heading of level {level} after one of level {last}"
        last = level
    yield from (f"a picture without words: {source}" for source in one.silent)
    yield from (f"a link without words: {address}" for address in one.wordless)
    for address in one.loads:
        if elsewhere(address):
            yield f"loads {address}"
        elif not address.startswith("data:") and not _file(one, address).exists():
            yield f"loads {address}, which is not there"
    yield from (f"a link to {address}, which is not there" for address in one.links if not _leads(one, address))


def _file(one: Page, address: str) -> Path:
    path = unquote(urlsplit(address).path)
    found = (one.path.parent / path) if path else one.path
    return found / "index.html" if found.is_dir() else found


def _leads(one: Page, address: str) -> bool:
    if elsewhere(address):
        return True  # other hosts are their readers' choice, and are not asked
    path, fragment = _file(one, address), unquote(urlsplit(address).fragment)
    if not path.exists():
        return False
    return not fragment or path.suffix != ".html" or fragment in page(path).ids


def main() -> int:
    found = list(problems(Path(sys.argv[1]).resolve()))
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
