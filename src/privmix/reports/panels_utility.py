"""Panels about the utility of a release or model: accuracy."""

from typing import Final

from privmix.reports import blocks
from privmix.reports.figures import draw_shares, draw_utility
from privmix.reports.panel import Context, ShownRecord
from privmix.reports.panels import card_of
from privmix.reports.records import RecordFields
from privmix.reports.sentences import capitalised, decimal, figure, percent
from privmix.rounding import rounded_down

# A larger confusion matrix is drawn and not written out.
_MOST_CELLS: Final = 16
# If there are more classes than these, only those recognised least.
_MOST_CLASSES: Final = 20
_WORST: Final = 10


def usefulness_section(context: Context) -> blocks.Section:
    """Accuracy: against epsilon, against no privacy, and by class."""
    cards = [_expected_card(one, context) for one in context.of_kind("guarantee")]
    cards += [_utility_card(one) for one in context.of_kind("utility")]
    cards += [_evaluation_card(one) for one in context.of_kind("evaluation")]
    lead = "Accuracy of models, compared with a guess without a model"
    if any(one.content.number("reference_accuracy") is not None for one in context.of_kind("evaluation", "utility")):
        lead += " and with a model of the same data without privacy"
    return blocks.Section("utility", "Utility", f"{lead}.", cards)


def _expected_card(one: ShownRecord, context: Context) -> blocks.Card:
    """Show public facts alone: the planner's forecast, and the baseline without a model."""
    forecast, classes = one.content.fields("forecast"), one.content.number("classes")
    value, low, high = (forecast.number(name) for name in ("accuracy", "low", "high"))
    numbers: list[blocks.NumberBlock] = []
    if value is not None:
        between = "" if low is None or high is None else f"{percent(low)} to {percent(high)}"
        numbers.append(blocks.NumberBlock("accuracy, forecast as stated", percent(value), between))
        if (without := forecast.number("without_privacy")) is not None:
            numbers.append(
                blocks.NumberBlock(
                    "without privacy, assumed", percent(without), "assumption of the forecast, not measured"
                )
            )
    if classes:
        least = f"≥ {rounded_down(100 / classes, 3)}%"
        numbers.append(blocks.NumberBlock("baseline", least, f"one class for all records; {figure(classes)} classes"))
    shown = context.of_kind("evaluation", "utility")
    text = "The certificate states this forecast, from public facts alone; verification does not check it."
    if value is None:
        text = "The certificate holds no forecast; measured accuracy is below." if shown else "No accuracy is known."
    text += " To measure accuracy on labelled data of your own: privmix evaluate MODEL --data DATA."
    shares = [capitalised(f"{share}.") for share in one.content.texts("shares")]
    return blocks.Card(
        "What to expect", [*([blocks.Numbers(numbers)] if numbers else []), blocks.Paragraphs([*shares, text])]
    )


def _utility_card(one: ShownRecord) -> blocks.Card:
    content, parts = one.content, list[blocks.Block]()
    metric = content.text("metric") or "accuracy"
    reference = content.number("reference_accuracy")
    points = []
    for item in content.several("points"):
        epsilon, value = item.number("epsilon"), item.number("accuracy")
        # A logarithmic axis has no place for 0.
        if epsilon is not None and epsilon > 0 and value is not None:
            low, high = item.number("low"), item.number("high")
            points.append((epsilon, value, value if low is None else low, value if high is None else high))
    points.sort()
    if points:
        svg = draw_utility(f"{one.name}-ut", points, reference, metric)
        keys = [blocks.KeyBlock("blue-dot", "with privacy")] + (
            [blocks.KeyBlock("dashed-ink", "without")] if reference is not None else []
        )
        rows = [
            (figure(at), percent(value), f"{percent(low)} to {percent(high)}" if low < value or high > value else "–")
            for at, value, low, high in points
        ]
        if reference is not None:
            rows.append(("without privacy", percent(reference), "–"))
        table = blocks.Table(f"{metric} by epsilon", ("ε", metric, "interval"), rows)
        drawn = blocks.Figure(svg, "A larger ε means weaker protection and less noise.", keys)
        parts.append(blocks.ColumnsBlock([[drawn], [table]]))
    return card_of(one, parts, ("points", "metric", "reference_accuracy"), "Accuracy against epsilon")


def _evaluation_card(one: ShownRecord) -> blocks.Card:
    content = one.content
    reference = content.fields("reference")
    parts: list[blocks.Block] = [blocks.Numbers(_evaluation_numbers(content))]
    if warnings := content.texts("warnings"):
        text = " ".join(capitalised(f"{text}.") for text in warnings)
        parts.append(blocks.Callout("warning", "Limits of the accuracy", text))
    if sentences := _evaluation_words(content, reference):
        parts.append(blocks.Paragraphs(sentences))
    more: list[blocks.Block] = []
    if rows := _measures(content, reference):
        heads = ("measure", "this model", *(["without privacy"] if reference else []), "without a model")
        more.append(blocks.Table("Every measure, compared with guessing without a model", heads, rows))
    more += _by_class(one)
    groups = []
    for part in content.several("groups"):
        shares = [part.number(name) for name in ("accuracy", "balanced_accuracy", "majority_accuracy")]
        cells = (figure(part.number("n")), *map(percent, shares), decimal(part.number("auc")))
        groups.append((part.text("group"), *cells))
    if groups:
        heads = ("group", "records", "accuracy", "balanced", "always one class", "AUC")
        more.append(blocks.Table("By group", heads, groups))
    parts += [blocks.Details("Every measure, each class, each group", more)] if more else []
    return card_of(one, parts, _EVALUATION_FIELDS, "Evaluation")


def _evaluation_numbers(content: RecordFields) -> list[blocks.NumberBlock]:
    accuracy, without, count = (content.number(name) for name in ("accuracy", "reference_accuracy", "n"))
    majority = content.number("majority_accuracy")
    numbers = [
        blocks.NumberBlock("accuracy", percent(accuracy), "" if count is None else f"on {figure(count)} records")
    ]
    if majority is not None:
        numbers.append(blocks.NumberBlock("without a model", percent(majority), f"always {content.text('majority')}"))
    if without is not None:
        lost = "" if accuracy is None else f"{100 * (without - accuracy):.1f} points more"
        numbers.append(blocks.NumberBlock("without privacy", percent(without), lost))
    if (balanced := content.number("balanced_accuracy")) is not None:
        numbers.append(blocks.NumberBlock("balanced accuracy", percent(balanced), "mean of the classes' recall"))
    if (auc := content.number("auc")) is not None:
        numbers.append(blocks.NumberBlock("AUC", f"{auc:.3f}", "guessing: 0.500"))
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
    # Balanced accuracy counts only classes that have records.
    present = sum(1 for _ in content.fields("per_class").numbers()) or len(content.texts("classes"))
    without = {
        "accuracy": percent(majority),
        "balanced_accuracy": percent(1 / present) if present else "–",
        "auc": "0.500",
        "log_loss": decimal(shares_loss),
        "calibration_error": "–",
    }
    found = []
    for name, words in _MEASURES.items():
        if content.number(name) is None:
            continue
        write = percent if name in _SHARES else decimal
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


def _by_class(one: ShownRecord) -> list[blocks.Block]:
    content = one.content
    found: list[blocks.Block] = []
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
        found.append(blocks.Heatmap(caption, "true \\ predicted", classes, rows))
    elif matrix:
        svg = draw_shares(f"{one.name}-cm", shares, "Confusion matrix")
        found.append(
            blocks.Figure(
                svg, "Confusion matrix: true classes (rows) and predictions (columns), as shares of the true class."
            )
        )
    recalls = sorted(content.fields("per_class").numbers().items(), key=lambda item: (item[1], item[0]))
    if recalls:
        many = len(recalls) > _MOST_CLASSES
        caption = "Classes with the lowest recall" if many else "Recall by class: the share of its records found"
        # Without a matrix there are no counts.
        counts = dict(zip(classes, totals, strict=False))
        shown = recalls[:_WORST] if many else recalls
        lines = [(name, figure(counts.get(name)), percent(value)) for name, value in shown]
        found.append(blocks.Table(caption, ("class", "records", "recall"), lines))
    return found


_EVALUATION_FIELDS = (
    "reference_words", "accuracy", "balanced_accuracy", "majority", "majority_accuracy", "auc", "log_loss",
    "guessing_log_loss", "calibration_error", "warnings", "reference_accuracy", "reference", "groups", "n", "split",
    "confusion", "classes", "per_class",
)  # fmt: skip
