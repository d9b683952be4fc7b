"""The panel about inversions: recovered images next to the originals."""

from __future__ import annotations

from typing import ClassVar

from privmix.reports.blocks import Block, Card, Table
from privmix.reports.panel import PANELS, Context, Offer, Panel, ShownRecord
from privmix.reports.panels import card_of
from privmix.reports.sentences import figure
from privmix.research.inversion.picture import pictures_of


@PANELS.register
class InversionPanel(Panel):
    name: ClassVar[str] = "inversion"
    words: ClassVar[str] = "model inversion"
    anchor: ClassVar[str] = "inversion"
    title: ClassVar[str] = "Recovering inputs"
    lead: ClassVar[str] = "An attack that knows everything but the records tries to draw them again."
    missing: ClassVar[Offer] = (
        "Inversion",
        "what can be recovered of single records",
        "privmix attack inversion RELEASE --data DATA --record RUN",
    )

    @classmethod
    def card(cls, one: ShownRecord, context: Context) -> Card:
        content = one.content
        blocks: list[Block] = []
        blocks += pictures_of(content.fields("images"), "Raw inputs next to the recovered ones")
        columns = ["m", "ε", "mean squared error", "SSIM", "LPIPS"]
        cases = content.several("cases")
        # Scores of guesses at other images: an attack reveals something only where it does better.
        guesses = [name for name in _GUESSES if any(item.fields(name).number("ssim") is not None for item in cases)]
        columns += [f"SSIM of {_GUESSES[name]}" for name in guesses]
        rows = [
            (
                figure(item.number("m")),
                "no noise" if item.number("epsilon") is None else figure(item.number("epsilon")),
                *(figure(item.number(name), 3) for name in ("mse", "ssim", "lpips")),
                *(figure(item.fields(name).number("ssim"), 3) for name in guesses),
            )
            for item in cases
        ]
        baseline = content.fields("baseline")
        if baseline and not guesses:
            rows.append(("guess", "–", figure(baseline.number("mse"), 3), figure(baseline.number("ssim"), 3), "–"))
        if rows:
            caption = "Likeness of what was recovered to the raw input"
            blocks.append(Table(caption, columns, rows))
        return card_of(one, blocks, ("cases", "baseline", "images"), "Model inversion")


_GUESSES = {"baseline": "other images", "mean_image": "the mean image"}
