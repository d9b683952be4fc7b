"""``privmix plan``: what each design would give, before any private row is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.table import Table

from privmix import jobs
from privmix.cli.app import app
from privmix.cli.console import out, plain, print_json
from privmix.cli.options import Json
from privmix.cli.progress import progress_bars
from privmix.cli.verb import verb
from privmix.jobs.options import CLASSIFY, TABLE
from privmix.jobs.release_options import PredictionOptions
from privmix.rounding import exact

if TYPE_CHECKING:
    from privmix.jobs.prediction import Prediction
    from privmix.planning import Choice


@verb(app)
def plan(asked: PredictionOptions, json_output: Json = False) -> None:
    """Predict every design's accuracy at a budget, and name the best.

    Reads no private data.

    Every design is simulated with the learner that fit takes for it: on a public dataset (--proxy), or on made-up
    records of which a classifier without privacy gets as many right as you declare (--attainable). What privacy takes
    off is then predicted to a few points. Where nothing is declared a range shows what is not known.

    Example: privmix plan --records 60000 --dim 3969 --classes 10 --epsilon 1 --delta 1e-5 --attainable 0.99
    """
    with progress_bars() as progress:
        found = jobs.prediction.predict(**vars(asked), progress=progress)
    if json_output:
        print_json(found.to_dict())
        return
    _show_table(found)
    _show(found.choice)
    if found.linear is not None:
        out.print(
            f"theory for linear regression (Li et al. 2022, Theorem 3.1, at the noise by PLD): best mixup degree "
            f"{found.linear['mixup_degree']}; the paper's rate gives {found.linear['published_mixup_degree']:.0f}",
            soft_wrap=True,
        )
    out.print(f"a Poisson release takes mixup degree {found.mixup_degree} where none is given (--mixup-degree auto)")
    if found.collapse is not None:
        distance = found.distance
        out.print(
            f"neural collapse of the public data: {found.collapse:.3g} (the smaller, the better classes survive mixing)"
            + ("" if distance is None else f"; least distance of a mixed pair to another class: {distance:.3g}"),
            soft_wrap=True,
        )
    if asked.figure is not None:
        out.print(f"picture: {plain(asked.figure)}", soft_wrap=True)


def _show_table(found: Prediction) -> None:
    """Accuracy beside total variation, for either goal."""
    if found.table is None:
        return
    table = Table(title="for either goal", title_justify="left")
    for name in ("goal", "design", "accuracy", "total variation of two columns"):
        table.add_column(name, justify="left" if name in ("goal", "design") else "right")
    best, chosen = found.choice.best, found.table
    far = found.variations.get(best.name)
    rows = {
        CLASSIFY: (best.plan.design, best.accuracy, far),
        TABLE: (chosen.plan.design, chosen.accuracy, chosen.forecast.variation),
    }
    for goal, (design, accuracy, variation) in rows.items():
        mark = f"{goal} (your goal)" if goal == found.goal else goal
        table.add_row(mark, design, f"{100 * accuracy:.1f}%", "no table" if variation is None else f"{variation:.4f}")
    out.print(table)
    for text in chosen.reasons:
        out.print(f"- {plain(text)}", soft_wrap=True)
    out.print(f"flags of privmix release for the table: {_flags(chosen.config.design.settings())}", soft_wrap=True)


def _flags(settings: Mapping[str, object]) -> str:
    words = " ".join(f"--{key.replace('_', '-')} {value}" for key, value in settings.items())
    return words.replace("--full-batch True", "--full-batch")


def _show(choice: Choice) -> None:
    table = Table(
        title=f"predicted accuracy at epsilon {exact(choice.epsilon)}, delta {exact(choice.delta)}",
        title_justify="left",
    )
    for name in ("design", "noise multiplier", "predicted", "range"):
        table.add_column(name, justify="left" if name == "design" else "right")
    labels = choice.to_dict()["labels"]
    for item in choice.candidates:
        between = f"{100 * item.low:.0f} to {100 * item.high:.0f}%"
        table.add_row(labels[item.name], f"{item.plan.noise_multiplier:.4g}", f"{100 * item.accuracy:.1f}%", between)
    out.print(table)
    out.print("flags of privmix release for each:")
    for item in choice.candidates:
        out.print(f"  {labels[item.name]}: {_flags(item.settings)}", soft_wrap=True)
    for text in (*choice.reasons, *map(str, choice.left_out)):
        out.print(f"- {plain(text)}", soft_wrap=True)
