"""Trainable parameters as one flat vector, public data of a private step, and the bound on a record's gradient."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn

from privmix.errors import InvalidInput
from privmix.fields import Positive, check_fields
from privmix.training.gradients.config import AUTOMATIC, FLAT, ClipNorm, ClippingKind


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


# Norms and products are rounded in float32: without this, a clipped gradient could be longer than the bound by 1e-6.
_SAFE: Final = 1 - 2.0**-18
# Near the ends of float32's range a gradient may be finite or not, by how its sums were ordered; neighbours in a chunk
# decide that. Factors below 1e-36 are rounded by as much as their size. Over this number of powers of ten before these
# ends, a record's share falls evenly to nothing: no rounding makes or breaks a whole share.
_LAST_POWER: Final = 36.0
_FADING: Final = 6.0
# Numbers whose norms are taken at once. In float64 a copy of them is made: a CPU's is to stay in its cache.
GPU_BLOCK: Final = 2**24
CPU_BLOCK: Final = 2**16


@dataclass(frozen=True)
class Clipping:
    """Bound a vector's L2 norm by ``clip_norm``.

    ``flat`` scales by min(1, C / norm) (Abadi et al. 2016). ``automatic`` scales by C / (norm + gamma), which
    normalises every gradient and leaves one hyper-parameter less to choose (AUTO-S; Bu, Wang, Zha, Karypis 2023).

    Formal guarantees:
        * Bounded: factor times norm is at most ``clip_norm``, also after rounding to float32.
        * Total: a norm that is infinite, not a number, or so long that its factor would leave float32's range has
          factor 0: such a record counts as absent.
        * Own record only: a factor depends on that record's norm.
        * Steady: factor times norm is continuous in the norm, up to infinity. A norm whose last bits depend on how sums
          were ordered adds the same, but for as much: no neighbour turns a share on or off.
    """

    clip_norm: ClipNorm
    kind: ClippingKind = FLAT
    gamma: Positive = 0.01

    def __post_init__(self) -> None:
        check_fields(self)

    def factors(self, norms: Tensor) -> Tensor:
        bound = self.clip_norm * _SAFE
        factors = bound / (norms + self.gamma) if self.kind == AUTOMATIC else (bound / norms).clamp(max=1.0)
        # Powers of ten that are left before the norm, or the factor, leaves the range.
        room = torch.minimum(_LAST_POWER - norms.log10(), _LAST_POWER + factors.log10())
        kept = (room / _FADING).clamp(0.0, 1.0)
        return torch.where(torch.isfinite(norms) & (room > 0), factors * kept, torch.zeros_like(norms))


def lengths(vectors: Tensor) -> Tensor:
    """L2 norms (b,), in float64, of vectors (b, P)."""
    # A float32 norm of millions of numbers may be too short by more than 1e-3, and the clipped vector too long by that.
    block = CPU_BLOCK if vectors.device.type == "cpu" else GPU_BLOCK
    rows = torch.split(vectors, max(1, block // max(1, vectors.shape[1])))
    return torch.cat([_row_lengths(some, block) for some in rows])


def _row_lengths(vectors: Tensor, block: int) -> Tensor:
    width = min(block, vectors.shape[1])
    # One buffer for all pieces: memory that is new for each of them costs more than the sums.
    buffer = torch.empty(len(vectors), width, dtype=torch.float64, device=vectors.device)
    pieces = []
    for piece in torch.split(vectors, width, dim=1):
        wide = buffer[:, : piece.shape[1]].copy_(piece)
        pieces.append(torch.linalg.vector_norm(wide, dim=1))
    total: Tensor = torch.linalg.vector_norm(torch.stack(pieces), dim=0)
    return total
