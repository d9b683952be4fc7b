"""Small digits for the tests of ``privmix train``, and command lines on them."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.cli.helpers import Outcome, privmix
from tests.training.runs import read_digits

RECORDS, HELD_OUT = 300, 200
LEDGER = "sqlite:///ledger.db"


def digits(first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
    x, y = read_digits()
    return (x[first:last] * 15).astype(np.uint8).reshape(-1, 8, 8), y[first:last].astype(np.int64)


def save(path: Path, first: int, last: int) -> None:
    x, y = digits(first, last)
    np.savez(path, x=x, y=y)


def write_all(root: Path) -> None:
    """``own`` (train and test), ``public.npz``, and ``pool``: pictures in folders of their classes."""
    (root / "own").mkdir(parents=True)
    save(root / "own" / "train.npz", 0, RECORDS)
    save(root / "own" / "test.npz", 500, 500 + HELD_OUT)
    save(root / "public.npz", 1000, 1080)
    x, y = digits(1200, 1250)
    for number, (image, label) in enumerate(zip(x, y, strict=True)):
        folder = root / "pool" / str(label)
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / f"{number}.png")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data") / "root"
    write_all(root)
    return root


@pytest.fixture
def data_folder(written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current folder holds what :func:`write_all` writes."""
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)


def write_own(root: Path, members: int = RECORDS, others: int = 300) -> None:
    """``own``: records of a training, and as many others that stand in no model."""
    (root / "own").mkdir()
    save(root / "own" / "train.npz", 0, members)
    save(root / "own" / "test.npz", members, members + others)


def line(**changes: str | None) -> list[str]:
    """A command line of relative paths; ``resume=""`` is ``--resume``, None is left out."""
    given: dict[str, str | None] = {
        "data": "own",
        "classes": "10",
        "epsilon": "8",
        "delta": "1e-4",
        "batch_size": "30",
        "epochs": "1",
        "out": "MODEL",
        **changes,
    }
    flags = [(name.replace("_", "-"), value) for name, value in given.items() if value is not None]
    return ["train", *(f"--{name}={value}" if value else f"--{name}" for name, value in flags)]


def that_write() -> list[list[str]]:
    """Commands that write what is published and what stays with the owner of ``own`` in the current folder."""
    data = ["--data", "own", "--classes", "10", "--features", "pixels", "--epsilon", "20", "--delta", "1e-4"]
    attack = ["attack", "membership", "MODEL", "--data", "own"]
    return [
        ["release", *data, "--design", "moments", "--rows", "40", "--out", "REL"],
        ["release", *data, "--design", "poisson:mixup_degree=8", "--out", "STORED", "--store", "STORE"],
        ["fit", "REL", "--out", "MODEL"],
        line(out="TRAINED", store="STORE2"),
        ["evaluate", "MODEL", "--data", "own", "--record", "RUN"],
        ["evaluate", "MODEL", "--data", "own", "--figure", "confusion.png"],
        ["predict", "MODEL", "--data", "own", "--out", "predictions.csv"],
        ["audit", "TRAINED", "--data", "own", "--canaries", "20", "--record", "AUDIT"],
        [*attack, "--attack", "lira", "--references", "4", "--release", "REL", "--work", "WORK", "--record", "RUN"],
        ["report", "RUN", "REL", "--for", "owner", "--out", "owner.html"],
    ]


def train(**changes: str | None) -> Outcome:
    return privmix(*line(**changes))


def open_ledger(epsilon: float = 20, dataset: str = "own") -> None:
    init = ["ledger", "init", "--dataset", dataset, "--epsilon", str(epsilon), "--delta", "1e-3", "--ledger", LEDGER]
    assert privmix(*init).code == 0


def history(dataset: str = "own") -> list[dict[str, Any]]:
    return privmix("ledger", "history", "--ledger", LEDGER, "--dataset", dataset, "--json").json()


def charges(kind: str = "reserve") -> list[str]:
    return [str(entry.get("purpose", entry.get("result"))) for entry in history() if entry["kind"] == kind]


def certificate(folder: Path | str = "MODEL") -> dict[str, Any]:
    return json.loads(Path(folder, "certificate.json").read_text())


def weights(folder: str = "MODEL") -> bytes:
    return Path(folder, "weights.safetensors").read_bytes()


def left_over() -> set[str]:
    """What is in the current folder beside the data."""
    return set(os.listdir()) - {"own", "public.npz", "pool", "ledger.db"}
