"""``privmix ledger history``: every entry of a dataset."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from privmix import ledger as ledgers
from privmix.cli.console import out, plain, print_json
from privmix.cli.ledger import ledger
from privmix.cli.ledger.words import Dataset, Url, said_of
from privmix.cli.options import Json
from privmix.cli.verb import verb
from privmix.ledger.pricing import CAP, RECORD
from privmix.rounding import exact, rounded_up


@verb(ledger, "history")
def history(url: Url, dataset: Dataset, json_output: Json = False) -> None:
    """Show every entry of a dataset, oldest first."""
    found = ledgers.Ledger.open(url).history(dataset)
    if json_output:
        print_json(found)
        return
    table = Table("entry", "time", "kind", "what", "hash")
    for entry in found:
        table.add_row(
            str(entry["number"]), plain(entry.get("at", "")), entry["kind"], plain(_what(entry)), entry["hash"][:12]
        )
    out.print(table)


def _what(entry: dict[str, Any]) -> str:
    match entry["kind"]:
        case "init":
            mode = "adaptive" if entry.get("filter") else "planned"
            relation = said_of(entry["adjacency"], entry.get("unit", RECORD))
            return f"epsilon {exact(entry['epsilon'])}, delta {exact(entry['delta'])}, {relation}, {mode}"
        case "reserve":
            cap = f", records of persons with at most {entry[CAP]}" if CAP in entry else ""
            return f"{entry['purpose']} {entry['id'][:8]}{cap}: {rounded_up(entry['spent'], 4)} spent with it"
        case "bind":
            if "fingerprint" in entry:
                return f"{entry['id'][:8]} is for content {entry['fingerprint'][:12]}"
            if "step" in entry:
                return f"{entry['id'][:8]}, step {entry['step']}: for records {entry['content'][:12]}"
            new = len(entry.get("files", ()))
            files = f"{new:,} file{'' if new == 1 else 's'} of it new here"
            return f"{entry['id'][:8]} is for content {entry.get('content', '')[:12]}, {files}"
        case _:
            return f"{entry['id'][:8]}: {entry['result']}"
