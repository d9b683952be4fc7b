"""What is asked of drawing synthetic images from public ones, option by option; importing this takes no time."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from privmix.jobs.asked import CLASSES_HELP, told
from privmix.jobs.columns import Columns

_TRAINING: Final = "Training"
_DRAWING: Final = "Drawing"


@dataclass(frozen=True, kw_only=True)
class SynthesisOptions:
    """Of which public images, how many, and how.

    Attributes:
        text: draw by a public text-to-image pipeline in place of a model of one's own: a prompt with ``{class}``.
        model: that pipeline: a folder, or a name on the hub.
        images: how many to draw, the classes in equal numbers.
        split: which part of the public dataset.
        classes: number or names of the classes.
        columns: what is declared of columns and images.
        diffusion: ``edm`` (Karras et al. 2022), told of classes; or ``ddpm`` (Ho et al. 2020), which is not: its images
            are labelled by a linear classifier of the public ones, in ``features``.
        network: ``tiny``, ``small`` or ``ddpm++``.
        steps: of training.
        minutes: end the training sooner, after so much time.
        batch_size, learning_rate, half_life: of the training.
        noise_mean: mean of ln(sigma) in EDM's training; Karras et al.'s -1.2 where None. More of it teaches outlines,
            less of it textures.
        augment_probability: of each change that the network is told of.
        mirror: mirror images left and right.
        precision: ``float32`` or ``bfloat16``.
        device: ``cpu`` or ``cuda``.
        guidance: weight of discriminator guidance; 0 none.
        sampler_steps: noise levels of a path.
        draw_batch: images drawn at a time; bounds the memory.
        features: in which quality is measured; ``pixels``, ``scattering``, ... as for releases.
        reference: public images that the model was not made of, to measure against; those it was made of where None.
        seed: of everything drawn.
        work: folder for the model and images drawn so far, which stays: later runs draw from the same model with other
            guidance or sampler steps. None: one beside ``out``, for the time of the run.
        ledger: refuse files that were charged to this ledger. It knows them byte by byte: the same records saved anew
            pass. One that knows no data is refused.
    """

    text: str | None = told(
        None, "In place of `public`: a prompt such as 'a photo of a {class}', for the pipeline in `model`.", _DRAWING
    )
    model: str | None = told(None, "Text-to-image pipeline of diffusers: folder, or OWNER/NAME on the hub.", _DRAWING)
    images: int = told(10_000, "How many to draw, the classes in equal numbers.")
    split: str = told("train", "Which part of the public dataset.")
    classes: Any = told(None, CLASSES_HELP)
    columns: Columns = field(default_factory=Columns)
    diffusion: str = told(
        "edm",
        "edm (Karras et al. 2022), told of classes; or ddpm (Ho et al. 2020), whose images a classifier labels.",
        _TRAINING,
    )
    network: str = told("small", "tiny, small (1 million weights, for a CPU) or ddpm++ (for a GPU).", _TRAINING)
    steps: int = told(5000, "Steps of training.", _TRAINING)
    minutes: float | None = told(None, "End the training sooner, after so many minutes.", _TRAINING)
    batch_size: int = told(64, "Images a step.", _TRAINING)
    learning_rate: float = told(1e-3, "Of Adam.", _TRAINING)
    half_life: int = told(50_000, "Images after which one's part in the averaged weights has halved.", _TRAINING)
    noise_mean: float | None = told(
        None, "Mean of ln(noise level) in edm's training: higher for outlines, lower for texture. [-1.2]", _TRAINING
    )
    augment_probability: float = told(
        0.12, "Of each turn, stretch or shift that the network is told of (Karras et al. 2022).", _TRAINING
    )
    mirror: bool = told(False, "Mirror images left and right; not for digits.", _TRAINING)
    precision: str = told("float32", "float32 or bfloat16.", _TRAINING)
    device: str = told("cpu", "cpu or cuda.", _TRAINING)
    guidance: float = told(0.0, "Weight of discriminator guidance (Kim et al. 2023); 2 is its whole step.", _DRAWING)
    sampler_steps: int = told(18, "Noise levels of a path: two evaluations of the network each; ddpm: one.", _DRAWING)
    draw_batch: int = told(100, "Images drawn at a time; bounds the memory.", _DRAWING)
    features: str = told("pixels", "In which quality is measured: pixels, scattering, vision:MODEL, ...")
    reference: str | None = told(
        None, "PUBLIC images that the model was not made of, to measure against and to classify. Default: its own."
    )
    seed: int = told(0, "Of everything drawn.")
    work: Path | None = told(
        None, "Folder for the model, from which later runs draw anew, and a killed one goes on. Default: beside `out`."
    )
    ledger: str | None = told(
        None,
        "Refuse files that were charged to this ledger (sqlite:///FILE, ...), which knows them byte by byte: the same "
        "records saved anew pass.",
    )
