"""Models whose description asks for more than their weights, and files that are not what they seem."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.hostile.corpus import World, case, certify, digest, edit

FITTED = {"inspect", "evaluate", "membership", "report"}
TRAINED = {"verify", "inspect", "evaluate", "audit", "canaries", "membership", "report", "export"}
RELEASE = {"verify", "fit"}
DEEP = "[" * 200_000 + "]" * 200_000
LONG = "9" * 6_000


def describe(folder: Path, network: dict[str, Any]) -> None:
    """Another network in a trained model's description and in its certificate."""
    edit(folder / "model.json", lambda found: found.update(network=network))
    certify(folder, lambda found: found["settings"].update(network=network))


@case("trained", refused=TRAINED)
def trained_model_of_a_hundred_gigabytes(world: World, folder: Path) -> None:
    describe(folder, {"architecture": "linear", "dim": 60_000, "classes": 60_000, "norm": None})


@case("trained", refused=TRAINED)
def trained_model_of_absurd_sizes(world: World, folder: Path) -> None:
    describe(folder, {"architecture": "linear", "dim": 10**30, "classes": 10**30, "norm": None})


@case("trained", refused=TRAINED)
def trained_model_of_endless_layers(world: World, folder: Path) -> None:
    spec = {"architecture": "wide-resnet", "channels_in": 1, "classes": 10, "depth": 60_004, "width": 1, "groups": 1}
    describe(folder, spec)


def own(folder: Path, **more: Any) -> None:
    """A network of a stranger's own, with whatever else its description says."""
    known = {"classes": 10, "takes_images": False, "initial_sha256": "0" * 64}
    describe(folder, {"architecture": "module", **known, **more})


@case("trained", refused=TRAINED)
def trained_model_of_a_list_of_operations(world: World, folder: Path) -> None:
    steps = [["aten.from_file.default", ["s:proof", True, 8], {}]]
    said = {"format": "privmix-network", "schema_version": 1, "arrays": {}, "steps": steps, "output": "%0"}
    (folder / "network.json").write_text(json.dumps(said))
    own(folder, graph_sha256=digest(folder / "network.json"))


@case("trained", refused=TRAINED)
def trained_model_of_a_module_with_weights_of_others(world: World, folder: Path) -> None:
    own(folder)


@case("trained", refused=TRAINED)
def trained_model_of_a_module_in_a_shape_that_fills_memory(world: World, folder: Path) -> None:
    own(folder, record_shape=[2**31] * 8)


@case("trained", refused=TRAINED)
def trained_model_of_a_module_with_free_text(world: World, folder: Path) -> None:
    own(folder, initial_sha256="private " * 100)


def pretrained(**config: Any) -> dict[str, Any]:
    small = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    return {
        "architecture": "transformers",
        "config": {"model_type": "vit", **small, "image_size": 8, "patch_size": 8, **config},
        "channels_in": 1,
        "height": 8,
        "width": 8,
        "classes": 10,
        "side": 8,
        "frozen": False,
        "mean": [0.5] * 3,
        "std": [0.5] * 3,
    }


@case("trained", refused=TRAINED)
def trained_model_with_code_on_the_hub(world: World, folder: Path) -> None:
    code = {"AutoModelForImageClassification": "evil/model--net.Net", "AutoConfig": "evil/model--net.Config"}
    describe(folder, pretrained(auto_map=code, trust_remote_code=True))


@case("trained", refused=TRAINED)
def trained_model_with_attention_from_the_hub(world: World, folder: Path) -> None:
    describe(folder, pretrained(attn_implementation="evil/kernel", _attn_implementation="evil/kernel"))


@case("trained", refused=TRAINED)
def trained_model_of_another_library(world: World, folder: Path) -> None:
    describe(folder, pretrained(model_type="timm_wrapper", architecture="hf-hub:evil/model"))


@case("trained", refused=TRAINED)
def trained_model_with_images_that_fill_memory(world: World, folder: Path) -> None:
    describe(folder, {**pretrained(), "height": 60_000, "width": 60_000})


@case("fitted", refused=FITTED)
def fitted_model_of_ten_gigabytes(world: World, folder: Path) -> None:
    names = [str(number) for number in range(25_000)]
    edit(folder / "model.json", lambda found: found.update(dim=10**5, input_shape=[10**5], classes=names))


@case("fitted", refused=FITTED)
def fitted_network_of_ten_gigabytes(world: World, folder: Path) -> None:
    params = {"model": "linear", "epochs": 1, "batch_size": 1, "learning_rate": 0.1, "seed": 0}
    edit(
        folder / "model.json",
        lambda found: found.update(dim=10**9, input_shape=[10**9], learner="generalized-kl", params=params),
    )


def spoil(name: str, make: Callable[[Path], object]) -> Callable[[World, Path], None]:
    def spoiled(world: World, folder: Path) -> None:
        path = folder / name
        path.unlink()
        make(path)

    return spoiled


def linked(world: World, folder: Path, name: str) -> None:
    """The file is a link to the very file, so that all but the link is right."""
    kept = world.root / "home" / f"{folder.parent.name}-{Path(name).name}"
    (folder / name).rename(kept)
    world.bait(kept)
    (folder / name).symlink_to(kept)


@case("fitted", refused=FITTED)
def description_that_is_a_link(world: World, folder: Path) -> None:
    linked(world, folder, "model.json")


@case("fitted", refused=FITTED)
def weights_that_are_a_link(world: World, folder: Path) -> None:
    linked(world, folder, "weights.safetensors")


@case("trained", refused=TRAINED)
def trained_weights_that_are_a_link(world: World, folder: Path) -> None:
    linked(world, folder, "weights.safetensors")


@case("trained", refused=TRAINED)
def trained_certificate_that_is_a_link(world: World, folder: Path) -> None:
    linked(world, folder, "certificate.json")


@case("fitted", refused=FITTED)
def description_that_is_a_pipe(world: World, folder: Path) -> None:
    spoil("model.json", os.mkfifo)(world, folder)


@case("trained", refused=TRAINED)
def trained_weights_that_are_a_pipe(world: World, folder: Path) -> None:
    spoil("weights.safetensors", os.mkfifo)(world, folder)


@case("fitted", refused=FITTED)
def description_that_is_a_device(world: World, folder: Path) -> None:
    spoil("model.json", lambda path: path.symlink_to("/dev/zero"))(world, folder)


@case("fitted", refused=FITTED)
def description_of_nested_lists(world: World, folder: Path) -> None:
    (folder / "model.json").write_text(DEEP)


@case("trained", refused=TRAINED)
def trained_description_of_nested_lists(world: World, folder: Path) -> None:
    (folder / "model.json").write_text('{"format": "privmix-trained-model", "classes": ' + DEEP + "}")


@case("trained", refused=TRAINED)
def trained_certificate_of_nested_lists(world: World, folder: Path) -> None:
    (folder / "certificate.json").write_text(DEEP)


@case("fitted", refused=FITTED)
def description_with_an_endless_number(world: World, folder: Path) -> None:
    text = (folder / "model.json").read_text()
    (folder / "model.json").write_text(text.replace('"dim": 64', f'"dim": {LONG}'))


@case("trained", refused=TRAINED)
def trained_certificate_with_an_endless_number(world: World, folder: Path) -> None:
    text = (folder / "certificate.json").read_text()
    (folder / "certificate.json").write_text(text.replace('"delta"', f'"more": {LONG}, "delta"', 1))


@case("fitted", refused=FITTED)
def description_with_numbers_that_are_none(world: World, folder: Path) -> None:
    edit(folder / "model.json", lambda found: found["transform"].update(clip_norm=float("nan")))


@case("fitted", refused=FITTED)
def description_of_a_gigabyte(world: World, folder: Path) -> None:
    with (folder / "model.json").open("wb") as stream:
        stream.truncate(2**30)


def header(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the header of a safetensors file."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    found = json.loads(content[8 : 8 + length])
    change(found)
    text = json.dumps(found).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length :])


@case("fitted", refused=FITTED)
def weights_with_a_header_larger_than_the_file(world: World, folder: Path) -> None:
    path = folder / "weights.safetensors"
    path.write_bytes(struct.pack("<Q", 2**62) + path.read_bytes()[8:])


@case("fitted", refused=FITTED)
def weights_whose_arrays_overlap(world: World, folder: Path) -> None:
    def overlap(found: dict[str, Any]) -> None:
        found["copy"] = dict(found["coef"])

    header(folder / "weights.safetensors", overlap)


@case("fitted", refused=FITTED)
def weights_with_a_shape_of_a_terabyte(world: World, folder: Path) -> None:
    header(folder / "weights.safetensors", lambda found: found["coef"].update(shape=[10**6, 10**6]))


@case("fitted", refused=FITTED)
def weights_with_free_text(world: World, folder: Path) -> None:
    header(folder / "weights.safetensors", lambda found: found.update(__metadata__={"private": "x" * 1000}))


@case("trained", refused=TRAINED)
def trained_weights_that_are_a_pickle(world: World, folder: Path) -> None:
    import torch

    from tests.hostile.planted import Payload

    torch.save(Payload(world.proof), folder / "weights.safetensors")
    certify(folder, lambda found: found["files"][0].update(sha256=digest(folder / "weights.safetensors")))
