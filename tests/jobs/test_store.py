"""Kept features belong to the bytes that they were made from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privmix as pm
from tests.refusals import refuses

X = np.random.default_rng(0).normal(size=(200, 6)).astype(np.float32)
Y = np.arange(200) % 2
WISHES: dict[str, Any] = {"classes": 2, "features": "identity", "epsilon": 4.0, "delta": 1e-3}


def changed_in_place(file: Path) -> None:
    """One record more is another one: the same size and time, as rsync -t or a restored backup leave them."""
    before = file.stat()
    x = X.copy()
    x[0] = 100.0
    np.savez(file, x=x, y=Y)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)


@pytest.mark.parametrize("verb", ["release", "train"])
def test_a_store_of_changed_data_is_refused(tmp_path: Path, verb: str) -> None:
    file = tmp_path / "own.npz"
    np.savez(file, x=X, y=Y)

    def run(out: str) -> Any:
        if verb == "release":
            return pm.release(file, **WISHES, design="moments", store=tmp_path / "STORE", out=tmp_path / out)
        return pm.train(file, **WISHES, epochs=1, store=tmp_path / "STORE", out=tmp_path / out)

    run("A")
    run("B")
    changed_in_place(file)
    with refuses("feature store"):
        run("C")
    assert not (tmp_path / "C").exists()


def test_images_in_another_class_are_other_data(tmp_path: Path) -> None:
    from PIL import Image

    for number in range(20):
        place = tmp_path / "d" / "ab"[number % 2]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((4, 4), number, np.uint8)).save(place / f"{number:02}.png")
    wishes = {**WISHES, "classes": ["a", "b"], "features": "pixels", "store": tmp_path / "STORE", "design": "moments"}
    columns = pm.Columns(image_size=4, colour="grey")
    pm.release(tmp_path / "d", **wishes, columns=columns, out=tmp_path / "A")
    (tmp_path / "d" / "a" / "00.png").rename(tmp_path / "d" / "b" / "00.png")
    with refuses("feature store"):
        pm.release(tmp_path / "d", **wishes, columns=columns, out=tmp_path / "B")
