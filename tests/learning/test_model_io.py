import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from privmix.errors import InvalidInput, PrivmixError, StorageError
from privmix.folders import PrivateFolder
from privmix.learning.base import ReleaseLearner
from privmix.learning.discriminant import DiscriminantClassifier
from privmix.learning.kl import GeneralizedKLClassifier
from privmix.learning.model_io import load_model, save_model
from privmix.learning.ridge import NoiseAwareRidgeClassifier
from tests.refusals import refuses

from .mixing import digits, mixed_digits


def fitted(learner: ReleaseLearner | None = None, *, centred: bool = True) -> ReleaseLearner:
    return (learner or NoiseAwareRidgeClassifier(0.1)).fit(mixed_digits(150, centred=centred, input_shape=(8, 8)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_model(fitted(), tmp_path / "model")


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize(
    "learner",
    [
        DiscriminantClassifier(),
        NoiseAwareRidgeClassifier(),
        NoiseAwareRidgeClassifier(np.float32(0.5)),  # type: ignore[arg-type]  # a NumPy number becomes JSON's
        GeneralizedKLClassifier(epochs=1, seed=3),
        GeneralizedKLClassifier("cnn", epochs=1),
        GeneralizedKLClassifier("cnn", epochs=1, augment="flip", standardise=True),
    ],
)
def test_round_trip_predicts_the_same(tmp_path: Path, learner: ReleaseLearner, centred: bool) -> None:
    _, (test_x, _) = digits()
    model = fitted(learner, centred=centred)
    loaded = load_model(save_model(model, tmp_path / "new" / "model"))
    assert type(loaded) is type(model)
    assert loaded.get_params() == model.get_params()
    assert loaded.facts_ == model.facts_
    assert loaded.n_features_in_ == 64
    np.testing.assert_array_equal(loaded.decision_function(test_x), model.decision_function(test_x))
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["model"]


def test_parameters_that_a_model_is_older_than_have_their_defaults(tmp_path: Path) -> None:
    test_x, _ = digits()[1]
    model = fitted(GeneralizedKLClassifier(epochs=1))
    path = save_model(model, tmp_path / "model") / "model.json"
    content = json.loads(path.read_text())
    for name in ("augment", "standardise"):
        del content["params"][name]
    path.write_text(json.dumps(content))
    np.testing.assert_array_equal(load_model(path.parent).decision_function(test_x), model.decision_function(test_x))


def test_folder_holds_json_and_safetensors_only(folder: Path) -> None:
    assert sorted(path.name for path in folder.iterdir()) == ["model.json", "weights.safetensors"]
    content = json.loads((folder / "model.json").read_text())
    assert (content["schema_version"], content["classes"][3]) == (1, "class 3")
    assert content["extractor"] == {"name": "identity", "version": 1}
    assert content["release_id"] == "test-release"
    assert set(load_file(folder / "weights.safetensors")) == {"coef", "intercept", "transform.centre"}


def test_refuses_a_folder_that_exists(folder: Path) -> None:
    with refuses("model folder"):
        save_model(fitted(), folder)
    save_model(fitted(GeneralizedKLClassifier(epochs=1)), folder, overwrite=True)
    assert load_model(folder).name == "generalized-kl"
    assert list(folder.parent.iterdir()) == [folder]


def test_never_overwrites_what_is_no_model(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("words")
    (tmp_path / "file").write_text("words")
    (tmp_path / "link").symlink_to(folder)
    for name in ("thesis", "file", "link"):
        with refuses("model folder"):
            save_model(fitted(), tmp_path / name, overwrite=True)
    assert (tmp_path / "thesis" / "chapter.tex").read_text() == "words"


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_failed_write_leaves_things_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overwrite: bool
) -> None:
    folder = tmp_path / "model"
    if overwrite:
        save_model(fitted(), folder)
    before = sorted(tmp_path.rglob("*"))

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(PrivateFolder, "write", full)
        with pytest.raises(StorageError, match="No space left on device"):
            save_model(fitted(), folder, overwrite=overwrite)
    assert sorted(tmp_path.rglob("*")) == before


def test_an_interrupted_swap_puts_the_old_model_back(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace = os.replace

    def fail_second(source: Path | str, target: Path | str, **given: Any) -> None:
        if Path(target) == folder and not Path(source).name.endswith(".old"):
            raise OSError(5, "Input/output error")
        replace(source, target, **given)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fail_second)
        with pytest.raises(StorageError, match="Input/output error"):
            save_model(fitted(GeneralizedKLClassifier(epochs=1)), folder, overwrite=True)
    assert load_model(folder).name == "noise-aware-ridge"
    assert list(folder.parent.iterdir()) == [folder]


def test_refuses_an_unfitted_model(tmp_path: Path) -> None:
    with refuses("model"):
        save_model(NoiseAwareRidgeClassifier(), tmp_path / "model")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "changes",
    [
        {"schema_version": 2},
        {"learner": "pickle"},
        {"params": {"regularisation": "auto", "hook": "os.system"}},
        {"params": {"regularisation": -1}},
        {"params": []},
        {"classes": ["one"]},
        {"classes": []},
        {"classes": [1] * 10},
        {"dim": 63},
        {"dim": "64"},
        {"dim": None},
        {"input_shape": [8, -8]},
        {"input_shape": "8x8"},
        {"extractor": "identity"},
        {"extractor": {"name": "whitened", "arrays": {"step": [4]}}},
        {"release_id": None},
        {"transform": None},
        {"transform": {"centred": True}},
        {"transform": {"centred": False, "clip_norm": 4.0, "norm": "l2", "residual_clip_norm": None}},
        {"transform": {"centred": True, "clip_norm": 4.0, "norm": "l3", "residual_clip_norm": 3.0}},
        {"transform": {"centred": True, "clip_norm": 4.0, "norm": "l2", "residual_clip_norm": None}},
    ],
)
def test_json_that_does_not_fit(folder: Path, changes: dict[str, Any]) -> None:
    content = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps({**content, **changes}))
    with pytest.raises(InvalidInput) as caught:
        load_model(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": "other"}', "[" * 100_000, "\x00"])
def test_json_that_is_no_model(folder: Path, text: str) -> None:
    (folder / "model.json").write_text(text)
    with pytest.raises(PrivmixError, match=r"model\.json: (not |got )"):
        load_model(folder)


def test_weights_that_do_not_fit(folder: Path) -> None:
    path = folder / "weights.safetensors"
    sound = load_file(path)
    missing = {name: array for name, array in sound.items() if name != "coef"}
    for wrong in (
        missing,
        {**sound, "extra": sound["intercept"]},
        {**sound, "coef": sound["coef"].T.copy()},
        {**sound, "coef": sound["coef"].astype(np.float64)},
        {**sound, "coef": sound["coef"] * np.float32(np.nan)},
        {**sound, "transform.centre": sound["transform.centre"][:-1].copy()},
    ):
        save_file(wrong, path)
        with pytest.raises(InvalidInput, match=r"^model arrays"):
            load_model(folder)


def test_damaged_or_missing_files(folder: Path) -> None:
    path = folder / "weights.safetensors"
    whole = path.read_bytes()
    for damaged in (b"", whole[:100], whole[:-1], b"\xff" * 64):
        path.write_bytes(damaged)
        with refuses("weights.safetensors"):
            load_model(folder)
    path.unlink()
    with pytest.raises(StorageError, match="No such file"):
        load_model(folder)
    with pytest.raises(PrivmixError, match="No such file"):
        load_model(folder / "nothing")
