"""Pages that lie elsewhere in the repository, brought to the site, with links that lead to where things are there.

Sphinx reads docs/*.md in place. What was measured, the changelog and the like lie outside of docs, where tests and
other readers look for them: they are copied to docs/generated, and every link is written anew.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Container
from pathlib import Path, PurePosixPath

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
GENERATED = DOCS / "generated"
# What is copied: from where in the repository, to where in the site.
FOLDERS = {"benchmarks/results": "generated/measured", "benchmarks/gpu": "generated/gpu"}
LAYERS = [path.parent.name for path in (ROOT / "src" / "privmix").glob("*/README.md")]
FOLDERS |= {f"src/privmix/{name}": f"generated/layers/{name}" for name in LAYERS}
FILES = {
    "benchmarks/README.md": "generated/measured/index.md",
    "CHANGELOG.md": "generated/project/changelog.md",
    "CODE_OF_CONDUCT.md": "generated/project/conduct.md",
    "CONTRIBUTING.md": "generated/project/contributing.md",
    "SECURITY.md": "generated/project/reporting.md",
    "SECURITY-ADVISORIES.md": "generated/project/advisories.md",
    "LICENSE": "generated/project/LICENSE.txt",
    "README.md": "index.md",
}
PICTURES = (".svg", ".png")
# Results are reached from their list and from the pages that conclude from them: neither sidebar nor search has them.
UNLISTED = "---\norphan: true\nnosearch: true\n---\n\n"
_LINK = re.compile(r"(!?\[[^\]]*\]\()([^)#\s]+)((?:#[^)]*)?\))")
_CODE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def place_of(path: str) -> str | None:
    """Where a file of the repository is in the site, from docs; None where the site has it not."""
    if path in FILES:
        return FILES[path]
    folder, _, name = path.rpartition("/")
    if folder in FOLDERS:
        return f"{FOLDERS[folder]}/{name}"
    return path.removeprefix("docs/") if path.startswith("docs/") else None


def relinked(text: str, origin: str, home: str, beside: Container[str] = ()) -> str:
    """A page's text with its links as they are in the site.

    Args:
        text: Markdown.
        origin: the page's path in the repository, which its links start from.
        home: its path in the site, from docs.
        beside: names of generated pages that links may name as they are, without a folder.

    Raises:
        ValueError: a link leads to what the site does not have.

    Example:
        >>> relinked("[m](../benchmarks/results/scale.md#x)", "docs/releasing.md", "releasing.md")
        '[m](generated/measured/scale.md#x)'
    """

    def moved(match: re.Match[str]) -> str:
        before, target, after = match.groups()
        if re.match(r"[a-z]+:", target) or target.removesuffix(".md") in beside:
            return match.group()
        path = os.path.normpath(PurePosixPath(origin).parent / target)
        place = place_of(path)
        if place is None or not (ROOT / path).exists():
            raise ValueError(f"{origin}: the site has no {target}")
        return before + os.path.relpath(place, PurePosixPath(home).parent) + after

    # What stands in a block of code is no link.
    parts = _CODE.split(text)
    return "".join(part if index % 2 else _LINK.sub(moved, part) for index, part in enumerate(parts))


def levelled(text: str) -> str:
    """The same page without a level of headings that is left out: who hears a page goes by these.

    Example:
        >>> levelled("# One\n\n### Two\n\n### Three\n")
        '# One\n\n## Two\n\n## Three\n'
    """
    above: list[int] = []

    def heading(match: re.Match[str]) -> str:
        level = len(match.group(1))
        while above and above[-1] >= level:
            above.pop()
        above.append(level)
        return "#" * len(above) + " "

    parts = _CODE.split(text)
    return "".join(
        part if index % 2 else re.sub(r"^(#+) ", heading, part, flags=re.MULTILINE) for index, part in enumerate(parts)
    )


def written(path: Path, text: str) -> None:
    """Write what has changed, so that Sphinx reads no page anew that has not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def bring() -> None:
    """Copy what lies elsewhere."""
    for origin, place in FILES.items():
        if place.startswith("generated/") and place.endswith(".md"):
            text = relinked((ROOT / origin).read_text(encoding="utf-8"), origin, place)
            written(DOCS / place, text)
        elif place.startswith("generated/"):
            written(DOCS / place, (ROOT / origin).read_text(encoding="utf-8"))
    for folder, place in FOLDERS.items():
        for path in sorted((ROOT / folder).iterdir()):
            home = DOCS / place / path.name
            if path.suffix == ".md":
                text = path.read_text(encoding="utf-8")
                text = levelled(relinked(text, f"{folder}/{path.name}", f"{place}/{path.name}"))
                written(home, UNLISTED + text)
            elif path.suffix in PICTURES and (not home.exists() or home.read_bytes() != path.read_bytes()):
                shutil.copyfile(path, home)


def _read(app: Sphinx, name: str, content: list[str]) -> None:
    """Links of a page that is read in place."""
    path = DOCS / f"{name}.md"
    if path.exists() and GENERATED not in path.parents:
        content[0] = relinked(content[0], f"docs/{name}.md", f"{name}.md")


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_lexer("csv", TextLexer)
    app.connect("builder-inited", lambda _: bring())
    app.connect("source-read", _read)
    return {"parallel_read_safe": True}
