"""Extractors that a release or model names, so that something of the stranger's or the user's is opened."""

import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tests.hostile.corpus import Make, World, cases, certify, digest, edit
from tests.hostile.planted import Payload

NET = "net.pt2"
USES = {"evaluate", "membership"}
RELEASE_USES = {"collapse", "inversion"}


def program(world: World, path: Path) -> Path:
    """An exported program whose sample inputs are a pickle that calls os.system; nobody may open it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    network = torch.nn.Linear(64, 4).eval()
    torch.export.save(torch.export.export(network, (torch.zeros(1, 64),)), path)
    payload = path.with_name("payload")
    torch.save((Payload(world.proof),), payload)
    honest = path.with_name("honest")
    path.rename(honest)
    with zipfile.ZipFile(honest) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as new:
        for entry in old.infolist():
            inputs = "sample_inputs" in entry.filename
            new.writestr(entry.filename, payload.read_bytes() if inputs else old.read(entry))
    payload.unlink()
    honest.unlink()
    world.bait(path)
    return path


def module(model: str, path: Path) -> dict[str, Any]:
    """The spec of a network in a file, as privmix writes it."""
    options = {"model": model, "precision": "float32"}
    return {"name": "module", "version": 1, "options": options, "weights_sha256": digest(path)}


def give(kind: str, folder: Path, spec: dict[str, Any]) -> None:
    """Make ``spec`` the folder's extractor, with every hash computed anew."""
    if kind == "release":
        certify(folder, lambda found: found.update(extractor=spec))
        return
    edit(folder / "model.json", lambda found: found.update(extractor=spec))
    if kind == "trained":
        certify(folder, lambda found: found["settings"].update(extractor=spec))


def beside(kind: str, option: str = "model") -> Make:
    """A program beside the folder, by its absolute path, in this option."""

    def make(world: World, folder: Path) -> None:
        path = program(world, folder.parent / NET)
        spec = module(NET, path)
        spec["options"][option] = str(path)
        give(kind, folder, spec)

    return make


def placed(place: Callable[[World, Path], Path], model: Callable[[Path], str]) -> Make:
    """A program at a place, by some name."""

    def make(world: World, folder: Path) -> None:
        path = program(world, place(world, folder))
        give("fitted", folder, module(model(path), path))

    return make


cases(
    "fitted",
    USES,
    module_with_an_absolute_path=beside("fitted"),
    module_with_its_path_in_another_option=beside("fitted", "path"),
    module_with_a_relative_path=placed(lambda _, folder: folder.parent / NET, os.path.relpath),
    module_in_the_home_folder=placed(lambda world, _: world.root / "home" / "net" / NET, lambda _: "~/net/net.pt2"),
    module_in_the_current_folder=placed(lambda world, _: world.root / "here" / "bare.pt2", lambda _: "bare.pt2"),
)
cases("trained", USES | {"canaries"}, module_in_a_trained_model=beside("trained"))
cases("release", USES - {"membership"} | RELEASE_USES, module_in_a_certificate=beside("release"))


def pretrained(name: str, model: str, revision: str | None = None) -> dict[str, Any]:
    options = {"model": model, "revision": revision, "normalize": True, "precision": "float32"}
    digests = {"weights_sha256": "0" * 64, "files_sha256": "0" * 64}
    return {"name": name, "version": 1, "options": options, **digests}


def model_folder(world: World, made: Path) -> str:
    """A folder of a pretrained model, whose configuration nobody may open."""
    made.mkdir(parents=True)
    files = {
        "config.json": {"model_type": "vit", "auto_map": {"AutoModel": "evil.Model"}},
        "modules.json": [{"idx": 0, "name": "0", "path": "", "type": "evil.Module"}],
    }
    for name, content in files.items():
        (made / name).write_text(json.dumps(content))
        world.bait(made / name)
    return str(made)


def reads_like_a_hub_name(world: World, folder: Path) -> None:
    model_folder(world, world.root / "here" / "owner" / "name")
    give("fitted", folder, pretrained("vision", "owner/name"))


cases(
    "release",
    USES - {"membership"} | RELEASE_USES,
    vision_model_in_a_folder=lambda world, folder: give(
        "release", folder, pretrained("vision", os.path.relpath(model_folder(world, folder.parent / "pretrained")))
    ),
)


cases(
    "fitted",
    USES,
    vision_model_in_a_folder_that_reads_like_a_hub_name=reads_like_a_hub_name,
    text_model_in_a_folder=lambda world, folder: give(
        "fitted", folder, pretrained("text", model_folder(world, folder.parent / "pretrained"))
    ),
    vision_model_on_the_hub=lambda _, folder: give("fitted", folder, pretrained("vision", "evil/model", "1" * 40)),
    text_model_on_the_hub=lambda _, folder: give("fitted", folder, pretrained("text", "evil/model", "main")),
    revision_that_climbs_out_of_the_cache=lambda _, folder: give(
        "fitted", folder, pretrained("vision", "evil/model", "../../../../here/owner/name")
    ),
)
