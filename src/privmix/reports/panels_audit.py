"""Panels about audits and attacks: the proven leak next to the claimed bound, and whom attackers found."""

import math
from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np

from privmix.reports import blocks
from privmix.reports.figures import FigureLine, draw_audit_points, draw_bounds, draw_roc
from privmix.reports.panel import PANELS, Context, Offer, Panel, ShownRecord
from privmix.reports.panels import card_of
from privmix.reports.pictures import SERIES
from privmix.reports.records import RecordFields
from privmix.reports.sentences import decimal, figure, percent, power_of_ten
from privmix.rounding import percent_up, rounded_down, rounded_up

_AUDIT_FIELDS = (
    "delta", "confidence", "claimed_epsilon", "published_epsilon", "proven_epsilon", "proven_by", "violated", "method",
    "priced_epsilon", "design", "attack", "runs", "black_box", "below_curve", "points", "looks", "canaries", "included",
    "guesses", "correct", "unit",
)  # fmt: skip
_METHODS = {
    "clopper-pearson": "Clopper and Pearson",
    "steinke": "Steinke, Nasr, Jagielski 2023",
    "mahloujifar": "Mahloujifar et al. 2024",
}


@PANELS.register
class AuditPanel(Panel):
    name: ClassVar[str] = "audit"
    words: ClassVar[str] = "worst-case audit"
    anchor: ClassVar[str] = "audit"
    title: ClassVar[str] = "Audit"
    lead: ClassVar[str] = "Attacks that prove a lower bound on the leak. The proven bound must stay below the claim."
    missing: ClassVar[Offer] = ("Worst-case audit", "the ε that an attack proves", "privmix audit RELEASE --record RUN")

    @classmethod
    def card(cls, one: ShownRecord, context: Context) -> blocks.Card:
        content = one.content
        proven, claimed, published = (content.number(f"{name}_epsilon") for name in ("proven", "claimed", "published"))
        confidence, violated = content.number("confidence"), content.flag("violated")
        parts: list[blocks.Block] = []
        if violated:
            stated = "" if claimed is None else f" of {rounded_up(claimed)}"
            text = (
                f"At {100 * (confidence or 0):g}% confidence the mechanism leaks at least "
                f"ε = {rounded_down(proven or 0)}." + by_curve(content)
            )
            parts.append(blocks.Callout("danger", f"The claim{stated} is refuted", text))
        told = "" if confidence is None else f"at {100 * confidence:g}% confidence"
        delta, least = content.number("delta"), "–" if proven is None else f"ε ≥ {rounded_down(proven)}"
        at = "" if delta is None else f"at δ = {power_of_ten(delta)}"
        numbers = [
            blocks.NumberBlock("proven by attack", least, told, "bad" if violated else "good"),
            blocks.NumberBlock("claimed", _at_most(claimed), at),
            *_priced(content.number("priced_epsilon"), claimed),
        ]
        if published is not None:
            numbers.append(blocks.NumberBlock("published formula", f"ε = {figure(published)}", "not a bound"))
        parts.append(blocks.Numbers(numbers))
        drawn: list[blocks.Block] = []
        if proven is not None:
            svg = draw_bounds(f"{one.name}-bd", proven, claimed, published, violated)
            keys = [
                blocks.KeyBlock("bad-bar" if violated else "good-bar", "proven to leak"),
                blocks.KeyBlock("ink-bar", "claimed at most"),
            ]
            keys += [blocks.KeyBlock("vermilion-dots", "published formula")] if published is not None else []
            drawn.append(blocks.Figure(svg, "The bar must not reach beyond the line.", keys))
        points, tables = _audit_points(one, context), list[blocks.Block]()
        if found := _audit_tables(content):
            tables.append(blocks.Details("Figures of the attack", found))
        sides = ([*drawn, *tables], points) if points else (drawn, tables)
        parts.append(blocks.ColumnsBlock([side for side in sides if side]))
        title = "Canaries" if one.record.kind == "canary-audit" else "Worst-case audit"
        return card_of(one, parts, _AUDIT_FIELDS, title)


@PANELS.register
class CanaryAuditPanel(AuditPanel):
    name: ClassVar[str] = "canary-audit"
    words: ClassVar[str] = "canary audit"
    missing: ClassVar[Offer] = (
        "Canary audit",
        "canaries in a training, scored after one run",
        "privmix audit MODEL --data DATA --canaries 1000 --record RUN",
    )


@PANELS.register
class NoisePanel(Panel):
    name: ClassVar[str] = "noise-audit"
    words: ClassVar[str] = "noise audit"
    anchor: ClassVar[str] = "noise"
    title: ClassVar[str] = "The noise"
    lead: ClassVar[str] = "The noise that the code adds, measured on empty records."
    missing: ClassVar[Offer] = ("Noise audit", "the measured noise", "privmix audit RELEASE --noise --record RUN")

    @classmethod
    def card(cls, one: ShownRecord, context: Context) -> blocks.Card:
        content = one.content
        confidence, violated = content.number("confidence"), content.flag("violated")
        parts: list[blocks.Block] = []
        if violated:
            parts.append(blocks.Callout("danger", "The noise is not as certified", ""))
        interval = "interval" if confidence is None else f"interval ({100 * confidence:g}%)"
        rows = [
            (
                noise.text("name"),
                noise.text("source"),
                *(_share(noise, name) for name in ("certified", "measured")),
                f"{_share(noise, 'low')} to {_share(noise, 'high')}",
                noise.text("verdict"),
            )
            for noise in content.several("noises")
        ]
        header = ("noise", "in the certificate", "certified std", "measured / certified", interval, "verdict")
        parts.append(blocks.Table("Noise of empty records", header, rows, text=(1, 5)))
        known = ("design", "method", "confidence", "false_alarm", "violated", "noises")
        return card_of(one, parts, known, "Audit of the noise")


def _share(noise: RecordFields, name: str) -> str:
    """Return a standard deviation: the certified one as it is, others as shares of it."""
    value, certified = noise.number(name), noise.number("certified")
    if value is None or not certified:
        return "–"
    return figure(value) if name == "certified" else f"{value / certified:.4f}"


def by_curve(content: RecordFields) -> str:
    """Sentence on what refuted a claim whose epsilon was not exceeded; empty for the others."""
    proven, claimed = content.number("proven_epsilon"), content.number("claimed_epsilon")
    if not content.flag("below_curve") or (proven is not None and claimed is not None and proven > claimed):
        return ""
    return " Its errors are below the claimed trade-off curve."


def _at_most(claimed: float | None) -> str:
    return "–" if claimed is None else f"ε ≤ {rounded_up(claimed)}"


def _priced(priced: float | None, claimed: float | None) -> list[blocks.NumberBlock]:
    """Return the accountant's figure for what ran, where the claim is another's."""
    # Within 1% the two figures print alike, and readers would look for a difference that matters.
    if priced is None or (claimed is not None and priced <= claimed * 1.01):
        return []
    return [blocks.NumberBlock("priced here", _at_most(priced), "upper bound for the run")]


def _audit_tables(content: RecordFields) -> list[blocks.Block]:
    facts = [(name, content.text(name)) for name in ("design", "method", "attack", "unit") if content.text(name)]
    facts += [
        (name, figure(value))
        for name in ("runs", "looks", "canaries", "included", "guesses", "correct")
        if (value := content.number(name)) is not None
    ]
    found: list[blocks.Block] = []
    numbers = content.fields("proven_by").numbers()
    by = [(_METHODS[name], f"ε ≥ {rounded_down(value)}") for name, value in numbers.items() if name in _METHODS]
    box = content.fields("black_box")
    if (value := box.number("proven_epsilon")) is not None:
        by.append((f"black box: {box.text('attack')}", f"ε ≥ {rounded_down(value)}"))
    if by:
        found.append(blocks.Table("Proven lower bounds by method", ("method", "ε"), by))
    if facts:
        found.append(blocks.Table("The attack", ("", ""), facts, text=(1,)))
    return found


def _audit_points(one: ShownRecord, context: Context) -> list[blocks.Block]:
    points = one.content.fields("points").curve("alpha", "beta", "alpha_high", "beta_high")
    if not points:
        return []
    limit = _miss_limit(one, context)
    svg = draw_audit_points(f"{one.name}-pt", points, limit)
    keys = [blocks.KeyBlock("vermilion", "measured"), blocks.KeyBlock("ink-square", "upper confidence bounds")]
    keys += [blocks.KeyBlock("blue", "limit by the claim")] if limit else []
    caption = (
        "Error rates of the attack. Each square holds separately: among many, one may lie in the shaded area by "
        "chance. The claim was tested at thresholds that other runs chose."
    )
    return [blocks.Figure(svg, caption, keys)]


def _miss_limit(one: ShownRecord, context: Context) -> tuple[list[float], list[float]] | None:
    """(false-alarm rates, least miss rates) by what is claimed: a whole trade-off curve, or one point of it."""
    if limit := context.catch_limit(one):
        return limit[0], [1 - caught for caught in limit[1]]
    epsilon, delta = one.content.number("claimed_epsilon"), one.content.number("delta")
    if epsilon is None or delta is None:
        return None
    grid = np.geomspace(1e-6, 1, 300)
    # The exponential of 710 overflows float64.
    growth = math.exp(min(max(epsilon, 0.0), 700.0))
    # The least that (epsilon, delta)-DP leaves (Kairouz, Oh, Viswanath 2015).
    missed = np.maximum(0.0, np.maximum(1 - delta - growth * grid, (1 - delta - grid) / growth))
    return grid.tolist(), missed.tolist()


@PANELS.register
class MembershipPanel(Panel):
    name: ClassVar[str] = "membership"
    words: ClassVar[str] = "membership inference"
    anchor: ClassVar[str] = "membership"
    title: ClassVar[str] = "Who was in the data"
    lead: ClassVar[str] = (
        "Attacks that guess which records were used. The guarantee limits all attacks, including unknown ones."
    )
    missing: ClassVar[Offer] = (
        "Membership",
        "success of membership attacks",
        "privmix attack membership MODEL --data DATA --record RUN",
    )

    @classmethod
    def card(cls, one: ShownRecord, context: Context) -> blocks.Card:
        content = one.content
        attacks = content.several("attacks")
        gap, low, high = (content.number(name) for name in ("gap", "gap_low", "gap_high"))
        between = "" if low is None or high is None else f"{100 * low:+.1f} to {100 * high:+.1f}"
        best = max((value for item in attacks if (value := item.number("auc")) is not None), default=None)
        members, others = content.number("members"), content.number("nonmembers")
        numbers = [
            blocks.NumberBlock("best attack's AUC", decimal(best), "guessing: 0.500"),
            blocks.NumberBlock("train − test accuracy", "–" if gap is None else f"{100 * gap:+.1f} points", between),
        ]
        if members is not None and others is not None:
            numbers.append(
                blocks.NumberBlock("records", f"{figure(members)} + {figure(others)}", "members + non-members")
            )
        parts: list[blocks.Block] = [blocks.Numbers(numbers)]
        drawn: list[blocks.Block] = []
        if lines := _roc_lines(attacks):
            limit = context.catch_limit(one)
            svg = draw_roc(f"{one.name}-roc", lines, limit)
            keys = [blocks.KeyBlock(colour, line.name) for colour, line in zip(SERIES, lines, strict=False)]
            keys += [blocks.KeyBlock("limit", "limit by the guarantee")] if limit else []
            caption = "Both axes are logarithmic: detection at few false alarms matters most. Bands: confidence."
            drawn.append(blocks.Figure(svg, caption, [*keys, blocks.KeyBlock("dashed", "guessing")]))
        accuracies = [(name, percent(content.number(f"{name}_accuracy"))) for name in ("train", "test")]
        models = content.number("reference_models")
        facts = [*accuracies, *([] if models is None else [("reference models", figure(models))])]
        tables = [
            blocks.Table("The model under attack", ("", ""), [(_FACT.get(name, name), value) for name, value in facts])
        ]
        risks = [
            (item.text("record") or f"{item.number('record') or 0:.0f}", figure(item.number("score")))
            for item in content.several("highest_risk")
        ]
        if risks:
            tables.append(blocks.Table("Records at highest risk (for the owner only)", ("record", "score"), risks))
        parts.append(blocks.ColumnsBlock([side for side in (drawn, tables) if side]))
        if attacks:
            limited = not context.lacks_limit(one)
            parts.append(_membership_table(attacks, content.number("confidence"), limited=limited))
        return card_of(one, parts, _MEMBERSHIP_FIELDS, "Membership inference")


def _rate(share: float | None) -> str:
    """With two digits however small."""
    return "–" if share is None else f"{100 * share:.2g}%" if share < 0.1 else percent(share)


_FACT = {"train": "accuracy on members", "test": "accuracy on non-members"}


def _roc_lines(attacks: Sequence[RecordFields]) -> list[FigureLine]:
    lines = []
    # Attacks beyond the colours are left out of the drawing, and stand in the table.
    for item, colour in zip(attacks, SERIES.values(), strict=False):
        roc = item.fields("roc")
        if curve := roc.curve("fpr", "tpr"):
            band = roc.curve("fpr", "low", "high")
            low, high = (band[1], band[2]) if band and len(band[0]) == len(curve[0]) else ([], [])
            lines.append(FigureLine(item.text("name") or "attack", colour, curve[0], curve[1], low, high))
    return lines


def _membership_table(attacks: Sequence[RecordFields], confidence: float | None, *, limited: bool) -> blocks.Table:
    rates = sorted(
        {rate for item in attacks for at in item.several("tpr_at") if (rate := at.number("fpr")) is not None}
    )
    rows, limits = [], dict[float, float]()
    for item in attacks:
        caught = {at.number("fpr"): at for at in item.several("tpr_at")}
        cells = []
        for rate in rates:
            at = caught.get(rate, RecordFields(None))
            cells.append(_with_band(at, "tpr", "low", "high", _rate))
            if limited and (most := at.number("bound")) is not None:
                limits[rate] = max(most, limits.get(rate, 0.0))
        area = _with_band(item, "auc", "auc_low", "auc_high", decimal)
        rows.append((item.text("name") or "attack", area, *cells))
    if limits:
        most_caught = [percent_up(limits[rate]) if rate in limits else "–" for rate in rates]
        rows.append(("limit by the guarantee", "–", *most_caught))
    level = "" if confidence is None else f", with {percent(confidence, 0)} intervals"
    columns = ("attack", "AUC", *(f"caught at {100 * rate:g}% false alarms" for rate in rates))
    return blocks.Table(f"Attacks{level}", columns, rows)


def _with_band(item: RecordFields, name: str, low: str, high: str, text: Callable[[float | None], str]) -> str:
    value, least, most = item.number(name), item.number(low), item.number(high)
    return text(value) + ("" if least is None or most is None else f" ({text(least)} to {text(most)})")


_MEMBERSHIP_FIELDS = (
    "members", "nonmembers", "confidence", "train_accuracy", "test_accuracy", "gap", "gap_low", "gap_high", "attacks",
    "highest_risk", "reference_models",
)  # fmt: skip
