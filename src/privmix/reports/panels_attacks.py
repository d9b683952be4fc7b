"""The panel about membership: whom attackers found in the data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from privmix.reports.blocks import Block, Card, ColumnsBlock, Figure, KeyBlock, NumberBlock, Numbers, Table
from privmix.reports.context import Context, ShownRecord
from privmix.reports.fields import RecordFields
from privmix.reports.figures import FigureLine, draw_roc
from privmix.reports.panel import PANELS, Panel
from privmix.reports.panels import card_of
from privmix.reports.sentences import figure, percent
from privmix.reports.style import SERIES
from privmix.rounding import percent_up


@PANELS.register
class MembershipPanel(Panel):
    name: ClassVar[str] = "membership"
    words: ClassVar[str] = "membership inference"
    anchor: ClassVar[str] = "membership"
    title: ClassVar[str] = "Who was in the data"
    lead: ClassVar[str] = (
        "Attacks that guess which records were used. The guarantee limits all attacks, including unknown ones."
    )
    missing: ClassVar = (
        "Membership",
        "success of membership attacks",
        "privmix attack membership MODEL --data DATA --record RUN",
    )

    @classmethod
    def card(cls, one: ShownRecord, context: Context) -> Card:
        content = one.content
        attacks = content.several("attacks")
        gap, low, high = (content.number(name) for name in ("gap", "gap_low", "gap_high"))
        best = max((value for item in attacks if (value := item.number("auc")) is not None), default=None)
        members, others = content.number("members"), content.number("nonmembers")
        numbers = [
            NumberBlock("best attack's AUC", "–" if best is None else f"{best:.3f}", "guessing: 0.500"),
            NumberBlock(
                "train − test accuracy", "–" if gap is None else f"{100 * gap:+.1f} points", _points(low, high)
            ),
        ]
        if members is not None and others is not None:
            numbers.append(NumberBlock("records", f"{figure(members)} + {figure(others)}", "members + non-members"))
        blocks: list[Block] = [Numbers(numbers)]
        drawn: list[Block] = []
        if lines := _roc_lines(attacks):
            limit = context.catch_limit(one)
            svg = draw_roc(f"{one.name}-roc", lines, limit)
            keys = [KeyBlock(colour, line.name) for colour, line in zip(SERIES, lines, strict=False)]
            keys += [KeyBlock("limit", "limit by the guarantee")] if limit else []
            caption = "Both axes are logarithmic: detection at few false alarms matters most. Bands: confidence."
            drawn.append(Figure(svg, caption, [*keys, KeyBlock("dashed", "guessing")]))
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
        blocks.append(ColumnsBlock([side for side in (drawn, tables) if side]))
        if attacks:
            limited = not context.lacks_limit(one)
            blocks.append(_membership_table(attacks, content.number("confidence"), limited=limited))
        return card_of(one, blocks, _MEMBERSHIP_FIELDS, "Membership inference")


def _rate(share: float | None) -> str:
    """With two digits however small."""
    return "–" if share is None else f"{100 * share:.2g}%" if share < 0.1 else percent(share)


_FACT = {"train": "accuracy on members", "test": "accuracy on non-members"}


def _points(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"{100 * low:+.1f} to {100 * high:+.1f}"


def _roc_lines(attacks: Sequence[RecordFields]) -> list[FigureLine]:
    lines = []
    for item, colour in zip(attacks, SERIES.values(), strict=False):
        roc = item.fields("roc")
        if curve := roc.curve("fpr", "tpr"):
            band = roc.curve("fpr", "low", "high")
            low, high = (band[1], band[2]) if band and len(band[0]) == len(curve[0]) else ([], [])
            lines.append(FigureLine(item.text("name") or "attack", colour, curve[0], curve[1], low, high))
    return lines


def _membership_table(attacks: Sequence[RecordFields], confidence: float | None, *, limited: bool) -> Table:
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
        area = _with_band(item, "auc", "auc_low", "auc_high", lambda value: "–" if value is None else f"{value:.3f}")
        rows.append((item.text("name") or "attack", area, *cells))
    if limits:
        most_caught = [percent_up(limits[rate]) if rate in limits else "–" for rate in rates]
        rows.append(("limit by the guarantee", "–", *most_caught))
    level = "" if confidence is None else f", with {percent(confidence, 0)} intervals"
    columns = ("attack", "AUC", *(f"caught at {100 * rate:g}% false alarms" for rate in rates))
    return Table(f"Attacks{level}", columns, rows)


def _with_band(item: RecordFields, name: str, low: str, high: str, text: Callable[[float | None], str]) -> str:
    value, least, most = item.number(name), item.number(low), item.number(high)
    return text(value) + ("" if least is None or most is None else f" ({text(least)} to {text(most)})")


_MEMBERSHIP_FIELDS = (
    "members", "nonmembers", "confidence", "train_accuracy", "test_accuracy", "gap", "gap_low", "gap_high", "attacks",
    "highest_risk", "reference_models",
)  # fmt: skip
