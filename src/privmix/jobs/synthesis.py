"""Synthetic images of public ones: train a diffusion model, draw, measure, write a pool."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
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
from privmix.errors import InvalidInput, check_integer, check_number
from privmix.features import Extractor, parse_features
from privmix.features.models import locate, public_name
from privmix.features.projected import Projected
from privmix.jobs.columns import class_list
from privmix.jobs.places import check_unpublished, check_writable
from privmix.jobs.progress import Progress, silent
from privmix.jobs.synthesis_options import SynthesisOptions
from privmix.jobs.synthesis_work import Drawer, SynthesisWork
from privmix.ledger import Ledger
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
from privmix.synthesis.text_to_image import TextToImage, prompts_of

# FID takes eigenvalues of a matrix of so many rows; wider features are projected.
_WIDEST: Final = 512
_SEED_OF_DISCRIMINATOR: Final = 1


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

    With ``text`` a public text-to-image pipeline draws in place of it. Nothing here is private, nothing is charged, and
    nothing is protected: a diffusion model can copy what it saw.

    Attributes:
        public: PUBLIC images with labels: file, folder, pattern, address, or in memory; never private ones. None with
            ``text``.
        out: folder to create.
        overwrite: replace another pool.
    """

    public: Any = field(default=None, repr=False)
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
        tell, out = progress or silent, Path(self.out)
        self._check()
        POOL.check_target(out, overwrite=self.overwrite)
        check_unpublished("out", out)
        check_writable("out", out.parent)
        reference = None if self.reference is None else self._open(self.reference, None)
        if reference is not None:
            # The card, which goes with the pool, has figures made of it.
            self._refuse_private(reference, "reference")
        made = self._from_text() if self.text is not None else self._from_public()
        shape = made.shape if reference is None else reference.schema.input_shape
        if reference is not None and shape != made.shape:
            raise InvalidInput("reference", shape, f"images of shape {made.shape}")
        extractor = _narrow(parse_features(self.features), Schema(1, shape, made.classes))
        work = SynthesisWork.opened(self.work or out.with_name(f".{out.name}.work"), made.told)
        draw = made.drawer(work.checkpoint, tell)
        labels = np.arange(self.images, dtype=np.int64) % len(made.classes)
        drawn = work.drawn(draw, labels, tell)
        quality, pictures = self._measured(made.given, drawn, labels, len(made.classes), extractor, reference)
        card = self._card(made, quality)
        write_pool(out, drawn, labels, made.classes, card, pictures, overwrite=self.overwrite)
        if self.work is None:
            work.discard()
        return Synthesised(out, self.images, quality, card)

    def _check(self) -> None:
        if (self.public is None) == (self.text is None):
            given = "both" if self.text is not None else None
            raise InvalidInput("public, text", given, "one of them")
        if (self.text is None) != (self.model is None):
            raise InvalidInput("model", self.model, "a text-to-image pipeline with `text`, and none without")
        check_integer("images", self.images, low=1)
        check_integer("draw_batch", self.draw_batch, low=1)
        check_number("guidance", self.guidance, low=0)
        if self.minutes is not None:
            check_number("minutes", self.minutes, low=0, low_open=True)
        if self.device not in ("cpu", "cuda") or (self.device == "cuda" and not torch.cuda.is_available()):
            raise InvalidInput("device", self.device, "cpu, or cuda where there is one")

    def _from_text(self) -> _Made:
        """Images by a pipeline that others trained."""
        classes = class_list(self.classes) if isinstance(self.classes, str) else self.classes
        if not isinstance(classes, Sequence) or not classes:
            raise InvalidInput("classes", self.classes, "names, which the prompt is made with")
        if self.columns.image_size is None:
            raise InvalidInput("image_size", None, "the side of the images, in pixels")
        colour, side = self.columns.colour or "rgb", self.columns.image_size
        text, model = str(self.text), str(self.model)
        prompts_of(text, classes)
        folder = locate(model, None, None, "synthesis").folder

        def drawer(checkpoint: Path, tell: Progress) -> Drawer:
            found = TextToImage.load(
                folder,
                text,
                classes,
                side=side,
                colour=colour,
                steps=self.sampler_steps,
                seed=self.seed,
                batch_size=self.draw_batch,
                device=self.device,
            )
            return lambda labels, first: found.draw(labels, first=first)

        shape = (side, side) if colour == "grey" else (side, side, 3)
        said = {"pipeline": public_name(model), "text": text, "steps": self.sampler_steps, "seed": self.seed}
        told = hashlib.sha256(json.dumps([said, list(classes), shape, str(folder)]).encode()).hexdigest()
        return _Made(tuple(classes), shape, told, None, {"model": said}, drawer)

    def _from_public(self) -> _Made:
        """Images by a model of the public ones."""
        config, sampler = self._diffusion(), SamplerConfig(steps=self.sampler_steps)
        source = self._open(self.public, self.split)
        self._refuse_private(source, "public")
        given = _Images.of(source)
        check_size(self.network, given.shape)
        said: dict[str, Any] = {
            "made_of": {"records": source.schema.records, "hash": records_hash(source)},
            "model": asdict(config),
            "sampler": {**asdict(sampler), "guidance": self.guidance, "seed": self.seed},
        }

        def drawer(checkpoint: Path, tell: Progress) -> Drawer:
            model = train_diffusion(
                given.scaled,
                given.labels,
                given.classes,
                config,
                minutes=self.minutes,
                checkpoint=checkpoint,
                progress=tell,
                device=self.device,
            )
            said["model"] |= {"steps_done": model.steps, "loss": round(model.loss, 4)}
            bend = self._guidance(model, given, sampler, tell)
            return lambda labels, first: model.draw(
                labels, seed=self.seed, first=first, batch_size=self.draw_batch, sampler=sampler, guidance=bend
            )

        told = json.dumps([asdict(config), self.minutes, said["sampler"], said["made_of"]], sort_keys=True)
        digest = hashlib.sha256(told.encode()).hexdigest()
        return _Made(source.schema.classes, source.schema.input_shape, digest, given, said, drawer)

    def _diffusion(self) -> DiffusionConfig:
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

    def _refuse_private(self, source: Source, field: str) -> None:
        if self.ledger is None:
            return
        if Ledger.open(self.ledger).knows(content_hashes(source)):
            raise InvalidInput(field, "data with a budget", "public data; this ledger knows it as private")

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
        given: _Images | None,
        drawn: NDArray[np.uint8],
        labels: NDArray[np.int64],
        classes: int,
        extractor: Extractor,
        reference: Source | None,
    ) -> tuple[Quality, dict[str, NDArray[np.uint8]]]:
        sheets = {"contact.png": contact_sheet(drawn, labels, classes)}
        features = _shown(self.features)
        named = features if extractor.name == features else f"{features}, {extractor.name}"
        held = None if reference is None else _Images.of(reference)
        beside = held or given
        if beside is None:
            return Quality(named), sheets
        theirs, real = extractor.transform(drawn), extractor.transform(beside.pixels)
        copies = None
        if given is not None:
            own = extractor.transform(given.pixels)
            found = near_copies(own, theirs)
            copies = found.rate
            sheets["copies.png"] = copies_sheet(drawn, given.pixels, found.nearest, found.distance)
        manifold = precision_recall(real, theirs)
        quality = Quality(
            named,
            frechet_distance(real, theirs),
            manifold.precision,
            manifold.recall,
            copies,
            _score(real, beside.labels, theirs),
            None if held is None else classification_accuracy(theirs, labels, real, held.labels),
        )
        return quality, sheets

    def _card(self, made: _Made, quality: Quality) -> dict[str, Any]:
        measured = None if made.given is None else "the public images it was made of"
        return {
            "kind": "synthetic images",
            "images": self.images,
            "classes": list(made.classes),
            **made.said,
            "quality": {
                **quality.to_dict(),
                "measured_against": measured if self.reference is None else "other public images",
            },
            "warnings": list(WARNINGS),
        }


@dataclass(frozen=True, eq=False)
class _Made:
    """What images are made by.

    Attributes:
        classes: names.
        shape: of one image, as datasets have it.
        told: a hash of all that decides the images.
        given: the public images of one's own, if there are any.
        said: on the card; whole once images were drawn.
        drawer: (folder for checkpoints, progress) -> what draws.
    """

    classes: tuple[str, ...]
    shape: tuple[int, ...]
    told: str
    given: _Images | None
    said: dict[str, Any]
    drawer: Callable[[Path, Progress], Drawer]


def synthesise(public: Any = None, *, out: str | Path, progress: Progress | None = None, **options: Any) -> Synthesised:
    """Draw synthetic images from PUBLIC ones, for :func:`privmix.train` to warm up on or to mix with.

    Args:
        public: PUBLIC images with labels; as :func:`privmix.release` takes data. None with ``text=`` and ``model=``.
        out: folder to create.
        progress: called with (stage, done, total).
        options: fields of :class:`SynthesisJob`, such as ``images=``, ``minutes=``, ``guidance=``.

    Returns:
        where the pool is, and how good.

    Raises:
        InvalidInput, StorageError, MissingExtra: as :meth:`SynthesisJob.run`.

    Example:
        >>> synthesise("PUBLIC.npz", out="POOL", images=0)
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


def _score(real: NDArray[np.float32], labels: NDArray[np.int64], drawn: NDArray[np.float32]) -> float | None:
    """Inception score by a linear classifier of the public images."""
    if len(np.unique(labels)) < 2:
        return None
    return inception_score(LinearClassifier.of(real, labels).logits(drawn))


def _shown(features: str) -> str:
    """The extractor as a card names it: of files and folders of this machine their own names, without the way there.

    Example:
        >>> _shown("vision:/home/someone/models/vit"), _shown("scattering:ycbcr,mirror")
        ('vision:vit', 'scattering:ycbcr,mirror')
    """
    name, colon, argument = features.partition(":")
    place = Path(argument).expanduser()
    return f"{name}{colon}{place.name if place.is_absolute() or place.exists() else argument}"


def _narrow(extractor: Extractor, schema: Schema) -> Extractor:
    extractor.check_schema(schema)
    if extractor.output_dim(schema.input_shape) <= _WIDEST:
        return extractor
    return Projected(extractor, _WIDEST)
