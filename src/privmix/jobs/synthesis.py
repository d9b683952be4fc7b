"""Synthetic images of public ones: train a diffusion model, draw, measure, write a pool."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privmix import data as readers
from privmix.data import Schema, Source, content_hashes
from privmix.data.fingerprint import records_hash
from privmix.errors import InvalidInput, StorageError, check_integer, check_number
from privmix.features import Extractor, parse_features
from privmix.features.projected import Projected
from privmix.jobs.columns import class_list
from privmix.jobs.places import check_unpublished, check_writable
from privmix.jobs.progress import Progress, silent
from privmix.jobs.synthesis_options import SynthesisOptions
from privmix.ledger import Ledger
from privmix.private_files import PrivateFolder
from privmix.synthesis.diffusion import DiffusionConfig, DiffusionModel, train_diffusion
from privmix.synthesis.edm import Guidance, SamplerConfig
from privmix.synthesis.guidance import GuidanceConfig, guidance, train_discriminator
from privmix.synthesis.metrics import (
    LinearClassifier,
    Quality,
    classification_accuracy,
    frechet_distance,
    inception_score,
    near_copies,
    precision_recall,
)
from privmix.synthesis.networks import check_size
from privmix.synthesis.pool import POOL, WARNINGS, contact_sheet, copies_sheet, write_pool

# FID takes eigenvalues of a matrix of so many rows; wider features are projected.
_WIDEST: Final = 512
_BLOCK: Final = 500
_SEED_OF_DISCRIMINATOR: Final = 1
_MARK: Final = "run"


@dataclass(frozen=True)
class Synthesised:
    """A pool of synthetic images.

    Attributes:
        out: its folder.
        images: how many.
        quality: figures, in named features.
        card: all that its card says.
    """

    out: Path
    images: int
    quality: Quality
    card: dict[str, Any] = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return {"out": str(self.out), "images": self.images, **self.quality.to_dict()}


@dataclass(frozen=True, eq=False, kw_only=True)
class SynthesisJob(SynthesisOptions):
    """Train EDM (Karras et al. 2022) on public images, and draw a pool of images, which :func:`privmix.train`
    reads as synthetic records or as its pool.

    Nothing here is private, nothing is charged, and nothing is protected: a diffusion model can copy what it saw.

    Attributes:
        public: PUBLIC images with labels: file, folder, pattern, address, or in memory; never private ones.
        out: folder to create.
        overwrite: replace another pool.
    """

    public: Any = field(repr=False)
    out: Path
    overwrite: bool = False

    def run(self, progress: Progress | None = None) -> Synthesised:
        """Train, draw, measure and write; a run that was killed goes on.

        Args:
            progress: called with (stage, done, total).

        Raises:
            InvalidInput: an option is out of range, the data are no images, or a ledger knows them as private.
            StorageError: something can't be read or written.
            MissingExtra: diffusers or torchmetrics is not installed.
        """
        tell = progress or silent
        config, sampler, out = self._diffusion(), SamplerConfig(steps=self.sampler_steps), Path(self.out)
        POOL.check_target(out, overwrite=self.overwrite)
        check_unpublished("out", out)
        check_writable("out", out.parent)
        source = self._open(self.public, self.split)
        self._refuse_private(source)
        extractor = _narrow(parse_features(self.features), source.schema)
        reference = None if self.reference is None else self._open(self.reference, None)
        given = _Images.of(source)
        check_size(self.network, given.shape)
        work = _Work.opened(self.work or out.with_name(f".{out.name}.work"), self._told(config, given))
        model = train_diffusion(
            given.scaled,
            given.labels,
            given.classes,
            config,
            minutes=self.minutes,
            checkpoint=work.checkpoint,
            progress=tell,
            device=self.device,
        )
        bend = self._guidance(model, given, sampler, tell)
        labels = np.arange(self.images, dtype=np.int64) % given.classes
        drawn = work.drawn(model, labels, self.seed, sampler, bend, self._drawing(), tell)
        quality, pictures = self._measured(given, drawn, labels, extractor, reference)
        card = self._card(config, model, sampler, source, quality)
        write_pool(out, drawn, labels, source.schema.classes, card, pictures, overwrite=self.overwrite)
        if self.work is None:
            work.discard()
        return Synthesised(out, self.images, quality, card)

    def _diffusion(self) -> DiffusionConfig:
        check_integer("images", self.images, low=1)
        check_integer("draw_batch", self.draw_batch, low=1)
        check_number("guidance", self.guidance, low=0)
        if self.minutes is not None:
            check_number("minutes", self.minutes, low=0, low_open=True)
        if self.device not in ("cpu", "cuda") or (self.device == "cuda" and not torch.cuda.is_available()):
            raise InvalidInput("device", self.device, "cpu, or cuda where there is one")
        return DiffusionConfig(
            network=self.network,
            steps=self.steps,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            half_life=self.half_life,
            augment_probability=self.augment_probability,
            mirror=self.mirror,
            precision=self.precision,
            seed=self.seed,
        )

    def _open(self, place: Any, split: str | None) -> Source:
        columns = self.columns
        source = readers.open_dataset(
            place,
            split=split or "train",
            classes=class_list(self.classes) if isinstance(self.classes, str) else self.classes,
            label_column=columns.label_column,
            image_column=columns.image_column,
            feature_column=columns.feature_column,
            image_size=columns.image_size,
            colour=columns.colour,
        )
        if source.schema.columns is not None or len(source.schema.input_shape) not in (2, 3):
            raise InvalidInput("public", source.schema.input_shape, "images: (height, width) or (height, width, 3)")
        return source

    def _refuse_private(self, source: Source) -> None:
        if self.ledger is None:
            return
        if Ledger.open(self.ledger).knows(content_hashes(source)):
            raise InvalidInput("public", "data with a budget", "public data; this ledger knows it as private")

    def _told(self, config: DiffusionConfig, given: _Images) -> str:
        told = json.dumps([asdict(config), self.minutes], sort_keys=True).encode()
        return hashlib.sha256(told + given.pixels.tobytes() + given.labels.tobytes()).hexdigest()

    def _drawing(self) -> tuple[str, int]:
        """What tells blocks of this drawing from others, and how many images are drawn at a time."""
        told = json.dumps([self.sampler_steps, self.guidance, self.seed])
        return hashlib.sha256(told.encode()).hexdigest()[:16], self.draw_batch

    def _guidance(
        self, model: DiffusionModel, given: _Images, sampler: SamplerConfig, tell: Progress
    ) -> Callable[[Tensor], Guidance] | None:
        if not self.guidance:
            return None
        labels = np.arange(len(given.labels), dtype=np.int64) % given.classes
        blocks, done = [], 0
        for block in model.draw(
            labels, seed=self.seed + _SEED_OF_DISCRIMINATOR, batch_size=self.draw_batch, sampler=sampler
        ):
            blocks.append(block)
            done += len(block)
            tell("images for the discriminator", done, len(labels))
        drawn = _Images(np.concatenate(blocks), labels, given.classes)
        found = train_discriminator(
            torch.from_numpy(given.scaled * 2 - 1),
            torch.from_numpy(given.labels),
            torch.from_numpy(drawn.scaled * 2 - 1),
            torch.from_numpy(labels),
            given.classes,
            GuidanceConfig(seed=self.seed),
            model.denoiser.config,
            tell,
        )
        return lambda block: guidance(found, block, self.guidance)

    def _measured(
        self,
        given: _Images,
        drawn: NDArray[np.uint8],
        labels: NDArray[np.int64],
        extractor: Extractor,
        reference: Source | None,
    ) -> tuple[Quality, dict[str, NDArray[np.uint8]]]:
        own, theirs = extractor.transform(given.pixels), extractor.transform(drawn)
        copies = near_copies(own, theirs)
        held = None if reference is None else _Images.of(reference)
        real = own if held is None else extractor.transform(held.pixels)
        manifold = precision_recall(real, theirs)
        accuracy = None if held is None else classification_accuracy(theirs, labels, real, held.labels)
        quality = Quality(
            self.features if extractor.name == self.features else f"{self.features}, {extractor.name}",
            frechet_distance(real, theirs),
            manifold.precision,
            manifold.recall,
            copies.rate,
            _score(own, given.labels, theirs),
            accuracy,
        )
        sheets = {
            "contact.png": contact_sheet(drawn, labels, given.classes),
            "copies.png": copies_sheet(drawn, given.pixels, copies.nearest, copies.distance),
        }
        return quality, sheets

    def _card(
        self, config: DiffusionConfig, model: DiffusionModel, sampler: SamplerConfig, source: Source, quality: Quality
    ) -> dict[str, Any]:
        made_of = {"records": source.schema.records, "hash": records_hash(source)}
        measured = "the public images it was made of" if self.reference is None else "other public images"
        return {
            "kind": "synthetic images",
            "images": self.images,
            "classes": list(source.schema.classes),
            "made_of": made_of,
            "model": {**asdict(config), "steps_done": model.steps, "loss": round(model.loss, 4)},
            "sampler": {**asdict(sampler), "guidance": self.guidance, "seed": self.seed},
            "quality": {**quality.to_dict(), "measured_against": measured},
            "warnings": list(WARNINGS),
        }


def synthesise(public: Any, out: str | Path, *, progress: Progress | None = None, **options: Any) -> Synthesised:
    """Draw synthetic images from PUBLIC ones, for :func:`privmix.train` to warm up on or to mix with.

    Args:
        public: PUBLIC images with labels; as :func:`privmix.release` takes data.
        out: folder to create.
        progress: called with (stage, done, total).
        options: fields of :class:`SynthesisJob`, such as ``images=``, ``minutes=``, ``guidance=``.

    Returns:
        where the pool is, and how good.

    Raises:
        InvalidInput, StorageError, MissingExtra: as :meth:`SynthesisJob.run`.

    Example:
        >>> synthesise("PUBLIC.npz", "POOL", images=0)
        Traceback (most recent call last):
        ...
        privmix.errors.InvalidInput: images: got 0; allowed: an integer >= 1
    """
    return SynthesisJob(public=public, out=Path(out), **options).run(progress)


@dataclass(frozen=True, eq=False)
class _Images:
    """Public images in memory: (n, H, W) or (n, H, W, C) uint8."""

    pixels: NDArray[np.uint8]
    labels: NDArray[np.int64]
    classes: int

    @classmethod
    def of(cls, source: Source) -> _Images:
        content = source.read()
        x = np.asarray(content.x)
        if x.dtype != np.uint8:
            x = np.rint(255 * np.clip(x, 0, 1)).astype(np.uint8)
        return cls(np.ascontiguousarray(x), content.y.astype(np.int64), source.schema.num_classes)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C, H, W)."""
        height, width, *channels = self.pixels.shape[1:]
        return (channels or [1])[0], height, width

    @property
    def scaled(self) -> NDArray[np.float32]:
        """(n, C, H, W) in [0, 1]."""
        images = self.pixels[..., None] if self.pixels.ndim == 3 else self.pixels
        return np.ascontiguousarray(images.transpose(0, 3, 1, 2), dtype=np.float32) / np.float32(255)


class _Work:
    """What a killed run goes on from: a checkpoint, whether training has ended, and the blocks drawn."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @classmethod
    def opened(cls, folder: Path, told: str) -> _Work:
        """The folder, new or of the same run.

        Raises:
            InvalidInput: it is somebody else's, or of another run.
            StorageError: it can't be made.
        """
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with PrivateFolder(folder, "work") as held:
                names = held.names()
                if _MARK in names and held.read(_MARK, len(told) + 1).decode() != told:
                    raise InvalidInput(
                        "work", str(folder), "a folder for this run; it holds one of other images or settings"
                    )
                if _MARK not in names and names:
                    raise InvalidInput("work", str(folder), "an empty folder, or that of an interrupted run")
                if _MARK not in names:
                    held.write(_MARK, told.encode())
        except OSError as error:
            raise StorageError(f"work: can't write {folder}: {error.strerror}") from None
        return cls(folder)

    @property
    def checkpoint(self) -> Path:
        """Where the model's state is kept."""
        return self._folder

    def drawn(
        self,
        model: DiffusionModel,
        labels: NDArray[np.int64],
        seed: int,
        sampler: SamplerConfig,
        bend: Callable[[Tensor], Guidance] | None,
        drawing: tuple[str, int],
        tell: Progress,
    ) -> NDArray[np.uint8]:
        """Draw what is not drawn yet."""
        blocks, (told, batch_size) = [], drawing
        for first in range(0, len(labels), _BLOCK):
            place = self._folder / f"drawn-{told}-{model.steps}-{first:08d}.npy"
            chosen = labels[first : first + _BLOCK]
            block = _read(place, len(chosen))
            if block is None:
                parts = model.draw(
                    chosen, seed=seed, first=first, batch_size=batch_size, sampler=sampler, guidance=bend
                )
                block = np.concatenate(list(parts))
                draft = place.with_suffix(".partial")
                with draft.open("wb") as file:
                    np.save(file, block)
                draft.replace(place)
            blocks.append(block)
            tell("images", first + len(chosen), len(labels))
        return np.concatenate(blocks)

    def discard(self) -> None:
        """The pool is written: nothing goes on from here."""
        with PrivateFolder(self._folder, "work") as left:
            left.discard()


def _score(real: NDArray[np.float32], labels: NDArray[np.int64], drawn: NDArray[np.float32]) -> float | None:
    """Inception score by a linear classifier of the public images."""
    if len(np.unique(labels)) < 2:
        return None
    return inception_score(LinearClassifier.of(real, labels).logits(drawn))


def _read(place: Path, count: int) -> NDArray[np.uint8] | None:
    if not place.exists():
        return None
    try:
        found: NDArray[np.uint8] = np.load(place, allow_pickle=False)
    except (OSError, ValueError):
        return None
    return found if len(found) == count else None


def _narrow(extractor: Extractor, schema: Schema) -> Extractor:
    extractor.check_schema(schema)
    if extractor.output_dim(schema.input_shape) <= _WIDEST:
        return extractor
    return Projected(extractor, _WIDEST)
