"""What is asked of drawing synthetic images from public ones, option by option; importing this takes no time."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from privmix.jobs.columns import Columns
from privmix.jobs.options import CLASSES_HELP
from privmix.options import described, option

_TRAINING: Final = "Training"
_DRAWING: Final = "Drawing"


@described
@dataclass(frozen=True, kw_only=True)
class SynthesisOptions:
    """Of which public images, how many, and how."""

    text: str | None = option(
        None, "In place of `public`: a prompt such as 'a photo of a {class}', for the pipeline in `model`.", _DRAWING
    )
    model: str | None = option(None, "Text-to-image pipeline of diffusers: folder, or OWNER/NAME on the hub.", _DRAWING)
    images: int = option(10_000, "How many to draw, the classes in equal numbers.")
    split: str = option("train", "Which part of the public dataset.")
    classes: Any = option(None, CLASSES_HELP)
    columns: Columns = field(default_factory=Columns)
    diffusion: str = option(
        "edm",
        "edm (Karras et al. 2022), class by class; or ddpm (Ho et al. 2020), whose images a classifier labels.",
        _TRAINING,
    )
    network: str = option("small", "tiny, small (1 million weights, for a CPU) or ddpm++ (for a GPU).", _TRAINING)
    steps: int = option(5000, "Steps of training.", _TRAINING)
    minutes: float | None = option(None, "End the training sooner, after so many minutes.", _TRAINING)
    batch_size: int = option(64, "Images a step.", _TRAINING)
    learning_rate: float = option(1e-3, "Learning rate of Adam.", _TRAINING)
    half_life: int = option(50_000, "Images after which one's part in the averaged weights has halved.", _TRAINING)
    noise_mean: float | None = option(
        None, "Mean of ln(noise level) in edm's training: higher for outlines, lower for texture. [-1.2]", _TRAINING
    )
    augment_probability: float = option(
        0.12,
        "Probability of each turn, stretch or shift, which the network gets as an input (Karras et al. 2022).",
        _TRAINING,
    )
    mirror: bool = option(False, "Mirror images left and right; not for digits.", _TRAINING)
    precision: str = option("float32", "float32 or bfloat16.", _TRAINING)
    device: str = option("cpu", "cpu or cuda.", _TRAINING)
    guidance: float = option(0.0, "Weight of discriminator guidance (Kim et al. 2023); 2 is its whole step.", _DRAWING)
    sampler_steps: int = option(18, "Noise levels of a path: two evaluations of the network each; ddpm: one.", _DRAWING)
    draw_batch: int = option(100, "Images drawn at a time; bounds the memory.", _DRAWING)
    features: str = option("pixels", "In which quality is measured: pixels, scattering, vision:MODEL, ...")
    reference: str | None = option(
        None, "PUBLIC images that the model was not made of, to measure against and to classify. Default: its own."
    )
    seed: int = option(0, "Seed of everything drawn.")
    work: Path | None = option(
        None, "Folder for the model, from which later runs draw anew, and a killed one goes on. Default: beside `out`."
    )
    ledger: str | None = option(
        None,
        "Refuse files that were charged to this ledger (sqlite:///FILE, ...), which knows them byte by byte: the same "
        "records saved anew pass.",
    )
