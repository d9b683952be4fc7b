"""Panels about audits: what an attack proved to leak, beside what is claimed to leak at most."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from privmix.reports.blocks import Block, Callout, Card, Columns, Figure, Key, Number, Numbers, Table
from privmix.reports.context import Context, Shown
from privmix.reports.fields import Fields
from privmix.reports.figures import draw_audit_points, draw_bounds
from privmix.reports.panel import PANELS, Panel
from privmix.reports.panels import card_of
from privmix.reports.sentences import figure, power_of_ten
from privmix.rounding import rounded_down, rounded_up

_SHARED = (
    "delta", "confidence", "claimed_epsilon", "published_epsilon", "proven_epsilon", "proven_by", "violated", "method",
)  # fmt: skip
_METHODS = {
    "clopper-pearson": "Clopper and Pearson",
    "gdp": "the curve is that of Gaussian DP (by one threshold)",
    "gdp_epsilon": "the curve is that of Gaussian DP (by one threshold)",
    "gaussian_epsilon": "scores are Gaussian and equally wide, as they test (by their means)",
    "own_noise_epsilon": "what ran is this plan, its noise times one unknown factor (by their means)",
    "apart_epsilon": "the curve is that of Gaussian DP (by guesses at half of the canaries, each on its own)",
    "steinke": "Steinke, Nasr, Jagielski 2023",
    "mahloujifar": "Mahloujifar et al. 2024",
}


@PANELS.register
class AuditPanel(Panel):
    """What an attack on the worst case proved."""

    name: ClassVar[str] = "audit"
    words: ClassVar[str] = "worst-case audit"
    anchor: ClassVar[str] = "audit"
    title: ClassVar[str] = "Audit"
    lead: ClassVar[str] = "Attacks that prove how much leaks at least. What they prove must stay below what is claimed."
    missing: ClassVar = ("Worst-case audit", "the ε that an attack proves", "privmix audit RELEASE --record RUN")

    @classmethod
    def card(cls, one: Shown, context: Context) -> Card:
        """See :class:`~privmix.reports.panel.Panel`."""
        return audit_card(one, context)


@PANELS.register
class CanaryAuditPanel(AuditPanel):
    """What planted records proved."""

    name: ClassVar[str] = "canary-audit"
    words: ClassVar[str] = "canary audit"
    missing: ClassVar = (
        "Canary audit",
        "planted records, scored after one run",
        "privmix audit RELEASE --data DATA --canaries 1000 --record RUN",
    )


def audit_card(one: Shown, context: Context) -> Card:
    """The card of an audit in the worst case, or of one with canaries."""
    content = one.content
    proven, claimed, published = (content.number(f"{name}_epsilon") for name in ("proven", "claimed", "published"))
    confidence, violated = content.number("confidence"), content.flag("violated")
    blocks: list[Block] = []
    if violated:
        stated = "" if claimed is None else f" of {rounded_up(claimed)}"
        text = (
            f"At {100 * (confidence or 0):g}% confidence the mechanism leaks at least ε = {rounded_down(proven or 0)}."
            + by_curve(content)
        )
        blocks.append(Callout("danger", f"The claim{stated} is refuted", text))
    told = "" if confidence is None else f"at {100 * confidence:g}% confidence"
    numbers = [
        Number("proven by attack", _at_least(proven), told, "bad" if violated else "good"),
        Number("claimed", _at_most(claimed), _at(content.number("delta"))),
        *_priced(content.number("priced_epsilon"), claimed),
    ]
    if published is not None:
        numbers.append(Number("published formula", f"ε = {figure(published)}", "not a bound"))
    blocks.append(Numbers(numbers))
    drawn: list[Block] = []
    if proven is not None:
        svg = draw_bounds(f"{one.name}-bd", proven, claimed, published, violated)
        keys = [Key("bad-bar" if violated else "good-bar", "proven to leak"), Key("ink-bar", "claimed at most")]
        keys += [Key("vermilion-dots", "published formula")] if published is not None else []
        drawn.append(Figure(svg, "The bar must not reach beyond the line.", keys))
    points, tables = _audit_points(one, context), _audit_tables(content)
    sides = ([*drawn, *tables], points) if points else (drawn, tables)
    blocks.append(Columns([side for side in sides if side]))
    known = (
        *_SHARED,
        "priced_epsilon",
        "design",
        "attack",
        "runs",
        "black_box",
        "points",
        "assumed",
        "looks",
        "canaries",
        "included",
        "guesses",
        "correct",
        "unit",
    )
    return card_of(one, blocks, known, "Canaries" if one.record.kind == "canary-audit" else "Worst-case audit")


@PANELS.register
class NoisePanel(Panel):
    """How large the noise is."""

    name: ClassVar[str] = "noise-audit"
    words: ClassVar[str] = "noise audit"
    anchor: ClassVar[str] = "noise"
    title: ClassVar[str] = "The noise"
    lead: ClassVar[str] = "How large the noise is that the real code adds, measured on empty records."
    missing: ClassVar = ("Noise audit", "how large the noise really is", "privmix audit RELEASE --noise --record RUN")

    @classmethod
    def card(cls, one: Shown, context: Context) -> Card:
        """See :class:`~privmix.reports.panel.Panel`."""
        return noise_card(one, context)


def noise_card(one: Shown, context: Context) -> Card:
    """The card of an audit of the noise itself."""
    content = one.content
    confidence, violated = content.number("confidence"), content.flag("violated")
    blocks: list[Block] = []
    if violated:
        blocks.append(Callout("danger", "The noise is not as certified", ""))
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
    blocks.append(Table("Noise of empty records", header, rows, text=(1, 5)))
    known = ("design", "method", "confidence", "false_alarm", "violated", "noises")
    return card_of(one, blocks, known, "Audit of the noise")


def _share(noise: Fields, name: str) -> str:
    """A standard deviation: the certified one as it is, others as shares of it."""
    value, certified = noise.number(name), noise.number("certified")
    if value is None or not certified:
        return "–"
    return figure(value) if name == "certified" else f"{value / certified:.4f}"


def by_curve(content: Fields) -> str:
    """What refuted a claim whose epsilon was not exceeded, as a sentence; nothing for the others."""
    proven, claimed = content.number("proven_epsilon"), content.number("claimed_epsilon")
    if not content.flag("below_curve") or (proven is not None and claimed is not None and proven > claimed):
        return ""
    return " It errs less than the trade-off curve of what is claimed allows."


def _at_least(proven: float | None) -> str:
    return "–" if proven is None else f"ε ≥ {rounded_down(proven)}"


def _at_most(claimed: float | None) -> str:
    return "–" if claimed is None else f"ε ≤ {rounded_up(claimed)}"


def _priced(priced: float | None, claimed: float | None) -> list[Number]:
    """What the accountant says of what ran, where the claim is another's."""
    if priced is None or (claimed is not None and priced <= claimed * 1.01):
        return []
    return [Number("priced here", _at_most(priced), "upper bound for what ran")]


def _at(delta: float | None) -> str:
    return "" if delta is None else f"at δ = {power_of_ten(delta)}"


def _audit_tables(content: Fields) -> list[Block]:
    facts = [(name, content.text(name)) for name in ("design", "method", "attack", "unit") if content.text(name)]
    facts += [
        (name, figure(value))
        for name in ("runs", "looks", "canaries", "included", "guesses", "correct")
        if (value := content.number(name)) is not None
    ]
    found: list[Block] = []
    numbers = content.fields("proven_by").numbers()
    # Records of before have the fit to Gaussian DP among what is proven.
    assumed = {
        **content.fields("assumed").numbers(),
        **{name: numbers.pop(name) for name in ("gdp",) if name in numbers},
    }
    by = [(_METHODS.get(name, name), f"ε ≥ {rounded_down(value)}") for name, value in numbers.items()]
    box = content.fields("black_box")
    if (value := box.number("proven_epsilon")) is not None:
        by.append((f"black box: {box.text('attack')}", f"ε ≥ {rounded_down(value)}"))
    if by:
        found.append(Table("What leaks at least, by method", ("method", "ε"), by))
    if under := [(_METHODS[name], f"ε ≥ {rounded_down(value)}") for name, value in assumed.items() if name in _METHODS]:
        found.append(Table("What leaks at least if the assumption holds", ("assumption", "ε"), under))
    if facts:
        found.append(Table("The attack", ("", ""), facts, text=(1,)))
    return found


def _audit_points(one: Shown, context: Context) -> list[Block]:
    points = one.content.fields("points").curve("alpha", "beta", "alpha_high", "beta_high")
    if not points:
        return []
    limit = _miss_limit(one, context)
    svg = draw_audit_points(f"{one.name}-pt", points, limit)
    keys = [Key("vermilion", "measured"), Key("ink-square", "upper confidence bounds")]
    keys += [Key("blue", "limit by the claim")] if limit else []
    caption = (
        "Error rates of the attack. Each square holds for itself: among so many, one may lie in the shaded part by "
        "chance. Whether the claim is refuted was tested at thresholds that other runs chose."
    )
    return [Figure(svg, caption, keys)]


def _miss_limit(one: Shown, context: Context) -> tuple[list[float], list[float]] | None:
    """(false-alarm rates, least miss rates) by what is claimed: a whole trade-off curve, or one point of it."""
    if limit := context.catch_limit(one):
        return limit[0], [1 - caught for caught in limit[1]]
    epsilon, delta = one.content.number("claimed_epsilon"), one.content.number("delta")
    if epsilon is None or delta is None:
        return None
    grid = np.geomspace(1e-6, 1, 300)
    growth = math.exp(min(max(epsilon, 0.0), 700.0))
    # The least that (epsilon, delta)-DP leaves (Kairouz, Oh, Viswanath 2015).
    missed = np.maximum(0.0, np.maximum(1 - delta - growth * grid, (1 - delta - grid) / growth))
    return grid.tolist(), missed.tolist()
