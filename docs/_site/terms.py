"""The glossary's words, linked where a page first uses them.

A word is a paragraph of docs/glossary.md that begins in bold: ``**Clipping.** Every record's ...``; several are parted
by commas. Pages stay plain Markdown: nobody has to write such links, and none is forgotten.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

GLOSSARY = Path(__file__).parents[1] / "glossary.md"
# Where words are explained, or are no reading matter.
_NOT_IN = ("glossary", "generated/measured/", "generated/project/", "generated/api/", "generated/commands")
_NO_TEXT = (
    nodes.title,
    nodes.literal,
    nodes.literal_block,
    nodes.reference,
    pending_xref,  # a link to another page, until all pages are known
    nodes.raw,
    nodes.comment,
    nodes.math,
)


def words(text: str) -> dict[str, str]:
    """Word -> the anchor of its paragraph.

    Example:
        >>> words("**Mixing, mixup.** A row is the mean of several records.")
        {'mixing': 'term-mixing', 'mixup': 'term-mixing'}
    """
    found = {}
    for entry in re.findall(r"^\*\*([^*]+)\.\*\*", text, re.MULTILINE):
        names = [name.strip().lower() for name in entry.split(",")]
        found.update({name: anchor(names[0]) for name in names})
    return found


def anchor(word: str) -> str:
    return "term-" + re.sub(r"[^a-z0-9]+", "-", word.lower())


@cache
def pattern() -> re.Pattern[str]:
    """Any of the words, the longest first, in singular or plural."""
    names = sorted(words(GLOSSARY.read_text(encoding="utf-8")), key=len, reverse=True)
    return re.compile(
        r"(?<![\w-])(" + "|".join(re.escape(name) for name in names) + r")(?:e?s)?(?![\w-])", re.IGNORECASE
    )


class Anchors(SphinxTransform):
    """Gives each word's paragraph in the glossary its anchor."""

    default_priority = 500

    def apply(self) -> None:
        if self.env.current_document.docname != "glossary":
            return
        for paragraph in self.document.findall(nodes.paragraph):
            first = next((child for child in paragraph.children if child.astext()), None)
            if isinstance(first, nodes.strong):
                paragraph["ids"].append(anchor(first.astext().rstrip(".").split(",")[0]))


class FirstUses(SphinxTransform):
    """Links the first use of each word in a page."""

    default_priority = 510

    def apply(self) -> None:
        page = self.env.current_document.docname
        if page.startswith(_NOT_IN):
            return
        known, seen = words(GLOSSARY.read_text(encoding="utf-8")), set()
        for text in list(self.document.findall(nodes.Text)):
            if _plain(text):
                self._link(text, known, seen, page)
        self.env.note_dependency(str(GLOSSARY))

    def _link(self, text: nodes.Text, known: dict[str, str], seen: set[str], page: str) -> None:
        parts: list[nodes.Node] = []
        last, content = 0, text.astext()
        for match in pattern().finditer(content):
            target = known[match.group(1).lower()]
            if target not in seen:
                seen.add(target)
                up = "../" * page.count("/")
                link = nodes.reference(
                    "", match.group(), refuri=f"{up}glossary.html#{target}", internal=True, classes=["term"]
                )
                parts += [nodes.Text(content[last : match.start()]), link]
                last = match.end()
        if parts:
            parts.append(nodes.Text(content[last:]))
            text.parent.replace(text, [part for part in parts if part.astext()])


def _plain(text: nodes.Text) -> bool:
    above = text.parent
    while above is not None:
        if isinstance(above, _NO_TEXT) or "toctree-wrapper" in above.get("classes", ()):
            return False
        above = above.parent
    return True


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_transform(Anchors)
    app.add_transform(FirstUses)
    return {"parallel_read_safe": True}
