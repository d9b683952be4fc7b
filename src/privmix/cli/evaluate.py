"""``privmix evaluate``: accuracy of a fitted model on your own test data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from privmix.cli.app import app, out, plain, print_json
from privmix.cli.options import (
    Classes,
    Colour,
    FeatureColumn,
    FeatureLength,
    FeaturesModel,
    ImageColumn,
    ImageSize,
    LabelColumn,
    NumberColumns,
    TextColumn,
    TrustFeaturesModel,
    check_figure,
)
from privmix.cli.progress import progress_bars
from privmix.cli.recording import Record, keep_record, place
from privmix.data import Source
from privmix.errors import InvalidInput
from privmix.features import Extractor, from_spec
from privmix.jobs.columns import Columns, class_list
from privmix.jobs.dataset import open_for
from privmix.jobs.features import features_in_memory
from privmix.learning import load_model
from privmix.learning.base import ReleaseFacts
from privmix.private_files import file_mode
from privmix.reports.confusion import draw_confusion
from privmix.training import ModelFacts, TrainedModel, is_trained_model, load_trained


@app.command()
def evaluate(
    model: Annotated[Path, typer.Argument(help="Folder that privmix fit or privmix train wrote.")],
    data: Annotated[str, typer.Option(help="Dataset with labels: file, folder, pattern or address.")],
    split: Annotated[str, typer.Option(help="Which part of it.")] = "test",
    classes: Classes = None,
    label_column: LabelColumn = "label",
    image_column: ImageColumn = "image",
    feature_column: FeatureColumn = None,
    text_column: TextColumn = None,
    image_size: ImageSize = None,
    colour: Colour = None,
    number_columns: NumberColumns = None,
    feature_length: FeatureLength = None,
    features_model: FeaturesModel = None,
    trust_features_model: TrustFeaturesModel = False,
    figure: Annotated[
        Path | None,
        typer.Option(help="Confusion matrix picture. Default: confusion-SPLIT.png in --record, or here."),
    ] = None,
    public_data: Annotated[
        bool, typer.Option("--public-data", help="The data are public: record and picture may be shown.")
    ] = False,
    json_output: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
    record: Record = None,
) -> None:
    """Measure a model on your own labelled data: raw inputs in, accuracy out.

    The figures are about the data you pass and are not covered by any guarantee. A record of them (--record) and the
    picture are private, and left out of public reports, unless you say that the data are public.

    Example: privmix evaluate MODEL --data mnist --split test --json
    """
    # Of private records, so never in the model's folder, which may be handed on.
    picture = figure or (record or Path()) / f"confusion-{split}.png"
    check_figure(picture)
    classifier = load_trained(model) if is_trained_model(model) else load_model(model)
    facts = classifier.facts_
    extractor = from_spec(facts.extractor, features_model, trust_model=trust_features_model)
    columns = Columns(
        label_column, image_column, feature_column, text_column, image_size, colour, number_columns, feature_length
    )
    source = source_for_model(facts, extractor, data, split, classes, columns)
    with progress_bars() as progress:
        records = features_in_memory(source, extractor, progress)
    result, matrix = score(classifier.predict(records.features), records.labels, tuple(facts.classes))
    with file_mode(private=not public_data):
        picture.parent.mkdir(parents=True, exist_ok=True)
        draw_confusion(matrix, list(facts.classes), result["accuracy"], picture)
    if record is not None:
        keep_record(
            record,
            "evaluation",
            subject_of(classifier),
            evaluation_content(result, matrix, tuple(facts.classes), split),
            private=not public_data,
            settings={
                "data": place(data, private=not public_data),
                "split": split,
                "public_data": public_data,
            }
            | {"extractor": dict(facts.extractor)},
            title=f"Accuracy on split {split}",
            statements=["Measured on labelled data of whoever evaluated; no guarantee covers those data."],
        )
    if json_output:
        print_json({**result, "figure": str(picture)})
        return
    out.print(
        f"accuracy {100 * result['accuracy']:.2f}% on {result['n']} records; picture: {plain(picture)}", soft_wrap=True
    )


def source_for_model(
    facts: ReleaseFacts | ModelFacts, extractor: Extractor, data: str, split: str, classes: str | None, columns: Columns
) -> Source:
    """Open data for a model.

    Raises:
        InvalidInput: its inputs have another shape than the model's, or its classes are others or in another order.
        StorageError: it can't be read.
    """
    named = class_list(classes) or list(facts.classes)
    source = open_for(extractor, data, split, named, columns, tuple(facts.input_shape))
    if tuple(source.schema.input_shape) != tuple(facts.input_shape):
        raise InvalidInput("--data", source.schema.input_shape, f"inputs of shape {tuple(facts.input_shape)}")
    if tuple(source.schema.classes) != tuple(facts.classes):
        # In another order every label would mean another class, and the score would be of nothing.
        raise InvalidInput("--classes", list(source.schema.classes), f"the model's: {', '.join(facts.classes)}")
    return source


def score(
    predicted: NDArray[np.int64], labels: NDArray[np.int64], classes: tuple[str, ...]
) -> tuple[dict[str, Any], NDArray[np.int64]]:
    """Accuracy, accuracy of each class (None where it has no record), count, and the confusion matrix (K, K)."""
    size = len(classes)
    matrix = np.bincount(labels * size + predicted, minlength=size * size).reshape(size, size)
    totals = matrix.sum(axis=1)
    per_class = {
        name: float(matrix[index, index] / totals[index]) if totals[index] else None
        for index, name in enumerate(classes)
    }
    return {"accuracy": float((predicted == labels).mean()), "per_class": per_class, "n": len(labels)}, matrix


def subject_of(classifier: Any) -> dict[str, Any]:
    """What a classifier's figures are about: the trained model itself, or the release that it was fitted on."""
    if isinstance(classifier, TrainedModel):
        return {"kind": "model", "id": classifier.certificate["model_id"]}
    return {"kind": "release", "id": classifier.facts_.release_id}


def evaluation_content(
    result: Mapping[str, Any],
    matrix: NDArray[np.int64],
    classes: tuple[str, ...],
    split: str,
    reference_accuracy: float | None = None,
) -> dict[str, Any]:
    """The content of an evaluation's record, from what :func:`score` returned."""
    return {
        **result,
        "classes": list(classes),
        "confusion": matrix.tolist(),
        "split": split,
        "reference_accuracy": reference_accuracy,
    }
