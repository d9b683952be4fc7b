"""A model's trainable parameters as one flat vector, and the public data that a private step takes in addition."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn

from privmix.errors import InvalidInput


class FlatParameters:
    """The trainable parameters of a model, in order of ``named_parameters()``, as one vector of length P."""

    def __init__(self, model: nn.Module) -> None:
        chosen = [(name, tensor) for name, tensor in model.named_parameters() if tensor.requires_grad]
        if not chosen:
            # The user's own class where one is wrapped.
            title = str(getattr(model, "title", type(model).__name__))
            raise InvalidInput("model", title, "a model with trainable parameters")
        self._tensors = [tensor for _, tensor in chosen]
        self.names: Final = tuple(name for name, _ in chosen)
        self.shapes: Final = tuple(tuple(tensor.shape) for tensor in self._tensors)
        self._lengths = [math.prod(shape) for shape in self.shapes]
        self.size: Final = sum(self._lengths)

    @property
    def device(self) -> torch.device:
        return self._tensors[0].device

    def flatten(self, tensors: Mapping[str, Tensor], *, batch_axes: int = 0) -> Tensor:
        """Join named tensors of shapes (*batch, *shape) to one of shape (*batch, P)."""
        parts = [tensors[name].flatten(start_dim=batch_axes) for name in self.names]
        # A scalar parameter has no axis to flatten into.
        parts = [part if part.dim() > batch_axes else part.unsqueeze(-1) for part in parts]
        return torch.cat(parts, dim=-1)

    def unflatten(self, flat: Tensor) -> dict[str, Tensor]:
        """Cut (*batch, P) into named tensors (*batch, *shape); views where possible."""
        pieces = torch.split(flat, self._lengths, dim=-1)
        lead = flat.shape[:-1]
        return {
            name: piece.reshape(*lead, *shape)
            for name, shape, piece in zip(self.names, self.shapes, pieces, strict=True)
        }

    def get(self) -> Tensor:
        return torch.cat([tensor.detach().reshape(-1) for tensor in self._tensors])

    @torch.no_grad()
    def set(self, flat: Tensor) -> None:
        for tensor, piece in zip(self._tensors, torch.split(flat, self._lengths), strict=True):
            tensor.copy_(piece.view_as(tensor))


# They cost no privacy: a record's gradient before clipping may depend on public data and on released weights.


@dataclass(frozen=True, eq=False)
class SideInformation:
    """Public quantities of one step, over the P trainable parameters; each may be None."""

    # perturbations (V, P): v_k; a record's views are split evenly among them and each share is differentiated at
    # weights + v_k (Park et al. 2024, equation 5). scale (P,): factors on a record's mean gradient, then centre (P,) is
    # subtracted, then it is clipped.

    perturbations: Tensor | None = None
    scale: Tensor | None = None
    centre: Tensor | None = None
