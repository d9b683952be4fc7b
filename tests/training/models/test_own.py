"""Networks of the user's own: checked, trained as they are, kept as weights alone."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import privmix as pm
from privmix.errors import InvalidInput, StorageError
from privmix.training.examples import ModelFacts
from privmix.training.models.own import OwnNetwork, own_module
from privmix.training.verify import NO_MODULE
from tests.refusals import refuses

SIDE, CLASSES = 6, 3


class Net(nn.Module):
    def __init__(self, *, norm: nn.Module | None = None) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 4, 3), norm or nn.GroupNorm(2, 4), nn.ReLU(inplace=True))
        self.head = nn.Linear(4 * 16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x).view(x.size(0), -1))


CODE = f"""
from torch import nn

def Net():
    return nn.Sequential(nn.Flatten(), nn.Linear({SIDE * SIDE}, {CLASSES}))

ready = Net()
number = 3
"""


class Watching(nn.Module):
    """Does what no tensor shows: keeps, draws, looks at values, fails, or gives something else than logits."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what, self.calls, self._last = what, 1000, None
        self.head = nn.Linear(SIDE * SIDE, CLASSES)
        self.register_buffer("mean", torch.zeros(SIDE * SIDE))

    def forward(self, x: Tensor) -> Any:
        logits = self.head(x.flatten(1))
        match self.what:
            case "keeps":
                self._last = x.detach()
            case "keeps means":
                if torch.is_grad_enabled() and self.training:
                    self.mean.data.lerp_(x.flatten(1).mean(0).detach(), 0.1)
            case "shouts":
                if x.shape[0] > 6:
                    raise ValueError(f"I saw {x.shape[0]} records")
            case "counts":
                self.calls += 1
            case "draws":
                torch.rand(1)
            case "asserts":
                assert not torch.isnan(x).any()
            case "branches":
                return logits if float(x.mean()) > -1e9 else 2 * logits
            case "dict":
                return {"logits": logits}
            case "softmax":
                return logits.softmax(-1)
        return logits


def made(seed: int = 0, **options: Any) -> Net:
    torch.manual_seed(seed)
    return Net(**options)


def images(records: int = 120) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = rng.integers(0, CLASSES, records)
    x = rng.random((records, SIDE, SIDE), np.float32) / 2
    x[np.arange(records), y] += 0.5
    return x, y


def written(folder: Path) -> Path:
    (folder / "net.py").write_text(CODE)
    return folder / "net.py"


def trained(model: Any, data: Any = None, **options: Any) -> pm.Model:
    given = {"classes": range(CLASSES), "features": "pixels", "epsilon": 8.0, "delta": 1e-4, "epochs": 4, "seed": 1}
    return pm.train(data or images(), model=model, batch_size=30, **{**given, **options})


def wrapped(module: nn.Module) -> OwnNetwork:
    return OwnNetwork.of(module, ModelFacts(("a", "b", "c"), {"name": "pixels"}, (SIDE, SIDE), dim=SIDE * SIDE))


def test_a_module_is_trained_kept_verified_and_loaded_with_its_module(tmp_path: Path) -> None:
    module, x = made(), images()[0]
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    model = trained(module, out=tmp_path / "model")
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    names = {"MODEL_CARD.md", "certificate.json", "model.json", "weights.safetensors"}
    assert {file.name for file in (tmp_path / "model").iterdir()} == names
    assert pm.verify(tmp_path / "model").unchecked[0] == NO_MODULE
    assert NO_MODULE not in pm.verify(tmp_path / "model", module=made(seed=5)).unchecked
    loaded = pm.load(tmp_path / "model", module=made(seed=5))
    assert np.allclose(loaded.predict_proba(x), model.predict_proba(x), atol=1e-6)
    assert loaded.score(*images()) > 0.6
    assert model.certificate["settings"]["model"] == "module"


def test_what_is_kept_of_records_is_not_published(tmp_path: Path) -> None:
    """Of a module that keeps something where gradients are computed, and nowhere else."""
    with refuses("model"):
        trained(Watching("keeps means"), strategy="loop", out=tmp_path / "MODEL")
    assert not (tmp_path / "MODEL").exists()


@pytest.mark.parametrize("module", [nn.Linear(36, 2), nn.Conv2d(1, 3, 3), nn.Identity(), nn.LSTM(36, 3), "text", 3])
def test_what_gives_no_logits_is_refused(module: Any) -> None:
    with refuses("model"):
        wrapped(module)


def test_an_error_of_the_module_tells_nothing_of_its_input() -> None:
    network = wrapped(Watching("shouts"))
    with refuses("model") as found:
        network(torch.rand(7, 1, SIDE, SIDE))
    assert "7" not in str(found.value)
    assert found.value.__cause__ is None
    assert found.value.__context__ is None


def test_a_resumed_run_has_the_weights_that_it_began_with(tmp_path: Path) -> None:
    # What is measured may be chosen otherwise another time.
    one = {"strategy": "vmap:chunk=30"}

    def stop(stage: str, done: int, total: int) -> None:
        if stage.startswith("private") and done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trained(made(), out=tmp_path / "model", progress=stop, **one)
    with refuses("`resume` with network.initial_sha256"):
        trained(made(seed=1), out=tmp_path / "model", resume=True, **one)
    resumed = trained(made(), out=tmp_path / "model", resume=True, **one)
    whole = trained(made(), **one)
    assert np.array_equal(resumed.predict_proba(images()[0]), whole.predict_proba(images()[0]))


def test_without_the_module_nothing_is_computed_and_what_is_certified_shows(tmp_path: Path) -> None:
    folder, source = tmp_path / "model", tmp_path / "secret_place"
    source.mkdir()
    trained(f"torch:{written(source)}:Net", out=folder)
    assert not any(b"secret_place" in file.read_bytes() for file in folder.iterdir())
    loaded = pm.load(folder)
    for call in (
        lambda: loaded.predict(images()[0]),
        lambda: loaded.export(tmp_path / "net.pt2"),
        lambda: pm.evaluate(folder, images()),
        lambda: pm.predict(folder, images()[0]),
        lambda: pm.attack(folder, images(), held_out=images(30), attacks="lira", references=2),
    ):
        with refuses("module"):
            call()
    assert loaded.certificate.epsilon <= 8
    assert pm.evaluate(folder, images(), module=f"torch:{source / 'net.py'}:Net").quality.n == 120


@pytest.mark.parametrize(
    "module",
    [nn.Sequential(nn.Flatten(), nn.Linear(36, 4), nn.Linear(4, 3)), made(norm=nn.Identity()), nn.Linear(36, 3)],
)
def test_another_module_is_refused_by_names_and_shapes(tmp_path: Path, module: nn.Module) -> None:
    trained(made(), out=tmp_path / "model", epochs=1)
    with refuses("model"):
        trained(made().requires_grad_(False))
    with refuses("module"):
        pm.load(tmp_path / "model", module=module)


def test_audits_that_train_anew_take_the_module_with_its_first_weights(tmp_path: Path) -> None:
    name, folder = f"torch:{written(tmp_path)}:Net", tmp_path / "model"
    trained(name, out=folder, epochs=1)
    audit = {"data": images(), "canaries": 10, "seed": 0}
    assert pm.audit(folder, "canaries", module=name, **audit).audit.proof.proven_epsilon <= 8
    found = pm.attack(folder, images(), held_out=images(30), module=name, attacks="lira", references=10)
    assert found.result.attacks[0].name == "lira"
    with refuses("module"):
        pm.audit(folder, "canaries", module=own_module(name, 4), **audit)


def test_records_keep_their_shape(tmp_path: Path) -> None:
    def windows() -> nn.Module:
        return nn.Sequential(nn.Conv1d(6, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(4, 2))

    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 6, 10)).astype(np.float32), np.arange(60) % 2
    np.savez(tmp_path / "train.npz", x=x, y=y)
    given, module = {"classes": 2, "features": "identity", "epochs": 1}, windows()
    model = trained(module, (x, y), out=tmp_path / "model", **given)
    assert model.classifier.network.spec()["record_shape"] == [6, 10]
    other = trained(module, tmp_path / "train.npz", **given)
    loaded = pm.load(tmp_path / "model", module=windows())
    assert np.allclose(model.predict_proba(x), other.predict_proba(x), atol=1e-5)
    assert np.allclose(model.predict_proba(x), loaded.predict_proba(x), atol=1e-6)
    exported = torch.export.load(loaded.export(tmp_path / "net.pt2")).module()(torch.from_numpy(x[:3]))
    assert np.allclose(exported.detach().softmax(1), model.predict_proba(x[:3]), atol=1e-5)


@pytest.mark.parametrize("what", ["keeps", "counts", "draws", "asserts", "branches", "dict", "softmax"])
def test_what_no_tensor_shows_is_refused(what: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InvalidInput, match="Watching"):
        wrapped(Watching(what))
    assert capfd.readouterr() == ("", "")


def test_layers_that_are_frozen_in_evaluation_mode_stay_so() -> None:
    module = made(norm=nn.BatchNorm2d(4))
    module.features.append(nn.Dropout(0.5))
    norm, dropout = module.features[1], module.features[3]
    with torch.no_grad():
        norm.running_mean.uniform_(), norm.weight.uniform_()
    dropout.eval()
    norm.eval()
    with refuses("layer features.1 of the model"):
        wrapped(module)
    norm.requires_grad_(False)
    models = [trained(module, strategy=name, epochs=1) for name in ("loop", "vmap")]
    for model in models:
        state = model.classifier.network.module.features[1].state_dict()
        assert all(torch.equal(state[name], tensor) for name, tensor in norm.state_dict().items())
        assert np.allclose(model.predict_proba(images()[0]), models[0].predict_proba(images()[0]), atol=1e-3)
    norm.train()
    with refuses("layer features.1 of the model"):
        wrapped(module)


def test_modules_are_named_by_file_or_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_net.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))
    first, second = (own_module(f"torch:{place}:Net", 3) for place in (tmp_path / "own_net.py", "own_net"))
    assert torch.equal(first[1].weight, second[1].weight)
    assert isinstance(own_module("torch:own_net:ready", 3), nn.Module)
    for wrong in ("own_net:number", "own_net:none", "no_such_module_at_all:Net", "own_net"):
        with refuses("model"):
            own_module(f"torch:{wrong}", 3)
    with pytest.raises(StorageError, match="no file"):
        own_module(f"torch:{tmp_path / 'none.py'}:Net", 3)


def test_tied_weights_are_kept() -> None:
    first, second = (nn.Linear(SIDE * SIDE, SIDE * SIDE) for _ in range(2))
    second.weight = first.weight
    model = trained(nn.Sequential(nn.Flatten(), first, nn.Tanh(), second, nn.Linear(SIDE * SIDE, CLASSES)), epochs=1)
    assert model.predict(images()[0]).shape == (120,)
