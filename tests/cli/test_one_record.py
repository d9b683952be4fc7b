"""One record decides nothing of a release or a model, and what is called public is not the private data."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from privmix.data import Source
from privmix.ledger.ledger import Ledger
from tests.cli.helpers import Outcome, privmix, refused
from tests.data.helpers import png

COUNT, CLASSES = 40, ["well", "ill"]
BUDGET = ["--epsilon", "30", "--delta", "1e-3", "--records", str(COUNT), "--classes", "well,ill"]
RELEASE = ["release", "--design", "moments", "--rows", "20", *BUDGET]
TRAIN = ["train", "--epochs", "1", *BUDGET]


def photos() -> list[bytes]:
    random = np.random.default_rng(3)
    return [png(random.integers(0, 256, (6, 6, 3), dtype=np.uint8)) for _ in range(COUNT)]


def grey() -> bytes:
    return png(np.full((6, 6), 90, np.uint8))


def image_folder(folder: Path, more: bool) -> list[str]:
    for number, content in enumerate([grey()] * more + photos()):
        path = folder / CLASSES[number % 2] / f"{0 if more and not number else number + 1:03}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return ["--data", str(folder), "--image-size", "6", "--colour", "rgb"]


def parquet(folder: Path, more: bool) -> list[str]:
    images = [grey()] * more + photos()
    folder.mkdir()
    table = pa.table({"image": images, "label": [CLASSES[number % 2] for number in range(len(images))]})
    pq.write_table(table, folder / "d.parquet")
    return ["--data", str(folder), "--image-size", "6", "--colour", "rgb"]


def json_lines(folder: Path, more: bool) -> list[str]:
    rows: list[Any] = [{"age": 3, "label": "ill"}] * more
    rows += [{"age": number / 50, "dose": 1, "label": CLASSES[number % 2]} for number in range(COUNT)]
    folder.mkdir()
    (folder / "d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return ["--data", str(folder), "--columns", "age,dose", "--features", "identity"]


MAKERS = [image_folder, parquet, json_lines]


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("verb", [RELEASE, TRAIN], ids=["release", "train"])
def test_the_plan_is_the_same_with_a_record_more(tmp_path: Path, make: Any, verb: list[str]) -> None:
    seen = []
    for name in ("D", "E"):
        data = make(tmp_path / name, name == "E")
        outcome = privmix(*verb, *data, "--out", tmp_path / f"OUT-{name}", "--dry-run", "--json").passed()
        seen.append((outcome.out, outcome.err))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("make", MAKERS)
def test_undeclared_data_are_refused_with_and_without_it(tmp_path: Path, make: Any) -> None:
    seen = set()
    for name in ("D", "E"):
        data = make(tmp_path / name, name == "E")
        bare = [word for word in data if word not in ("--colour", "rgb", "--columns", "age,dose")]
        outcome = privmix(*RELEASE, *bare, "--out", tmp_path / "OUT")
        refused(outcome)
        seen.add(outcome.err.replace(str(tmp_path / name), ""))
    assert len(seen) == 1


def test_what_is_published_is_the_same_with_a_record_more(tmp_path: Path) -> None:
    for verb, file in ((RELEASE, "certificate.json"), (TRAIN, "model.json")):
        seen = []
        for name in ("D", "E"):
            data = ["--data", str(tmp_path / name), "--image-size", "6", "--colour", "rgb"]
            if verb is RELEASE:
                image_folder(tmp_path / name, name == "E")
            out = tmp_path / f"{verb[0]}-{name}"
            outcome = privmix(*verb, *data, "--out", out).passed()
            content = json.loads((out / file).read_text())
            seen.append((content["input_shape"], content.get("plan"), content.get("guarantee"), content["extractor"]))
            seen[-1] += (sorted(path.name for path in out.rglob("*")), outcome.err)
        assert seen[0] == seen[1]


@pytest.mark.parametrize("verb", [RELEASE, TRAIN], ids=["release", "train"])
def test_no_record_is_read_before_the_ledger_is_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: list[str]
) -> None:
    """Opened image files and read records, in the order of what happens; rule: reserve before reading."""
    events: list[str] = []
    data = image_folder(tmp_path / "D", False)
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    Ledger.create(url).add_dataset("ward", epsilon=50, delta=1e-2)
    reserve, chunks, read = Ledger.reserve, Source._silent_chunks, Path.read_bytes

    def noted(name: str, function: Any, wanted: Any = lambda *_: True) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if wanted(*args):
                events.append(name)
            return function(*args, **kwargs)

        return call

    monkeypatch.setattr(Ledger, "reserve", noted("charge", reserve))
    monkeypatch.setattr(Source, "_silent_chunks", noted("records", chunks))
    monkeypatch.setattr(Path, "read_bytes", noted("image", read, lambda path: path.suffix == ".png"))
    line = [*verb, *data, "--out", str(tmp_path / "OUT"), "--ledger", url, "--dataset", "ward"]
    assert privmix(*line, "--dry-run").code == 0
    assert events == []
    privmix(*line).passed()
    assert events[0] == "charge"
    assert {"records", "image"} <= set(events)


def points(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    y = random.integers(0, 2, count)
    return (random.normal(0, 0.1, (count, 16)) + y[:, None]).astype(np.float32), y


def as_npz(path: Path, x: np.ndarray, y: np.ndarray) -> str:
    np.savez(path, x=x, y=y)
    return f"{path}.npz"


def as_csv(path: Path, x: np.ndarray, y: np.ndarray) -> str:
    with path.open("w") as stream:
        writer = csv.writer(stream)
        writer.writerow([*[f"c{place}" for place in range(x.shape[1])], "label"])
        writer.writerows([*map(repr, map(float, row)), label] for row, label in zip(x, y, strict=True))
    return str(path)


def public_flags(verb: str, place: str) -> list[str]:
    if verb == "release":
        return ["release", "--features", "identity", "--design", "auto", "--rows", "50", "--assume", f"proxy={place}"]
    flags = ["--scenario", "extended", "--public-method", "multiplicity:batch_size=16", "--public", place]
    return ["train", "--features", "identity", "--epochs", "1", *flags]


@pytest.mark.parametrize("verb", ["release", "train"])
def test_public_data_that_are_the_private_ones_are_refused(tmp_path: Path, verb: str) -> None:
    x, y = points(200, 0)
    data = as_npz(tmp_path / "train", x, y)
    other, labels = points(200, 1)
    (tmp_path / "copy").mkdir()
    (tmp_path / "link.npz").symlink_to(data)
    same = {
        "itself": data,
        "a link": str(tmp_path / "link.npz"),
        "a copy": as_npz(tmp_path / "copy" / "other-name", x, y),
        "another format": as_csv(tmp_path / "same.csv", x, y),
        "another order": as_npz(tmp_path / "turned", x[::-1], y[::-1]),
        "a part": as_npz(tmp_path / "part", x[:50], y[:50]),
        "among others": as_npz(tmp_path / "mixed", np.concatenate([other, x[:50]]), np.concatenate([labels, y[:50]])),
    }
    if verb == "release":
        # The planner takes its time; what is compared is the same.
        same = {how: same[how] for how in ("itself", "a copy", "another format")}

    def run(place: str, out: str) -> Outcome:
        budget = ["--epsilon", "30", "--delta", "1e-3", "--classes", "2"]
        return privmix(*public_flags(verb, place), "--data", data, *budget, "--out", tmp_path / out)

    for place in same.values():
        refused(run(place, "OUT"), "proxy" if verb == "release" else "--public", "public records")
    assert not (tmp_path / "OUT").exists()
    if verb == "train":
        few = np.concatenate([other, x[:5]]), np.concatenate([labels, y[:5]])
        run(as_npz(tmp_path / "others", other, labels), "OTHER").passed()
        run(as_npz(tmp_path / "few", *few), "FEW").passed()
