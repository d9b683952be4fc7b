"""What classes look like: from the release alone, as sure as it says, in a notebook, a file, a record and a report."""

from __future__ import annotations

import base64
import io
import json
import shutil
import warnings
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

import privmix as pm
from privmix.cli.main import run
from privmix.data import embedded_digits
from tests.jobs.test_class_texts import Letters
from tests.refusals import refuses

MADE: dict[str, Any] = {"features": "pixels", "delta": 1e-4, "seed": 0}


def released(epsilon: float, **more: Any) -> pm.Release:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pm.release(embedded_digits("train"), epsilon=epsilon, **{"design": "moments", **MADE, **more})


@pytest.fixture(scope="module")
def release() -> pm.Release:
    return released(8)


@pytest.fixture(scope="module")
def found(release: pm.Release) -> pm.ClassPictures:
    made = pm.picture(release)
    assert isinstance(made, pm.ClassPictures)
    return made


def true_means() -> np.ndarray:
    data = embedded_digits("train").read()
    return np.stack([data.x[data.y == place].mean(axis=0) for place in range(10)]).astype(float)


def alike(images: np.ndarray, others: np.ndarray) -> list[float]:
    return [np.corrcoef(one.ravel(), other.ravel())[0, 1] for one, other in zip(images, others, strict=True)]


def test_pixels_are_put_back(found: pm.ClassPictures) -> None:
    assert found.images.shape == (10, 8, 8)
    assert found.images.min() >= 0
    assert max(found.images.max(), found.as_likely.max()) == 1
    assert min(alike(found.images, true_means())) > 0.97
    assert set(found.words) == {"clear"}
    assert np.abs(found.images - found.as_likely).max() > 0.005, "what is not known is shown"


def test_heavy_noise_shows_nothing_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    noise = released(0.05)
    drowned = pm.picture(noise)
    assert set(drowned.words) == {"nothing"}
    assert drowned.sure.max() == 0
    assert isinstance(drowned, pm.ClassPictures)
    assert np.ptp(drowned.images, axis=0).max() == 0, "one picture for all: what they have in common"
    folder = noise.save(tmp_path / "REL")
    assert run(["picture", str(folder), "--record", str(tmp_path / "RUN")]) == 0
    assert "nothing can be seen" in capsys.readouterr().err
    assert pm.report([folder, tmp_path / "RUN"]).page.count("No class can be seen") == 1


def test_other_features_are_led_back_to_images() -> None:
    """Letters and digits of 8 x 8 points are too small for scattering; doubled they are not."""
    data = embedded_digits("train").read()
    x = data.x.repeat(2, axis=1).repeat(2, axis=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = pm.release(
            (x, data.y), classes=range(10), features="scattering", design=pm.designs.Classwise(full_batch=True),
            epsilon=20, delta=1e-4, seed=0,
        )  # fmt: skip
    seen = pm.picture(made, steps=100)
    assert isinstance(seen, pm.ClassPictures)
    assert seen.images.shape == (10, 16, 16)
    means = true_means().repeat(2, axis=1).repeat(2, axis=2)
    assert np.mean(alike(seen.images, means)) > 0.4
    again = pm.picture(made, steps=100)
    assert isinstance(again, pm.ClassPictures)
    assert np.array_equal(seen.images, again.images)


def test_no_private_data_are_read_and_no_budget_is_spent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder alone is enough, to the bit: the data are gone, opening any would fail, the ledger is as it was."""
    data = embedded_digits("train").read()
    private = tmp_path / "private.npz"
    np.savez(private, x=data.x, y=data.y)
    book = pm.Ledger.create(f"sqlite:///{tmp_path}/ledger.db")
    book.add_dataset("digits", epsilon=8, delta=1e-4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = pm.release(
            private, classes=10, features="pixels", design="moments", epsilon=8, delta=1e-4,
            out=tmp_path / "REL", ledger=book, dataset="digits",
        )  # fmt: skip
    before, spent = pm.picture(made), book.budget("digits")
    private.unlink()
    shutil.move(tmp_path / "REL", tmp_path / "elsewhere")

    def opened(*_: Any, **__: Any) -> None:
        raise AssertionError("data were opened")

    monkeypatch.setattr("privmix.jobs.dataset.open_dataset", opened)
    monkeypatch.setattr("privmix.jobs.features.features_in_memory", opened)
    after = pm.picture(tmp_path / "elsewhere")
    assert isinstance(before, pm.ClassPictures)
    assert isinstance(after, pm.ClassPictures)
    assert np.array_equal(before.images, after.images)
    assert np.array_equal(before.as_likely, after.as_likely)
    assert book.budget("digits") == spent
    assert not after.measurement.private


def test_a_notebook_shows_the_images(found: pm.ClassPictures) -> None:
    tree = ElementTree.fromstring(found._repr_html_())
    drawn = [one.get("href", "") for one in tree.iter("image")]
    assert len(drawn) == 10
    assert all(address.startswith("data:image/png;base64,") for address in drawn)
    first = Image.open(io.BytesIO(base64.b64decode(drawn[0].partition(",")[2])))
    np.testing.assert_allclose(np.asarray(first) / 255, found.images[0], atol=0.01)
    assert "10 clearly" in repr(found)


def test_command_line_record_figure_and_report(
    release: pm.Release, found: pm.ClassPictures, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, kept = release.save(tmp_path / "REL"), tmp_path / "RUN"
    assert run(["picture", str(folder), "--record", str(kept)]) == 0
    said = capsys.readouterr().out
    assert "no private record was read" in " ".join(said.split())
    assert (kept / "classes.png").read_bytes().startswith(b"\x89PNG")
    page = pm.report([folder, kept]).page
    assert "Pictures of the classes" in page
    assert page.count("data:image/png") == 20
    assert run(["picture", str(folder), "--figure", str(folder / "classes.png")]) == 2
    assert "shared with others" in capsys.readouterr().err
    assert run(["picture", str(folder), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["seen"] == list(found.words)
    assert "images" not in told


def texts_release() -> Any:
    """Counts of letters: "bad_cafe" has a, b, c, d, e, f; "egg" has e and g."""
    x = np.zeros((200, 10), np.float32)
    labels = np.arange(200) % 2
    x[labels == 0, :6], x[labels == 1, 4], x[labels == 1, 6] = 0.4, 0.5, 0.8
    x += np.random.default_rng(0).normal(0, 0.02, x.shape).astype(np.float32)
    return pm.release(
        (x, labels), classes=["bad_cafe", "egg"], features="identity", design=pm.designs.Moments(), epsilon=50,
        delta=1e-3, seed=0,
    )  # fmt: skip


def test_texts_are_ranked_by_class(monkeypatch: pytest.MonkeyPatch) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = texts_release()
    monkeypatch.setattr("privmix.features.spec.from_spec", lambda *_, **__: Letters())
    texts = ["an egg, an egg", "bad cafe", "hij", "egg egg egg", "faded cab"]
    seen = pm.picture(made, public_texts=texts)
    assert isinstance(seen, pm.ClassTexts)
    assert {text for text, _ in seen.nearest("egg", 2)} == {"an egg, an egg", "egg egg egg"}
    assert {text for text, _ in seen.nearest("bad_cafe", 2)} == {"bad cafe", "faded cab"}
    assert len(seen.nearest("egg")) == 3
    np.testing.assert_allclose(seen.probabilities.sum(axis=0), 1)
    page = pm.report([made, seen]).page
    assert "nearest public texts" in page
    assert "faded cab" in page
    assert "egg egg egg" in repr(seen) + str(seen.to_dict())
    with refuses("class"):
        seen.nearest("dog")
    with refuses("public_texts"):
        pm.picture(made)
    with refuses("figure"):
        pm.picture(made, public_texts=texts, figure="a.png")


def test_what_has_no_picture_is_refused(release: pm.Release, tmp_path: Path) -> None:
    with refuses("public_texts"):
        pm.picture(release, public_texts=["a"])
    with refuses("seed"):
        pm.picture(release, seed=-1)
    with refuses("figure"):
        pm.picture(release, figure=tmp_path / "a.txt")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        numbers = pm.release(
            (np.random.default_rng(0).normal(size=(200, 3)), np.arange(200) % 2), features="identity", classes=2,
            design=pm.designs.Moments(), epsilon=8, delta=1e-3, seed=0,
        )  # fmt: skip
    with refuses("inputs of the release"):
        pm.picture(numbers)
