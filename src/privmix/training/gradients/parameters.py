"""A model's trainable parameters as one flat vector: what gradients, noise and public directions share."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from privmix.errors import InvalidInput


class FlatParameters:
    """The trainable parameters of a model, in order of ``named_parameters()``, as one vector of length P."""

    def __init__(self, model: nn.Module) -> None:
        chosen = [(name, tensor) for name, tensor in model.named_parameters() if tensor.requires_grad]
        if not chosen:
            raise InvalidInput("model", title_of(model), "a model with trainable parameters")
        self._tensors = [tensor for _, tensor in chosen]
        self.names = tuple(name for name, _ in chosen)
        self.shapes = tuple(tuple(tensor.shape) for tensor in self._tensors)
        self._lengths = [math.prod(shape) for shape in self.shapes]
        self.size = sum(self._lengths)

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

    def set_grad(self, flat: Tensor) -> None:
        """Make ``flat`` (P,) the gradient that an optimiser sees."""
        for tensor, piece in zip(self._tensors, torch.split(flat, self._lengths), strict=True):
            tensor.grad = piece.view_as(tensor).to(tensor.dtype).clone()


def title_of(model: nn.Module) -> str:
    """Its name in messages: the user's own class where one is wrapped."""
    return str(getattr(model, "title", type(model).__name__))
