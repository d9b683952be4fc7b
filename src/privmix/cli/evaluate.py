"""``privmix evaluate``: accuracy of a fitted model on your own test data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.table import Table

from privmix import jobs
from privmix.cli.app import app, err, out, plain, print_json
from privmix.cli.options import Json
from privmix.cli.progress import progress_bars
from privmix.cli.recording import Record, keep_and_show
from privmix.cli.verb import verb
from privmix.errors import InvalidInput
from privmix.jobs.options import ModelInputs

if TYPE_CHECKING:
    from privmix.jobs.evaluation import Evaluation
    from privmix.jobs.quality import Quality

# Of more classes than these, those recognised least.
_MOST_CLASSES: Final = 20
_WORST: Final = 5


@verb(app)
def evaluate(
    *,
    model: Annotated[
        Path, typer.Argument(help="Folder that privmix fit or privmix train wrote; with --table that of a release.")
    ],
    data: Annotated[
        str, typer.Option("--data", "--against", help="Dataset with labels: file, folder, pattern or address.")
    ],
    split: Annotated[
        str | None, typer.Option(help="Which part of it. Default: test; with --table train.", show_default=False)
    ] = None,
    table: Annotated[
        bool, typer.Option("--table", help="Compare rows that privmix sample makes of a release with the real ones.")
    ] = False,
    inputs: ModelInputs,
    reference: Annotated[
        str | None,
        typer.Option(
            help="Data to fit the same learner to WITHOUT privacy, to compare with: the private training data, say. "
            "For their owner alone: a record of it is private."
        ),
    ] = None,
    reference_split: Annotated[str, typer.Option(help="Which part of --reference.")] = "train",
    group_by: Annotated[
        str | None, typer.Option(help="A column of --data: the same figures for each of its values.")
    ] = None,
    figure: Annotated[
        Path | None,
        typer.Option(
            help="Draw the confusion matrix here, and whether probabilities hold. With --record it is drawn there: "
            "confusion-SPLIT.png."
        ),
    ] = None,
    public_data: Annotated[
        bool, typer.Option("--public-data", help="--data is public: record and picture may be shown.")
    ] = False,
    json_output: Json = False,
    record: Record = None,
) -> None:
    """Measure a model on your own labelled data: raw inputs in, accuracy out.

    Beside the accuracy stands what takes no model: always saying the most frequent class. Balanced accuracy is the mean
    of the classes' recall (the share of a class's records that are found). AUC, of two classes, is the chance that a
    record of the second class gets a higher score than one of the first: 0.5 is guessing. Log loss judges the
    probabilities, smaller is better; beside it stands that of the classes' shares, which need no model. The calibration
    error is the mean gap between the probability that is stated and the share that is right.

    The figures are about the data you pass and are not covered by any guarantee. A record of them (--record) and the
    picture are private, and left out of public reports, unless you say that the data are public.

    Example: privmix evaluate MODEL --data mnist --split test --json

    Beside the same learner without privacy: privmix evaluate MODEL --data mnist --reference mnist

    Rows of a release beside the table that it is of: privmix evaluate REL --table --against real.csv
    --label-column income. Total variation is half the sum of what shares of one, two and three columns' values differ
    by; a gradient-boosted tree learns from the rows and is tested on the real records.
    """
    if table:
        given: dict[str, object] = {"reference": reference, "group_by": group_by, "figure": figure, "record": record}
        given |= {"public_data": public_data or None, "features_model": inputs.features_model, "module": inputs.module}
        for name, value in given.items():
            if value is not None:
                raise InvalidInput(name, value, "none beside `table`")
        _table(model, data, split, inputs, json_output)
        return
    split = split or "test"
    # Of private records, so never in the model's folder, which may be handed on.
    picture = figure if record is None else figure or record / f"confusion-{split}.png"
    with progress_bars() as progress:
        found = jobs.evaluation.evaluate(
            model,
            data,
            split=split,
            **vars(inputs),
            reference=reference,
            reference_split=reference_split,
            group_by=group_by,
            figure=picture,
            public_data=public_data,
            progress=progress,
        )
    keep_and_show(found, record, json_output, _show)


def _table(release: Path, data: str, split: str | None, inputs: ModelInputs, json_output: bool) -> None:
    with progress_bars() as progress:
        found = jobs.table_evaluation.evaluate_table(
            release, data, split=split, columns=inputs.columns, classes=inputs.classes, progress=progress
        )
    if json_output:
        print_json(found.to_dict())
        return
    title, facts = found.shown()
    out.print(title, soft_wrap=True)
    for name, value in facts.items():
        out.print(f"  {name}: {plain(str(value))}", soft_wrap=True)


def _show(found: Evaluation) -> None:
    quality, reference = found.quality, found.reference
    records = "1 record" if quality.n == 1 else f"{quality.n:,} records"
    out.print(f"accuracy {100 * quality.accuracy:.2f}% on {records}", soft_wrap=True)
    out.print(
        f"  always {plain(quality.majority)}: {100 * quality.majority_accuracy:.2f}%; "
        f"balanced accuracy {100 * quality.balanced_accuracy:.2f}%",
        soft_wrap=True,
    )
    if quality.auc is not None:
        out.print(f"  AUC for {plain(quality.classes[1])}: {quality.auc:.3f}", soft_wrap=True)
    if quality.log_loss is not None and quality.calibration is not None:
        out.print(
            f"  log loss {quality.log_loss:.3f} (the classes' shares: {quality.guessing_log_loss:.3f}); "
            f"calibration error {100 * quality.calibration.error:.1f}%",
            soft_wrap=True,
        )
    if reference is not None:
        auc = "" if reference.auc is None else f", AUC {reference.auc:.3f}"
        gap = 100 * (reference.accuracy - quality.accuracy)
        out.print(
            f"without privacy: accuracy {100 * reference.accuracy:.2f}%, "
            f"balanced {100 * reference.balanced_accuracy:.2f}%{auc}; {gap:.1f} points more accurate",
            soft_wrap=True,
        )
        out.print(
            f"  by {plain(found.reference_words)}; for their owner alone, and in no record that is published",
            soft_wrap=True,
        )
    for text in quality.warnings:
        err.print(f"[yellow]warning:[/] {plain(text)}", soft_wrap=True)
    out.print(_recalls(quality))
    if found.groups:
        out.print(_groups(found.groups))
    if found.figure is not None:
        out.print(f"picture: {plain(found.figure)}", soft_wrap=True)


def _recalls(quality: Quality) -> Table:
    """Recall by class, the worst first; of many classes the worst alone."""
    known = [(name, value) for name, value in quality.recall.items() if value is not None]
    known.sort(key=lambda item: item[1])
    counts = dict(zip(quality.classes, quality.confusion.sum(axis=1), strict=True))
    shown = known if len(known) <= _MOST_CLASSES else known[:_WORST]
    title = "recall by class" if shown is known else f"the {_WORST} of {len(known)} classes recognised least"
    table = Table(title=title, title_justify="left")
    for head in ("class", "records", "recall"):
        table.add_column(head, justify="left" if head == "class" else "right")
    for name, value in shown:
        table.add_row(plain(name), f"{counts[name]:,}", f"{100 * value:.1f}%")
    return table


def _groups(groups: Mapping[str, Quality]) -> Table:
    table = Table(title="by group", title_justify="left")
    for head in ("group", "records", "accuracy", "balanced", "always one class", "AUC"):
        table.add_column(head, justify="left" if head == "group" else "right")
    for name, one in groups.items():
        shares = (one.accuracy, one.balanced_accuracy, one.majority_accuracy)
        auc = "" if one.auc is None else f"{one.auc:.3f}"
        table.add_row(plain(name), f"{one.n:,}", *(f"{100 * share:.1f}%" for share in shares), auc)
    return table
