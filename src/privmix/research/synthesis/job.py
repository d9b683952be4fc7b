"""Synthetic images of public ones: train a diffusion model, draw, measure, write a pool."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from privmix import data as readers
from privmix.data.dataset import Source
from privmix.data.overlap import KIND
from privmix.devices import chosen_device
from privmix.errors import InvalidInput, check_integer, check_number
from privmix.folders import PathLock
from privmix.jobs.columns import class_list
from privmix.jobs.places import check_unpublished, check_writable
from privmix.progress import Progress, silent
from privmix.research.charged import refuse_charged
from privmix.research.synthesis.makers import Maker, from_public, from_text
from privmix.research.synthesis.metrics import SynthesisQuality
from privmix.research.synthesis.options import SynthesisOptions
from privmix.research.synthesis.pool import POOL, WARNINGS, write_pool
from privmix.research.synthesis.quality import LabelledImages, Measure
from privmix.research.synthesis.work import SynthesisWork
from privmix.shown import Shown
from privmix.world import World, current_world


@dataclass(frozen=True, repr=False)
class Synthesised(Shown):
    """A pool of synthetic images: folder, number, quality and card."""

    out: Path
    images: int
    quality: SynthesisQuality
    card: dict[str, Any] = field(repr=False)
    warnings: ClassVar[tuple[str, ...]] = ("synthetic images may copy the public ones they were made of",)

    def shown(self) -> tuple[str, Mapping[str, object]]:
        quality, facts = self.quality, {}
        if quality.fid is not None:
            copies = "" if quality.copies is None else f", near-copies {100 * quality.copies:.1f}%"
            facts[f"in features {quality.features}"] = (
                f"FID {quality.fid:.4g}, precision {quality.precision:.3f}, recall {quality.recall:.3f}{copies}"
            )
        if quality.accuracy is not None:
            linear = "accuracy of a linear classifier of them on the reference"
            facts[linear] = f"{100 * quality.accuracy:.1f}%"
        return f"pool: {self.out}, {self.images:,} images", facts

    def to_dict(self) -> dict[str, Any]:
        return {"out": str(self.out), "images": self.images, **self.quality.to_dict()}


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SynthesisJob(SynthesisOptions):
    """Train a diffusion model on PUBLIC images, or take a text-to-image pipeline, and draw a pool of images."""

    # No record is charged or protected: a diffusion model can copy its training images.
    public: Any = field(default=None, repr=False)
    out: Path
    overwrite: bool = False

    def run(self, progress: Progress | None = None) -> Synthesised:
        """Train, draw, measure and write; a killed run resumes. Under torchrun the first process writes."""
        self._check()
        chosen = replace(self, device=str(chosen_device(self.device)))
        with current_world(chosen.device) as world:
            return chosen._run(world, progress or silent)

    def _run(self, world: World, tell: Progress) -> Synthesised:
        out = Path(self.out)
        POOL.check_target(out, overwrite=self.overwrite)
        check_unpublished("out", out)
        check_writable("out", out.parent)
        if self.work is not None and Path(self.work).resolve().is_relative_to(out.resolve()):
            # No file could be published there once the model's folder is made.
            raise InvalidInput("work", str(self.work), "a folder outside of `out`")
        reference = None if self.reference is None else self._open(self.reference, None, "reference")
        if reference is not None:
            # The card, which goes with the pool, has figures made of it.
            self._refuse_private(reference, "reference", self.reference)
        made = from_text(self) if self.text is not None else self._from_public()
        if reference is not None and reference.schema.input_shape != made.shape:
            raise InvalidInput("reference", reference.schema.input_shape, f"images of shape {made.shape}")
        measure = Measure.of(self.features, made.shape, made.classes)
        held = None if reference is None else LabelledImages.of(reference)
        place = Path(self.work or out.with_name(f".{out.name}.work"))
        with self._alone(place) if world.is_head else nullcontext():
            if not world.is_head:
                world.wait()
            work = SynthesisWork.opened(place, made.model)
            if world.is_head:
                # It has marked the folder, which the others find so.
                world.wait()
            draw = made.drawer(work.checkpoint, tell, world)
            wanted = np.arange(self.images, dtype=np.int64) % len(made.classes)
            pixels = work.drawn(draw, wanted, made.drawing, tell, world)
            drawn = LabelledImages(pixels, made.labels(pixels, wanted, measure), len(made.classes))
            quality, pictures = measure.quality(drawn, made.given, held)
            card = self._card(made, quality)
            if world.is_head:
                write_pool(out, pixels, drawn.labels, made.classes, card, pictures, overwrite=self.overwrite)
                if self.work is None:
                    work.discard()
            world.wait()
        return Synthesised(out, self.images, quality, card)

    @staticmethod
    @contextmanager
    def _alone(work: Path) -> Iterator[None]:
        """Two runs would write each other's drafts."""
        check_writable("work", work.parent)
        work.parent.mkdir(parents=True, exist_ok=True)
        lock = PathLock(
            work, InvalidInput("work", str(work), "a folder that no other run uses; wait until the other one ends")
        )
        try:
            yield
        finally:
            lock.release()

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

    def _from_public(self) -> Maker:
        source = self._open(self.public, self.split, "public")
        self._refuse_private(source, "public", self.public)
        return from_public(self, source)

    def _open(self, place: Any, split: str | None, field: str) -> Source:
        columns = self.as_columns()
        source = readers.open_dataset(
            place,
            split=split or "train",
            classes=class_list(self.classes),
            label_column=columns.label or "",
            number_columns=columns.number_names,
            image_size=columns.image_size,
            colour=columns.colour,
        )
        if source.schema.columns is not None or len(source.schema.input_shape) not in (2, 3):
            raise InvalidInput(field, source.schema.input_shape, "images: (height, width) or (height, width, 3)")
        return source

    def _refuse_private(self, source: Source, field: str, place: Any) -> None:
        if self.ledger is not None:
            refuse_charged(field, place, source, self.ledger)

    def _card(self, made: Maker, quality: SynthesisQuality) -> dict[str, Any]:
        measured = None if made.given is None else "the public images it was made of"
        return {
            "kind": KIND,
            "images": self.images,
            "classes": list(made.classes),
            **made.said,
            "quality": {
                **quality.to_dict(),
                "measured_against": measured if self.reference is None else "other public images",
            },
            "warnings": list(WARNINGS),
        }
