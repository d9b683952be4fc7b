"""The panel about a dataset's budget: what everything that was made of it has cost, and how far that is checked."""

from __future__ import annotations

from typing import Final

from privmix.reports.blocks import Block, Callout, Card, NumberBlock, Numbers, PointsBlock, Section, Table
from privmix.reports.context import Context, ShownRecord
from privmix.reports.fields import RecordFields
from privmix.reports.panels import card_of
from privmix.reports.sentences import capitalised, figure, names_of, power_of_ten, unit
from privmix.rounding import exact, rounded_down, rounded_up

_LEAD: Final = (
    "Costs of releases and trainings of the same records add up. This is the ledger's total: the exposure of one {} "
    "to all of them together."
)
_SOURCES: Final = {
    "ledger": "Read from the ledger when this page was made; all its hashes and costs were checked.",
    "signed": "From a statement; its signature was checked.",
    "named": "From a statement that names a key. Its signature was NOT checked: this page was made without the key.",
    "unsigned": "From an unsigned statement: its author may have written any figure.",
}
_MODES: Final = {
    "planned": "The total holds for plans that were fixed in advance, or chosen without seeing earlier results. A "
    "ledger does not show how plans were chosen.",
    "adaptive": "The total holds also for plans that were chosen after seeing earlier results.",
}
_FIELDS: Final = (
    "dataset", "epsilon", "delta", "adjacency", "mode", "spent", "left", "date", "digest", "filter", "share", "unit",
    "most_per_person", "tool", "source", "key_id",
)  # fmt: skip
# A certificate and a ledger round their own ways.
_SAME: Final = 1e-4


def budget_section(context: Context) -> Section | None:
    """Budget, spent, left, and what the figures rest on."""
    ledgers = context.of_kind("ledger")
    about = " or ".join(dict.fromkeys(names_of(one.content.text("unit"))[0] for one in ledgers))
    cards = [_card(one, context) for one in ledgers]
    return Section("budget", "The dataset's budget", _LEAD.format(about), cards) if cards else None


def _card(one: ShownRecord, context: Context) -> Card:
    content = one.content
    source = content.text("source")
    blocks: list[Block] = [Callout("warning" if source in ("named", "unsigned") else "note", *_origin(content, source))]
    budget, delta, spent, left = (content.number(name) for name in ("epsilon", "delta", "spent", "left"))
    numbers = []
    if budget is not None and spent is not None and left is not None and delta is not None:
        numbers += [
            NumberBlock("spent", f"ε ≤ {rounded_up(spent, 4)}", "by all charges together, composed"),
            NumberBlock("left", f"ε ≥ {rounded_down(left, 4)}", "remaining" if left > 0 else "nothing"),
            NumberBlock("total", f"ε = {exact(budget)}", f"at δ = {power_of_ten(delta)}"),
        ]
    numbers.append(NumberBlock("one unit is", *unit(content.text("adjacency"), content.text("unit"))))
    blocks += [Numbers(numbers), _charges(content)]
    notes = [text for text in (_MODES.get(content.text("mode"), ""), _cap(content), *_beside(content, context)) if text]
    blocks.append(PointsBlock(notes))
    return card_of(one, blocks, _FIELDS)


def _cap(content: RecordFields) -> str:
    most = content.number("most_per_person")
    if most is None:
        return ""
    return (
        f"The total covers persons with at most {figure(most)} records. A charge per record covers that many records "
        f"together; the owner declared that no person has more."
    )


def _origin(content: RecordFields, source: str) -> tuple[str, str]:
    key = content.text("key_id")
    by = f" Key {key}." if key else ""
    title = f"Dataset {content.text('dataset')}, as of {content.text('date')}"
    return title, _SOURCES.get(source, _SOURCES["unsigned"]) + by


def _charges(content: RecordFields) -> Table:
    charges = content.fields("charges").numbers()
    rows = [(capitalised(name), figure(count)) for name, count in charges.items()]
    rows.append(("All", figure(sum(charges.values()))))
    outcomes, share = content.fields("outcomes"), content.number("share")
    for name, words in (("committed", "With a result"), ("open", "Without a result (they count as spent)")):
        if (count := outcomes.number(name)) is not None:
            rows.append((words, figure(count)))
    if share is not None:
        rows.append((f"Spent of its {content.text('filter')} filter", f"{rounded_up(100 * share, 4)}%"))
    return Table("Charges, made before any record was read", ("for", "charges"), rows)


def _beside(content: RecordFields, context: Context) -> list[str]:
    """How the total and what this page is about fit together."""
    found = []
    results = content.fields("outcomes").texts("results")
    # A budget of persons that took charges for records may hold what is for records, too.
    capped = content.number("most_per_person") is not None
    for one in context.of_kind("guarantee"):
        subject = f"{one.content.text('what') or 'release'} {one.record.subject['id']}"
        name = f"{one.content.text('what') or 'release'} {str(one.record.subject['id'])[:8]}"
        if one.content.text("in_ledger") == "none":
            found.append(f"The certificate of {name} states that no ledger was charged: this total excludes its cost.")
        elif not capped and (own := names_of(one.content.text("unit"))[0]) != (of := names_of(content.text("unit"))[0]):
            found.append(f"The guarantee of {name} is for one {own}, this total for one {of}: the total excludes it.")
        elif _exceeds(one.content, content):
            found.append(f"The guarantee of {name} alone is larger than this total: it was not charged to this budget.")
        elif subject in results:
            found.append(f"The ledger names {name} among the results of its charges.")
        else:
            found.append(f"The owner states that {name} was charged to this budget only; this page cannot check it.")
    return found


def _exceeds(guarantee: RecordFields, total: RecordFields) -> bool:
    """Whether a guarantee can't be a part of a total: it promises less at a delta that is as large."""
    own, at = guarantee.number("epsilon"), guarantee.number("delta")
    spent, delta = total.number("spent"), total.number("delta")
    if own is None or at is None or spent is None or delta is None:
        return False
    return delta <= at and spent < own * (1 - _SAME)
