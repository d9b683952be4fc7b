"""Small datasets in every format an owner may have, and command lines on them.

Each has two classes that are easy to tell apart, so that a wrong column, order or class shows as a bad score.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.cli.helpers import SECRET, Outcome, privmix

CLASSES = ["well", "ill"]
COUNT, HELD_OUT = 240, 80
OWN = ("--classes", ",".join(CLASSES))


@dataclass(frozen=True)
class Data:
    """How the command line names a dataset."""

    train: str
    test: str
    features: str = "identity"
    # Release and evaluate.
    flags: tuple[str, ...] = ()
    # Release only.
    own: tuple[str, ...] = OWN
    dim: int = 0
    notes: dict[str, str] = field(default_factory=dict)


def points(split: str, dim: int = 4) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0 if split == "train" else 1)
    y = rng.integers(0, 2, COUNT if split == "train" else HELD_OUT)
    return (np.eye(2, dim)[y] * 0.7 + rng.normal(0, 0.05, (len(y), dim))).astype(np.float32), y


def pictures(split: str) -> tuple[list[Image.Image], np.ndarray]:
    """Bright above or bright below."""
    _, y = points(split)
    rng = np.random.default_rng(5)
    made = []
    for label in y:
        pixels = rng.integers(0, 60, (6, 6))
        pixels[slice(0, 3) if label else slice(3, 6)] += 150
        made.append(Image.fromarray(pixels.astype(np.uint8)))
    return made, y


def sentences(split: str) -> Iterator[tuple[str, str]]:
    rng = np.random.default_rng(2)
    words = (["zoo", "zebra", "buzz", "jazz"], ["mama", "anna", "hello", "nine"])
    for label in points(split)[1]:
        yield " ".join(rng.choice(words[label], 4)), CLASSES[label]


def tiny_texts(folder: Path) -> Data:
    pytest.importorskip("sentence_transformers", reason="texts need privmix[text]")
    from tests.features.models import save_text

    model = save_text(folder / "tiny-model")
    data = folder / "data"
    data.mkdir()
    for split in ("train", "test"):
        with gzip.open(data / f"{split}.csv.gz", "wt", encoding="utf-8") as stream:
            stream.write("id,note,state\n")
            for number, (text, label) in enumerate(sentences(split)):
                stream.write(f'{number},"{text}, {number}",{label}\n')
    flags = ("--columns", "note", "--label-column", "state")
    return Data(str(data), str(data), f"text:{model}", flags, dim=32, notes={"model": str(model)})


def table(folder: Path) -> Data:
    spec = folder / "spec.json"
    spec.write_text(
        json.dumps(
            {
                "ward": {"categories": ["A", "B"], "missing_token": "?"},
                "name": {"ignore": True},
                "age": {"range": [0, 100], "missing": 40},
            }
        )
    )
    (folder / "data").mkdir()
    for split in ("train", "test"):
        lines = ["name,age,ward,state"]
        for number, label in enumerate(points(split)[1]):
            ward = "" if number % 9 == 0 else "AB"[label]
            lines.append(f"{SECRET} {number},{20 + 60 * label},{ward},{CLASSES[label]}")
        (folder / "data" / f"{split}.csv").write_text("\n".join(lines) + "\n")
    flags = ("--label-column", "state")
    return Data(str(folder / "data"), str(folder / "data"), f"tabular:{spec}", flags, dim=4)


def image_folder(folder: Path) -> Data:
    for split in ("train", "test"):
        images, y = pictures(split)
        for name in CLASSES:
            (folder / split / name).mkdir(parents=True)
        for number, (image, label) in enumerate(zip(images, y, strict=True)):
            image.save(folder / split / CLASSES[label] / f"{SECRET}{number}.png")
    return Data(str(folder), str(folder), "pixels", own=(*OWN, "--image-size", "6", "--colour", "grey"), dim=36)


def columns_csv(split: str) -> bytes:
    lines = ["a,b,c,d,label"]
    lines += [",".join([*map(str, x), CLASSES[label]]) for x, label in zip(*points(split), strict=True)]
    return "\n".join(lines).encode() + b"\n"


def file_address(folder: Path) -> Data:
    for split in ("train", "test"):
        (folder / f"{split}.csv").write_bytes(columns_csv(split))
    return Data(f"file://{folder}/train.csv", f"file://{folder}", dim=4)


def release(data: Data, out: Path, *more: str, train: str | None = None, features: str | None = None) -> Outcome:
    line = ["release", "--data", train or data.train, "--features", features or data.features, "--out", str(out)]
    budget = ["--design", "moments", "--rows", "40", "--epsilon", "30", "--delta", "1e-3"]
    return privmix(*line, *data.flags, *data.own, *budget, *more)


def evaluate(data: Data, model: Path, *more: str) -> Outcome:
    # Beside the model: some callers share their working folder.
    picture = model.parent / f"{model.name}.png"
    return privmix("evaluate", model, "--data", data.test, *data.flags, "--figure", picture, *more, "--json")
