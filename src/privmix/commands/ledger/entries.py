"""Entries of a ledger: those of a dataset, all of them, and whether they hold."""

from __future__ import annotations

import json
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any

from privmix.commands.base import Command, Facts
from privmix.commands.ledger.budget import DATASET_HELP, AtLedger, said_of
from privmix.options import option
from privmix.progress import Progress
from privmix.rounding import exact, rounded_up


@dataclass(frozen=True, eq=False, repr=False)
class History(AtLedger, Command[Facts]):
    """Show every entry of a dataset, oldest first."""

    example = "privmix ledger history --ledger sqlite:///ledger.db --dataset patients"

    dataset: str = option(MISSING, DATASET_HELP)

    def run(self, progress: Progress) -> Facts:
        """Read them."""
        found = self.opened().history(self.dataset)
        lines = {
            str(one["number"]): f"{one.get('at', '')} {one['kind']}: {_what(one)} ({one['hash'][:12]})" for one in found
        }
        return Facts(f"{self.dataset}: entries", lines, values=found)


def _what(entry: dict[str, Any]) -> str:
    from privmix.ledger.pricing import CAP, RECORD

    match entry["kind"]:
        case "init":
            mode = "adaptive" if entry.get("filter") else "planned"
            relation = said_of(entry["adjacency"], entry.get("unit", RECORD))
            return f"epsilon {exact(entry['epsilon'])}, delta {exact(entry['delta'])}, {relation}, {mode}"
        case "reserve":
            cap = f", records of persons with at most {entry[CAP]}" if CAP in entry else ""
            return f"{entry['purpose']} {entry['id'][:8]}{cap}: {rounded_up(entry['spent'], 4)} spent in total"
        case "bind":
            if "fingerprint" in entry:
                return f"{entry['id'][:8]} is for content {entry['fingerprint'][:12]}"
            if "step" in entry:
                return f"{entry['id'][:8]}, step {entry['step']}: for records {entry['content'][:12]}"
            new = len(entry.get("files", ()))
            files = f"{new:,} file{'' if new == 1 else 's'} new to this ledger"
            return f"{entry['id'][:8]} is for content {entry.get('content', '')[:12]}, {files}"
        case _:
            return f"{entry['id'][:8]}: {entry['result']}"


@dataclass(frozen=True, eq=False, repr=False)
class Export(AtLedger, Command[Facts]):
    """Print budgets and whole histories as JSON.

    The output suits an archive or an audit.
    """

    example = "privmix ledger export --ledger sqlite:///ledger.db > ledger.json"

    def run(self, progress: Progress) -> Facts:
        """Read them."""
        opened = self.opened()
        datasets = {name: opened.history(name) for name in opened.names()}
        content = {"format": "privmix-ledger", "schema_version": 1, "datasets": datasets}
        return Facts("", values=content, document=json.dumps(content, indent=2) + "\n")


@dataclass(frozen=True, eq=False, repr=False)
class Verify(AtLedger, Command[Facts]):
    """Recompute every hash and every price of a ledger.

    Exit code 2 if a value differs.
    """

    example = "privmix ledger verify --ledger sqlite:///ledger.db --statement total.json"

    head: str | None = option(None, "Earlier entry hash that the ledger must still hold.")
    statement: Path | None = option(None, "Earlier ledger statement that the ledger must extend.")

    def run(self, progress: Progress) -> Facts:
        from privmix.jobs.ledger_total import check_ledger_total, read_ledger_total
        from privmix.ledger.verify import verify_ledger

        opened = self.opened()
        counts = verify_ledger(opened, head=self.head)
        if self.statement is not None:
            check_ledger_total(opened, read_ledger_total(self.statement).total)
        modes, told = {name: opened.mode(name) for name in counts}, []
        if planned := ", ".join(name for name, mode in modes.items() if mode == "planned"):
            told.append(
                "not checked: that plans were fixed in advance, or chosen without seeing earlier results. Totals of "
                f"planned budgets hold only then: {planned}"
            )
        if self.statement is not None:
            told.append(f"PASS: the ledger contains the charges that {self.statement} states, and continues from there")
        if self.head is None:
            told.append("not checked: that no entries were removed from the end (give `head`, a hash seen earlier)")
        title = f"PASS: no budget overspent (entries: {sum(counts.values())}, datasets: {len(counts)})"
        return Facts(title, details=tuple(told), values={"holds": True, "entries": counts, "modes": modes})
