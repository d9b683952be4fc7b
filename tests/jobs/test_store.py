"""Kept features belong to the bytes that they were made from."""

import json
import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privmix as pm
from privmix.data import ArraySource
from privmix.features.identity import Pixels
from privmix.mechanisms.streams import SecretStreams
from privmix.training.views.augment import Flip
from privmix.training.views.pipeline import ViewBank
from tests.refusals import refuses

X = np.random.default_rng(0).normal(size=(200, 6)).astype(np.float32)
Y = np.arange(200) % 2
WISHES: dict[str, Any] = {"classes": 2, "features": "identity", "epsilon": 4.0, "delta": 1e-3}


@pytest.mark.parametrize(("make", "more"), [(pm.release, {"design": "moments"}), (pm.train, {"epochs": 1})])
def test_a_store_of_changed_data_is_refused(tmp_path: Path, make: Any, more: dict[str, Any]) -> None:
    file = tmp_path / "own.npz"
    np.savez(file, x=X, y=Y)
    wishes = {**WISHES, **more, "store": tmp_path / "STORE"}
    make(file, **wishes, out=tmp_path / "A")
    make(file, **wishes, out=tmp_path / "B")
    # One record more is another one: the same size and time, as rsync -t or a restored backup leave them.
    before = file.stat()
    np.savez(file, x=np.concatenate([np.full((1, 6), 100, np.float32), X[1:]]), y=Y)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    with refuses("feature store"):
        make(file, **wishes, out=tmp_path / "C")
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


IMAGES = np.random.default_rng(1).integers(0, 256, (300, 8, 8), dtype=np.uint8)
DATA = IMAGES, np.arange(300) % 2
BANK: dict[str, Any] = {"classes": 2, "epsilon": 8, "delta": 1e-4, "epochs": 1, "batch_size": 30, "bank": 3}
BANK |= {"views": "self-aug:k_base=2,augmentations=flip"}


def test_a_kept_bank_gives_the_model_of_its_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Owner-only; a second run extracts nothing."""
    pm.train(DATA, **BANK, seed=1, out=tmp_path / "ALONE")
    store = tmp_path / "STORE"
    pm.train(DATA, **BANK, seed=1, store=store, out=tmp_path / "KEPT")
    assert stat.S_IMODE(store.stat().st_mode) == 0o700
    assert {one.name for one in store.iterdir()} == {"features.npy", "labels.npy", "meta.json"}
    monkeypatch.setattr(Pixels, "transform", None)
    pm.train(DATA, **BANK, seed=1, store=store, out=tmp_path / "AGAIN")
    assert len({(tmp_path / name / "weights.safetensors").read_bytes() for name in ("ALONE", "KEPT", "AGAIN")}) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"seed": 2},
        {"seed": None},
        {"bank": 4},
        {"views": "self-aug:k_base=2,augmentations=flip+crop"},
        {"bank": None, "views": "plain"},
    ],
    ids=str,
)
def test_a_bank_of_other_views_is_refused(tmp_path: Path, other: dict[str, Any]) -> None:
    """Views by a known seed never enter a private run."""
    wishes = {**BANK, "seed": 1, "store": tmp_path / "STORE"}
    pm.train(DATA, **wishes)
    with refuses("feature store"):
        pm.train(DATA, **{**wishes, **other})


def test_private_runs_share_a_bank_of_secret_seeds(tmp_path: Path) -> None:
    for _ in range(2):
        pm.train(DATA, **BANK, store=tmp_path / "STORE")
    assert json.loads((tmp_path / "STORE/meta.json").read_text())["extractor"]["bank"]["seed"] is None


def test_an_interrupted_bank_resumes_at_its_record() -> None:
    """With the same seeds; another record changes no other record's views."""
    bank = ViewBank(Pixels(), (Flip(probability=0.5),), 3, SecretStreams.from_seed(4), 4)

    def rows(images: Any, *start: int) -> Any:
        return np.concatenate([x for x, _ in bank.rows(ArraySource(images, DATA[1], ("0", "1")), *start)])

    whole = rows(IMAGES)
    assert np.array_equal(whole[170:], rows(IMAGES, 170))
    changed = IMAGES.copy()
    changed[0] = 0
    assert np.array_equal(whole[1:], rows(changed)[1:])
