"""Pools by a text-to-image pipeline: a tiny one with random weights, saved in a folder as diffusers saves them."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from privmix.data import open_dataset
from privmix.research.synthesis.text_to_image import TextToImage
from tests.cli.helpers import privmix, refused
from tests.refusals import refuses

diffusers = pytest.importorskip("diffusers")
transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    letters = "abcdefghijklmnopqrstuvwxyz"
    tokens = [*letters, *(f"{letter}</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
    vocabulary = {token: place for place, token in enumerate(tokens)}
    begin, end = vocabulary["<|startoftext|>"], vocabulary["<|endoftext|>"]
    words = {"vocab_size": len(vocabulary), "max_position_embeddings": 32, "hidden_size": 16, "intermediate_size": 16}
    words |= {"num_hidden_layers": 1, "num_attention_heads": 2}
    words |= {"bos_token_id": begin, "eos_token_id": end, "pad_token_id": end}
    blocks = {"down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"), "block_out_channels": (8, 16)}
    blocks |= {"up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D"), "layers_per_block": 1}
    blocks |= {"norm_num_groups": 4, "cross_attention_dim": 16, "attention_head_dim": 4}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = diffusers.StableDiffusionPipeline(
            unet=diffusers.UNet2DConditionModel(sample_size=8, **blocks),
            vae=diffusers.AutoencoderKL(block_out_channels=(8,), latent_channels=4, norm_num_groups=4),
            scheduler=diffusers.DDIMScheduler(clip_sample=False, steps_offset=1),
            text_encoder=transformers.CLIPTextModel(transformers.CLIPTextConfig(**words)),
            tokenizer=transformers.CLIPTokenizer(vocab=vocabulary, merges=[], model_max_length=32),
            safety_checker=None,
            feature_extractor=None,
            requires_safety_checker=False,
        )
    place = tmp_path_factory.mktemp("models") / "tiny-text"
    made.save_pretrained(place)
    return place


def test_an_image_is_its_own_and_depends_on_its_class(pipeline: Path) -> None:
    found = TextToImage.load(pipeline, "a photo of a {class}", ["cat", "dog"], side=8, steps=2, batch_size=4)
    labels = np.array([0, 1, 0, 1])
    together = np.concatenate(list(found.draw(labels)))
    assert together.shape == (4, 8, 8, 3)
    assert together.dtype == np.uint8
    later = np.concatenate(list(found.draw(labels[2:], first=2)))
    # Rounding inside the pipeline may move a pixel by one level.
    assert np.abs(together[2:].astype(int) - later.astype(int)).max() <= 1
    swapped = np.concatenate(list(found.draw(1 - labels)))
    assert not np.array_equal(together, swapped)


def test_a_pool_from_class_names(pipeline: Path, tmp_path: Path) -> None:
    done = privmix(
        *("synthesise", "--text", "a photo of a {class}", "--model", str(pipeline), "--classes", "cat,dog"),
        *("--image-size", "12", "--colour", "grey", "--images", "4", "--sampler-steps", "2", "--draw-batch", "4"),
        *("--out", str(tmp_path / "POOL"), "--json"),
    )
    assert done.code == 0, done.err
    assert json.loads(done.out)["fid"] is None
    source = open_dataset(tmp_path / "POOL")
    assert source.schema.input_shape == (12, 12)
    assert source.schema.classes == ("cat", "dog")
    card = json.loads((tmp_path / "POOL" / "card.json").read_text())
    assert card["model"]["pipeline"] == "tiny-text"
    assert str(pipeline) not in json.dumps(card)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--text", "a photo", "--model", "X", "--classes", "cat,dog", "--image-size", "8"], "{class}"),
        (["--text", "a {class}", "--classes", "cat,dog", "--image-size", "8"], "--model"),
        (["--text", "a {class}", "--model", "X", "--classes", "cat,dog"], "--image-size"),
        (["--text", "a {class}", "--model", "nowhere", "--classes", "cat,dog", "--image-size", "8"], "nowhere"),
        (["--text", "a {class}", "--public", "p.npz"], "--public"),
        ([], "--public"),
    ],
)
def test_wrong_requests_leave_nothing(tmp_path: Path, arguments: list[str], said: str) -> None:
    refused(privmix("synthesise", *arguments, "--out", str(tmp_path / "POOL")), said)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("program", ["pipeline.py", "unet/own.py"])
def test_programs_beside_the_weights_are_refused(pipeline: Path, tmp_path: Path, program: str) -> None:
    """In whatever version of diffusers: it is not asked at all."""
    copied, ran = tmp_path / "copied", tmp_path / "ran"
    shutil.copytree(pipeline, copied)
    (copied / program).write_text(f"open({str(ran)!r}, 'w')\n")
    with refuses("model"):
        TextToImage.load(copied, "a {class}", ["cat"], side=8)
    (copied / program).rename(tmp_path / "own.py")
    (copied / "more").symlink_to(tmp_path)
    with refuses("model"):
        TextToImage.load(copied, "a {class}", ["cat"], side=8)
    assert not ran.exists()
