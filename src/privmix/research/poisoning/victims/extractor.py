"""Extractors for transfer learning: bodies of networks that were trained on other images, which are called public."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.torch import load, save

from privmix.errors import InvalidInput, StorageError, check_integer
from privmix.held_folders import write_durably
from privmix.research.poisoning.images import Images
from privmix.research.poisoning.victims.networks import Network, build
from privmix.research.poisoning.victims.ordinary import TrainedNetwork, Victim, VictimConfig
from privmix.untrusted import array_shapes, read_plain

_FILE = "extractor.safetensors"


def held_apart(images: Images, *, records: int, public: int, seed: int = 0) -> tuple[Images, Images]:
    """Two disjoint parts: the trainer's records, as many of each class, and the images an extractor is trained on.

    That the latter are public is declared, not true of them: transfer learning assumes an extractor made of data that
    nobody protects or poisons, and takes these for it.

    Args:
        images: all there are.
        records: number of the trainer's, a multiple of the number of classes.
        public: number of images for the extractor, any of the others.
        seed: of the choice.

    Returns:
        (the trainer's records, the public images).

    Raises:
        InvalidInput: there are not as many.

    Example:
        >>> some = Images.of(np.zeros((40, 1, 8, 8)), np.arange(40) % 2, classes=2)
        >>> mine, public = held_apart(some, records=10, public=25)
        >>> np.bincount(mine.labels).tolist(), len(public)
        ([5, 5], 25)
    """
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
    public: Images, config: VictimConfig | None = None, *, seed: int = 0, work: Path | None = None
) -> TrainedNetwork:
    """A network trained on public images, whose body is the extractor of ``Victim(extractor=...)``.

    On MNIST 5,000 images and the small network of 28 x 28 pixels take some 5 CPU seconds at the default settings.

    Args:
        public: images that no trainer or attacker changes, and that are not among the trainer's records
            (:func:`held_apart`).
        config: how it is trained; the default settings if None.
        seed: of the training.
        work: folder that keeps the weights, under a name that tells images and settings apart; None: nowhere.

    Raises:
        InvalidInput: the kept file is not what this function wrote.
        StorageError: ``work`` can't be read or written.

    Example:
        >>> some = Images.of(np.random.default_rng(0).random((40, 1, 8, 8)), np.arange(40) % 2, classes=2)
        >>> pretrained(some, VictimConfig(epochs=1)).features(some.pixels).shape
        (40, 64)
    """
    config = VictimConfig() if config is None else config
    if work is None:
        return Victim(config).fit(public, seed=seed)
    told = hashlib.sha256(json.dumps({**asdict(config), "seed": seed}, sort_keys=True).encode())
    for part in (public.pixels, public.labels):
        told.update(np.ascontiguousarray(part).tobytes())
    path = work / f"{told.hexdigest()[:16]}-{_FILE}"
    if path.exists():
        return TrainedNetwork(_read(path, build(config.network, public.shape, public.classes)).eval())
    made = Victim(config).fit(public, seed=seed)
    try:
        work.mkdir(parents=True, exist_ok=True)
        weights = {name: value.detach().cpu().contiguous() for name, value in made.network.state_dict().items()}
        write_durably(path, save(weights))
    except OSError as error:
        raise StorageError(f"{path} can't be written: {error.strerror}") from None
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
