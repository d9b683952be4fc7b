"""Models whose description asks for more than their weights, and files that are not what they seem."""

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.hostile.corpus import Make, World, case, cases, certify, digest, edit

FITTED = {"inspect", "evaluate", "membership", "report"}
TRAINED = {"verify", "inspect", "evaluate", "audit", "canaries", "membership", "report", "export"}
RELEASE = {"verify", "fit"}
DEEP = "[" * 200_000 + "]" * 200_000
LONG = "9" * 6_000


def describe(folder: Path, network: dict[str, Any]) -> None:
    """Another network in a trained model's description and in its certificate."""
    edit(folder / "model.json", lambda found: found.update(network=network))
    certify(folder, lambda found: found["settings"].update(network=network))


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


def spoil(name: str, make: Callable[[Path], object]) -> Make:
    def spoiled(_: World, folder: Path) -> None:
        (folder / name).unlink()
        make(folder / name)

    return spoiled


def replaced(name: str, old: str, new: str) -> Make:
    def replace(_: World, folder: Path) -> None:
        (folder / name).write_text((folder / name).read_text().replace(old, new, 1))

    return replace


def linked(world: World, folder: Path, name: str) -> None:
    """The file is a link to the very file, so that all but the link is right."""
    kept = world.root / "home" / f"{folder.parent.name}-{Path(name).name}"
    (folder / name).rename(kept)
    world.bait(kept)
    (folder / name).symlink_to(kept)


def header(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the header of a safetensors file."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    found = json.loads(content[8 : 8 + length])
    change(found)
    text = json.dumps(found).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length :])


NAMES = [str(number) for number in range(25_000)]
PARAMS = {"model": "linear", "epochs": 1, "batch_size": 1, "learning_rate": 0.1, "seed": 0}
HUGE = {"dim": 10**9, "input_shape": [10**9], "learner": "generalized-kl", "params": PARAMS}
DEEP_RESNET = {"architecture": "wide-resnet", "channels_in": 1, "classes": 10, "depth": 60_004, "width": 1, "groups": 1}
LINEAR = {"architecture": "linear", "norm": None}
CODE = {"AutoModelForImageClassification": "evil/model--net.Net", "AutoConfig": "evil/model--net.Config"}
KERNEL = {"attn_implementation": "evil/kernel", "_attn_implementation": "evil/kernel"}
WEIGHTS = "weights.safetensors"
cases(
    "trained",
    TRAINED,
    trained_model_of_a_hundred_gigabytes=lambda _, at: describe(at, {**LINEAR, "dim": 60_000, "classes": 60_000}),
    trained_model_of_absurd_sizes=lambda _, at: describe(at, {**LINEAR, "dim": 10**30, "classes": 10**30}),
    trained_model_of_endless_layers=lambda _, at: describe(at, DEEP_RESNET),
    trained_model_of_a_module_with_weights_of_others=lambda _, at: own(at),
    trained_model_of_a_module_in_a_shape_that_fills_memory=lambda _, at: own(at, record_shape=[2**31] * 8),
    trained_model_of_a_module_with_free_text=lambda _, at: own(at, initial_sha256="private " * 100),
    trained_model_with_code_on_the_hub=lambda _, at: describe(at, pretrained(auto_map=CODE, trust_remote_code=True)),
    trained_model_with_attention_from_the_hub=lambda _, at: describe(at, pretrained(**KERNEL)),
    trained_model_of_another_library=lambda _, at: describe(
        at, pretrained(model_type="timm_wrapper", architecture="hf-hub:evil/model")
    ),
    trained_model_with_images_that_fill_memory=lambda _, at: describe(
        at, {**pretrained(), "height": 60_000, "width": 60_000}
    ),
    trained_weights_that_are_a_link=lambda world, at: linked(world, at, WEIGHTS),
    trained_certificate_that_is_a_link=lambda world, at: linked(world, at, "certificate.json"),
    trained_weights_that_are_a_pipe=spoil(WEIGHTS, os.mkfifo),
    trained_description_of_nested_lists=lambda _, at: (at / "model.json").write_text(
        '{"format": "privmix-trained-model", "classes": ' + DEEP + "}"
    ),
    trained_certificate_of_nested_lists=lambda _, at: (at / "certificate.json").write_text(DEEP),
    trained_certificate_with_an_endless_number=replaced("certificate.json", '"delta"', f'"more": {LONG}, "delta"'),
)
cases(
    "fitted",
    FITTED,
    fitted_model_of_ten_gigabytes=lambda _, at: edit(
        at / "model.json", lambda found: found.update(dim=10**5, input_shape=[10**5], classes=NAMES)
    ),
    fitted_network_of_ten_gigabytes=lambda _, at: edit(at / "model.json", lambda found: found.update(HUGE)),
    description_that_is_a_link=lambda world, at: linked(world, at, "model.json"),
    weights_that_are_a_link=lambda world, at: linked(world, at, WEIGHTS),
    description_that_is_a_pipe=spoil("model.json", os.mkfifo),
    description_that_is_a_device=spoil("model.json", lambda path: path.symlink_to("/dev/zero")),
    description_of_nested_lists=lambda _, at: (at / "model.json").write_text(DEEP),
    description_with_an_endless_number=replaced("model.json", '"dim": 64', f'"dim": {LONG}'),
    description_with_numbers_that_are_none=lambda _, at: edit(
        at / "model.json", lambda found: found["transform"].update(clip_norm=float("nan"))
    ),
    description_of_a_gigabyte=spoil("model.json", lambda path: (path.touch(), os.truncate(path, 2**30))),
    weights_with_a_header_larger_than_the_file=lambda _, at: (at / WEIGHTS).write_bytes(
        struct.pack("<Q", 2**62) + (at / WEIGHTS).read_bytes()[8:]
    ),
    weights_whose_arrays_overlap=lambda _, at: header(
        at / WEIGHTS, lambda found: found.update(copy=dict(found["coef"]))
    ),
    weights_with_a_shape_of_a_terabyte=lambda _, at: header(
        at / WEIGHTS, lambda found: found["coef"].update(shape=[10**6, 10**6])
    ),
    weights_with_free_text=lambda _, at: header(
        at / WEIGHTS, lambda found: found.update(__metadata__={"private": "x" * 1000})
    ),
)


@case("trained", refused=TRAINED)
def trained_weights_that_are_a_pickle(world: World, folder: Path) -> None:
    import torch

    from tests.hostile.planted import Payload

    torch.save(Payload(world.proof), folder / "weights.safetensors")
    certify(folder, lambda found: found["files"][0].update(sha256=digest(folder / "weights.safetensors")))
