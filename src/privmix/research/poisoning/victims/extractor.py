"""Extractors for transfer learning: bodies of networks that were trained on other images, which are called public."""

import hashlib
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.torch import load, save

from privmix.errors import InvalidInput, StorageError, check_integer
from privmix.folders import write_durably
from privmix.research.poisoning.images import VictimImages
from privmix.research.poisoning.victims.networks.base import Network, build
from privmix.research.poisoning.victims.ordinary import TrainedNetwork, Victim, VictimConfig
from privmix.untrusted import array_shapes, read_plain

_FILE = "extractor.safetensors"


def held_apart(images: VictimImages, *, records: int, public: int, seed: int = 0) -> tuple[VictimImages, VictimImages]:
    """Split into the trainer's records, as many of each class, and the public images an extractor is trained on."""
    # The public status of the latter images is an assumption of transfer learning.
    each, over = divmod(check_integer("records", records, low=images.classes), images.classes)
    check_integer("public", public, low=0)
    fewest = int(np.bincount(images.labels, minlength=images.classes).min())
    if over or each > fewest:
        allowed = f"a multiple of {images.classes}, the number of classes, with as many images in each"
        raise InvalidInput("records", records, allowed)
    if public > len(images) - records:
        raise InvalidInput("public", public, "no more than the images that are left")
    order = np.random.default_rng(seed).permutation(len(images))
    places = [order[images.labels[order] == label][:each] for label in range(images.classes)]
    mine = np.sort(np.concatenate(places))
    others = order[~np.isin(order, mine)][:public]
    return images.take(mine), images.take(np.sort(others))


def pretrained(
    public: VictimImages,
    config: VictimConfig | None = None,
    *,
    seed: int = 0,
    work: Path | None = None,
    device: str | None = None,
) -> TrainedNetwork:
    """Return a network trained on public images, whose body is the extractor of ``Victim(extractor=...)``."""
    # `public` must not be among the trainer's records (see `held_apart`). `work` keeps the weights, under a name that
    # identifies images and settings.
    config = VictimConfig() if config is None else config
    if work is None:
        return Victim(config, device=device).fit(public, seed=seed)
    told = hashlib.sha256(json.dumps({**asdict(config), "seed": seed}, sort_keys=True).encode())
    for part in (public.pixels, public.labels):
        told.update(np.ascontiguousarray(part).tobytes())
    path = work / f"{told.hexdigest()[:16]}-{_FILE}"
    if path.exists():
        return TrainedNetwork(_read(path, build(config.network, public.shape, public.classes)).eval())
    made = Victim(config, device=device).fit(public, seed=seed)
    try:
        work.mkdir(parents=True, exist_ok=True)
        weights = {name: value.detach().cpu().contiguous() for name, value in made.network.state_dict().items()}
        write_durably(path, save(weights))
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror}") from None
    return made


def _read(path: Path, network: Network) -> Network:
    """``network`` with the weights in the file, which must be its own: nothing larger is ever read."""
    wanted = {name: tuple(value.shape) for name, value in network.state_dict().items()}
    found = {name: shape for name, (_, shape) in array_shapes(path, _FILE).items()}
    if found != wanted:
        raise InvalidInput(_FILE, sorted(found)[:3], "the weights of the network that is asked for")
    try:
        network.load_state_dict(load(read_plain(path, _FILE, path.stat().st_size)))
    except (SafetensorError, ValueError, RuntimeError):
        raise InvalidInput(_FILE, path.name, "the weights of the network that is asked for") from None
    return network
