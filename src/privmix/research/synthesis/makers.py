"""The makers of synthetic images: a diffusion model of one's own public images, or a pipeline that others trained."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privmix.data.dataset import Source
from privmix.data.fingerprint import records_hash
from privmix.data.overlap import InputHashes, Sketch
from privmix.errors import InvalidInput, check_choice, in_terms_of
from privmix.features.models import locate, public_name
from privmix.folders import HeldFolder
from privmix.jobs.columns import class_list
from privmix.jobs.public_data import origins_of
from privmix.progress import Progress
from privmix.research.synthesis.ddpm import DdpmConfig
from privmix.research.synthesis.denoising import DenoisingSampler, Guidance, NoiseProcess
from privmix.research.synthesis.diffusion import DiffusionConfig, train_diffusion
from privmix.research.synthesis.edm import EdmConfig
from privmix.research.synthesis.guidance import GuidanceConfig, guidance, train_discriminator
from privmix.research.synthesis.model import DiffusionModel
from privmix.research.synthesis.networks import check_size
from privmix.research.synthesis.options import SynthesisOptions
from privmix.research.synthesis.quality import LabelledImages, Measure
from privmix.research.synthesis.text_to_image import TextToImage, prompts_of
from privmix.research.synthesis.work import Drawer
from privmix.world import World

Pixels = NDArray[np.uint8]
Labels = NDArray[np.int64]

_SEED_OF_DISCRIMINATOR: Final = 1
PROCESSES: Final[dict[str, type[NoiseProcess]]] = {"edm": EdmConfig, "ddpm": DdpmConfig}


@dataclass(frozen=True, eq=False)
class Maker:
    # `model`: a hash of all that decides the model; `drawing`: of all that decides the images, given the model.
    # `labels`: (images, wanted classes, features) -> classes. `said`: on the card. `drawer`: (checkpoints,
    # progress, processes) -> what draws.
    classes: tuple[str, ...]
    shape: tuple[int, ...]
    model: str
    drawing: str
    given: LabelledImages | None
    labels: Callable[[Pixels, Labels, Measure], Labels] = field(repr=False)
    said: dict[str, Any] = field(repr=False)
    drawer: Callable[[HeldFolder, Progress, World], Drawer] = field(repr=False)


def from_text(asked: SynthesisOptions) -> Maker:
    classes = class_list(asked.classes)
    if not isinstance(classes, Sequence) or not classes:
        raise InvalidInput("classes", asked.classes, "names, which the prompt is made with")
    if asked.image_size is None:
        raise InvalidInput("image_size", None, "the side of the images, in pixels")
    colour, side = asked.colour or "rgb", asked.image_size
    text, model = str(asked.text), str(asked.model)
    prompts_of(text, classes)
    folder = locate(model, None, None, "synthesis").folder

    def drawer(checkpoint: HeldFolder, tell: Progress, world: World) -> Drawer:
        found = TextToImage.load(
            folder,
            text,
            classes,
            side=side,
            colour=colour,
            steps=asked.sampler_steps,
            seed=asked.seed,
            batch_size=asked.draw_batch,
            device=asked.device,
        )
        return lambda labels, first: found.draw(labels, first=first)

    shape = (side, side) if colour == "grey" else (side, side, 3)
    said = {"pipeline": public_name(model), "text": text, "steps": asked.sampler_steps, "seed": asked.seed}
    told = _hash([said, list(classes), shape, str(folder)])
    return Maker(tuple(classes), shape, told, told, None, _as_asked, {"model": said}, drawer)


def from_public(asked: SynthesisOptions, source: Source) -> Maker:
    given = LabelledImages.of(source)
    # The network sees pixels in [-1, 1].
    deviation = float(2 * given.scaled.std(dtype=np.float64))
    with in_terms_of({"log_mean": "noise_mean"}):
        process = PROCESSES[check_choice("diffusion", asked.diffusion, PROCESSES)]().suited(deviation, asked.noise_mean)
    config = DiffusionConfig(
        network=asked.network,
        steps=asked.steps,
        batch_size=asked.batch_size,
        learning_rate=asked.learning_rate,
        half_life=asked.half_life,
        augment_probability=asked.augment_probability,
        mirror=asked.mirror,
        precision=asked.precision,
        seed=asked.seed,
        process=process,
    )
    with in_terms_of({"steps": "sampler_steps"}):
        sampler: Any = process.sampler(asked.sampler_steps)
    if asked.guidance and not process.conditional:
        raise InvalidInput("guidance", asked.guidance, f"0: {process.name} has no classes")
    check_size(asked.network, given.shape)
    made_of = {"records": source.schema.records, "hash": records_hash(source)}
    said: dict[str, Any] = {
        "made_of": {**made_of, "sketch": _origin(source).to_dict()},
        "model": asdict(config),
        "sampler": {**asdict(sampler), "guidance": asked.guidance, "seed": asked.seed},
    }

    def drawer(checkpoint: HeldFolder, tell: Progress, world: World) -> Drawer:
        model = train_diffusion(
            given.scaled,
            given.labels,
            given.classes,
            config,
            minutes=asked.minutes,
            checkpoint=checkpoint,
            progress=tell,
            device=asked.device,
            world=world,
        )
        said["model"] |= {"steps_done": model.steps, "loss": round(model.loss, 4)}
        bend = _guidance(asked, model, given, sampler, tell)
        return lambda labels, first: model.draw(
            labels, seed=asked.seed, first=first, batch_size=asked.draw_batch, sampler=sampler, guidance=bend
        )

    def labels(images: Pixels, wanted: Labels, measure: Measure) -> Labels:
        if process.conditional:
            return wanted
        said["labels"] = f"found by a linear classifier of the public images, features {measure.name}"
        return measure.labels(given, images)

    return Maker(
        source.schema.classes,
        source.schema.input_shape,
        _hash([asdict(config), asked.minutes, made_of]),
        _hash(said["sampler"]),
        given,
        labels,
        said,
        drawer,
    )


def _origin(source: Source) -> Sketch:
    """Return the original images: for images that are a pool themselves, those that the pool was made of."""
    known = origins_of({"public": source})
    return known[0][1] if known else Sketch.of(InputHashes.of(source))


def _guidance(
    asked: SynthesisOptions, model: DiffusionModel, given: LabelledImages, sampler: DenoisingSampler, tell: Progress
) -> Callable[[Tensor], Guidance] | None:
    if not asked.guidance:
        return None
    labels = np.arange(len(given.labels), dtype=np.int64) % given.classes
    blocks, done = [], 0
    for block in model.draw(
        labels, seed=asked.seed + _SEED_OF_DISCRIMINATOR, batch_size=asked.draw_batch, sampler=sampler
    ):
        blocks.append(block)
        done += len(block)
        tell("images for the discriminator", done, len(labels))
    drawn = LabelledImages(np.concatenate(blocks), labels, given.classes)
    found = train_discriminator(
        torch.from_numpy(given.scaled * 2 - 1),
        torch.from_numpy(given.labels),
        torch.from_numpy(drawn.scaled * 2 - 1),
        torch.from_numpy(labels),
        given.classes,
        GuidanceConfig(seed=asked.seed),
        model.process,
        tell,
    )
    return lambda block: guidance(found, block, asked.guidance)


def _as_asked(images: Pixels, wanted: Labels, measure: Measure) -> Labels:
    return wanted


def _hash(told: Any) -> str:
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
