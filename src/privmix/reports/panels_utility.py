"""Panels about the utility of a release or model: accuracy, and images or texts of its classes."""

from __future__ import annotations

from typing import ClassVar, Final

from privmix.reports.blocks import (
    Block,
    Callout,
    Card,
    ColumnsBlock,
    Details,
    Figure,
    Heatmap,
    KeyBlock,
    NumberBlock,
    Numbers,
    Paragraphs,
    Section,
    Table,
    pictures_of,
)
from privmix.reports.figures import draw_shares, draw_utility
from privmix.reports.panel import PANELS, Context, Offer, Panel, ShownRecord
from privmix.reports.panels import card_of
from privmix.reports.records import RecordFields
from privmix.reports.sentences import capitalised, figure, percent
from privmix.rounding import rounded_down

# A larger confusion matrix is drawn and not written out.
_MOST_CELLS: Final = 16
# If there are more classes than these, only those recognised least.
_MOST_CLASSES: Final = 20
_WORST: Final = 10


def usefulness_section(context: Context) -> Section | None:
    """Accuracy: against epsilon, against no privacy, and by class."""
    cards = [_expected_card(one, context) for one in context.of_kind("guarantee")]
    cards += [_utility_card(one) for one in context.of_kind("utility")]
    cards += [_evaluation_card(one) for one in context.of_kind("evaluation")]
    lead = "Accuracy of models, compared with a guess without a model"
    if any(one.content.number("reference_accuracy") is not None for one in context.of_kind("evaluation", "utility")):
        lead += " and with a model of the same data without privacy"
    lead += "."
    return Section("utility", "Utility", lead, cards) if cards else None


def _expected_card(one: ShownRecord, context: Context) -> Card:
    """Show public facts alone: the planner's forecast, and the baseline without a model."""
    forecast, classes = one.content.fields("forecast"), one.content.number("classes")
    value, low, high = (forecast.number(name) for name in ("accuracy", "low", "high"))
    numbers: list[NumberBlock] = []
    if value is not None:
        between = "" if low is None or high is None else f"{percent(low)} to {percent(high)}"
        numbers.append(NumberBlock("accuracy, forecast as stated", percent(value), between))
        if (without := forecast.number("without_privacy")) is not None:
            numbers.append(
                NumberBlock("without privacy, assumed", percent(without), "assumption of the forecast, not measured")
            )
    if classes:
        least = f"≥ {rounded_down(100 / classes, 3)}%"
        numbers.append(NumberBlock("baseline", least, f"one class for all records; {figure(classes)} classes"))
    shown = context.of_kind("evaluation", "utility")
    text = "The certificate states this forecast, from public facts alone; verification does not check it."
    if value is None:
        text = "The certificate holds no forecast; measured accuracy is below." if shown else "No accuracy is known."
    text += " To measure accuracy on labelled data of your own: privmix evaluate MODEL --data DATA."
    shares = [capitalised(f"{share}.") for share in one.content.texts("shares")]
    return Card("What to expect", [*([Numbers(numbers)] if numbers else []), Paragraphs([*shares, text])])


def _utility_card(one: ShownRecord) -> Card:
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
        keys = [KeyBlock("blue-dot", "with privacy")] + (
            [KeyBlock("dashed-ink", "without")] if reference is not None else []
        )
        rows = [(figure(at), percent(value), _interval(low, high, value)) for at, value, low, high in points]
        if reference is not None:
            rows.append(("without privacy", percent(reference), "–"))
        table = Table(f"{metric} by epsilon", ("ε", metric, "interval"), rows)
        drawn = Figure(svg, "A larger ε means weaker protection and less noise.", keys)
        blocks.append(ColumnsBlock([[drawn], [table]]))
    return card_of(one, blocks, ("points", "metric", "reference_accuracy"), "Accuracy against epsilon")


def _interval(low: float, high: float, value: float) -> str:
    return f"{percent(low)} to {percent(high)}" if low < value or high > value else "–"


def _evaluation_card(one: ShownRecord) -> Card:
    content = one.content
    reference = content.fields("reference")
    blocks: list[Block] = [Numbers(_evaluation_numbers(content))]
    if warnings := content.texts("warnings"):
        text = " ".join(capitalised(f"{text}.") for text in warnings)
        blocks.append(Callout("warning", "Limits of the accuracy", text))
    if sentences := _evaluation_words(content, reference):
        blocks.append(Paragraphs(sentences))
    more: list[Block] = []
    if rows := _measures(content, reference):
        heads = ("measure", "this model", *(["without privacy"] if reference else []), "without a model")
        more.append(Table("Every measure, compared with guessing without a model", heads, rows))
    more += _by_class(one)
    if groups := _group_rows(content.several("groups")):
        heads = ("group", "records", "accuracy", "balanced", "always one class", "AUC")
        more.append(Table("By group", heads, groups))
    blocks += [Details("Every measure, each class, each group", more)] if more else []
    return card_of(one, blocks, _EVALUATION_FIELDS, "Evaluation")


def _evaluation_numbers(content: RecordFields) -> list[NumberBlock]:
    accuracy, without, count = (content.number(name) for name in ("accuracy", "reference_accuracy", "n"))
    majority = content.number("majority_accuracy")
    numbers = [NumberBlock("accuracy", percent(accuracy), "" if count is None else f"on {figure(count)} records")]
    if majority is not None:
        numbers.append(NumberBlock("without a model", percent(majority), f"always {content.text('majority')}"))
    if without is not None:
        lost = "" if accuracy is None else f"{100 * (without - accuracy):.1f} points more"
        numbers.append(NumberBlock("without privacy", percent(without), lost))
    if (balanced := content.number("balanced_accuracy")) is not None:
        numbers.append(NumberBlock("balanced accuracy", percent(balanced), "mean of the classes' recall"))
    if (auc := content.number("auc")) is not None:
        numbers.append(NumberBlock("AUC", f"{auc:.3f}", "guessing: 0.500"))
    return numbers


def _evaluation_words(content: RecordFields, reference: RecordFields) -> list[str]:
    accuracy, majority, name = content.number("accuracy"), content.number("majority_accuracy"), content.text("majority")
    loss, shares_loss, gap = (content.number(f) for f in ("log_loss", "guessing_log_loss", "calibration_error"))
    auc, classes = content.number("auc"), content.texts("classes")
    found = []
    if accuracy is not None and majority is not None:
        more = 100 * (accuracy - majority)
        beside = f"{abs(more):.1f} points {'more' if more > 0 else 'less'}" if abs(more) >= 0.05 else "no more"
        found.append(
            f"It predicts the right class for {percent(accuracy)} of the records. Always predicting “{name}” is "
            f"right on {percent(majority)}: the model reaches {beside} than that."
        )
    if auc is not None and len(classes) == 2:
        found.append(
            f"It gives a record of “{classes[1]}” a higher score for “{classes[1]}” than a record of “{classes[0]}” "
            f"in {percent(auc)} of all pairs (AUC)."
        )
    if loss is not None and shares_loss is not None:
        word = "better" if loss < shares_loss else "no better"
        known = "" if gap is None else f" On average they are {100 * gap:.1f} points off the share that is right."
        found.append(
            f"Its probabilities are {word} than the classes' shares for every record: log loss {loss:.3f} against "
            f"{shares_loss:.3f}.{known}"
        )
    if (without := reference.number("accuracy")) is not None and accuracy is not None:
        found.append(
            f"Without privacy, {content.text('reference_words') or 'a classifier'} reaches {percent(without)}, "
            f"{100 * (without - accuracy):.1f} points more."
        )
    return found


def _measures(content: RecordFields, reference: RecordFields) -> list[tuple[str, ...]]:
    """Every measure of the model, of the reference where there is one, and of no model at all."""
    majority, shares_loss = content.number("majority_accuracy"), content.number("guessing_log_loss")
    present = sum(1 for _ in content.fields("per_class").numbers()) or len(content.texts("classes"))
    without = {
        "accuracy": percent(majority),
        "balanced_accuracy": percent(1 / present) if present else "–",
        "auc": "0.500",
        "log_loss": _decimal(shares_loss),
        "calibration_error": "–",
    }
    found = []
    for name, words in _MEASURES.items():
        if content.number(name) is None:
            continue
        write = percent if name in _SHARES else _decimal
        known = [write(content.number(name)), *([write(reference.number(name))] if reference else [])]
        found.append((words, *known, without[name]))
    return found


_MEASURES: Final = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "auc": "AUC",
    "log_loss": "log loss (less is better)",
    "calibration_error": "calibration error (less is better)",
}
_SHARES: Final = ("accuracy", "balanced_accuracy", "calibration_error")


def _decimal(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _by_class(one: ShownRecord) -> list[Block]:
    """Which class is taken for which, and how many of each are found."""
    content = one.content
    found: list[Block] = []
    matrix, classes = content.matrix("confusion"), content.texts("classes")
    if matrix and len(classes) != len(matrix):
        classes = [str(number) for number in range(len(matrix))]
    totals = [sum(row) for row in matrix]
    shares = [[value / max(total, 1) for value in row] for row, total in zip(matrix, totals, strict=True)]
    if 0 < len(matrix) <= _MOST_CELLS:
        rows = [
            (name, [(figure(value) if value else "", share) for value, share in zip(row, part, strict=True)])
            for name, row, part in zip(classes, matrix, shares, strict=True)
        ]
        caption = "Confusion matrix in records; the shade is the share of the true class"
        found.append(Heatmap(caption, "true \\ predicted", classes, rows))
    elif matrix:
        svg = draw_shares(f"{one.name}-cm", shares, "Confusion matrix")
        found.append(
            Figure(svg, "Confusion matrix: true classes (rows) and predictions (columns), as shares of the true class.")
        )
    recalls = sorted(content.fields("per_class").numbers().items(), key=lambda item: (item[1], item[0]))
    if recalls:
        many = len(recalls) > _MOST_CLASSES
        caption = "Classes with the lowest recall" if many else "Recall by class: the share of its records found"
        # Without a matrix there are no counts.
        counts = dict(zip(classes, totals, strict=False))
        shown = recalls[:_WORST] if many else recalls
        lines = [(name, figure(counts.get(name)), percent(value)) for name, value in shown]
        found.append(Table(caption, ("class", "records", "recall"), lines))
    return found


def _group_rows(groups: list[RecordFields]) -> list[tuple[str, ...]]:
    rows = []
    for one in groups:
        shares = [one.number(part) for part in ("accuracy", "balanced_accuracy", "majority_accuracy")]
        auc = one.number("auc")
        shown_auc = "–" if auc is None else f"{auc:.3f}"
        rows.append((one.text("group"), figure(one.number("n")), *map(percent, shares), shown_auc))
    return rows


_EVALUATION_FIELDS = (
    "reference_words", "accuracy", "balanced_accuracy", "majority", "majority_accuracy", "auc", "log_loss",
    "guessing_log_loss", "calibration_error", "warnings", "reference_accuracy", "reference", "groups", "n", "split",
    "confusion", "classes", "per_class",
)  # fmt: skip


_KNOWN: Final = ("form", "classes", "sure", "seen", "explained", "images", "texts", "nearest")
_IMAGES_A_LINE: Final = 5
_LONGEST: Final = 200
# Degrees of visibility that a record may state, and their words on a page.
_SEEN: Final = {"clear": "clearly", "coarse": "coarsely", "nothing": "nothing: noise", "in part": "little of it"}


@PANELS.register
class ClassesPanel(Panel):
    name = "classes"
    words = "pictures of classes"
    anchor = "classes"
    title = "Pictures of the classes"
    lead = (
        "The information of the released numbers about each class, as images or compared with public texts. It comes "
        "from the release only and shows no single record."
    )
    missing: ClassVar[Offer] = ("Pictures of classes", "from the release only", "privmix picture RELEASE --record RUN")

    @classmethod
    def card(cls, one: ShownRecord, context: Context) -> Card:
        """Images or texts, then how sure each class is."""
        content = one.content
        blocks: list[Block] = [*_headline(content)]
        blocks += pictures_of(
            content.fields("images"), "Class means, and other means that are as likely under the noise", _IMAGES_A_LINE
        )
        blocks += _nearest(content) or _surety(content)
        return card_of(one, blocks, _KNOWN, "Pictures of the classes")


def _headline(content: RecordFields) -> list[Block]:
    """How many classes can be seen; a warning where none can."""
    seen = content.texts("seen")
    if not seen:
        return []
    if set(seen) == {"nothing"}:
        text = "The noise exceeds the differences between classes. The pictures show features that all classes share."
        return [Callout("warning", "No class can be seen", text)]
    counts = [(word, sum(one == word for one in seen)) for word in _SEEN]
    names = {word: f"seen {said}" if word in ("clear", "coarse") else said for word, said in _SEEN.items()}
    shown = [NumberBlock(names[word], f"{count:,}", f"of {len(seen):,} classes") for word, count in counts if count]
    return [Numbers(shown)]


def _rows(content: RecordFields) -> list[tuple[str, str, str]]:
    """Name, share that is known, and word of each class."""
    names, sure, seen = content.texts("classes"), content.series("sure"), content.texts("seen")
    words = [_SEEN.get(word, word) for word in seen]
    return [(name, percent(share), word) for name, share, word in zip(names, sure, words, strict=False)]


def _surety(content: RecordFields) -> list[Block]:
    rows = _rows(content)
    caption = "Known share of a class's differences; the rest is noise"
    return [Table(caption, ("class", "known", "can be seen"), rows, text=(2,))] if rows else []


def _nearest(content: RecordFields) -> list[Block]:
    """Return a line for each of the nearest texts of a class."""
    found = content.several_lists("nearest")
    rows = []
    for (name, known, _), texts in zip(_rows(content), found, strict=False):
        for place, one in enumerate(texts):
            text, share = one.text("text"), one.number("probability")
            cut = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
            rows.append((name if place == 0 else "", known if place == 0 else "", cut, percent(share)))
    columns = ("class", "known", "nearest public texts", "chance of the class")
    caption = "Public texts nearest to each class, and the known share of its differences"
    return [Table(caption, columns, rows, text=(2,))] if rows else []
