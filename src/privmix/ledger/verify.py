"""Check that a ledger's history is whole and its budgets are kept."""

from typing import Any

from sqlalchemy import Row

from privmix.errors import InvalidInput
from privmix.ledger.contents import bound_by
from privmix.ledger.database import FIRST_HASH, chained
from privmix.ledger.entries import parse
from privmix.ledger.ledger import Ledger
from privmix.ledger.pricing import check_dataset, check_first, check_group, check_spending


def verify_ledger(ledger: Ledger, *, head: str | None = None) -> dict[str, int]:
    """Recompute every hash and what each dataset has spent; return how many entries each has.

    Formal guarantees:
        * an entry that was changed, removed, inserted or moved breaks the chain and is an error, unless everything
          after it was rewritten too;
        * a history cut at its end is an error if the count and the hash in the dataset's row still show it. The cut is
          always an error if ``head``, a hash seen earlier, is not in the history;
        * a budget that is not what the first entry set, spending above it, entries without a dataset, and contents that
          are not bound as in the history, are errors;
        * a charge for records, to persons, is the price of the entry's stated maximum of records per person;
        * an adaptive budget's charges are priced again, each by itself, and add up to no more than its filter;
        * others may write meanwhile: all is read at one moment.

    A planned budget that verifies is no proof that its total holds for plans chosen after seeing earlier results; an
    adaptive budget's total holds then, too. ``head``: hash of an entry that must be there: a :attr:`Budget.head`.
    """
    datasets, entries, fingerprints = ledger.everything()
    histories: dict[int, list[Row[Any]]] = {row.id: [] for row in datasets}
    for entry in entries:
        if entry.dataset_id not in histories:
            raise InvalidInput("ledger entries of dataset", entry.dataset_id, "a dataset that is in the ledger")
        histories[entry.dataset_id].append(entry)
    bound: dict[tuple[str, str], int] = {}
    for dataset in datasets:
        for content in _check(dataset, histories[dataset.id]):
            # Content in two datasets would have two budgets.
            if bound.setdefault(content, dataset.id) != dataset.id:
                raise InvalidInput(f"ledger history of {dataset.name}", content[0], "content of one dataset only")
    # Both ways: a missing hash would give its data a second budget, an extra one would block data without a charge.
    if bound != {(row.fingerprint, row.kind): row.dataset_id for row in fingerprints}:
        raise InvalidInput("ledger fingerprints", len(fingerprints), f"the {len(bound)} that the histories bind")
    if head is not None and head not in {entry.hash for entry in entries}:
        raise InvalidInput("head", head, "the hash of an entry of this ledger: entries were taken away or rewritten")
    return {dataset.name: len(histories[dataset.id]) for dataset in datasets}


def _check(dataset: Row[Any], history: list[Row[Any]]) -> set[tuple[str, str]]:
    """Check one dataset; return the contents that its history binds, each with its kind."""
    check_dataset(dataset)
    where, previous = f"ledger history of {dataset.name}", FIRST_HASH
    for number, row in enumerate(history, start=1):
        previous = chained(previous, str(row.content))
        if row.number != number or row.hash != previous:
            allowed = "the hash of its content and of the entry before it"
            raise InvalidInput(f"{where}, entry {number}", row.hash, allowed)
    # A chain that was cut at its end is still a chain: only the count and head of the row show the cut.
    if (previous, len(history)) != (dataset.head, dataset.entries):
        raise InvalidInput(
            where, f"{len(history)}, {previous}", f"{dataset.entries} entries that end at {dataset.head}"
        )
    contents = [parse(row.content) for row in history]
    # No hash covers the row: its budget counts only as the first entry set it.
    check_first(dataset, contents[0] if contents else {})
    reserved: set[str] = set()
    committed: set[str] = set()
    reserves, bound = [], set()
    steps: dict[tuple[str, int], int] = {}
    for number, content in enumerate(contents[1:], start=2):
        here = f"{where}, entry {number}"
        match content["kind"]:
            case "reserve" if content["id"] not in reserved:
                check_group(content)
                reserved.add(content["id"])
                reserves.append(content)
            # A charge has one outcome: a later entry must not replace an earlier one.
            case "commit" if content["id"] in reserved - committed:
                committed.add(content["id"])
            case "bind" if content["id"] in reserved:
                bound |= set(bound_by(content))
                # A step bound twice would serve two sets of records under one noise.
                if "step" in content and steps.setdefault((content["id"], content["step"]), number) != number:
                    raise InvalidInput(here, content["step"], "a step of a series that was not bound before")
            case kind:
                raise InvalidInput(here, kind, "a reservation, or what follows one")
    check_spending(dataset, reserves)
    return bound
