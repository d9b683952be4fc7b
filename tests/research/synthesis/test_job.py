"""Pools of synthetic images: made of raw files, resumed, measured, read by training as they are."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privmix as pm
from privmix.data import ArraySource, open_dataset
from privmix.data.memory import embedded_digits
from privmix.data.overlap import InputHashes, Sketch
from privmix.errors import InvalidInput
from privmix.folders import PathLock
from privmix.ledger.ledger import Ledger
from privmix.research.synthesis.job import SynthesisJob
from privmix.research.synthesis.verb import synthesise
from tests.cli.helpers import privmix
from tests.refusals import refuses

pytest.importorskip("diffusers")
pytest.importorskip("torchmetrics")

QUICK = {"network": "tiny", "steps": 20, "images": 30, "sampler_steps": 4, "half_life": 500, "draw_batch": 10}
FLAGS = [f"--{name.replace('_', '-')}={value}" for name, value in QUICK.items()]
TRAINED = {"epsilon": 4, "delta": 1e-5, "epochs": 1, "features": "pixels", "model": "linear", "classes": 10}
TRAINED |= {"scenario": "warm-synthetic", "warm_up": "sam:epochs=1"}


def new_ledger(folder: Path) -> str:
    """A ledger of the dataset "own", which nothing has been charged to."""
    url = f"sqlite:///{folder / 'ledger.sqlite'}"
    Ledger.create(url).add_dataset("own", epsilon=9, delta=1e-3)
    return url


def copied(pool: Path, folder: Path, card: str) -> Path:
    """The images of a pool with another card."""
    folder.mkdir(exist_ok=True)
    (folder / "train.npz").write_bytes((pool / "train.npz").read_bytes())
    (folder / "card.json").write_text(card)
    return folder


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Path:
    digits = embedded_digits("train").read()
    place = tmp_path_factory.mktemp("public") / "public.npz"
    np.savez(place, x=digits.x[:120], y=digits.y[:120], classes=10)
    return place


@pytest.fixture(scope="module")
def pool(public: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, object]]:
    out = tmp_path_factory.mktemp("pools") / "POOL"
    done = privmix("synthesise", "--public", str(public), "--out", str(out), *FLAGS, "--guidance", "1", "--json")
    assert done.code == 0, done.err
    return out, json.loads(done.out)


def test_a_pool_is_a_dataset_with_a_card_and_pictures(pool: tuple[Path, dict[str, object]]) -> None:
    out, said = pool
    assert said.keys() >= {"images", "features", "fid", "precision", "recall", "copies"}
    assert (said["images"], said["features"]) == (30, "pixels")
    source = open_dataset(out)
    assert (source.schema.records, source.schema.input_shape) == (30, (8, 8))
    assert np.bincount(source.read().y).tolist() == [3] * 10
    card = json.loads((out / "card.json").read_text())
    assert card["made_of"]["records"] == 120
    assert "copied" in card["warnings"][0]
    assert {path.name for path in out.iterdir()} == {"train.npz", "card.json", "contact.png", "copies.png"}
    assert not list(out.parent.glob(".*"))


def test_a_pool_of_private_images_is_refused_where_these_are_trained_on(
    pool: tuple[Path, dict[str, object]], public: Path, tmp_path: Path
) -> None:
    """Saved anew, in another order and format, among others: files tell nothing, the card does, once they are paid."""
    out, _ = pool
    digits = embedded_digits("train").read()
    # A tenth of the 120 that the pool was made of: 12.
    order = np.random.default_rng(0).permutation(400)
    for private, allowed in ((order[order >= 120], True), (np.r_[:5, 120:400], True), (order, False)):
        records = digits.x[private].astype(np.float32) / np.float32(255), digits.y[private]
        if allowed:
            pm.train(records, **TRAINED, synthetic=out)
            continue
        (tmp_path / "link.npz").symlink_to(out / "train.npz")
        for images in (out, out / "train.npz", f"{out}/*.npz", tmp_path / "link.npz", open_dataset(out)):
            with refuses("synthetic"):
                pm.train(records, **TRAINED, synthetic=images)

    released = {"features": "pixels", "epsilon": 4, "delta": 1e-5, "classes": 10, "out": tmp_path / "R"}
    with pytest.raises(InvalidInput, match=r"proxy: got a private value .* pool of public images"):
        pm.release(records, **released, assume={"proxy": out})
    assert not (tmp_path / "R").exists()

    # What is made of a pool comes from where that came from.
    again = synthesise(out, out=tmp_path / "AGAIN", **QUICK)
    with refuses("synthetic"):
        pm.train(records, **TRAINED, synthetic=again.out)

    card = json.loads((out / "card.json").read_text())
    # Found before anything is paid for, a dry run too.
    paid = {"ledger": new_ledger(tmp_path), "dataset": "own"}
    for wrong in ({"records": -1}, {"digests": "00"}, {"telling": 1}):
        told = card | {"made_of": {"sketch": card["made_of"]["sketch"] | wrong}}
        other = copied(out, tmp_path / "POOL", json.dumps(told))
        with pytest.raises(InvalidInput, match=rf"synthetic: sketch {next(iter(wrong))}"):
            pm.train(records, **TRAINED, **paid, synthetic=other)
        with pytest.raises(InvalidInput, match=rf"proxy: sketch {next(iter(wrong))}"):
            pm.release(records, **released, **paid, assume={"proxy": other})
    assert Ledger.open(paid["ledger"]).budget("own").reservations == 0
    # Others call files so, too.
    for strange in ("{NaN", "[]", "{}", json.dumps(card | {"made_of": {}})):
        pm.train(records, **TRAINED, synthetic=copied(out, tmp_path / "POOL", strange))


def test_a_strangers_card_is_no_oracle_of_membership(pool: Any, tmp_path: Path) -> None:
    """One hash that a stranger wrote on a card, of Bob's record: the model is published without Bob and with him."""
    out, _ = pool
    digits = embedded_digits("train").read()
    bob = Sketch.of(InputHashes.of(ArraySource(digits.x[:1], digits.y[:1], tuple(map(str, range(10))))))
    card = json.loads((out / "card.json").read_text()) | {"made_of": {"sketch": bob.to_dict()}}
    given = TRAINED | {"synthetic": copied(out, tmp_path / "POOL", json.dumps(card)), "records": 300}
    without, with_him = (pm.train((digits.x[part], digits.y[part]), **given) for part in (slice(1, 300), slice(300)))
    assert without.certificate["plan"] == with_him.certificate["plan"]


def test_a_killed_run_goes_on_and_draws_the_same(public: Path, tmp_path: Path) -> None:
    class Killed(Exception):
        pass

    def kill(stage: str, done: int, total: int) -> None:
        if stage == "images":
            raise Killed

    whole = synthesise(public, out=tmp_path / "A", **QUICK)
    with pytest.raises(Killed):
        SynthesisJob(public=public, out=tmp_path / "B", **QUICK).run(kill)
    assert not (tmp_path / "B").exists()
    assert (tmp_path / ".B.work").stat().st_mode & 0o077 == 0
    again = synthesise(public, out=tmp_path / "B", **QUICK)
    assert (tmp_path / "A" / "train.npz").read_bytes() == (tmp_path / "B" / "train.npz").read_bytes()
    assert again.card == whole.card
    assert not (tmp_path / ".B.work").exists()


def test_work_that_a_crash_another_run_or_a_stranger_left_is_no_traceback(public: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir(mode=0o700)
    # Killed while it marked the folder.
    (work / ".run.draft").write_bytes(b"half")
    synthesise(public, out=tmp_path / "A", work=work, **QUICK)
    # A block of which the disk had the name alone.
    for block in work.glob("drawn-*"):
        block.write_bytes(b"")
    synthesise(public, out=tmp_path / "B", work=work, **QUICK)
    assert (tmp_path / "A" / "train.npz").read_bytes() == (tmp_path / "B" / "train.npz").read_bytes()
    with refuses("work"):
        synthesise(public, out=tmp_path / "C", work=work, **{**QUICK, "steps": 21})
    other = PathLock(work, InvalidInput("work", str(work), ""))
    with refuses("work"):
        synthesise(public, out=tmp_path / "C", work=work, **QUICK)
    other.release()
    (tmp_path / "mine").mkdir(mode=0o700)
    for place, stranger in ((work, b"\xff" * 64), (work, b"\xff" * 2000), (tmp_path / "mine", b"x")):
        (place / ("run" if place == work else "notes")).write_bytes(stranger)
        with refuses("work"):
            synthesise(public, out=tmp_path / "C", work=place, **QUICK)
    assert {path.name for path in tmp_path.iterdir()} == {"A", "B", "work", "mine"}


def test_later_runs_draw_from_the_same_model(public: Path, tmp_path: Path) -> None:
    for name, sampler_steps in (("A", 4), ("B", 5), ("C", 4)):
        stages: list[str] = []
        given = {**QUICK, "steps": 10, "images": 10, "sampler_steps": sampler_steps, "work": tmp_path / "work"}
        synthesise(public, out=tmp_path / name, **given, progress=lambda stage, *_, to=stages: to.append(stage))
        assert any("diffusion model" in stage for stage in stages) == (name == "A")
    pools = [(tmp_path / name / "train.npz").read_bytes() for name in "ABC"]
    assert pools[0] == pools[2] != pools[1]


def test_images_of_a_model_without_classes_are_labelled(public: Path, tmp_path: Path) -> None:
    made = synthesise(public, out=tmp_path / "A", diffusion="ddpm", **{**QUICK, "steps": 2})
    assert "linear classifier" in made.card["labels"]
    assert made.card["model"]["process"]["name"] == "ddpm"
    # Those of the classifier, not those that were asked for.
    assert np.bincount(open_dataset(tmp_path / "A").read().y, minlength=10).tolist() != [3] * 10
    with refuses("guidance"):
        synthesise(public, out=tmp_path / "B", diffusion="ddpm", guidance=1.0, **QUICK)


def test_data_with_a_budget_are_refused(public: Path, tmp_path: Path) -> None:
    kept = {"ledger": new_ledger(tmp_path)}
    ours = partial(synthesise, out=tmp_path / "A", **kept, **QUICK)
    with refuses("ledger"):
        ours(public)
    paid: dict[str, Any] = {"features": "pixels", "epsilon": 1, "delta": 1e-5, "classes": 10, "dataset": "own"}
    pm.release(public, **paid, **kept, design="moments", out=tmp_path / "R")
    with refuses("public"):
        ours(public)
    # Figures made of a reference stand on the card.
    digits = embedded_digits("train").read()
    np.savez(tmp_path / "other.npz", x=digits.x[200:300], y=digits.y[200:300], classes=10)
    # Other files are asked for, and refused for another reason.
    with refuses("features"):
        ours(tmp_path / "other.npz", features="vision")
    with refuses("reference"):
        ours(tmp_path / "other.npz", reference=public)
    assert not (tmp_path / "A").exists()
    assert not (tmp_path / ".A.work").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"images": 0}, "images"),
        ({"diffusion": "ddpm", "noise_mean": -1.0}, "noise_mean"),
        ({"work": Path("A")}, "work"),
        ({"work": Path("A", "work")}, "work"),
    ],
)
@pytest.mark.usefixtures("own_folder")
def test_wrong_options_leave_nothing(public: Path, tmp_path: Path, options: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        synthesise(public, out=tmp_path / "A", **{**QUICK, **options})
    assert not list(tmp_path.iterdir())
