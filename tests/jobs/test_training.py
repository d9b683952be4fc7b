"""A training asked from Python: what the command line gives, models in memory, and the order of paying and reading."""

from __future__ import annotations

import dataclasses
import inspect
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privmix as pm
from privmix.data import Source
from privmix.jobs.public_data import refuse_private
from privmix.jobs.training import TrainingJob
from privmix.jobs.training_options import TrainingOptions
from tests.cli.training import (
    LEDGER,
    RECORDS,
    charges,
    digits,
    left_over,
    open_ledger,
    weights,
    write_all,
)
from tests.refusals import refuses

OWN: dict[str, Any] = {"epsilon": 8, "delta": 1e-4, "classes": 10, "batch_size": 30, "epochs": 1}
PAID: dict[str, Any] = {"ledger": LEDGER, "dataset": "own"}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data") / "root"
    write_all(root)
    return root


@pytest.fixture(autouse=True)
def data(written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current folder holds the data."""
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)


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


def test_options_are_those_of_the_library() -> None:
    """Names of presets, of public methods, of augmentations: known without the command line."""
    job = TrainingJob(
        "own",
        epsilon=8.0,
        delta=1e-4,
        classes=10,
        model="wrn-10-1",
        views="dp-mix-diff:k_base=3",
        pool="pool",
        dry_run=True,
    )
    with job.processes() as world:
        planned = job.plan(world)
    assert (planned.trainer.views.views, planned.trainer.config.views.k_base) == (3 + 18 + 2, 3)
    assert sorted(planned.trainer.public_digests()) == ["pool"]
    assert left_over() == set()


def test_every_option_says_what_it_is() -> None:
    """In the metadata, from which --help is made, and in its dataclass's docstring."""
    words = inspect.getdoc(TrainingOptions) or ""
    named = {name.strip() for line in words.splitlines() if ": " in line for name in line.partition(":")[0].split(",")}
    for item in dataclasses.fields(TrainingOptions):
        assert item.name in named, item.name
        assert item.name in ("columns", "persons") or item.metadata["help"].strip()


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"ledger": None}, "ledger, dataset"),
        ({"seed": 1}, "seed"),
        ({"resume": True}, "resume"),
        ({"bank": 2, "store": "STORE"}, "store"),
        ({"views": "dp-mix-twice"}, "views"),
        ({"views": "plain:augmentations=flip"}, "views"),
        ({"public_method": "multiplicity:rho=0.1"}, "public_method"),
        ({"device": "tpu"}, "device"),
        ({"public": "own", "scenario": "warm"}, "public"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_refused_is_a_field_and_costs_nothing(
    wrong: dict[str, Any], field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unread(*_: Any) -> Any:
        raise AssertionError("a record was read")

    open_ledger()
    monkeypatch.setattr(Source, "batches", unread)
    with pytest.raises(pm.InvalidInput) as refused:
        pm.train("own", **{**OWN, **PAID, **wrong})
    assert refused.value.field == field
    assert charges() == []
    assert left_over() == set()


def test_public_records_in_memory_that_are_private_ones_end_the_run() -> None:
    """Their place tells nothing; once they are paid for, the records do."""
    open_ledger()
    x, y = digits(0, RECORDS)
    with refuses("public"):
        pm.train("own", **OWN, **PAID, scenario="warm", warm_up="sam:epochs=1", public=(x, y))
    assert (charges(), charges("commit")) == (["training"], [])


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


def test_what_python_may_say_of_a_training_is_what_there_is() -> None:
    """Another name is refused with those that there are; what type checkers read is in tests/golden."""
    with pytest.raises(TypeError, match=r"train\(\) takes no argument modl; did you mean model"):
        pm.train(([[0.0]], [0]), epsilon=1.0, delta=1e-4, modl="cnn")  # type: ignore[call-arg]
    with refuses("features"):
        pm.train(([[0.0]], [0]), epsilon=1.0, delta=1e-4, classes=2, features=lambda x: x)  # type: ignore[arg-type]
