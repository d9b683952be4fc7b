"""Networks inside a denoiser: U-Nets of the diffusers library for images, a small perceptron for points."""

from dataclasses import dataclass
from typing import Any, Final

from torch import Tensor, nn

from privmix.errors import InvalidInput, MissingExtra, check_choice
from privmix.research.synthesis.augment import NUMBERS


@dataclass(frozen=True, eq=False)
class Condition:
    """Inputs of a network next to the image: (b,) classes, and (b, 9) changes by augmentation."""

    labels: Tensor
    changes: Tensor | None = None


@dataclass(frozen=True)
class UNetSize:
    """Size of a U-Net; each resolution is half of the one before."""

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
    """Return the size of that name; raise InvalidInput unless images of that shape (C, H, W) can be halved as often."""
    made = SIZES[check_choice("network", size, SIZES)]
    halvings = 2 ** (len(made.channels) - 1)
    if shape[1] != shape[2] or shape[1] % halvings:
        raise InvalidInput("images", f"{shape[1]} x {shape[2]}", f"squares whose side {halvings} divides")
    return made


class UNet(nn.Module):
    """A U-Net given noise level, class and augmentation of each image; see :class:`SIZES`."""

    def __init__(self, size: str, shape: tuple[int, int, int], classes: int) -> None:
        super().__init__()
        made = check_size(size, shape)
        channels, height, _ = shape
        self.unet: nn.Module = _unet_2d()(
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
        self.of_class: Final = nn.Embedding(classes, width_of_embedding)
        self.of_changes: Final = nn.Linear(NUMBERS, width_of_embedding, bias=False)

    def forward(self, x: Tensor, noise: Tensor, condition: Condition) -> Tensor:
        """(b, C, H, W), (b,) and what is known of each -> (b, C, H, W)."""
        told = self.of_class(condition.labels)
        if condition.changes is not None:
            told = told + self.of_changes(condition.changes)
        found: Tensor = self.unet(x, noise, class_labels=told).sample
        return found


def _unet_2d() -> Any:
    try:
        from diffusers import UNet2DModel
    except ImportError:
        raise MissingExtra("diffusers", "synthesis") from None
    return UNet2DModel
