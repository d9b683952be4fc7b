"""Panels about attacks: what they proved, whom they found, what they recovered."""

from __future__ import annotations

import base64
import binascii
import io
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from privmix.reports.blocks import Block, Callout, Card, Columns, Figure, Key, Number, Numbers, Pictures, Section, Table
from privmix.reports.context import Context, Shown
from privmix.reports.fields import Fields
from privmix.reports.figures import Line, draw_audit_points, draw_bounds, draw_histogram, draw_roc
from privmix.reports.panels import card_of
from privmix.reports.sentences import figure, percent, power_of_ten, rounded_down, rounded_up
from privmix.reports.svg import SERIES

_MOST_PIXELS = 4_000_000
_SHARED = (
    "delta", "confidence", "claimed_epsilon", "published_epsilon", "proven_epsilon", "proven_by", "violated", "method",
)  # fmt: skip


def attack_sections(context: Context) -> list[Section]:
    """A section for each kind of attack that was recorded."""
    panels: list[tuple[tuple[str, ...], str, str, str, Callable[[Shown, Context], Card]]] = [
        (("audit", "canary-audit"), "audit", "Audit", _AUDIT_LEAD, _audit_card),
        (("membership",), "membership", "Who was in the data", _MEMBERSHIP_LEAD, _membership_card),
        (("inversion",), "inversion", "Recovering inputs", _INVERSION_LEAD, _inversion_card),
        (("collapse",), "collapse", "Collapse of features and labels", _COLLAPSE_LEAD, _collapse_card),
    ]
    return [
        Section(anchor, title, lead, [draw(one, context) for one in context.of_kind(*kinds)])
        for kinds, anchor, title, lead, draw in panels
        if context.of_kind(*kinds)
    ]


_AUDIT_LEAD = "Attacks that prove how much leaks at least. What they prove must stay below what is claimed."
_MEMBERSHIP_LEAD = (
    "Attacks that guess which records were used. A guarantee limits every one of them, also unknown ones."
)
_INVERSION_LEAD = "An attack that knows everything but the records tries to draw them again."
_COLLAPSE_LEAD = "Whether what is mixed and noised still keeps classes apart, on public data."


def _audit_card(one: Shown, context: Context) -> Card:
    content = one.content
    proven, claimed, published = (content.number(f"{name}_epsilon") for name in ("proven", "claimed", "published"))
    confidence, violated = content.number("confidence"), content.flag("violated")
    blocks: list[Block] = []
    if violated:
        stated = "" if claimed is None else f" of {rounded_up(claimed)}"
        text = f"At {percent(confidence)} confidence the mechanism leaks at least ε = {rounded_down(proven or 0)}."
        blocks.append(Callout("danger", f"The claim{stated} is refuted", text))
    blocks.append(
        Numbers(
            [
                Number(
                    "proven by attack",
                    "–" if proven is None else f"ε ≥ {rounded_down(proven)}",
                    "" if confidence is None else f"at {100 * confidence:g}% confidence",
                    "bad" if violated else "good",
                ),
                Number(
                    "claimed", "–" if claimed is None else f"ε ≤ {rounded_up(claimed)}", _at(content.number("delta"))
                ),
                *(
                    []
                    if published is None
                    else [Number("published formula", f"ε = {figure(published)}", "not a bound")]
                ),
            ]
        )
    )
    drawn: list[Block] = []
    if proven is not None:
        svg = draw_bounds(f"{one.name}-bd", proven, claimed, published, violated)
        keys = [Key("bad-bar" if violated else "good-bar", "proven to leak"), Key("ink-bar", "claimed at most")]
        keys += [Key("vermilion-dots", "published formula")] if published is not None else []
        drawn.append(Figure(svg, "The bar must not reach beyond the line.", keys))
    points, tables = _audit_points(one), _audit_tables(content)
    sides = ([*drawn, *tables], points) if points else (drawn, tables)
    blocks.append(Columns([side for side in sides if side]))
    known = (*_SHARED, "design", "attack", "runs", "black_box", "points", "canaries", "included", "guesses", "correct")
    return card_of(one, blocks, known, "Canaries" if one.record.kind == "canary-audit" else "Worst-case audit")


def _at(delta: float | None) -> str:
    return "" if delta is None else f"at δ = {power_of_ten(delta)}"


def _audit_tables(content: Fields) -> list[Block]:
    facts = [(name, content.text(name)) for name in ("design", "method", "attack") if content.text(name)]
    facts += [
        (name, figure(value))
        for name in ("runs", "canaries", "included", "guesses", "correct")
        if (value := content.number(name)) is not None
    ]
    found: list[Block] = []
    # A fit to Gaussian DP holds as nearly as the mechanism is Gaussian: it is named, and proves nothing.
    by = [
        (_METHODS.get(name, name), f"ε {'≈' if name == 'gdp' else '≥'} {rounded_down(value)}")
        for name, value in content.fields("proven_by").numbers().items()
    ]
    box = content.fields("black_box")
    if (value := box.number("proven_epsilon")) is not None:
        by.append((f"black box: {box.text('attack')}", f"ε ≥ {rounded_down(value)}"))
    if by:
        found.append(Table("What leaks at least, by method", ("method", "ε"), by))
    if facts:
        found.append(Table("The attack", ("", ""), facts, text=(1,)))
    return found


_METHODS = {
    "clopper-pearson": "Clopper and Pearson",
    "gdp": "as Gaussian DP, approximate",
    "steinke": "Steinke, Nasr, Jagielski 2023",
    "mahloujifar": "Mahloujifar et al. 2024",
}


def _audit_points(one: Shown) -> list[Block]:
    points = one.content.fields("points").curve("alpha", "beta", "alpha_high", "beta_high")
    if not points:
        return []
    epsilon, delta = one.content.number("claimed_epsilon"), one.content.number("delta")
    claimed = None if epsilon is None or delta is None else (epsilon, delta)
    svg = draw_audit_points(f"{one.name}-pt", points, claimed)
    keys = [Key("vermilion", "measured"), Key("ink-square", "upper confidence bounds")]
    keys += [Key("blue", "limit by the claim")] if claimed else []
    return [Figure(svg, "Error rates of the attack. A square in the shaded part would refute the claim.", keys)]


def _membership_card(one: Shown, context: Context) -> Card:
    content = one.content
    attacks = content.several("attacks")
    gap, low, high = (content.number(name) for name in ("gap", "gap_low", "gap_high"))
    best = max((value for item in attacks if (value := item.number("auc")) is not None), default=None)
    members, others = content.number("members"), content.number("nonmembers")
    numbers = [
        Number("best attack's AUC", "–" if best is None else f"{best:.3f}", "guessing: 0.500"),
        Number("train − test accuracy", "–" if gap is None else f"{100 * gap:+.1f} points", _points(low, high)),
    ]
    if members is not None and others is not None:
        numbers.append(Number("records", f"{figure(members)} + {figure(others)}", "members + non-members"))
    blocks: list[Block] = [Numbers(numbers)]
    drawn: list[Block] = []
    if lines := _roc_lines(attacks):
        limit = context.catch_limit(one)
        svg = draw_roc(f"{one.name}-roc", lines, limit)
        keys = [Key(colour, line.name) for colour, line in zip(SERIES, lines, strict=False)]
        keys += [Key("limit", "limit by the guarantee")] if limit else []
        caption = "Both axes are logarithmic: what matters is who is caught at few false alarms. Bands: confidence."
        drawn.append(Figure(svg, caption, [*keys, Key("dashed", "guessing")]))
    accuracies = [(name, percent(content.number(f"{name}_accuracy"))) for name in ("train", "test")]
    models = content.number("reference_models")
    facts = [*accuracies, *([] if models is None else [("reference models", figure(models))])]
    tables = [Table("The model under attack", ("", ""), [(_FACT.get(name, name), value) for name, value in facts])]
    risks = [
        (item.text("record") or f"{item.number('record') or 0:.0f}", figure(item.number("score")))
        for item in content.several("highest_risk")
    ]
    if risks:
        tables.append(Table("Records at highest risk (for the owner only)", ("record", "score"), risks))
    blocks.append(Columns([side for side in (drawn, tables) if side]))
    if attacks:
        blocks.append(_membership_table(attacks, content.number("confidence")))
    return card_of(one, blocks, _MEMBERSHIP_FIELDS, "Membership inference")


def _rate(share: float | None) -> str:
    """With two digits however small."""
    return "–" if share is None else f"{100 * share:.2g}%" if share < 0.1 else percent(share)


_FACT = {"train": "accuracy on members", "test": "accuracy on non-members"}


def _points(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"{100 * low:+.1f} to {100 * high:+.1f}"


def _roc_lines(attacks: Sequence[Fields]) -> list[Line]:
    lines = []
    for item, colour in zip(attacks, SERIES.values(), strict=False):
        roc = item.fields("roc")
        if curve := roc.curve("fpr", "tpr"):
            band = roc.curve("fpr", "low", "high")
            low, high = (band[1], band[2]) if band and len(band[0]) == len(curve[0]) else ([], [])
            lines.append(Line(item.text("name") or "attack", colour, curve[0], curve[1], low, high))
    return lines


def _membership_table(attacks: Sequence[Fields], confidence: float | None) -> Table:
    rates = sorted(
        {rate for item in attacks for at in item.several("tpr_at") if (rate := at.number("fpr")) is not None}
    )
    rows = []
    for item in attacks:
        caught = {at.number("fpr"): at for at in item.several("tpr_at")}
        cells = [_with_band(caught.get(rate, Fields(None)), "tpr", "low", "high", _rate) for rate in rates]
        area = _with_band(item, "auc", "auc_low", "auc_high", lambda value: "–" if value is None else f"{value:.3f}")
        rows.append((item.text("name") or "attack", area, *cells))
    level = "" if confidence is None else f", with {percent(confidence, 0)} intervals"
    columns = ("attack", "AUC", *(f"caught at {100 * rate:g}% false alarms" for rate in rates))
    return Table(f"Attacks{level}", columns, rows)


def _with_band(item: Fields, name: str, low: str, high: str, text: Callable[[float | None], str]) -> str:
    value, least, most = item.number(name), item.number(low), item.number(high)
    return text(value) + ("" if least is None or most is None else f" ({text(least)} to {text(most)})")


def _inversion_card(one: Shown, context: Context) -> Card:
    content = one.content
    blocks: list[Block] = []
    if pictures := _pictures(content.fields("images")):
        blocks.append(pictures)
    columns = ("m", "ε", "mean squared error", "SSIM", "LPIPS")
    rows = [
        (
            figure(item.number("m")),
            "no noise" if item.number("epsilon") is None else figure(item.number("epsilon")),
            *(figure(item.number(name), 3) for name in ("mse", "ssim", "lpips")),
        )
        for item in content.several("cases")
    ]
    baseline = content.fields("baseline")
    if baseline:
        rows.append(("guess", "–", figure(baseline.number("mse"), 3), figure(baseline.number("ssim"), 3), "–"))
    if rows:
        caption = "Likeness of what was recovered to the raw input; guess: what knows no record gets"
        blocks.append(Table(caption, columns, rows))
    return card_of(one, blocks, ("cases", "baseline", "images"), "Model inversion")


def _pictures(images: Fields) -> Pictures | None:
    """Images in a grid; None where the bytes don't fit the shape."""
    shape = [int(size) for size in images.series("shape")]
    if len(shape) not in (4, 5) or min(shape) < 1 or math.prod(shape) > _MOST_PIXELS or (shape[4:] or [3]) != [3]:
        return None
    try:
        pixels = np.frombuffer(base64.b64decode(images.text("uint8"), validate=True), np.uint8).reshape(shape)
    except (ValueError, binascii.Error):
        return None
    rows, columns = images.texts("row_labels"), images.texts("column_labels")
    rows = rows if len(rows) == shape[0] else [str(number + 1) for number in range(shape[0])]
    columns = columns if len(columns) == shape[1] else [str(number + 1) for number in range(shape[1])]
    grid = [
        (name, [(_data_uri(cell), f"{name}, {column}") for column, cell in zip(columns, line, strict=True)])
        for name, line in zip(rows, pixels, strict=True)
    ]
    return Pictures("Raw inputs beside what the attack recovered", columns, grid)


def _data_uri(pixels: NDArray[Any]) -> str:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode()


def _collapse_card(one: Shown, context: Context) -> Card:
    content = one.content
    blocks: list[Block] = []
    numbers = [
        Number(name.replace("_", " "), figure(value))
        for name in ("neural_collapse", "minimum_euclidean_distance")
        if (value := content.number(name)) is not None
    ]
    if numbers:
        blocks.append(Numbers(numbers))
    sides: list[list[Block]] = []
    histogram = content.fields("histogram")
    edges = histogram.series("edges")
    counts = {name: values for name in ("clean", "noisy") if len(values := histogram.series(name)) == len(edges) - 1}
    if counts and len(edges) > 1:
        svg = draw_histogram(f"{one.name}-hi", edges, counts)
        keys = [Key(colour, name) for colour, name in zip(SERIES, counts, strict=False)]
        sides.append([Figure(svg, "Distances between mixed features, before and after noise.", keys)])
    labels = content.fields("label_collapse").numbers()
    if labels:
        rows = [(name.replace("_", " "), figure(value)) for name, value in labels.items()]
        sides.append([Table("Label collapse", ("figure", "value"), rows)])
    if sides:
        blocks.append(Columns(sides))
    known = ("neural_collapse", "minimum_euclidean_distance", "label_collapse", "histogram", "labels")
    return card_of(one, blocks, known, "Collapse")


_MEMBERSHIP_FIELDS = (
    "members", "nonmembers", "confidence", "train_accuracy", "test_accuracy", "gap", "gap_low", "gap_high", "attacks",
    "highest_risk", "reference_models",
)  # fmt: skip
