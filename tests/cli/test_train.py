"""``privmix train`` as a user runs it: what it makes, what it charges, and what it refuses."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privmix.data import Source
from privmix.jobs import dataset
from tests.cli.helpers import Outcome, privmix
from tests.cli.training import (
    HELD_OUT,
    LEDGER,
    RECORDS,
    certificate,
    charges,
    digits,
    history,
    left_over,
    open_ledger,
    train,
    weights,
    write_all,
)

# Thresholds of a random result hold for these keys: no run fails by chance.
pytestmark = pytest.mark.usefixtures("fixed_keys")

FILES = {"model.json", "certificate.json", "weights.safetensors"}
# Which strategy is fastest takes seconds to find out, each time; a run that learns below leaves it open.
WRN = {"model": "wrn-10-1", "epochs": "0.2", "k_base": "2", "strategy": "ghost"}
EXTENDED = {"scenario": "extended", "public": "public.npz", "public_batch": "16", "warm_up_epochs": "2"}


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


@pytest.fixture
def unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads a private row fails; public data can be read."""
    private: list[Source] = []
    open_for = dataset.open_for

    def open_private(*arguments: Any) -> Source:
        private.append(open_for(*arguments))
        return private[-1]

    def refusing(method: Any) -> Any:
        def read(self: Source, *arguments: Any, **given: Any) -> Any:
            if any(self is source for source in private):
                raise AssertionError("a private row was read")
            return method(self, *arguments, **given)

        return read

    monkeypatch.setattr(dataset, "open_for", open_private)
    for name in ("batches", "read"):
        monkeypatch.setattr(Source, name, refusing(getattr(Source, name)))


def evaluated(folder: str = "MODEL") -> dict[str, Any]:
    outcome = privmix("evaluate", folder, "--data", "own", "--json")
    assert outcome.code == 0, outcome.err
    found: dict[str, Any] = json.loads(outcome.out)
    return found


def refused(outcome: Outcome, *words: str, code: int = 2) -> None:
    assert outcome.code == code, (outcome.code, outcome.err)
    assert outcome.out == ""
    assert outcome.said.strip().count("\n") == 0, outcome.err
    for word in words:
        assert word in outcome.err, outcome.err


RUNS: dict[str, dict[str, str | None]] = {
    "scattering": {"features": "scattering"},
    "dp-mix-self": {**WRN, "views": "dp-mix-self", "k_self": "2"},
    "dp-mix-diff": {**WRN, "views": "dp-mix-diff", "k_self": "1", "k_diff": "1", "pool": "pool"},
    "mixed features": {"views": "pure-diff", "augment": "none", "k_self": "0", "pool": "public.npz"},
    "bank": {"bank": "4", "features": "scattering"},
    "bank and flips": {"bank": "2", "augment": "flip"},
    "warm": {"scenario": "warm", "public": "public.npz", "warm_up_epochs": "2"},
    "warm-up of its own": {
        **WRN,
        "scenario": "warm",
        "public": "public.npz",
        "warm_up_epochs": "1",
        "warm_up_batch": "40",
        "warm_up_optimiser": "asam",
        "warm_up_rho": "0.5",
        "views": "self-aug",
        "k_base": "2",
        "augment": "flip,crop",
        "warm_up_augment": "flip,crop,autoaugment,cutout",
        "warm_up_mixing": "cutmix",
        "warm_up_adversary": "8/255",
        "warm_up_adversary_steps": "1",
    },
    "warm-synthetic": {"scenario": "warm-synthetic", "synthetic": "public.npz", "warm_up_optimiser": "sgd"},
    "adaptive multiplicity": {**EXTENDED, "public_method": "multiplicity", "adaptive_multiplicity": ""},
    "multiplicity and dope": {**EXTENDED, "public_method": "multiplicity+dope"},
    "microbatches mixed only": {"microbatch": "2", "microbatch_mixes": "1", "microbatch_mixed_only": ""},
    "records": {"records": "310"},
    "replace one": {"adjacency": "replace_one"},
    "adam": {"optimiser": "adam", "schedule": "cosine"},
    "store": {"store": "STORE"},
}


@pytest.mark.parametrize("name", RUNS)
def test_trained_verified_evaluated(name: str) -> None:
    outcome = train(**RUNS[name])
    assert outcome.code == 0, outcome.err
    assert outcome.said == ""
    assert "privmix evaluate MODEL" in outcome.out
    assert {path.name for path in Path("MODEL").iterdir()} == FILES
    assert left_over() == ({"MODEL", "STORE"} if name == "store" else {"MODEL"})
    made = certificate()
    assert made["guarantee"]["epsilon"] <= 8
    assert made["warnings"] == []
    assert made["in_ledger"] == "none"
    assert set(made["public_data"]) == {key for key in ("public", "synthetic", "pool") if key in RUNS[name]}
    assert made["guarantee"]["adjacency"] == RUNS[name].get("adjacency", "add_remove")
    assert made["plan"]["records"] == int(RUNS[name].get("records") or RECORDS)
    assert made["plan"]["records_declared"] == ("records" in RUNS[name])
    verified = privmix("verify", "MODEL")
    assert verified.code == 0, verified.err
    assert evaluated()["n"] == HELD_OUT
    shown = privmix("inspect", "MODEL")
    assert shown.code == 0, shown.err
    for text in made["statements"]:
        assert text in shown.out


def test_epsilon_0_reads_no_private_row(unreadable: None) -> None:
    """The row "after the warm-up" of a table: certified for epsilon 0, shown as that, and nothing for a ledger."""
    outcome = train(**WARM, epsilon="0", warm_up_epochs="1")
    assert outcome.code == 0, outcome.err
    assert "epsilon 0, delta" in outcome.out
    made = certificate()
    assert made["guarantee"]["epsilon"] == 0
    assert made["statements"][0].startswith("Guaranteed: no private record was read.")
    # Exactly what happened: nobody may take it for a comparison that found nothing.
    assert "What is taken as public was not compared with private records" in made["statements"][0]
    assert "what is taken as public was not compared with private records" in outcome.out
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
        refused(train(**WARM, epsilon="0", out="OTHER", **{option: value}), f"--{option}", "none with --epsilon 0")
    refused(train(epsilon="0", out="OTHER"), "--epsilon", "scenario warm")


@pytest.mark.parametrize("model", ["linear", "wrn-10-1"])
def test_a_model_learns_what_it_is_shown(model: str) -> None:
    """With little noise; chance is 10%. The linear model's runs spread by 1% around 78%, so 70% fails by its doing."""
    linear = model == "linear"
    options = {"epochs": "30", "learning_rate": "2"} if linear else {"epochs": "4", "learning_rate": "1"}
    assert train(model=model, epsilon="1000", **options).code == 0
    result = evaluated()
    assert result["accuracy"] > (0.7 if linear else 0.3)
    assert privmix("verify", "MODEL").code == 0, "a picture beside the model is no harm"


def test_json_is_the_certificate() -> None:
    outcome = train(json="")
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out) == certificate()
    assert json.loads(privmix("inspect", "MODEL", "--json").out) == certificate()
    verified = json.loads(privmix("verify", "MODEL", "--json").out)
    assert verified["id"] == certificate()["id"]
    assert verified["recomputed_epsilon"] == verified["epsilon"] == certificate()["guarantee"]["epsilon"]


def test_a_seed_is_warned_of_and_gives_the_same_bits() -> None:
    for out in ("ONE", "TWO"):
        outcome = train(seed="5", out=out)
        assert outcome.code == 0, outcome.err
        assert "NOT private" in outcome.err
    assert weights("ONE") == weights("TWO")
    assert "no privacy" in privmix("inspect", "ONE").out
    assert "no privacy" in privmix("verify", "ONE").err
    assert train(out="THREE").code == train(out="FOUR").code == 0
    assert weights("THREE") != weights("FOUR")


def test_a_store_gives_the_weights_of_memory() -> None:
    for out, store in (("ONE", None), ("TWO", "STORE"), ("THREE", "STORE")):
        assert train(seed="5", features="scattering", store=store, out=out).code == 0
    assert weights("ONE") == weights("TWO") == weights("THREE")


def test_a_dry_run_reads_no_private_row(unreadable: None) -> None:
    open_ledger()
    for json_output in (None, ""):
        outcome = train(ledger=LEDGER, dataset="own", dry_run="", json=json_output, out="no/such/place")
        assert outcome.code == 0, outcome.err
        assert outcome.err == ""
    content = json.loads(outcome.out)
    assert content["plan"]["steps"] == 10
    assert content["epsilon"] <= 8
    assert charges() == []
    assert left_over() == set()


def test_a_dry_run_tells_nothing_of_the_rows() -> None:
    """Other pictures, labels outside the list: the same plan."""
    first = train(dry_run="")
    x, y = digits(0, RECORDS)
    np.savez("own/train.npz", x=255 - x, y=y + 7)
    assert train(dry_run="") == first
    refused(train(), "label", "private")


def test_charged_once_before_reading_and_noted() -> None:
    open_ledger()
    assert train(ledger=LEDGER, dataset="own").code == 0
    assert charges() == ["training"]
    assert charges("commit") == [f"model {certificate()['id']}"]
    assert certificate()["in_ledger"] == "planned"
    shown = json.loads(privmix("ledger", "show", "--ledger", LEDGER, "--dataset", "own", "--json").out)[0]
    assert 0 < shown["spent"] <= 8
    assert shown["uncommitted"] == 0
    assert privmix("ledger", "verify", "--ledger", LEDGER).code == 0


def test_an_existing_model_is_replaced_on_request_only() -> None:
    open_ledger()
    assert train().code == 0
    first = weights()
    refused(train(ledger=LEDGER, dataset="own"), "--out", "--overwrite")
    assert weights() == first
    assert charges() == []
    assert train(overwrite="", ledger=LEDGER, dataset="own").code == 0
    assert weights() != first
    assert charges() == ["training"]
    Path("notes").mkdir()
    Path("notes/mine.txt").write_text("mine")
    refused(train(out="notes", overwrite="", ledger=LEDGER, dataset="own"), "--out")
    assert Path("notes/mine.txt").read_text() == "mine"
    assert charges() == ["training"]
    assert left_over() == {"MODEL", "notes"}


def prepare_wrong_data() -> None:
    x, y = digits(0, 40)
    np.savez("narrow.npz", x=x[:, :7], y=y)
    np.savez("floats.npz", x=np.full((40, 8, 8), np.nan, np.float32), y=y)
    np.savez("vectors.npz", x=np.ones((40, 8), np.float32), y=y)
    np.savez("other-labels.npz", x=x, y=y + 5)
    shutil.copytree("pool", "zoo")
    shutil.copytree("pool/1", "zoo/cat")


MIX = {"model": "wrn-10-1", "views": "dp-mix-diff"}
WARM = {"scenario": "warm", "public": "public.npz"}
HELPED = {"scenario": "extended", "public": "public.npz", "public_method": "multiplicity"}
WRONG: dict[str, tuple[dict[str, str | None], list[str]]] = {
    "no classes": ({"classes": None}, ["classes", "--classes"]),
    "one class": ({"classes": "1"}, ["classes"]),
    "unknown model": ({"model": "vgg"}, ["model", "'vgg'", "linear, resnet-9"]),
    "depth of a model": ({"model": "wrn-11-1"}, ["depth", "10, 16"]),
    "image too small": ({"model": "cnn"}, ["(8, 8)", "cnn"]),
    "image model on features": ({"model": "wrn-10-1", "features": "scattering"}, ["model", "linear"]),
    "a folder of no model": ({"model": "hf:/no/such/folder"}, ["/no/such/folder"]),
    "feature norm of a network": ({"model": "wrn-10-1", "feature_norm": "2"}, ["--feature-norm: got 2.0", "wrn-10-1"]),
    "epsilon negative": ({"epsilon": "-1"}, ["epsilon"]),
    "epsilon nan": ({"epsilon": "nan"}, ["epsilon"]),
    "epsilon unreachable": (
        {"epsilon": "1e-9", "delta": "1e-9", "epochs": "100"},
        ["epsilon", "at least", "fewer epochs"],
    ),
    "delta unreachable": ({"delta": "1e-300"}, ["delta", "about 1e-"]),
    "delta one": ({"delta": "1"}, ["delta"]),
    "mixing without a pool": (MIX, ["--pool", "k-diff = 2"]),
    "a pool that is not used": ({"pool": "pool"}, ["--pool", "--k-diff"]),
    "a pool of another class": ({**MIX, "pool": "zoo"}, ["--pool", "class list"]),
    "a pool of another shape": ({**MIX, "pool": "narrow.npz"}, ["--pool", "(7, 8)", "(8, 8)"]),
    "augmented features": ({"views": "dp-mix-self"}, ["--views", "--augment none"]),
    "features to augment": ({"augment": "flip"}, ["--augment", "--bank"]),
    "unknown augmentation": ({"augment": "flop", "model": "wrn-10-1"}, ["--augment: got 'flop'", "flip, crop"]),
    "unknown views": ({"views": "mix"}, ["--views", "dp-mix-self"]),
    "alpha": ({**MIX, "pool": "pool", "alpha": "0"}, ["alpha"]),
    "mixing": ({"mixing": "blend"}, ["mixing", "cutmix"]),
    "bank and augmentation none": ({"bank": "2", "augment": "none"}, ["--augment", "--bank"]),
    "bank of vectors": ({"bank": "2", "data": "vectors.npz", "features": "identity"}, ["--bank", "images"]),
    "bank and mixes": ({"bank": "2", "microbatch": "2", "microbatch_mixes": "1"}, ["--microbatch-mixes"]),
    "bank and store": ({"bank": "2", "store": "STORE"}, ["--store", "--bank"]),
    "mixed only without mixes": (
        {"microbatch": "2", "microbatch_mixed_only": ""},
        ["microbatch_mixes: got 0", "--microbatch-mixed-only leaves out"],
    ),
    "mixes without microbatches": ({"microbatch_mixes": "1"}, ["--microbatch-mixes"]),
    "microbatch above the batch": ({"microbatch": "31"}, ["--microbatch: got 31", "30"]),
    "public data of another shape": ({**WARM, "public": "narrow.npz"}, ["--public", "(7, 8)", "(8, 8)"]),
    "public data that is no numbers": ({**WARM, "public": "floats.npz"}, ["--public", "finite"]),
    "public labels outside": ({**WARM, "public": "other-labels.npz"}, ["--public", "class list"]),
    "private data called public": ({**WARM, "public": "own"}, ["--public", "private dataset"]),
    "private data as a pool": ({**MIX, "pool": "./own"}, ["--pool", "private dataset"]),
    "warm without data": ({"scenario": "warm"}, ["--public: not given; needed", "warm"]),
    "data without a use": ({"public": "public.npz"}, ["--public: got", "cold"]),
    "a method without data": ({"public_method": "dope"}, ["--public-method: got", "cold"]),
    "extended without a method": ({**WARM, "scenario": "extended"}, ["public_method", "extended"]),
    "unknown method": ({**HELPED, "public_method": "hope"}, ["--public-method: got", "dope"]),
    "unknown scenario": ({"scenario": "tepid"}, ["scenario", "warm"]),
    "rho": ({**HELPED, "rho": "nan"}, ["--rho: got nan"]),
    "rho not used": ({"rho": "0.1"}, ["--rho", "extended"]),
    "rho of another method": ({**HELPED, "public_method": "dope", "rho": "0.1"}, ["--rho", "multiplicity"]),
    "adaptive multiplicity of another method": (
        {**HELPED, "public_method": "dope", "adaptive_multiplicity": ""},
        ["--adaptive-multiplicity", "multiplicity"],
    ),
    "perturbations": ({**HELPED, "perturbations": "0"}, ["--perturbations: got 0"]),
    "perturbations above the views": ({**HELPED, "perturbations": "9"}, ["--perturbations: got 9; allowed: at most 1"]),
    "public batch": ({**HELPED, "public_batch": "81"}, ["--public-batch: got 81", "80"]),
    "warm-up not used": ({"warm_up_epochs": "3"}, ["--warm-up-epochs", "cold"]),
    "augmentations of an unused warm-up": ({"warm_up_augment": "flip"}, ["--warm-up-augment", "cold"]),
    "warm-up augmentations of features": (
        {**WARM, "warm_up_augment": "flip"},
        ["--warm-up-augment: got 'flip'", "--features pixels"],
    ),
    "warm-up cutmix of features": ({**WARM, "warm_up_mixing": "cutmix"}, ["--warm-up-mixing", "mixup, or"]),
    "warm-up mixing": ({**WARM, "warm_up_mixing": "blend"}, ["--warm-up-mixing", "mixup, cutmix"]),
    "epsilon 0 and a ledger": (
        {**WARM, "epsilon": "0"},
        ["--ledger: got 'a ledger'; allowed: none with --epsilon 0"],
    ),
    "no noise": ({"epsilon": "inf"}, ["--epsilon: got inf; allowed: a finite number"]),
    "warm-up adversary of features": ({**WARM, "warm_up_adversary": "8/255"}, ["--warm-up-adversary: got '8/255'"]),
    "warm-up adversary": ({**WARM, "warm_up_adversary": "8/0"}, ["--warm-up-adversary", "8/255"]),
    "warm-up adversary's steps": ({**WARM, "warm_up_adversary_steps": "3"}, ["-steps", "without --warm-up-adversary"]),
    "warm-up rho": ({**WARM, "warm_up_optimiser": "sgd", "warm_up_rho": "0.5"}, ["--warm-up-rho", "sgd"]),
    "warm-up radius": ({**WARM, "warm_up_rho": "0"}, ["--warm-up-rho: got 0.0"]),
    "warm-up batch": ({**WARM, "warm_up_batch": "0"}, ["--warm-up-batch: got 0"]),
    "warm-up epochs": ({**WARM, "warm_up_epochs": "-1"}, ["--warm-up-epochs: got -1"]),
    "warm-up optimiser": ({**WARM, "warm_up_optimiser": "lamb"}, ["--warm-up-optimiser: got 'lamb'"]),
    "warm-up augmentation": ({**WARM, "warm_up_augment": "flop"}, ["--warm-up-augment: got 'flop'"]),
    "no steps of the warm-up's adversary": (
        {**WARM, "model": "wrn-10-1", "warm_up_adversary": "8/255", "warm_up_adversary_steps": "0"},
        ["--warm-up-adversary-steps: got 0"],
    ),
    "averaged weights": ({"ema": "1"}, ["--ema: got 1.0"]),
    "no views": ({"model": "wrn-10-1", "views": "self-aug", "k_base": "0"}, ["--k-base, --k-diff"]),
    "size of a bank": ({"bank": "-1"}, ["--bank: got -1"]),
    "warm-up rate": ({**WARM, "warm_up_rate": "inf"}, ["--warm-up-rate"]),
    "learning rate nan": ({"learning_rate": "nan"}, ["--learning-rate"]),
    "learning rate inf": ({"learning_rate": "inf"}, ["--learning-rate"]),
    "learning rate beyond float32": ({"learning_rate": "1e39"}, ["--learning-rate"]),
    "momentum of adam": ({"optimiser": "adam", "momentum": "0.5"}, ["--momentum", "adam"]),
    "optimiser": ({"optimiser": "lamb"}, ["optimiser", "adam"]),
    "chunk": ({"chunk": "0"}, ["chunk"]),
    "strategy": ({"strategy": "closed-form", "model": "wrn-10-1"}, ["strategy", "ghost"]),
    "epochs": ({"epochs": "0"}, ["epochs"]),
    "epochs without end": ({"epochs": "1e12"}, ["epochs", "at most"]),
    "batch above the records": ({"batch_size": "301"}, ["--batch-size: got 301", "300"]),
    "records": ({"records": "0"}, ["records"]),
    "adjacency": ({"adjacency": "both"}, ["--adjacency", "replace_one"]),
    "adjacency of another budget": ({"adjacency": "replace_one"}, ["adjacency", "add_remove"]),
    "split": ({"split": "none"}, ["split", "train"]),
    "device": ({"device": "tpu"}, ["--device", "cpu"]),
    "device that is not there": ({"device": "cuda:99"}, ["--device", "cpu"]),
    "seed with a ledger": ({"seed": "1"}, ["--seed", "--ledger"]),
    "seed": ({"seed": "-1", "ledger": None, "dataset": None}, ["--seed"]),
    "ledger without a dataset": ({"dataset": None}, ["--ledger, --dataset"]),
    "dataset without a budget": ({"dataset": "other"}, ["--dataset"]),
    "no such ledger": ({"ledger": "sqlite:///none.db"}, ["none.db"]),
    "nothing to resume": ({"resume": ""}, ["--resume", "there is none"]),
    "text column": ({"text_column": "note"}, ["--text-column"]),
    "out is a file": ({"out": "public.npz"}, ["--out"]),
}


@pytest.fixture(scope="module")
def wrong(written: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]], set[str]]:
    """A folder with wrong data and a ledger, what this holds, and what lies there: nothing of it is ever changed."""
    root = tmp_path_factory.mktemp("wrong") / "root"
    shutil.copytree(written, root)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        prepare_wrong_data()
        open_ledger()
        return root, history(), left_over()


@pytest.mark.parametrize("name", WRONG)
def test_wrong_options_cost_nothing(
    name: str,
    wrong: tuple[Path, list[dict[str, Any]], set[str]],
    unreadable: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    changes, words = WRONG[name]
    root, before, there = wrong
    monkeypatch.chdir(root)
    refused(train(**{"ledger": LEDGER, "dataset": "own", **changes}), *words)
    assert history() == before
    assert left_over() == there


@pytest.mark.parametrize(
    "changes", [{"data": "none"}, {"pool": "none", **MIX}, {"classes": "@none"}, {"out": "public.npz/MODEL"}], ids=str
)
def test_places_that_are_not_there_cost_nothing(changes: dict[str, str | None], unreadable: None) -> None:
    open_ledger()
    refused(train(**{"ledger": LEDGER, "dataset": "own", **changes}), code=1)
    assert charges() == []
    assert left_over() == set()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_places_that_cannot_be_written_cost_nothing(unreadable: None) -> None:
    open_ledger()
    Path("closed").mkdir(mode=0o500)
    for changes in ({"out": "closed/MODEL"}, {"store": "closed/STORE"}):
        refused(train(ledger=LEDGER, dataset="own", **changes), "can't write", code=1)
    assert charges() == []


def test_a_model_of_the_hub_that_cannot_be_reached(unreadable: None, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers", reason="pretrained models need privmix[vision]")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    open_ledger()
    outcome = train(model="hf:nobody/no-such-model", ledger=LEDGER, dataset="own")
    refused(outcome, "nobody/no-such-model", "local folder", code=1)
    assert charges() == []
    assert left_over() == set()


@pytest.fixture(scope="module")
def trained(written: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of the plain command."""
    out = tmp_path_factory.mktemp("trained") / "MODEL"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(written)
        assert train(out=str(out)).code == 0
    return out


def test_what_was_tampered_with_is_refused(trained: Path) -> None:
    """tests/training/test_verify.py changes every byte and field."""
    shutil.copytree(trained, "MODEL")
    Path("MODEL/weights.safetensors").write_bytes(weights()[:-1] + bytes([weights()[-1] ^ 1]))
    for verb in (["verify", "MODEL"], ["inspect", "MODEL"], ["evaluate", "MODEL", "--data", "own"]):
        refused(privmix(*verb), "weights.safetensors")


def test_evaluation_is_of_the_models_own_classes(trained: Path) -> None:
    shutil.copytree(trained, "MODEL")
    same = privmix("evaluate", "MODEL", "--data", "own", "--classes", "10", "--json")
    assert same.code == 0, same.err
    for classes in ("9,8,7,6,5,4,3,2,1,0", "11"):
        refused(privmix("evaluate", "MODEL", "--data", "own", "--classes", classes), "--classes", "0, 1, 2")
    prepare_wrong_data()
    refused(privmix("evaluate", "MODEL", "--data", "narrow.npz"), "--data", "(8, 8)")
    refused(privmix("evaluate", "MODEL", "--data", "other-labels.npz"), "label", "private")
    refused(privmix("evaluate", "MODEL", "--data", "own", "--split", "none"), "split")
    refused(privmix("evaluate", "MODEL", "--data", "own", "--figure", "x.txt"), "--figure")
    for verb in (["evaluate", "own", "--data", "own"], ["inspect", "own"], ["verify", "own"]):
        refused(privmix(*verb), "own/", code=1)


def test_help_teaches() -> None:
    outcome = privmix("train", "--help-all")
    assert outcome.code == 0
    panels = ["Required", "Options", "Privacy", "DP-SGD", "Views and mixup", "Public data", "Running"]
    places = [outcome.out.index(f"\n{panel}:\n") for panel in panels]
    assert places == sorted(places)
    first = outcome.out[places[0] : places[2]]
    for flag in ("--data", "--epsilon", "--delta", "--out", "--features", "--model", "--classes"):
        assert f"{flag} " in first
