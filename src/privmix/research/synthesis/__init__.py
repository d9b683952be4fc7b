"""Synthetic images from public ones: a diffusion model, its guidance, metrics, and pools that other commands read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privmix.plugins import lazily

if TYPE_CHECKING:
    from privmix.research.synthesis.ddpm import DdimConfig, DdpmConfig
    from privmix.research.synthesis.denoising import Denoiser, denoising_loss, sample
    from privmix.research.synthesis.diffusion import DiffusionConfig, train_diffusion
    from privmix.research.synthesis.edm import EdmConfig, SamplerConfig
    from privmix.research.synthesis.guidance import GuidanceConfig, density_ratio_guidance, train_discriminator
    from privmix.research.synthesis.job import Synthesised, SynthesisJob
    from privmix.research.synthesis.metrics import (
        Copies,
        Manifold,
        SynthesisQuality,
        classification_accuracy,
        frechet_distance,
        inception_score,
        near_copies,
        precision_recall,
    )
    from privmix.research.synthesis.model import DiffusionModel
    from privmix.research.synthesis.pool import write_pool
else:
    __getattr__, __dir__ = lazily(__name__)

__all__ = [
    "Copies",
    "DdimConfig",
    "DdpmConfig",
    "Denoiser",
    "DiffusionConfig",
    "DiffusionModel",
    "EdmConfig",
    "GuidanceConfig",
    "Manifold",
    "SamplerConfig",
    "SynthesisJob",
    "SynthesisQuality",
    "Synthesised",
    "classification_accuracy",
    "denoising_loss",
    "density_ratio_guidance",
    "frechet_distance",
    "inception_score",
    "near_copies",
    "precision_recall",
    "sample",
    "train_diffusion",
    "train_discriminator",
    "write_pool",
]
