"""Training from the command line and from Python: what it makes, what it charges, and what it refuses."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privmix as pm
from privmix.data import Source
from privmix.jobs import dataset
from privmix.jobs.public_data import refuse_private
from tests.cli.helpers import privmix, refused
from tests.cli.training import (
    HELD_OUT,
    LEDGER,
    RECORDS,
    certificate,
    charges,
    data_folder,
    digits,
    left_over,
    open_ledger,
    train,
    weights,
    written,
)
from tests.refusals import refuses

pytestmark = pytest.mark.usefixtures("fixed_keys", "data_folder")
__all__ = ["data_folder", "written"]

# Which strategy is fastest takes seconds to find out, each time; a run that learns below leaves it open.
WRN = {"model": "wrn-10-1", "epochs": "0.2", "strategy": "vmap"}
WARM = {"scenario": "warm", "public": "public.npz"}
OWN: dict[str, Any] = {"epsilon": 8, "delta": 1e-4, "classes": 10, "batch_size": 30, "epochs": 1}
PAID: dict[str, Any] = {"ledger": LEDGER, "dataset": "own"}
EXTENDED = {"scenario": "extended", "public": "public.npz", "warm_up": "sam:epochs=2"}


@pytest.fixture
def unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads a private row fails; public data can be read."""
    kind = dataset.Dataset

    def open_private(source: Source, *arguments: Any) -> dataset.Dataset:
        for name in ("batches", "read"):
            monkeypatch.setattr(source, name, lambda *_, **__: pytest.fail("a private row was read"))
        return kind(source, *arguments)

    monkeypatch.setattr(dataset, "Dataset", open_private)


AUGMENTED = "asam:epochs=1,batch_size=40,rho=0.5,augmentations=flip+crop+autoaugment+cutout,mixing=cutmix,"
RUNS: dict[str, dict[str, str | None]] = {
    "scattering": {"features": "scattering"},
    "dp-mix-diff": {**WRN, "views": "dp-mix-diff:k_base=2,k_self=1,k_diff=1", "pool": "pool"},
    "bank and flips": {"bank": "2", "views": "plain:augmentations=flip"},
    "warm-up of its own": {
        **WRN,
        **WARM,
        "warm_up": AUGMENTED + "adversary=8/255,adversary_steps=1",
        "views": "self-aug:k_base=2,augmentations=flip+crop",
    },
    "warm-synthetic": {"scenario": "warm-synthetic", "synthetic": "public.npz", "warm_up": "sgd"},
    "multiplicity and dope": {**EXTENDED, "public_method": "multiplicity+dope:batch_size=16"},
    "records": {"records": "310"},
    "replace one": {"adjacency": "replace_one"},
    "store": {"store": "STORE"},
}


@pytest.mark.parametrize("name", RUNS)
def test_trained_verified_evaluated(name: str) -> None:
    given = RUNS[name]
    outcome = train(**given).passed()
    assert outcome.said == ""
    assert "privmix evaluate MODEL" in outcome.out
    assert set(os.listdir("MODEL")) == {"model.json", "certificate.json", "weights.safetensors", "MODEL_CARD.md"}
    assert left_over() == ({"MODEL", "STORE"} if name == "store" else {"MODEL"})
    made = certificate()
    assert made["guarantee"]["epsilon"] <= 8
    assert (made["warnings"], made["in_ledger"]) == ([], "none")
    assert set(made["public_data"]) == {key for key in ("public", "synthetic", "pool") if key in given}
    assert made["guarantee"]["adjacency"] == given.get("adjacency", "add_remove")
    assert made["plan"]["records"] == int(given.get("records") or RECORDS)
    assert made["plan"]["records_declared"] == ("records" in given)
    privmix("verify", "MODEL").passed()
    assert privmix("evaluate", "MODEL", "--data", "own", "--json").json()["n"] == HELD_OUT
    shown = privmix("inspect", "MODEL", "--full").passed()
    assert all(text in shown.out for text in made["statements"])


def test_epsilon_0_reads_no_private_row(unreadable: None) -> None:
    """The row "after the warm-up" of a table: certified for epsilon 0, shown as that, and nothing for a ledger."""
    outcome = train(**WARM, epsilon="0", warm_up="sam:epochs=1").passed()
    assert "epsilon=0, delta" in outcome.out
    made = certificate()
    assert made["guarantee"]["epsilon"] == 0
    assert made["statements"][0].startswith("Guaranteed: no private record was read.")
    # Exactly what happened: nobody may take it for a comparison that found nothing.
    assert "What is taken as public was not compared with private records" in made["statements"][0]
    assert "the public data were not compared with private records" in outcome.out
    assert not any("publish nothing where" in text for text in made["statements"])
    assert (made["warnings"], set(made["public_data"])) == ([], {"public"})
    assert privmix("verify", "MODEL").code == 0
    shown = privmix("inspect", "MODEL")
    assert "none: no private record was read" in shown.out
    assert "steps" not in shown.out
    assert privmix("report", "MODEL", "--out", "page.html").code == 0
    assert "trained on public data alone: no private record was read" in Path("page.html").read_text()
    refused(privmix("audit", "MODEL"), "plan steps: got 0", "reads no private record")
    for option, value in (("seed", "3"), ("store", "STORE")):
        refused(train(**WARM, epsilon="0", out="OTHER", **{option: value}), f"--{option}", "no value with --epsilon 0")
    refused(train(epsilon="0", out="OTHER"), "--epsilon", "scenario warm")


def test_json_is_the_certificate() -> None:
    assert train(json="").json() == certificate() == privmix("inspect", "MODEL", "--json").json()


def test_a_seed_is_warned_of_and_gives_the_same_bits() -> None:
    for out in ("ONE", "TWO"):
        assert "NOT private" in train(seed="5", out=out).passed().err
        train(out=f"FREE-{out}").passed()
    assert weights("ONE") == weights("TWO")
    assert weights("FREE-ONE") != weights("FREE-TWO")
    assert "no privacy" in privmix("inspect", "ONE").out
    assert "no privacy" in privmix("verify", "ONE").err


def test_a_dry_run_tells_nothing_of_the_rows() -> None:
    """Other pictures, labels outside the list: the same plan."""
    first = train(dry_run="")
    x, y = digits(0, RECORDS)
    np.savez("own/train.npz", x=255 - x, y=y + 7)
    assert train(dry_run="") == first
    refused(train(), "label", "private")


@pytest.mark.parametrize(
    "changes",
    [
        {"data": "none"},
        {"pool": "none", "model": "wrn-10-1", "views": "dp-mix-diff"},
        {"classes": "@none"},
        {"out": "public.npz/MODEL"},
    ],
    ids=str,
)
def test_places_that_are_not_there_cost_nothing(changes: dict[str, str | None], unreadable: None) -> None:
    open_ledger()
    refused(train(**PAID, **changes), code=1)
    assert charges() == []
    assert left_over() == set()


def test_a_model_in_memory_takes_raw_inputs_and_is_saved() -> None:
    """Of arrays, without a folder: the weights of a run on disk."""
    x, y = digits(0, RECORDS)
    model = pm.train((x, y), **{**OWN, "classes": range(10)}, seed=5, views="plain")
    assert left_over() == set()
    assert pm.train("own", **OWN, seed=5, out="DISK").predict(x).tolist() == model.predict(x).tolist()
    model.save("SAVED")
    assert weights("SAVED") == weights("DISK")
    assert pm.verify("SAVED").to_dict()["epsilon"] <= 8
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
