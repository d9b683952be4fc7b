"""Panels about the guarantee and about what the release or model is good for."""

from __future__ import annotations

from dataclasses import replace

from markupsafe import Markup

from privmix.reports.blocks import (
    Block,
    Callout,
    Card,
    Columns,
    Figure,
    Key,
    Number,
    Numbers,
    Paragraphs,
    Section,
    Table,
)
from privmix.reports.context import Context, Shown
from privmix.reports.fields import Fields, shown
from privmix.reports.figures import draw_epsilon_delta, draw_tradeoff
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
    power_of_ten,
    unit,
)
from privmix.rounding import exact, rounded_up

_GUARANTEE = "The most that anyone can ever learn about {}, whatever they know and however they compute."

_LOOSE = "At such values much about a {} may be learned; the figures below say how much."


def card_of(one: Shown, blocks: list[Block], known: tuple[str, ...], plain_title: str = "") -> Card:
    """A record's card: its blocks, then the figures that this version has no place for, and its statements."""
    if others := one.content.others(known):
        rows = [(name.replace("_", " "), shown(value)) for name, value in others.items()]
        blocks = [*blocks, Table("Further figures", ("figure", "value"), rows, text=(1,))]
    return Card(capitalised(one.record.title) or plain_title, blocks, tuple(one.record.statements), one.record.private)


def headline(context: Context) -> list[Card]:
    """What this is, to whom it may be given, and what epsilon means: a card for each release or model."""
    return [_headline_card(one, context) for one in context.of_kind("guarantee")]


def _headline_card(one: Shown, context: Context) -> Card:
    content = one.content
    epsilon, delta, adjacency = content.number("epsilon"), content.number("delta"), content.text("adjacency")
    kind = content.text("unit")
    refuted = [
        other
        for other in context.of_kind("audit", "canary-audit")
        if other.content.flag("violated") and other.record.subject["id"] == one.record.subject["id"]
    ]
    verdict = _verdict(content, bool(refuted))
    blocks: list[Block] = [verdict]
    numbers = [
        Number("epsilon", "no bound" if epsilon is None else f"ε ≤ {rounded_up(epsilon)}", _accountant(content)),
        Number("delta", "–" if delta is None else f"δ = {power_of_ten(delta)}", _delta_words(delta)),
        Number("what is hidden", *unit(adjacency, kind)),
    ]
    if content.text("in_ledger") != "none":
        numbers += [number for other in context.of_kind("ledger") if (number := _spent_of(other)) is not None]
    blocks.append(Numbers(numbers))
    power = content.fields("power")
    if sentences := meaning(adjacency, power.number("caught"), power.number("right"), kind):
        means = "What this means." if verdict.tone != "danger" else "What this would mean, if it held."
        blocks.append(Paragraphs([Markup("<strong>{}</strong> ").format(means) + sentences[0], *sentences[1:]]))
    if said := owners_words(content):
        rows = [(capitalised(name), text) for name, text in said.items() if name != "title"]
        blocks.append(Table("In the owner's words, which nobody checked", ("", ""), rows, text=(0, 1)))
    return Card(said.get("title") or content.text("summary") or one.record.title, blocks)


def _spent_of(one: Shown) -> Number | None:
    """What is spent in all, for the page's first card."""
    spent, budget = one.content.number("spent"), one.content.number("epsilon")
    if spent is None or budget is None:
        return None
    unchecked = one.content.text("source") not in ("ledger", "signed")
    note = f"of a total of {exact(budget)}" + (", by a statement that nobody checked" if unchecked else "")
    return Number("all of the dataset's uses", f"ε ≤ {rounded_up(spent)}", note)


def owners_words(content: Fields) -> dict[str, str]:
    """What the owner says of what is certified: title first, then owner and the rest."""
    said = content.fields("about").others(())
    return {name.replace("_", " "): text for name, text in said.items() if isinstance(text, str) and text}


def _verdict(content: Fields, refuted: bool) -> Callout:
    what, one = content.text("what") or "release", names_of(content.text("unit"))[0]
    if content.flag("insecure_seed"):
        text = "Its noise came from a seed. Whoever guesses the seed can take the noise away: nothing is guaranteed."
        return Callout("danger", "Not safe to give to anyone", text)
    if refuted:
        text = "An attack did better than what is claimed allows: the claim, or the code behind it, is wrong."
        return Callout("danger", "Not safe to give to anyone: the claim is refuted", text)
    epsilon, delta = content.number("epsilon"), content.number("delta")
    if epsilon is None or delta is None or not content.flag("is_upper_bound"):
        return Callout("danger", "Not safe to give to anyone", "No bound on the privacy loss is known.")
    text = (
        f"The bound below holds whoever has this {what}, whatever else they know, and whatever they compute from it, "
        "now or later. It does not cover the private data themselves, nor pages made for their owner."
    )
    if is_weak(content.fields("power").number("right")):
        return Callout("warning", f"A weak promise: nearly everything about a {one} may be learned", text)
    stated = f"epsilon {rounded_up(epsilon)}, delta {power_of_ten(delta)}"
    # A delta that may show whole records stands among the warnings of a certificate.
    if is_loose(epsilon, delta) or content.texts("warnings"):
        return Callout("warning", f"A loose guarantee: {stated}", f"{text} {_LOOSE.format(one)}")
    return Callout("note", f"Guarantee: {stated}", text)


def _accountant(content: Fields) -> str:
    name = {"pld": "exact composition (PLD)", "pure": "pure composition"}.get(
        content.text("accountant"), content.text("accountant")
    )
    return f"upper bound, {name}" if content.flag("is_upper_bound") else "NOT an upper bound"


def _delta_words(delta: float | None) -> str:
    return "" if delta is None else "no exception" if delta == 0 else f"no promise {how_often(delta)}"


def guarantee_section(context: Context) -> Section | None:
    """Curves with the operating point, beliefs, and the papers' figure for comparison."""
    shown_here = context.of_kind("guarantee")
    about = " or ".join(dict.fromkeys(f"one {names_of(one.content.text('unit'))[0]}" for one in shown_here))
    cards = [_guarantee_card(one) for one in shown_here]
    return Section("guarantee", "The guarantee", _GUARANTEE.format(about), cards) if cards else None


def _guarantee_card(one: Shown) -> Card:
    content = one.content
    blocks: list[Block] = []
    epsilon, delta, power = content.number("epsilon"), content.number("delta"), content.fields("power")
    drawn = []
    curve = content.fields("epsilon_delta").curve("epsilon", "delta")
    if curve and epsilon is not None and delta is not None:
        svg = draw_epsilon_delta(f"{one.name}-ed", curve[0], curve[1], (epsilon, delta))
        caption = "Every point of the curve holds at once; the dot is the one that is quoted."
        drawn.append(Figure(svg, caption, (Key("blue", "bound"), Key("dot", "as stated"))))
    curve = content.fields("tradeoff").curve("alpha", "beta")
    alpha, caught = power.number("alpha"), power.number("caught")
    if curve and alpha is not None and caught is not None:
        svg = draw_tradeoff(
            f"{one.name}-tf", curve[0], curve[1], (alpha, 1 - caught), _sides(content.text("adjacency"))
        )
        many = names_of(content.text("unit"))[1]
        caption = (
            f"No attack gets into the shaded part: one that accuses few of the {many} that are absent misses most of "
            "those that are present."
        )
        drawn.append(Figure(svg, caption, (Key("blue", "limit for every attack"), Key("dashed", "guessing"))))
    if drawn:
        blocks.append(Columns([[one] for one in drawn]))
    if epsilon is not None:
        rows = list(beliefs(epsilon))
        sure = Table(_worth(delta), ("believed before", "at most after"), rows)
        blocks.append(Columns([[sure], [_comparison(content, epsilon)]]))
    # Its statements have a section of their own.
    return replace(card_of(one, blocks, _GUARANTEE_FIELDS), notes=())


def _sides(adjacency: str) -> tuple[str, str]:
    """What an attack tells apart."""
    return ("absent", "present") if adjacency == ADD_REMOVE else ("one version's", "the other's")


def _worth(delta: float | None) -> str:
    """What a table of beliefs says. With delta, single findings may exceed it more often than delta: for a pair of
    datasets, all is worth what such beliefs are worth, and being told the answer with chance delta.
    """
    if not delta:
        return "How sure an attacker can become"
    return f"An attacker is no better off than one who is this sure, and who knows the answer {how_often(delta)}"


def _comparison(content: Fields, epsilon: float) -> Table:
    rows = [("stated", rounded_up(epsilon), "upper bound")]
    recomputed = content.number("recomputed_epsilon")
    if recomputed is not None:
        rows.append(("recomputed", rounded_up(recomputed, 5), "for this page, from the certificate"))
    published = content.fields("published")
    value = published.number("epsilon")
    if value is not None:
        rows.append(("as published", figure(value), f"NOT a bound; {published.text('note')}"))
    return Table("Epsilon by different ways of counting", ("figure", "ε", "what it is"), rows, text=(2,))


_GUARANTEE_FIELDS = (
    "what",
    "summary",
    "epsilon",
    "delta",
    "adjacency",
    "unit",
    "accountant",
    "is_upper_bound",
    "epsilon_asked",
    "recomputed_epsilon",
    "insecure_seed",
    "in_ledger",
    "certificate_sha256",
)
