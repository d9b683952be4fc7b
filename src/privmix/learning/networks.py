"""Networks that the reference learner trains, untrained."""

import math

import torch
from torch import nn

from privmix.errors import InvalidInput
from privmix.learning.base import ReleaseFacts


def built(model: str, facts: ReleaseFacts) -> nn.Module:
    if model == "linear":
        return _bare(nn.Linear, facts.dim, len(facts.classes))
    # Li et al. 2022, Table 5: two 5x5 convolutions with max-pooling, three fully connected layers, ReLU between.
    shape = facts.input_shape
    fits = len(shape) in (2, 3) and math.prod(shape) == facts.dim and not (shape[0] % 4 or shape[1] % 4)
    if not fits:
        allowed = f"(H, W) or (H, W, channels), H and W divisible by 4, of {facts.dim} pixels for the cnn"
        raise InvalidInput("input_shape", shape, allowed)
    height, width, channels = (*shape, 1)[:3]
    return nn.Sequential(
        _ToImages(height, width, channels),
        _bare(nn.Conv2d, channels, 32, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        _bare(nn.Conv2d, 32, 48, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        _bare(nn.Linear, 48 * (height // 4) * (width // 4), 100),
        nn.ReLU(),
        _bare(nn.Linear, 100, 100),
        nn.ReLU(),
        _bare(nn.Linear, 100, len(facts.classes)),
    )


def _bare(layer: type[nn.Module], *sizes: int, **options: int) -> nn.Module:
    """Return a layer with its weights unset: torch's own initialisation would draw from the global generator."""
    device = torch.get_default_device()
    made: nn.Module = nn.utils.skip_init(layer, *sizes, device=device, **options)  # type: ignore[no-untyped-call]
    return made


class _ToImages(nn.Module):
    """Flat (b, H*W*c) pixels, channels last as extracted, to (b, c, H, W)."""

    def __init__(self, height: int, width: int, channels: int) -> None:
        super().__init__()
        self.shape = (height, width, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(-1, *self.shape).permute(0, 3, 1, 2)


class Standard(nn.Module):
    """(x - shift) / scale, column by column; not trained."""

    shift: torch.Tensor
    scale: torch.Tensor

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.register_buffer("shift", torch.zeros(dim))
        self.register_buffer("scale", torch.ones(dim))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x - self.shift) / self.scale


def initialise(network: nn.Module, generator: torch.Generator) -> None:
    """PyTorch's default law for these layers, uniform within 1/sqrt(fan-in) of 0, drawn from ``generator``."""
    with torch.no_grad():
        for layer in network.modules():
            if isinstance(layer, nn.Linear | nn.Conv2d):
                bound = 1 / math.sqrt(layer.weight[0].numel())
                layer.weight.uniform_(-bound, bound, generator=generator)
                assert layer.bias is not None
                layer.bias.uniform_(-bound, bound, generator=generator)
