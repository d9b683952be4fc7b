"""Tiny models with random weights, saved as the libraries save real ones."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from privmix.features.base import Extractor

LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *LETTERS, *(f"##{letter}" for letter in LETTERS)]


def check_per_record(extractor: Extractor, x: Any, draws: int = 3) -> Any:
    """Formal guarantee: a row has the same bits alone, repeated, in any order, and beside any other rows."""
    whole = extractor.transform(x)
    rng = np.random.default_rng(0)
    for _ in range(draws):
        rows = rng.choice(len(x), rng.integers(1, 2 * len(x)))
        assert np.array_equal(extractor.transform(x[rows]), whole[rows])
    assert np.array_equal(extractor.transform(x[::-1]), whole[::-1])
    for row in range(len(x)):
        assert np.array_equal(extractor.transform(x[row : row + 1])[0], whole[row])
    assert np.array_equal(extractor.extract(x, batch_size=4), whole)
    return whole


def check_where_places_matter(encoder: Any, x: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine whose kernels sum in another order at some places of a call, records are encoded one by one."""
    forward = encoder._forward

    def uneven(*given: Any) -> Any:
        found = forward(*given).clone()
        found[3:] *= 1 + 2.0**-20
        return found

    monkeypatch.setattr(encoder, "_forward", uneven)
    whole = encoder.transform(x)
    assert np.array_equal(encoder.transform(x[::-1]), whole[::-1])
    assert all(np.array_equal(encoder.transform(x[row : row + 1])[0], whole[row]) for row in range(len(x)))


def save_vision(kind: str, folder: Path) -> Path:
    import transformers as t

    torch.manual_seed(0)
    small: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    vit = {**small, "intermediate_size": 64, "image_size": 32, "patch_size": 8}
    text = {**small, "intermediate_size": 64, "vocab_size": 99, "bos_token_id": 1, "eos_token_id": 2}
    makers: dict[str, Any] = {
        # Saved with a classifier, as on the hub: the pooler's weights are not there.
        "vit": lambda: t.ViTForImageClassification(t.ViTConfig(**vit)),
        "clip": lambda: t.CLIPModel(t.CLIPConfig(text_config=text, vision_config=vit, projection_dim=16)),
        "dinov2": lambda: t.Dinov2Model(t.Dinov2Config(**small, image_size=56, patch_size=14)),
        "convnext": lambda: t.ConvNextModel(t.ConvNextConfig(hidden_sizes=[8, 16, 16, 24], depths=[1, 1, 1, 1])),
        "resnet": lambda: t.ResNetModel(
            t.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16, 16, 24], depths=[1, 1, 1, 1], layer_type="basic")
        ),
    }
    makers[kind]().save_pretrained(folder)
    return folder


def save_text(folder: Path) -> Path:
    """A sentence encoder of width 32 that spells words."""
    import transformers as t
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    torch.manual_seed(0)
    raw = folder.with_name(folder.name + "-raw")
    raw.mkdir()
    (raw / "vocab.txt").write_text("\n".join(WORDS))
    tokenizer = t.BertTokenizer(str(raw / "vocab.txt"))
    config = t.BertConfig(
        vocab_size=len(WORDS), hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
    )
    t.BertModel(config).save_pretrained(raw)
    tokenizer.save_pretrained(raw)
    word = Transformer(str(raw), max_seq_length=64)
    SentenceTransformer(modules=[word, Pooling(32)], device="cpu").save(str(folder))
    return folder
