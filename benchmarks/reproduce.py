"""Test a paper's claims in minutes, on two cores, on data that ship with packages or are drawn.

Each row has the paper's claim, our figures at the paper's noise and at a valid epsilon, a verdict by rule, the
differences from the paper's setting, and the settings that were searched. Without PAPER: lists papers and rows.

    python benchmarks/reproduce.py
    python benchmarks/reproduce.py dpfmix
    python benchmarks/reproduce.py neuromixgdp --row accounting --json rows.json
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

from rich.console import Console
from rich.table import Table
from rich.text import Text

from privmix.errors import InvalidInput, PrivmixError, check_choice
from reproduction_rows import PAPERS, RULES, SEARCH_SEEDS, UNTESTED, Claim, Finding

WIDTH = 120
SEARCH = (
    "Searched: settings of every line, uphill from the middle of each range, by accuracy on a fifth of the training "
    f"records that the search does not train on ({len(SEARCH_SEEDS)} runs a setting). Test records play no part.\n"
    "Intervals cover the randomness of the runs, on one split and one search."
)


@dataclass(frozen=True)
class Row:
    """A claim and what was found, with the CPU seconds it took."""

    name: str
    claim: Claim
    finding: Finding
    cpu_seconds: float

    def lines(self) -> list[tuple[str, str]]:
        """Labels and texts of the row, as the table shows them."""
        found, page = self.finding, f"benchmarks/results/{self.claim.page}.md"
        verdict = f"{found.verdict}: see {page}" if found.verdict == UNTESTED else found.verdict
        figures = [("here, paper's noise", found.published), ("here, valid epsilon", found.valid)]
        if found.verdict == UNTESTED and found.published == "not run":
            figures = []
        searched = [("searched", "\n".join(found.searched))] if found.searched else []
        return [
            ("the paper", self.claim.text),
            *figures,
            ("verdict", verdict),
            ("differs", found.differs),
            *searched,
            *([] if found.verdict == UNTESTED else [("larger runs", page)]),
        ]

    def to_dict(self) -> dict[str, Any]:
        claim = {"row": self.name, "where": self.claim.where, "claim": self.claim.text, "page": self.claim.page}
        return {**claim, **asdict(self.finding), "cpu_seconds": round(self.cpu_seconds, 1)}


def reproduced(paper: str, row: str | None = None) -> list[Row]:
    """Run the rows of a paper, or one; raise :class:`InvalidInput` for an unknown paper or row."""
    claims: Mapping[str, Claim] = PAPERS[check_choice("PAPER", paper, PAPERS)]
    names = list(claims) if row is None else [check_choice("--row", row, claims)]
    found = []
    for number, name in enumerate(names, 1):
        print(f"row {number} of {len(names)}: {name}", file=sys.stderr, flush=True)
        start = time.process_time()
        finding = claims[name].run()
        found.append(Row(name, claims[name], finding, time.process_time() - start))
    return found


def shown(paper: str, rows: Sequence[Row]) -> Table:
    table = Table(title=paper, title_justify="left", width=WIDTH, caption_justify="left", show_header=False)
    table.add_column(width=20, no_wrap=True)
    table.add_column(overflow="fold")
    for row in rows:
        table.add_row(Text(row.name, style="bold"), Text(row.claim.where, style="bold"))
        for label, text in row.lines():
            table.add_row(label, Text(text, style="bold" if label == "verdict" else ""))
        table.add_section()
    return table


def listed() -> Table:
    table = Table("paper", "row", "table or figure", "claim", width=WIDTH)
    for paper, claims in PAPERS.items():
        for name, claim in claims.items():
            table.add_row(paper, name, claim.where, claim.text)
        table.add_section()
    return table


def show(paper: str, rows: Sequence[Row], console: Console) -> None:
    console.print(shown(paper, rows))
    verdicts = {row.finding.verdict for row in rows}
    notes = [f"{verdict}: {rule}." for verdict, rule in RULES.items() if verdict in verdicts]
    if any(row.finding.searched for row in rows):
        notes.append(SEARCH)
    seconds = sum(row.cpu_seconds for row in rows)
    console.print(Text("\n".join([*notes, f"{seconds:.0f} CPU seconds."])))


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paper", nargs="?", metavar="PAPER", help=", ".join(PAPERS))
    parser.add_argument("--row", metavar="NAME", help="one row, such as table-2")
    parser.add_argument("--json", metavar="FILE", type=Path, help="file for the rows and the figure of each run")
    options = parser.parse_args(words)
    console = Console(width=WIDTH)
    try:
        if options.paper is None:
            if options.row or options.json:
                parser.error(f"--row and --json need PAPER: {', '.join(PAPERS)}")
            console.print(listed())
            return 0
        if options.json is not None and not options.json.absolute().parent.is_dir():
            raise InvalidInput("--json", str(options.json), "a file in a folder that exists")
        rows = reproduced(options.paper, options.row)
        if options.json is not None:
            record = {"paper": options.paper, "rows": [row.to_dict() for row in rows]}
            options.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    except (PrivmixError, OSError) as error:
        print(error, file=sys.stderr)
        return getattr(error, "exit_code", 1)
    show(options.paper, rows, console)
    return 0


if __name__ == "__main__":
    sys.exit(main())
