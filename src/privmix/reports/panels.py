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
    Heatmap,
    Key,
    Number,
    Numbers,
    Paragraphs,
    Section,
    Table,
)
from privmix.reports.context import Context, Shown
from privmix.reports.fields import Fields, shown
from privmix.reports.figures import draw_epsilon_delta, draw_shares, draw_tradeoff, draw_utility
from privmix.reports.sentences import (
    beliefs,
    capitalised,
    figure,
    how_often,
    is_loose,
    is_weak,
    meaning,
    percent,
    power_of_ten,
    unit,
)
from privmix.rounding import exact, rounded_up

# A larger confusion matrix is drawn and not written out.
_MOST_CELLS = 16
_GUARANTEE = "The most that anyone can ever learn about one record, whatever they know and however they compute."

_LOOSE = "At such values much about a record may be learned; the figures below say how much."


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
        Number("what is hidden", *unit(adjacency)),
    ]
    if content.text("in_ledger") != "none":
        numbers += [number for other in context.of_kind("ledger") if (number := _spent_of(other)) is not None]
    blocks.append(Numbers(numbers))
    if epsilon is not None and delta is not None:
        power = content.fields("power")
        sentences = meaning(epsilon, delta, adjacency, power.number("caught"), power.number("right"))
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
    what = content.text("what") or "release"
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
        return Callout("warning", "A weak promise: nearly everything about a record may be learned", text)
    stated = f"epsilon {rounded_up(epsilon)}, delta {power_of_ten(delta)}"
    if is_loose(epsilon, delta):
        return Callout("warning", f"A loose guarantee: {stated}", f"{text} {_LOOSE}")
    return Callout("note", f"Guarantee: {stated}", text)


def _accountant(content: Fields) -> str:
    name = {"pld": "exact composition (PLD)", "pure": "pure composition"}.get(
        content.text("accountant"), content.text("accountant")
    )
    return f"upper bound, {name}" if content.flag("is_upper_bound") else "NOT an upper bound"


def _delta_words(delta: float | None) -> str:
    return "" if delta is None else "no exception" if delta == 0 else f"all bets are off {how_often(delta)}"


def guarantee_section(context: Context) -> Section | None:
    """Curves with the operating point, beliefs, and the papers' figure for comparison."""
    cards = [_guarantee_card(one) for one in context.of_kind("guarantee")]
    return Section("guarantee", "The guarantee", _GUARANTEE, cards) if cards else None


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
        svg = draw_tradeoff(f"{one.name}-tf", curve[0], curve[1], (alpha, 1 - caught))
        caption = (
            "No attack gets into the shaded part: whoever accuses few of those absent misses most of those present."
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


def _worth(delta: float | None) -> str:
    """What a table of beliefs says. With delta, single findings may exceed it more often than delta: for a pair of
    datasets, all is worth what such beliefs are worth, and being told the answer with chance delta.
    """
    if not delta:
        return "How sure an attacker can become"
    return f"What seeing everything is worth, but for being told the answer {how_often(delta)}"


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


def usefulness_section(context: Context) -> Section | None:
    """Accuracy: against epsilon, against no privacy, and by class."""
    cards = [_utility_card(one) for one in context.of_kind("utility")]
    cards += [_evaluation_card(one) for one in context.of_kind("evaluation")]
    lead = "What can be learned from it, beside what the same data teach without any protection."
    return Section("utility", "What it is good for", lead, cards) if cards else None


def _utility_card(one: Shown) -> Card:
    content, blocks = one.content, list[Block]()
    metric = content.text("metric") or "accuracy"
    reference = content.number("reference_accuracy")
    points = []
    for item in content.several("points"):
        epsilon, value = item.number("epsilon"), item.number("accuracy")
        if epsilon is not None and epsilon > 0 and value is not None:
            low, high = item.number("low"), item.number("high")
            points.append((epsilon, value, value if low is None else low, value if high is None else high))
    points.sort()
    if points:
        svg = draw_utility(f"{one.name}-ut", points, reference, metric)
        keys = [Key("blue-dot", "with privacy")] + ([Key("dashed-ink", "without")] if reference is not None else [])
        rows = [(figure(at), percent(value), _interval(low, high, value)) for at, value, low, high in points]
        if reference is not None:
            rows.append(("without privacy", percent(reference), "–"))
        table = Table(f"{metric} by epsilon", ("ε", metric, "interval"), rows)
        drawn = Figure(svg, "The larger ε, the weaker the protection and the clearer the data.", keys)
        blocks.append(Columns([[drawn], [table]]))
    return card_of(one, blocks, ("points", "metric", "reference_accuracy"), "Accuracy against epsilon")


def _interval(low: float, high: float, value: float) -> str:
    return f"{percent(low)} to {percent(high)}" if low < value or high > value else "–"


def _evaluation_card(one: Shown) -> Card:
    content = one.content
    accuracy, reference, count = (content.number(name) for name in ("accuracy", "reference_accuracy", "n"))
    numbers = [Number("accuracy", percent(accuracy), "" if count is None else f"on {figure(count)} records")]
    if reference is not None:
        lost = "" if accuracy is None else f"{100 * (reference - accuracy):.1f} points more"
        numbers.append(Number("without privacy", percent(reference), lost))
    majority, balanced, auc = (content.number(name) for name in ("majority_accuracy", "balanced_accuracy", "auc"))
    if majority is not None:
        numbers.append(Number("always one class", percent(majority), content.text("majority") or ""))
    if balanced is not None:
        numbers.append(Number("balanced accuracy", percent(balanced), "mean of the classes' recall"))
    if auc is not None:
        numbers.append(Number("AUC", f"{auc:.3f}", "guessing: 0.500"))
    loss, shares_loss, gap = (content.number(f) for f in ("log_loss", "guessing_log_loss", "calibration_error"))
    if loss is not None:
        beside = "" if shares_loss is None else f"the classes' shares: {shares_loss:.3f}"
        numbers.append(Number("log loss", f"{loss:.3f}", beside))
    if gap is not None:
        numbers.append(Number("calibration error", percent(gap), "probability told against share right"))
    blocks: list[Block] = [Numbers(numbers)]
    if warnings := content.texts("warnings"):
        blocks.append(Paragraphs([capitalised(f"{text}.") for text in warnings]))
    matrix, classes = content.matrix("confusion"), content.texts("classes")
    if matrix and len(classes) != len(matrix):
        classes = [str(number) for number in range(len(matrix))]
    totals = [max(sum(row), 1) for row in matrix]
    shares = [[value / total for value in row] for row, total in zip(matrix, totals, strict=True)]
    if 0 < len(matrix) <= _MOST_CELLS:
        rows = [
            (name, [(figure(value) if value else "", share) for value, share in zip(row, part, strict=True)])
            for name, row, part in zip(classes, matrix, shares, strict=True)
        ]
        blocks.append(Heatmap("Which class is taken for which, in records", "true \\ predicted", classes, rows))
    elif matrix:
        svg = draw_shares(f"{one.name}-cm", shares, "Confusion matrix")
        blocks.append(Figure(svg, "Which class (rows) is taken for which (columns), as shares of the true class."))
    per_class = content.fields("per_class").numbers()
    if per_class and not 0 < len(matrix) <= _MOST_CELLS:
        worst = sorted(per_class.items(), key=lambda item: (item[1], item[0]))[:10]
        rows_of_worst = [(name, percent(value)) for name, value in worst]
        blocks.append(Table("Classes that are recognised least", ("class", "accuracy"), rows_of_worst))
    if groups := _group_rows(content.several("groups")):
        heads = ("group", "records", "accuracy", "balanced", "always one class", "AUC")
        blocks.append(Table("By group", heads, groups))
    return card_of(one, blocks, _EVALUATION_FIELDS, "Evaluation")


def _group_rows(groups: list[Fields]) -> list[tuple[str, ...]]:
    rows = []
    for one in groups:
        shares = [one.number(part) for part in ("accuracy", "balanced_accuracy", "majority_accuracy")]
        auc = one.number("auc")
        shown_auc = "–" if auc is None else f"{auc:.3f}"
        rows.append((one.text("group"), figure(one.number("n")), *map(percent, shares), shown_auc))
    return rows


_GUARANTEE_FIELDS = (
    "what",
    "summary",
    "epsilon",
    "delta",
    "adjacency",
    "accountant",
    "is_upper_bound",
    "epsilon_asked",
    "recomputed_epsilon",
    "insecure_seed",
    "in_ledger",
    "certificate_sha256",
)
_EVALUATION_FIELDS = (
    "accuracy",
    "balanced_accuracy",
    "majority",
    "majority_accuracy",
    "auc",
    "log_loss",
    "guessing_log_loss",
    "calibration_error",
    "warnings",
    "reference_accuracy",
    "reference",
    "groups",
    "n",
    "split",
    "confusion",
    "classes",
    "per_class",
)
