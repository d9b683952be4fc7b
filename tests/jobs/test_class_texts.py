"""Names and descriptions of classes: read with care, put where the records went, and said in the model."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from privmix.errors import InvalidInput, StorageError
from privmix.features.base import Extractor
from privmix.features.identity import Pixels
from privmix.jobs.fitting import class_prior, class_texts
from privmix.publication.dataset import RecordTransform, ReleasedDataset
from tests.cli.helpers import privmix, refused
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
    transform = RecordTransform(1.0, centre=np.full(10, 0.1, np.float32), residual_clip_norm=0.7)
    noise = {"noise_std_x": 0.0, "noise_std_y": 0.0, "label_offset": 0.5}
    facts = {"design": "moments", "mixup_degree": 1, "classes": ("bad_cafe", "egg"), "extractor": {"name": "letters"}}
    rows = {"x": np.zeros((1, 10), np.float32), "y": np.zeros((1, 2), np.float32)}
    return ReleasedDataset(**rows, **noise, **facts, transform=transform, input_shape=(1,), release_id="test")


def test_points_go_where_records_went() -> None:
    given = {"egg": "an egg", "bad_cafe": ["a bad cafe", "dead decaf"]}
    prior = class_prior(released(), given, Letters())
    clipped = []
    for counts in Letters().transform(np.array([["a bad cafe"], ["dead decaf"], ["an egg"]])).astype(float):
        left = counts / max(1.0, np.linalg.norm(counts)) - 0.1
        clipped.append(left * min(1.0, 0.7 / np.linalg.norm(left)))
    np.testing.assert_allclose(prior.means, [np.mean(clipped[:2], axis=0), clipped[2]], atol=1e-6)
    assert (prior.source["from"], prior.source["texts"]) == ("descriptions", 3)
    # The same texts have the same digest whatever their order; others have another.
    orders = dict(sorted(given.items())), {**given, "egg": "eggs"}
    again, other = (class_prior(released(), one, Letters()) for one in orders)
    assert again.source == prior.source
    assert other.source["sha256"] != prior.source["sha256"]


def test_names_alone_are_put_into_sentences() -> None:
    prior = class_prior(released(), "names", Letters())
    assert prior.source["from"] == "names"
    assert class_texts("names", ("bad_cafe", "egg"))["bad_cafe"][1] == "bad cafe."
    with refuses("class_descriptions"):
        class_texts("names", ("0", "1"))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("given.json", json.dumps({"cat": "It purrs.", "dog": ["It barks.", "It, too, eats."]})),
        ("given.csv", 'class,description\ncat,It purrs.\ndog,It barks.\ndog,"It, too, eats."\n'),
    ],
)
def test_files(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    for path in (tmp_path / name, str(tmp_path / name)):
        assert class_texts(path, ("cat", "dog")) == {"cat": ("It purrs.",), "dog": ("It barks.", "It, too, eats.")}


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
        (("a.json", b"[1]"), "a JSON object"),
        (("a.json", b"{"), "class_descriptions"),
        (("a.csv", b"class,text\n"), "the columns class and description"),
        (("a.csv", b"class,description\ncat\n"), "2 values a row"),
        (("a.csv", b"class,description\ncat,\xff\n"), "a CSV file in UTF-8"),
        (("a.csv", b'class,description\ncat,"a\n'), "a CSV file in UTF-8"),
    ],
)
def test_what_is_no_description_of_each_class_is_one_line(given: Any, words: str, tmp_path: Path) -> None:
    if isinstance(given, tuple):
        name, content = given
        given = tmp_path / name
        given.write_bytes(content)
    with pytest.raises(InvalidInput, match=words) as error:
        class_texts(given, ("cat", "dog"))
    assert "\n" not in str(error.value)


def test_what_is_not_there_or_of_something_else(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="class_descriptions"):
        class_texts(tmp_path / "none.json", ("cat", "dog"))
    (tmp_path / "link.json").symlink_to(tmp_path / "else.json")
    with refuses("class_descriptions"):
        class_texts(tmp_path / "link.json", ("cat", "dog"))
    with refuses("class_descriptions"):
        class_prior(released(), "names", Pixels())


def test_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sentence_transformers", reason="texts need privmix[text]")
    from tests.features.models import save_text

    monkeypatch.chdir(tmp_path)
    encoder, rng = save_text(tmp_path / "tiny-model"), np.random.default_rng(2)
    words = (["zoo", "zebra", "buzz", "jazz"], ["mama", "anna", "hello", "nine"])
    Path("own").mkdir()
    for split, count in (("train", 240), ("test", 80)):
        lines = [f"{' '.join(rng.choice(words[row % 2], 4))},{('well', 'ill')[row % 2]}" for row in range(count)]
        Path(f"own/{split}.csv.gz").write_bytes(gzip.compress("\n".join(["note,state", *lines]).encode()))
    data = ("--data", "own", "--columns", "note", "--label-column", "state")
    budget = ("--design", "moments", "--rows", "40", "--epsilon", "30", "--delta", "1e-3", "--classes", "well,ill")
    privmix("release", *data, "--features", f"text:{encoder}", *budget, "--out", "REL").passed()
    Path("given.json").write_text(json.dumps({"well": "all is well", "ill": "ill and worse"}))
    own = ("--features-model", encoder)
    told = ("--class-descriptions", "given.json", *own)
    assert "class texts count" in privmix("fit", "REL", "--out", "MODEL", *told).passed().out
    found = json.loads(Path("MODEL/model.json").read_text())
    assert (found["learner"], found["class_texts"]["texts"]) == ("discriminant", 2)
    assert len(found["class_texts"]["sha256"]) == 64
    # Where the encoder lies is the owner's business, and so has to be said again.
    refused(privmix("evaluate", "MODEL", *data), "model")
    assert privmix("evaluate", "MODEL", *data, *own, "--json").json()["accuracy"] > 0.85
    privmix("fit", "REL", "--out", "MODEL", "--overwrite", "--class-descriptions", "names", *own).passed()
    refused(privmix("fit", "REL", "--out", "NONE", *told, "--learner", "noise-aware-ridge"), "--class-descriptions")
    assert not Path("NONE").exists()
