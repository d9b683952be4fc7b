"""What the theme leaves to be desired by who hears a page, or has no mouse: mended in the finished pages."""

from __future__ import annotations

import re
from pathlib import Path

from sphinx.application import Sphinx

_SIGNATURE = re.compile(r'<dt class="sig .*?</dt>', re.DOTALL)
_RULES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        # A heading in the list of pages says of which level it is.
        (r'<p class="caption" role="heading">', '<p class="caption" role="heading" aria-level="2">'),
        (r'<aside class="sidebar-drawer">', '<aside class="sidebar-drawer" aria-label="Pages">'),
        (r'<aside class="toc-drawer', '<aside aria-label="On this page" class="toc-drawer'),
        # What scrolls sideways is reached by keyboard.
        (r"<pre>", '<pre tabindex="0">'),
        (r'<div class="table-wrapper', '<div tabindex="0" class="table-wrapper'),
        # The corner of a table heads nothing.
        (r"<th class=\"head\">(?:<p>\s*</p>)?</th>", "<td></td>"),
        # In the gallery's list the name of a page is hidden behind its picture.
        (
            r'(<div class="sphx-glr-thumbcontainer"[^>]*><img alt=")("[^>]*>\s*<p><a class="reference internal")'
            r'( href="[^"]*"><span class="doc">)([^<]*)',
            r'\1Picture: \4\2 aria-label="\4"\3\4',
        ),
        # The page of results has no heading of its own.
        (r'(<article role="main" id="furo-main-content">\s*)(?=<noscript>)', r"\1<h1>Search</h1>\n"),
    )
)


def mended(page: str) -> str:
    """The page, mended; twice does no more than once.

    Example:
        >>> mended('<pre>x</pre>')
        '<pre tabindex="0">x</pre>'
    """
    for pattern, replacement in _RULES:
        page = pattern.sub(replacement, page)
    return _SIGNATURE.sub(_one_term, page)


def _one_term(signature: re.Match[str]) -> str:
    """Sphinx puts each argument of a long signature into a list within a term, which no list may be."""
    text = re.sub(r"<(/?)dd>", r"<\1span>", signature.group()).replace("<span><em", '<span class="sig-line"><em')
    return re.sub(r"<(/?)dl>", r"<\1span>", text)


def _finished(app: Sphinx, error: Exception | None) -> None:
    if error is None and app.builder.format == "html":
        for path in Path(app.outdir).rglob("*.html"):
            text = path.read_text(encoding="utf-8")
            if (new := mended(text)) != text:
                path.write_text(new, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("build-finished", _finished)
    return {"parallel_read_safe": True}
