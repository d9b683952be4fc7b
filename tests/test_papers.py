"""Papers are cited by authors and year, and the bibliography has each of them."""

import calendar
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAPERS = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
# What the site is made from, not what it was made into.
FILES = [path for folder in ("src", "docs", "benchmarks") for path in (ROOT / folder).rglob("*.*")]
TEXTS = [path for path in FILES if path.suffix in (".py", ".md", ".j2", ".css") and "generated" not in path.parts]

# "Dong, Roth, Su 2021", "Bu et al. (2022)": the last name before the year, which also is an author.
CITED = re.compile(r"\b([A-ZÀ-Ý][\w-]+)(?: et al\.)?,? \(?((?:19|20)\d\d)\b")
NO_NAMES = {"CVPR", "ICLR", "ICML", "NeurIPS", "NC4", *calendar.month_name[1:]}


def test_the_bibliography_has_what_is_cited() -> None:
    entries = [" ".join(entry.split()) for entry in re.split(r"^\* ", PAPERS, flags=re.MULTILINE)[1:]]
    cited: set[tuple[str, str]] = set()
    for path in [ROOT / "README.md", ROOT / "CHANGELOG.md", *TEXTS]:
        if "results" not in path.parts:
            cited.update(CITED.findall(" ".join(path.read_text(encoding="utf-8").replace("#", " ").split())))
    cited = {(name, year) for name, year in cited if name not in NO_NAMES}
    missing = [
        (name, year) for name, year in sorted(cited) if not any(name in one and f"({year})" in one for one in entries)
    ]
    assert missing == []
    assert len(cited) > 60
