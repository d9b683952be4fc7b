"""Names and descriptions of classes: read with care, put where the records went, and said in the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from privmix.errors import InvalidInput, StorageError
from privmix.features.base import Extractor
from privmix.features.identity import Pixels
from privmix.jobs.class_texts import class_prior, class_texts
from privmix.publication.dataset import RecordTransform, ReleasedDataset
from tests.cli.datasets import CLASSES, evaluate, release, tiny_texts
from tests.cli.helpers import privmix
from tests.refusals import refuses


class Letters(Extractor):
    """How often each of ten letters is in a text."""

    def check_schema(self, schema: Any) -> None:
        assert schema.columns == ("text",)

    def output_dim(self, input_shape: tuple[int, ...]) -> int:
        return 10

    def transform(self, x: NDArray[Any]) -> NDArray[np.float32]:
        return np.array([[text.count(letter) for letter in "abcdefghij"] for text in x[:, 0]], np.float32)


def released() -> ReleasedDataset:
    return ReleasedDataset(
        x=np.zeros((1, 10), np.float32),
        y=np.zeros((1, 2), np.float32),
        design="moments",
        mixup_degree=1,
        noise_std_x=0.0,
        noise_std_y=0.0,
        label_offset=0.5,
        classes=("bad_cafe", "egg"),
        transform=RecordTransform(1.0, centre=np.full(10, 0.1, np.float32), residual_clip_norm=0.7),
        extractor={"name": "letters"},
        input_shape=(1,),
        release_id="test",
    )


def test_points_go_where_records_went() -> None:
    given = {"egg": "an egg", "bad_cafe": ["a bad cafe", "dead decaf"]}
    prior = class_prior(released(), given, Letters())
    clipped = []
    for text in ("a bad cafe", "dead decaf", "an egg"):
        counts = np.array([text.count(letter) for letter in "abcdefghij"], float)
        left = counts / max(1.0, np.linalg.norm(counts)) - 0.1
        clipped.append(left * min(1.0, 0.7 / np.linalg.norm(left)))
    np.testing.assert_allclose(prior.means, [np.mean(clipped[:2], axis=0), clipped[2]], atol=1e-6)
    assert prior.source["from"] == "descriptions"
    assert prior.source["texts"] == 3
    # The same texts have the same digest whatever their order; others have another.
    again = class_prior(released(), dict(sorted(given.items())), Letters()).source
    assert again == prior.source
    assert class_prior(released(), {**given, "egg": "eggs"}, Letters()).source["sha256"] != prior.source["sha256"]


def test_names_alone_are_put_into_sentences() -> None:
    prior = class_prior(released(), "names", Letters())
    assert prior.source["from"] == "names"
    assert class_texts("names", ("bad_cafe", "egg"))["bad_cafe"][1] == "bad cafe."
    with refuses("class_descriptions"):
        class_texts("names", ("0", "1"))


@pytest.mark.parametrize("name", ["given.json", "given.csv"])
def test_files(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name.endswith("json"):
        path.write_text(json.dumps({"cat": "It purrs.", "dog": ["It barks.", "It, too, eats."]}))
    else:
        path.write_text('class,description\ncat,It purrs.\ndog,It barks.\ndog,"It, too, eats."\n')
    expected = {"cat": ("It purrs.",), "dog": ("It barks.", "It, too, eats.")}
    assert class_texts(path, ("cat", "dog")) == expected
    assert class_texts(str(path), ("cat", "dog")) == expected


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"cat": "a"}, "no text for class dog"),
        ({"cat": "a", "dog": "b", "cow": "c"}, "got 'cow'"),
        ({"cat": "a", "dog": " "}, "for class dog"),
        ({"cat": "a", "dog": ["b", 3]}, "got 3"),
        ({"cat": "a", "dog": "b" * 2001}, "texts of 1 to 2,000 characters"),
        ({"cat": "a", "dog": ["b"] * 101}, "a list of 1 to 100"),
        (["a", "b"], "a mapping from classes to texts"),
    ],
)
def test_what_is_no_description_of_each_class_is_one_line(given: Any, words: str) -> None:
    with refuses("class_descriptions") as error:
        class_texts(given, ("cat", "dog"))
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.json", b"[1]", "a JSON object"),
        ("a.json", b"{", "class_descriptions"),
        ("a.csv", b"class,text\n", "the columns class and description"),
        ("a.csv", b"class,description\ncat\n", "2 values a row"),
        ("a.csv", b"class,description\ncat,\xff\n", "a CSV file in UTF-8"),
        ("a.csv", b'class,description\ncat,"a\n', "a CSV file in UTF-8"),
    ],
)
def test_files_that_are_something_else(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidInput, match=words):
        class_texts(tmp_path / name, ("cat", "dog"))


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="class_descriptions"):
        class_texts(tmp_path / "none.json", ("cat", "dog"))
    (tmp_path / "link.json").symlink_to(tmp_path / "else.json")
    with refuses("class_descriptions"):
        class_texts(tmp_path / "link.json", ("cat", "dog"))


def test_a_release_of_something_else_is_refused() -> None:
    with refuses("class_descriptions"):
        class_prior(released(), "names", Pixels())


def test_from_the_command_line(tmp_path: Path) -> None:
    data = tiny_texts(tmp_path)
    out, model, given = tmp_path / "REL", tmp_path / "MODEL", tmp_path / "given.json"
    assert release(data, out).code == 0
    given.write_text(json.dumps({CLASSES[0]: "all is well", CLASSES[1]: "ill and worse"}))
    own = ("--features-model", data.notes["model"])
    told = ("--class-descriptions", str(given), *own)
    outcome = privmix("fit", out, "--out", model, *told).passed()
    assert "class texts count" in outcome.out
    found = json.loads((model / "model.json").read_text())
    assert found["learner"] == "discriminant"
    assert found["class_texts"]["texts"] == 2
    assert len(found["class_texts"]["sha256"]) == 64
    assert evaluate(data, model, *own).code == 0
    privmix("fit", out, "--out", model, "--overwrite", "--class-descriptions", "names", *own).passed()
    outcome = privmix("fit", out, "--out", tmp_path / "NONE", *told, "--learner", "noise-aware-ridge")
    assert outcome.code == 2
    assert "--class-descriptions" in outcome.err
    assert not (tmp_path / "NONE").exists()
