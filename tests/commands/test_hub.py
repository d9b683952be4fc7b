"""What goes to the hub is certified, and what comes from it verifies; beside a stand-in for it on this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import privmix as pm
from privmix.cli.main import app
from privmix.errors import InvalidInput, StorageError
from tests.jobs.hub_server import Hub, hub_server
from tests.refusals import refuses

constants = pytest.importorskip("huggingface_hub.constants")
GIVEN: dict[str, Any] = {"classes": range(2), "features": "identity", "epsilon": 4.0, "delta": 1e-4}


def records() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 6))
    return x, (x[:, 0] > 0).astype(int)


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("above") / "release"
    pm.release(records(), out=out, design="poisson", metadata={"licence": "CC-BY-4.0", "title": "Rows"}, **GIVEN)
    return out


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("above") / "model"
    pm.train(records(), out=out, epochs=2, **GIVEN)
    return out


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    with hub_server() as found:
        monkeypatch.setenv("HF_ENDPOINT", found.address)
        monkeypatch.setenv("HF_TOKEN", found.token)
        yield found


def test_a_release_comes_back_as_it_went(hub: Hub, release: Path, tmp_path: Path) -> None:
    pushed = pm.push(pm.load(release), "ana/rows")
    assert pushed.kind == "dataset"
    assert hub.private == {("dataset", "ana/rows"): True}
    assert set(pushed.files) == {path.relative_to(release).as_posix() for path in release.rglob("*") if path.is_file()}
    checked = pm.pull("ana/rows", tmp_path / "pulled")
    assert checked.held is not None
    for name in pushed.files:
        assert (tmp_path / "pulled" / name).read_bytes() == (release / name).read_bytes()
    # Some of it went by the protocol for large files.
    assert hub.objects


def test_a_model_comes_back_as_it_went(hub: Hub, model: Path, tmp_path: Path) -> None:
    pushed = pm.push(pm.load(model), "ana/net", licence="apache-2.0", public=True)
    assert pushed.kind == "model"
    assert hub.private == {("model", "ana/net"): False}
    assert set(pushed.files) == {path.name for path in model.iterdir()} | {"README.md"}
    pm.pull("ana/net", tmp_path / "pulled")
    assert sorted(path.name for path in (tmp_path / "pulled").iterdir()) == sorted(
        path.name for path in model.iterdir()
    )
    assert pm.verify(tmp_path / "pulled").held is not None


def test_cards_say_the_guarantee_to_programs(hub: Hub, release: Path, model: Path) -> None:
    pm.push(release, "ana/rows")
    pm.push(model, "ana/net", licence="My own licence")
    rows, net = hub.cards
    for card, folder in ((rows, release), (net, model)):
        said = card["differential_privacy"]
        assert said["epsilon"] >= pm.verify(folder).subject.epsilon
        assert (said["delta"], said["adjacency"], said["unit"]) == (1e-4, "add_remove", "record")
        assert "differential-privacy" in card["tags"]
    assert rows["license"] == "cc-by-4.0"
    assert (net["license"], net["license_name"]) == ("other", "My own licence")


def test_a_dry_run_sends_nothing(hub: Hub, release: Path) -> None:
    found = CliRunner().invoke(app, ["push", str(release), "--to", "ana/rows", "--dry-run"])
    assert found.exit_code == 0, found.output
    assert "certificate.json" in found.output
    assert "To be pushed" in found.output
    assert not hub.repos
    assert not hub.tokens


def test_the_verbs_do_the_same(hub: Hub, model: Path, tmp_path: Path) -> None:
    run = CliRunner()
    done = run.invoke(app, ["push", str(model), "--to", "ana/net"])
    assert done.exit_code == 0, done.output
    assert hub.token not in done.output
    done = run.invoke(app, ["pull", "ana/net", "--out", str(tmp_path / "pulled")])
    assert done.exit_code == 0, done.output
    assert "PASS" in done.output
    assert pm.verify(tmp_path / "pulled").held is not None


def test_private_folders_and_others_stay_here(hub: Hub, release: Path, model: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    pm.train(records(), store=store, epochs=1, **GIVEN)
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "ana.pem").write_text("key")
    pm.fit(release, out=tmp_path / "fitted")
    for folder in (store, tmp_path / "keys", tmp_path, tmp_path / "none", tmp_path / "fitted"):
        with refuses("folder"):
            pm.push(folder, "ana/net")
    # A release or a model with something else in it, too.
    for source, name in ((release, "ledger.db"), (model, "run.key"), (model, ".env")):
        copied = pm.load(source).save(tmp_path / f"with-{name}")
        (copied / name).write_text("private")
        with refuses("files"):
            pm.push(copied, "ana/net")
    with refuses("folder"):
        pm.push(pm.load(tmp_path / "fitted"), "ana/net")
    assert not hub.repos


def test_a_run_that_was_killed_stays_here(hub: Hub, tmp_path: Path) -> None:
    def stop(stage: str, done: int, total: int) -> None:
        if stage.startswith("private"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pm.train(records(), out=tmp_path / "model", epochs=2, progress=stop, **GIVEN)
    with refuses("folder"):
        pm.push(tmp_path / ".model.run", "ana/net")
    assert not hub.repos


def test_other_files_of_a_repository_are_replaced_when_asked(hub: Hub, release: Path, tmp_path: Path) -> None:
    pm.push(release, "ana/rows")
    hub.repos["dataset", "ana/rows"]["data/other.parquet"] = b"old"
    with refuses("to"):
        pm.push(release, "ana/rows")
    pm.push(release, "ana/rows", overwrite=True)
    assert pm.pull("ana/rows", tmp_path / "pulled").held is not None


@pytest.mark.parametrize("name", ["weights.safetensors", "certificate.json", "model.json"])
def test_what_does_not_verify_is_not_kept(hub: Hub, model: Path, tmp_path: Path, name: str) -> None:
    pm.push(model, "ana/net")
    files = hub.repos["model", "ana/net"]
    files[name] = files[name].replace(b"1", b"2", 1) if name.endswith("json") else files[name][:-1] + b"\x00\x01"
    with pytest.raises((InvalidInput, StorageError)):
        pm.pull("ana/net", tmp_path / "pulled")
    assert list(tmp_path.iterdir()) == [] or not (tmp_path / "pulled").exists()


@pytest.mark.parametrize("name", ["../../evil", "a/b/c", ".hidden", "data/../x", "more.json"])
def test_strangers_files_are_not_taken(hub: Hub, model: Path, tmp_path: Path, name: str) -> None:
    pm.push(model, "ana/net")
    hub.repos["model", "ana/net"][name] = b"x"
    with pytest.raises((InvalidInput, StorageError)):
        pm.pull("ana/net", tmp_path / "pulled")
    assert not (tmp_path / "pulled").exists()


def test_more_than_was_allowed_is_not_taken(hub: Hub, model: Path, tmp_path: Path) -> None:
    pm.push(model, "ana/net")
    size = sum(path.stat().st_size for path in model.iterdir())
    with pytest.raises(InvalidInput) as found:
        pm.pull("ana/net", tmp_path / "pulled", max_gb=(size - 1) / 1e9)
    assert found.value.field == "source"
    assert "max_gb" in found.value.allowed
    # A list that says less than comes.
    hub.stated = dict.fromkeys(hub.repos["model", "ana/net"], 1)
    with pytest.raises(InvalidInput) as found:
        pm.pull("ana/net", tmp_path / "pulled", max_gb=(size - 1) / 1e9)
    assert "max_gb" in found.value.allowed
    assert not (tmp_path / "pulled").exists()
    assert pm.pull("ana/net", tmp_path / "pulled", max_gb=2 * size / 1e9).held is not None


def test_without_a_login_it_says_how(hub: Hub, release: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_wrong_token")
    with pytest.raises(StorageError, match="log in") as found:
        pm.push(release, "ana/rows")
    assert "hf_wrong_token" not in str(found.value)
    assert "hf_wrong_token" not in repr(found.value)


@pytest.mark.parametrize("wrong", ["rows", "a/b/c", "../x", "ana/../x", "https://x/y", ""])
def test_places_are_checked(hub: Hub, release: Path, wrong: str) -> None:
    with refuses("to"):
        pm.push(release, wrong)
    assert not hub.repos


def test_licences_are_one_line(hub: Hub, model: Path, release: Path) -> None:
    with refuses("licence"):
        pm.push(model, "ana/net", licence="a\nb: c")
    with refuses("licence"):
        pm.push(release, "ana/rows", licence="mit")


def test_what_is_not_there_is_said(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises((InvalidInput, StorageError), match="none"):
        pm.pull("ana/none", tmp_path / "pulled")
    assert json.dumps(sorted(path.name for path in tmp_path.iterdir())) == "[]"
