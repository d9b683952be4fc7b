"""Panels about the guarantee, the budget, and what the release or model is good for."""

from dataclasses import replace
from typing import Final

from markupsafe import Markup

from privmix.reports import blocks
from privmix.reports.figures import draw_epsilon_delta, draw_tradeoff
from privmix.reports.panel import Context, ShownRecord
from privmix.reports.records import RecordFields, shown
from privmix.reports.sentences import (
    ADD_REMOVE,
    beliefs,
    capitalised,
    figure,
    how_often,
    is_loose,
    is_weak,
    meaning,
    names_of,
    percent,
    power_of_ten,
    unit,
)
from privmix.rounding import exact, percent_up, rounded_down, rounded_up

_GUARANTEE = "The most that an attacker can learn about {}, with any knowledge and any computation."

_LOOSE = "Such values allow an attacker to learn much about a {}; the figures below show how much."


def card_of(one: ShownRecord, parts: list[blocks.Block], known: tuple[str, ...], plain_title: str = "") -> blocks.Card:
    """Return a record's card: its blocks, then the figures that this version has no place for, and its statements."""
    if others := one.content.others(known):
        rows = [(name.replace("_", " "), shown(value)) for name, value in others.items()]
        parts = [*parts, blocks.Table("Further figures", ("figure", "value"), rows, text=(1,))]
    return blocks.Card(
        capitalised(one.record.title) or plain_title, parts, tuple(one.record.statements), one.record.private
    )


def headline(one: ShownRecord, context: Context) -> blocks.Card:
    """Return title, permitted recipients, and the meaning of epsilon of a release or model."""
    content = one.content
    epsilon, adjacency = content.number("epsilon"), content.text("adjacency")
    kind = content.text("unit")
    refuted = [
        other
        for other in context.of_kind("audit", "canary-audit")
        if other.content.flag("violated") and other.record.subject["id"] == one.record.subject["id"]
    ]
    verdict = _verdict(content, bool(refuted))
    parts: list[blocks.Block] = [verdict]
    power = content.fields("power")
    # No odds next to a failed verdict: they would read as a promise.
    right = power.number("right") if verdict.tone != "danger" else None
    odds = "" if right is None else f"best attack on an even bet: right at most {percent_up(right)} of the time"
    numbers = [
        blocks.NumberBlock("protects", *unit(adjacency, kind)),
        blocks.NumberBlock("epsilon", "no bound" if epsilon is None else f"ε ≤ {rounded_up(epsilon)}", odds),
        *_accuracy(one, context),
    ]
    if content.text("in_ledger") != "none":
        numbers += [number for other in context.of_kind("ledger") if (number := _spent_of(other)) is not None]
    parts.append(blocks.Numbers(numbers))
    if (most := power.number("right")) is not None:
        means = "What this means." if verdict.tone != "danger" else "What this would mean, if it held."
        parts.append(blocks.Paragraphs([Markup("<strong>{}</strong> ").format(means) + meaning(adjacency, most, kind)]))
    said = owners_words(content)
    if rows := [(capitalised(name), text) for name, text in said.items() if name != "title"]:
        title = "The owner's words, not checked"
        parts.append(blocks.Details(title, [blocks.Table(title, ("", ""), rows, text=(0, 1))]))
    return blocks.Card(said.get("title") or content.text("summary") or one.record.title, parts)


def _accuracy(one: ShownRecord, context: Context) -> list[blocks.NumberBlock]:
    """Accuracy from public facts: measured on public records, else the planner's forecast, beside no privacy."""
    for other in context.of_kind("evaluation"):
        value, without = (other.content.number(f"{name}accuracy") for name in ("", "reference_"))
        about = other.record.subject["id"] in (None, one.record.subject["id"])
        if value is not None and about and not other.record.private:
            return [blocks.NumberBlock("accuracy, measured", percent(value), _without(without))]
    forecast = one.content.fields("forecast")
    if (value := forecast.number("accuracy")) is None:
        return []
    note = _without(forecast.number("without_privacy"), "assumed ")
    return [blocks.NumberBlock("accuracy, forecast as stated", percent(value), note)]


def _without(accuracy: float | None, how: str = "") -> str:
    return "" if accuracy is None else f"{how}without privacy: {percent(accuracy)}"


def _spent_of(one: ShownRecord) -> blocks.NumberBlock | None:
    spent, budget = one.content.number("spent"), one.content.number("epsilon")
    if spent is None or budget is None:
        return None
    unchecked = one.content.text("source") not in ("ledger", "signed")
    note = f"of a total of {exact(budget)}" + (", by an unchecked statement" if unchecked else "")
    return blocks.NumberBlock("all uses of the dataset", f"ε ≤ {rounded_up(spent)}", note)


def owners_words(content: RecordFields) -> dict[str, str]:
    """Return the owner's words on what is certified: title first, then owner and the rest."""
    said = content.fields("about").others(())
    return {name.replace("_", " "): text for name, text in said.items() if isinstance(text, str) and text}


def _verdict(content: RecordFields, refuted: bool) -> blocks.Callout:
    what, one = content.text("what") or "release", names_of(content.text("unit"))[0]
    # From the worst finding down: the first that applies is the verdict.
    if content.flag("insecure_seed"):
        text = f"The noise came from a seed. Anyone who guesses the seed can remove the noise. Make a new {what}."
        return blocks.Callout("danger", f"FAIL: do not hand on this {what}: it is not private", text)
    if refuted:
        text = "An attack did better than the claim allows: the claim, or the code behind it, is wrong."
        return blocks.Callout("danger", f"FAIL: do not hand on this {what}: an attack refutes the claim", text)
    epsilon, delta = content.number("epsilon"), content.number("delta")
    if epsilon is None or delta is None or not content.flag("is_upper_bound"):
        text = "No bound on the privacy loss is known."
        return blocks.Callout("danger", f"FAIL: do not hand on this {what}: it has no guarantee", text)
    text = (
        f"The bound holds for every recipient of this {what}, with any other knowledge and any computation, now or "
        "later. It does not cover the private data themselves, or pages made for their owner."
    )
    if is_weak(content.fields("power").number("right")):
        return blocks.Callout("warning", f"WARNING: a weak bound: nearly everything about a {one} may be learned", text)
    stated = f"epsilon {rounded_up(epsilon)}, delta {power_of_ten(delta)}"
    # A delta that may show whole records stands among the warnings of a certificate.
    if is_loose(epsilon, delta) or content.texts("warnings"):
        return blocks.Callout("warning", f"WARNING: a loose bound: {stated}", f"{text} {_LOOSE.format(one)}")
    return blocks.Callout("note", f"Guarantee: {stated}", text)


def _accountant(content: RecordFields) -> str:
    name = {"pld": "exact composition (PLD)", "pure": "pure composition"}.get(
        content.text("accountant"), content.text("accountant")
    )
    return f"upper bound, {name}" if content.flag("is_upper_bound") else "NOT an upper bound"


def guarantee_section(context: Context) -> blocks.Section:
    """Curves with the operating point, beliefs, and the papers' figure for comparison."""
    shown_here = context.of_kind("guarantee")
    about = " or ".join(dict.fromkeys(f"one {names_of(one.content.text('unit'))[0]}" for one in shown_here))
    cards = [_guarantee_card(one) for one in shown_here]
    return blocks.Section("guarantee", "The guarantee", _GUARANTEE.format(about), cards)


def _guarantee_card(one: ShownRecord) -> blocks.Card:
    content = one.content
    parts: list[blocks.Block] = []
    epsilon, delta, power = content.number("epsilon"), content.number("delta"), content.fields("power")
    drawn: list[blocks.Block] = []
    curve = content.fields("tradeoff").curve("alpha", "beta")
    alpha, caught = power.number("alpha"), power.number("caught")
    if curve and alpha is not None and caught is not None:
        with_one = content.text("adjacency") == ADD_REMOVE
        sides = ("absent", "present") if with_one else ("one version's", "the other's")
        svg = draw_tradeoff(f"{one.name}-tf", curve[0], curve[1], (alpha, caught), sides)
        many = names_of(content.text("unit"))[1]
        caption = f"No attack reaches the shaded part: few false alarms mean few {many} detected."
        drawn.append(
            blocks.Figure(
                svg, caption, (blocks.KeyBlock("blue", "limit for every attack"), blocks.KeyBlock("dashed", "guessing"))
            )
        )
    if epsilon is not None:
        # With delta, single findings may exceed it more often than delta: for a pair of datasets, all findings together
        # are worth such beliefs plus the answer itself with chance delta.
        worth = "Certainty of an attacker"
        if delta:
            worth = f"At best an attacker is this certain, and knows the answer {how_often(delta)}"
        sure = blocks.Table(worth, ("believed before", "at most after"), list(beliefs(epsilon)))
        parts.append(blocks.ColumnsBlock([side for side in (drawn, [_stated(content), sure]) if side]))
        parts.append(blocks.Details("Epsilon by different ways of counting", [_comparison(content, epsilon)]))
    # Its statements have a section of their own.
    return replace(card_of(one, parts, _GUARANTEE_FIELDS), notes=())


def delta_curve(one: ShownRecord) -> blocks.Details | None:
    epsilon, delta = one.content.number("epsilon"), one.content.number("delta")
    curve = one.content.fields("epsilon_delta").curve("epsilon", "delta")
    if not curve or epsilon is None or delta is None:
        return None
    svg = draw_epsilon_delta(f"{one.name}-ed", curve[0], curve[1], (epsilon, delta))
    caption = "Every point of the curve holds at once; the dot is the stated pair."
    return blocks.Details(
        "Delta against epsilon",
        [blocks.Figure(svg, caption, (blocks.KeyBlock("blue", "bound"), blocks.KeyBlock("dot", "as stated")))],
    )


def _stated(content: RecordFields) -> blocks.Table:
    """Return the promise in its terms, and the most that an attack detects."""
    epsilon, delta, power = content.number("epsilon"), content.number("delta"), content.fields("power")
    alpha, caught = power.number("alpha"), power.number("caught")
    exception = f"no guarantee {how_often(delta)}" if delta else "no exception"
    rows = [
        ("epsilon", "–" if epsilon is None else f"{rounded_up(epsilon)}, {_accountant(content)}"),
        ("delta", "–" if delta is None else f"{power_of_ten(delta)}: {exception}"),
        ("unit", ", ".join(unit(content.text("adjacency"), content.text("unit")))),
    ]
    if alpha is not None and caught is not None:
        rows.append((f"detected at {percent(alpha, 0)} false alarms", f"at most {percent_up(caught)}"))
    return blocks.Table("The stated guarantee", ("", ""), rows, text=(1,))


def _comparison(content: RecordFields, epsilon: float) -> blocks.Table:
    rows = [("stated", rounded_up(epsilon), "upper bound")]
    recomputed = content.number("recomputed_epsilon")
    if recomputed is not None:
        rows.append(("recomputed", rounded_up(recomputed, 5), "for this page, from the certificate"))
    published = content.fields("published")
    value = published.number("epsilon")
    if value is not None:
        rows.append(("as published", figure(value), f"NOT a bound; {published.text('note')}"))
    return blocks.Table("Epsilon by accounting method", ("figure", "ε", "what it is"), rows, text=(2,))


_GUARANTEE_FIELDS = (
    "what", "summary", "epsilon", "delta", "adjacency", "unit", "accountant", "is_upper_bound", "epsilon_asked",
    "recomputed_epsilon", "insecure_seed", "forecast", "classes", "shares", "in_ledger", "certificate_sha256",
)  # fmt: skip


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


def budget_section(context: Context) -> blocks.Section:
    """Budget, spent, left, and what the figures rest on."""
    ledgers = context.of_kind("ledger")
    about = " or ".join(dict.fromkeys(names_of(one.content.text("unit"))[0] for one in ledgers))
    cards = [_card(one, context) for one in ledgers]
    return blocks.Section("budget", "The dataset's budget", _LEAD.format(about), cards)


def _card(one: ShownRecord, context: Context) -> blocks.Card:
    content = one.content
    source, key = content.text("source"), content.text("key_id")
    title = f"Dataset {content.text('dataset')}, as of {content.text('date')}"
    text = _SOURCES.get(source, _SOURCES["unsigned"]) + (f" Key {key}." if key else "")
    tone: blocks.Tone = "warning" if source in ("named", "unsigned") else "note"
    parts: list[blocks.Block] = [blocks.Callout(tone, title, text)]
    budget, delta, spent, left = (content.number(name) for name in ("epsilon", "delta", "spent", "left"))
    numbers = []
    if budget is not None and spent is not None and left is not None and delta is not None:
        numbers += [
            blocks.NumberBlock("spent", f"ε ≤ {rounded_up(spent, 4)}", "by all charges together, composed"),
            blocks.NumberBlock("left", f"ε ≥ {rounded_down(left, 4)}", "remaining" if left > 0 else "nothing"),
            blocks.NumberBlock("total", f"ε = {exact(budget)}", f"at δ = {power_of_ten(delta)}"),
        ]
    numbers.append(blocks.NumberBlock("one unit is", *unit(content.text("adjacency"), content.text("unit"))))
    parts += [blocks.Numbers(numbers), _charges(content)]
    notes = [text for text in (_MODES.get(content.text("mode"), ""), _cap(content), *_beside(content, context)) if text]
    parts.append(blocks.PointsBlock(notes))
    return card_of(one, parts, _FIELDS)


def _cap(content: RecordFields) -> str:
    most = content.number("most_per_person")
    if most is None:
        return ""
    return (
        f"The total covers persons with at most {figure(most)} records. A charge per record covers that many records "
        f"together; the owner declared that no person has more."
    )


def _charges(content: RecordFields) -> blocks.Table:
    charges = content.fields("charges").numbers()
    rows = [(capitalised(name), figure(count)) for name, count in charges.items()]
    rows.append(("All", figure(sum(charges.values()))))
    outcomes, share = content.fields("outcomes"), content.number("share")
    for name, words in (("committed", "With a result"), ("open", "Without a result (they count as spent)")):
        if (count := outcomes.number(name)) is not None:
            rows.append((words, figure(count)))
    if share is not None:
        rows.append((f"Spent of its {content.text('filter')} filter", f"{rounded_up(100 * share, 4)}%"))
    return blocks.Table("Charges, made before any record was read", ("for", "charges"), rows)


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
