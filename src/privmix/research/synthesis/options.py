"""Options of drawing synthetic images from public ones; importing this takes no time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from privmix.jobs.options import CLASSES_HELP, DEVICE_HELP
from privmix.options import described, option
from privmix.research.options import ImageColumns

_TRAINING: Final = "Training"
_DRAWING: Final = "Drawing"


@described
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SynthesisOptions(ImageColumns):
    """Which public images, how many, and how."""

    text: str | None = option(None, "Prompt such as 'a photo of a {class}', instead of `public`.", _DRAWING)
    model: str | None = option(None, "Text-to-image pipeline of diffusers: folder, or OWNER/NAME on the hub.", _DRAWING)
    images: int = option(10_000, "Number of images, equally many per class.")
    split: str = option("train", "Split of the public dataset.")
    classes: Any = option(None, CLASSES_HELP)
    diffusion: str = option("edm", "Diffusion model: edm (class by class) or ddpm (a classifier labels).", _TRAINING)
    network: str = option("small", "Network: tiny, small (1 million weights) or ddpm++ (for a GPU).", _TRAINING)
    steps: int = option(5000, "Number of training steps.", _TRAINING)
    minutes: float | None = option(None, "Time limit of the training, in minutes.", _TRAINING)
    batch_size: int = option(64, "Number of images per step.", _TRAINING)
    learning_rate: float = option(1e-3, "Learning rate of Adam.", _TRAINING)
    half_life: int = option(50_000, "Half-life of the averaged weights, in images.", _TRAINING)
    noise_mean: float | None = option(
        None, "Mean of ln(noise level) for edm; higher favours outlines. Default: -1.2.", _TRAINING
    )
    augment_probability: float = option(
        0.12, "Probability of each turn, stretch or shift of a training image.", _TRAINING
    )
    mirror: bool = option(False, "Mirror images left and right; not for digits.", _TRAINING)
    precision: str = option("float32", "Precision: float32 or bfloat16.", _TRAINING)
    device: str = option("auto", DEVICE_HELP, _TRAINING)
    guidance: float = option(0.0, "Weight of discriminator guidance (Kim et al. 2023); 2: full step.", _DRAWING)
    sampler_steps: int = option(18, "Number of noise levels per path.", _DRAWING)
    draw_batch: int = option(100, "Number of images drawn at a time.", _DRAWING)
    features: str = option("pixels", "Extractor for quality measures: pixels, scattering, vision:MODEL or others.")
    reference: str | None = option(None, "PUBLIC images for quality measures, unseen in training. Default: its own.")
    seed: int = option(0, "Seed of all draws.")
    work: Path | None = option(None, "Model folder, for resuming and later runs. Default: next to `out`.")
    ledger: str | None = option(None, "Ledger of private files to refuse: sqlite:///FILE or postgresql://...")
