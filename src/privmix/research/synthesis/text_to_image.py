"""Images of classes from their names, by a public text-to-image pipeline of the diffusers library (Bao et al. 2023)."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from privmix.errors import InvalidInput, MissingExtra, check_choice, check_integer
from privmix.research.synthesis.denoising import image_generator

COLOURS: Final = ("rgb", "grey")
_PLACE: Final = "{class}"


@dataclass(frozen=True, eq=False)
class TextToImage:
    """A pipeline of diffusers and its settings; image i's noise depends on `seed` and i alone."""

    prompts: tuple[str, ...]
    side: int
    colour: str
    steps: int
    seed: int
    batch_size: int
    pipeline: Any = field(repr=False)

    @classmethod
    def load(
        cls,
        folder: Path,
        text: str,
        classes: Sequence[str],
        *,
        side: int,
        colour: str = "rgb",
        steps: int = 50,
        seed: int = 0,
        batch_size: int = 8,
        device: str = "cpu",
    ) -> "TextToImage":
        """Load a pipeline from a folder of weights in safetensors; code that comes with it is not run."""
        prompts = prompts_of(text, classes)
        check_integer("image_size", side, low=1, high=4096)
        check_choice("colour", colour, COLOURS)
        check_integer("sampler_steps", steps, low=1)
        _check_no_code(folder)
        try:
            import diffusers
        except ImportError:
            raise MissingExtra("diffusers", "synthesis") from None
        level = diffusers.utils.logging.get_verbosity()
        diffusers.utils.logging.set_verbosity_error()
        diffusers.utils.logging.disable_progress_bar()
        try:
            load: Any = diffusers.DiffusionPipeline.from_pretrained
            pipeline = load(str(folder), local_files_only=True, use_safetensors=True, trust_remote_code=False)
        except Exception:
            allowed = "a folder or hub name of a text-to-image pipeline of diffusers with its weights in safetensors"
            raise InvalidInput("model", folder.name, allowed) from None
        finally:
            diffusers.utils.logging.set_verbosity(level)
        pipeline.set_progress_bar_config(disable=True)
        return cls(prompts, side, colour, steps, seed, batch_size, pipeline.to(device))

    def draw(self, labels: NDArray[np.int64], *, first: int = 0) -> Iterator[NDArray[np.uint8]]:
        """(n,) classes -> blocks of (b, side, side, 3) uint8, or (b, side, side) where they are grey."""
        for at in range(0, len(labels), self.batch_size):
            block = labels[at : at + self.batch_size]
            generators = [image_generator(self.seed, first + at + place) for place in range(len(block))]
            # Pipelines may draw from torch's own generator, too.
            with torch.random.fork_rng(devices=[]), torch.no_grad(), contextlib.redirect_stderr(None):
                torch.default_generator.manual_seed(generators[0].initial_seed())
                found = self.pipeline(
                    [self.prompts[label] for label in block],
                    num_inference_steps=self.steps,
                    generator=generators,
                    output_type="np",
                ).images
            yield np.stack([self._sized(image) for image in np.asarray(found)])

    def _sized(self, image: NDArray[np.float32]) -> NDArray[np.uint8]:
        pixels = np.rint(255 * np.clip(image, 0, 1)).astype(np.uint8)
        mode = "L" if self.colour == "grey" else "RGB"
        scaled = Image.fromarray(pixels).convert(mode).resize((self.side, self.side), Image.Resampling.LANCZOS)
        return np.asarray(scaled)


def _check_no_code(folder: Path) -> None:
    """Raise where programs come with the weights: not every version of diffusers asks before it runs these."""
    # A link to a folder can hide a program, too.
    for place, folders, names in os.walk(folder):
        if any(name.endswith(".py") for name in names) or any(Path(place, name).is_symlink() for name in folders):
            allowed = "a pipeline of weights and settings alone: no Python files, no links to folders"
            raise InvalidInput("model", folder.name, allowed)


def prompts_of(text: str, classes: Sequence[str]) -> tuple[str, ...]:
    """Return a prompt for each class; underscores and hyphens in names become spaces."""
    if _PLACE not in text:
        raise InvalidInput("text", text, f"a prompt with {_PLACE} where a class's name belongs")
    return tuple(text.replace(_PLACE, name.replace("_", " ").replace("-", " ")) for name in classes)
