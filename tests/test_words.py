"""Plain English: what the style of the project rules out becomes rarer in pages, docstrings, comments and messages.

``python -m tests.test_words`` lowers the counts in words.json to those of today, and prints the commonest findings.
"""

import ast
import io
import json
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
COUNTS: Final = Path(__file__).with_name("words.json")
PAGES: Final = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "reproductions").glob("*.md")),
]
READMES: Final = sorted((ROOT / "src" / "privmix").glob("*/README.md"))
RULES: Final = {
    "people without a role": r"\b(whoever|whatever|wherever|nobody|somebody|everybody|someone|anybody)\b",
    "private dialect": r"\b(anew|beside|mend(ed|s)|dear(er|est)?|at hand|in place of|so many|rivals?|honest price)\b",
    "house metaphors": r"\b(the house|rooms?|floors?|doors?|drawers?)\b",
    "software that speaks": r"\b(says?|said|tells?|told|wants?)\b",
    "openings": r"(?:^|(?<=[.:!?] ))(Of|What|Whoever|That|Those|Whose|Where|None|Nothing|Nobody)\b",
}
_MOST_WORDS: Final = 30


def _python() -> Iterator[tuple[str, str, Path]]:
    """Yield (docstrings, comments or messages; text; file) of the package."""
    for path in sorted((ROOT / "src").rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        tree = ast.parse(source)
        documented = [node for node in ast.walk(tree) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)]
        found = [text for node in documented if (text := ast.get_docstring(node))]
        for text in found:
            for part in re.split(r"\n\n|\n(?=\s*(?:[*-]|\w+:) )", text):
                if ">>>" not in part:
                    yield "docstrings", " ".join(part.split()), path
        whole = {ast.get_docstring(node, clean=False) for node in documented}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value not in whole:
                words = node.value.split()
                yield from [("messages", " ".join(words), path)] if len(words) > 3 else []
        block: list[str] = []
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                block.append(token.string.lstrip("# "))
            elif token.type != tokenize.NL and block:
                yield "comments", " ".join(block), path
                block = []


def _pages() -> Iterator[tuple[str, str, Path]]:
    """Yield (docs, a paragraph, a heading, an item or a cell of a table; file)."""
    for path in [*PAGES, *READMES]:
        text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        text = re.sub(r"<!--.*?-->", "", text)
        for part in re.split(r"\n\s*\n|\n(?=\s*(?:[*-]|\d+\.) )|\||\n(?=#)", text):
            yield "docs", " ".join(part.strip("#*- \n").split()), path


def findings() -> dict[str, list[str]]:
    """Return the places of each rule in each kind of text."""
    found: dict[str, list[str]] = {}
    for kind, text, path in [*_pages(), *_python()]:
        plain = re.sub(r"`[^`]*`|\]\([^)]*\)", " x ", text)
        for rule, pattern in RULES.items():
            hits = len(re.findall(pattern, plain, re.IGNORECASE if rule != "openings" else 0))
            found.setdefault(f"{kind}: {rule}", []).extend([f"{path.relative_to(ROOT)}: {text[:100]}"] * hits)
        long = [one for one in re.split(r"(?<=[.!?]) ", plain) if len(one.split()) > _MOST_WORDS]
        places = [f"{path.relative_to(ROOT)}: {one[:100]}" for one in long]
        found.setdefault(f"{kind}: over {_MOST_WORDS} words", []).extend(places)
    ends = re.compile(r"^#+ (Next|Go on)", re.MULTILINE)
    bare = [path for path in PAGES if not ends.search(path.read_text(encoding="utf-8"))]
    found["docs: pages without Next"] = [str(path.relative_to(ROOT)) for path in bare]
    return found


def test_no_rule_is_broken_more_often_than_before() -> None:
    planted = "Whoever asks is told anew. Of rooms: none."
    assert [len(re.findall(pattern, planted, re.IGNORECASE)) for pattern in RULES.values()] == [1, 1, 1, 1, 3]
    found, most = findings(), json.loads(COUNTS.read_text(encoding="utf-8"))
    assert set(found) == set(most)
    worse = {rule: found[rule] for rule in most if len(found[rule]) > most[rule]}
    assert not worse, "\n".join(f"{rule}: {most[rule]} at most; {found}" for rule, found in worse.items())


if __name__ == "__main__":
    today = findings()
    known = json.loads(COUNTS.read_text(encoding="utf-8")) if COUNTS.exists() else {}
    least = {rule: min(len(found), known.get(rule, len(found))) for rule, found in sorted(today.items())}
    COUNTS.write_text(json.dumps(least, indent=2) + "\n", encoding="utf-8")
    for rule, found in today.items():
        commonest = Counter(one.split(":")[0] for one in found).most_common(3)
        sys.stdout.write(f"{rule}: {len(found)} {commonest}\n")
