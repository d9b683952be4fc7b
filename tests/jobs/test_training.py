"""A training asked from Python: what the command line gives, models in memory, and the order of paying and reading."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privmix as pm
from privmix.data import Source
from privmix.jobs.public_data import refuse_private
from tests.cli.training import (
    LEDGER,
    RECORDS,
    charges,
    data_folder,
    digits,
    left_over,
    open_ledger,
    weights,
    written,
)
from tests.refusals import refuses

OWN: dict[str, Any] = {"epsilon": 8, "delta": 1e-4, "classes": 10, "batch_size": 30, "epochs": 1}
PAID: dict[str, Any] = {"ledger": LEDGER, "dataset": "own"}
__all__ = ["data_folder", "written"]
pytestmark = pytest.mark.usefixtures("data_folder")


def test_a_model_in_memory_takes_raw_inputs_and_is_saved() -> None:
    """Of arrays, without a folder: the weights of a run on disk."""
    x, y = digits(0, RECORDS)
    model = pm.train((x, y), **{**OWN, "classes": range(10)}, seed=5, views="plain")
    assert left_over() == set()
    assert pm.train("own", **OWN, seed=5, out="DISK").predict(x).tolist() == model.predict(x).tolist()
    model.save("SAVED")
    assert weights("SAVED") == weights("DISK")
    assert pm.verify("SAVED").found["epsilon"] <= 8
    assert pm.evaluate("SAVED", digits(500, 600)).accuracy == model.score(*digits(500, 600))
    with pytest.raises(pm.InvalidInput):
        model.save("SAVED")


def test_a_file_of_one_split_is_the_private_data_by_any_split(tmp_path: Path) -> None:
    # What epsilon 0 rests on: no record is compared there.
    x, y = np.zeros((4, 2)), np.arange(4) % 2
    np.savez(tmp_path / "one.npz", x=x, y=y, classes=2)
    np.savez(tmp_path / "both.npz", x_train=x, y_train=y, x_test=x + 1, y_test=y, classes=2)
    (tmp_path / "copy.npz").write_bytes((tmp_path / "one.npz").read_bytes())
    for public in ("one.npz", "copy.npz"):
        with refuses("public"):
            refuse_private({"public": tmp_path / public}, tmp_path / "one.npz", "test")
    refuse_private({"public": tmp_path / "both.npz"}, tmp_path / "both.npz", "test")
    # In memory: other labels do not make other records.
    refuse_private({"public": (x + 1, y)}, (x, y), "train")
    with refuses("public"):
        refuse_private({"public": (x, 1 - y)}, (x, y), "train")


WARM: dict[str, Any] = {"scenario": "warm", "public": "public.npz"}


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"views": "dp-mix-twice"}, "views"),
        ({"views": "plain:augmentations=flip"}, "views"),
        ({"public_method": "multiplicity:rho=0.1"}, "public_method"),
        ({"device": "tpu"}, "device"),
        ({**WARM, "public": "own"}, "public"),
        ({"scenario": "warm"}, "public"),
        ({**WARM, "public": "narrow.npz"}, "shape of the public inputs in narrow.npz"),
        ({**WARM, "epsilon": 0}, "ledger"),
        ({**WARM, "warm_up": "sam:augmentations=flip"}, "warm_up augmentations"),
        ({"model": "wrn-10-1", "views": "dp-mix-diff"}, "pool"),
        ({"model": "wrn-10-1", "views": "dp-mix-diff", "pool": "./own"}, "pool"),
        ({"bank": 2, "views": "plain:augmentations=none"}, "views augmentations"),
        ({"adjacency": "replace_one"}, "adjacency"),
        ({"dataset": "other"}, "dataset"),
        ({"batch_size": RECORDS + 1}, "batch_size"),
        ({"epsilon": float("inf")}, "epsilon"),
    ],
    ids=str,
)
def test_what_is_refused_is_a_field_and_costs_nothing(
    wrong: dict[str, Any], field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_ledger()
    x, y = digits(0, 40)
    np.savez("narrow.npz", x=x[:, :7], y=y)
    monkeypatch.setattr(Source, "batches", lambda *_: pytest.fail("a record was read"))
    with refuses(field):
        pm.train("own", **{**OWN, **PAID, **wrong})
    assert charges() == []
    assert left_over() == {"narrow.npz"}
