"""Networks inside a denoiser: U-Nets of the diffusers library for images, a small perceptron for points."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn

from privmix.errors import InvalidInput, MissingExtra, check_choice
from privmix.research.synthesis.augment import NUMBERS


@dataclass(frozen=True, eq=False)
class Condition:
    """What a network is told of each image.

    Attributes:
        labels: (b,) classes.
        changes: (b, 9) how augmentation changed it; None: not at all.
    """

    labels: Tensor
    changes: Tensor | None = None


@dataclass(frozen=True)
class UNetSize:
    """Size of a U-Net.

    Attributes:
        channels: at each resolution, halved from one to the next.
        layers: residual blocks at each.
        attention: at which of the resolutions.
        dropout: in the blocks.
        groups: of the group norms.
    """

    channels: tuple[int, ...]
    layers: int
    attention: tuple[bool, ...]
    dropout: float = 0.0
    groups: int = 8


# "small" trains on a CPU; "ddpm++" is that of Karras et al. 2022 for images of 32 x 32, for a GPU.
SIZES: Final = {
    "tiny": UNetSize((16, 32), 1, (False, False)),
    "small": UNetSize((32, 64, 64), 1, (False, False, False)),
    "ddpm++": UNetSize((256, 256, 256), 4, (False, True, False), dropout=0.13, groups=32),
}


def check_size(size: str, shape: tuple[int, int, int]) -> UNetSize:
    """The size of that name, if it is one for images of that shape (C, H, W).

    Raises:
        InvalidInput: no such size, or images that can't be halved as often.
    """
    made = SIZES[check_choice("network", size, SIZES)]
    halvings = 2 ** (len(made.channels) - 1)
    if shape[1] != shape[2] or shape[1] % halvings:
        raise InvalidInput("images", f"{shape[1]} x {shape[2]}", f"squares whose side {halvings} divides")
    return made


class UNet(nn.Module):
    """A U-Net that is told noise level, class and augmentation of each image; see :class:`SIZES`.

    Args:
        size: a name in :data:`SIZES`.
        shape: (C, H, W) of the images; height and width halve as often as the size has resolutions.
        classes: number of classes.

    Raises:
        InvalidInput: no such size, or images that can't be halved as often.
        MissingExtra: diffusers is not installed.
    """

    def __init__(self, size: str, shape: tuple[int, int, int], classes: int) -> None:
        super().__init__()
        made = check_size(size, shape)
        channels, height, _ = shape
        self.unet = _unet_2d()(
            sample_size=height,
            in_channels=channels,
            out_channels=channels,
            block_out_channels=made.channels,
            layers_per_block=made.layers,
            down_block_types=tuple("AttnDownBlock2D" if one else "DownBlock2D" for one in made.attention),
            up_block_types=tuple("AttnUpBlock2D" if one else "UpBlock2D" for one in reversed(made.attention)),
            norm_num_groups=made.groups,
            dropout=made.dropout,
            add_attention=any(made.attention),
            class_embed_type="identity",
        )
        width_of_embedding = 4 * made.channels[0]
        self.of_class = nn.Embedding(classes, width_of_embedding)
        self.of_changes = nn.Linear(NUMBERS, width_of_embedding, bias=False)

    def forward(self, x: Tensor, noise: Tensor, condition: Condition) -> Tensor:
        """(b, C, H, W), (b,) and what is known of each -> (b, C, H, W)."""
        told = self.of_class(condition.labels)
        if condition.changes is not None:
            told = told + self.of_changes(condition.changes)
        found: Tensor = self.unet(x, noise, class_labels=told).sample
        return found


class PointNetwork(nn.Module):
    """Two blocks of linear layers for points in the plane (Park et al. 2024, appendix D.1).

    Args:
        dim: of the points.
        width: of the layers.
    """

    def __init__(self, dim: int = 2, width: int = 64) -> None:
        super().__init__()
        self.frequencies: Tensor
        self.register_buffer("frequencies", math.pi * 2.0 ** torch.arange(4))
        layers: list[nn.Module] = [nn.Linear(dim + 8, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(width, width), nn.SiLU(), nn.Linear(width, dim))

    def forward(self, x: Tensor, noise: Tensor, condition: Any = None) -> Tensor:
        """(b, dim) and (b,) -> (b, dim)."""
        angles = noise[:, None] * self.frequencies / 4
        found: Tensor = self.layers(torch.cat([x, angles.sin(), angles.cos()], dim=1))
        return found


def _unet_2d() -> Any:
    try:
        from diffusers import UNet2DModel
    except ImportError:
        raise MissingExtra("diffusers", "synthesis") from None
    return UNet2DModel
