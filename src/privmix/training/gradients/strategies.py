"""Sums of clipped per-record gradients, by several strategies that compute the same thing.

For record i with views (x_k, t_k), k = 1..K, its gradient is that of the mean loss over its views, optionally at
perturbed weights (Park et al. 2024, equation 5), scaled and shifted by public vectors:

    g_i = scale * (1/K) sum_k grad loss(w + v_k; x_k, t_k) - centre,        result = sum_i factor(|g_i|) g_i

(Bao et al. 2023, equation 4). ``loop`` differentiates record by record, with the K views as the batch and the memory of
one gradient. ``vmap`` differentiates many records at once, which is faster where one record cannot fill the machine.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import ClassVar, Final

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy

from privmix._registry import Registry
from privmix.devices import full_precision
from privmix.errors import InvalidInput
from privmix.training.gradients.parameters import Clipping, FlatParameters, SideInformation, lengths

# Records whose clipped gradients are added in float32. In long sums, one more record moves the rounding of the others.
_ADDED: Final = 64


class GradientStrategy(ABC):
    """A way to compute the sum of clipped gradients.

    Formal guarantees (of every strategy):
        * Clipped once: a record adds one vector of norm at most ``clipping.clip_norm``, for any number of views.
        * Chunks change nothing: the sum does not depend on how records are cut into calls, up to float32 rounding.
        * Added in float64, but for up to 64 gradients at once.
        * No record, no gradient: an empty call adds exactly zero.
        * Total: a record whose gradient is not finite adds zero; it raises nothing and changes no other record's share.
        * Own share: what a record adds depends on no other in ``loop``, and in ``closed-form`` not by more than float64
          rounds. ``vmap`` multiplies many records together in float32, and libraries choose how by their number and by
          how they lie in memory. Another choice may turn a ReLU over, and move that record's gradient by a hundredth.
          Calls of one size use ``count`` for how many of them count. No choice then depends on how many records there
          are, which of them have no finite gradient, or what made the views. This rests on kernels that treat the rows
          of a call alike, which libraries do but don't promise; ``loop`` does without.

    Attributes:
        name: value of the option ``strategy``; ``STRATEGIES.register`` makes it known.
        preferred: taken without a trial where it fits.
        definition: the reference of all others, taken where no trial decides.
        trial: records of a speed trial; few where each takes as long as the last.
        together: it multiplies records together, and needs the same number in every call.
        held: numbers for every weight that it holds for every record of a chunk.
        reused: bytes of features in a chunk on a CPU above which it gets slower, or None.
    """

    name: ClassVar[str]
    preferred: ClassVar[bool] = False
    definition: ClassVar[bool] = False
    trial: ClassVar[int] = 16
    together: ClassVar[bool] = True
    held: ClassVar[int] = 0
    reused: ClassVar[int | None] = None

    def __init__(self, model: nn.Module, flat: FlatParameters, clipping: Clipping, *, amp: bool = False) -> None:
        self.model: nn.Module = model
        self.flat: Final = flat
        self.clipping: Final = clipping
        self.amp: Final = amp

    @classmethod
    def fits(cls, model: nn.Module) -> bool:
        """Whether it is for such a model; the constructor raises for others."""
        return True

    @abstractmethod
    def clipped_sum(self, views: Tensor, targets: Tensor, side: SideInformation, count: int | None = None) -> Tensor:
        """(P,) sum over views (b, K, ...) and targets (b, K, classes) of the first ``count`` records, or all."""
        # Records after `count` fill the call up, and add exactly zero.

    def _precision(self) -> AbstractContextManager[object]:
        return torch.autocast(self.flat.device.type, torch.bfloat16) if self.amp else nullcontext()

    def _clipped_and_summed(self, gradients: Tensor, side: SideInformation) -> Tensor:
        """Scale and centre gradients (b, P), clip what comes out and add it up: (P,)."""
        adjusted = gradients if side.scale is None else gradients * side.scale
        adjusted = adjusted if side.centre is None else adjusted - side.centre
        norms = lengths(adjusted)
        if not bool(torch.isfinite(norms).all()):
            # Zero times infinity is no number: what is not finite is taken out before it is scaled.
            adjusted = torch.where(torch.isfinite(norms)[:, None], adjusted, 0.0)
        factors = self.clipping.factors(norms).to(adjusted.dtype)
        total = torch.zeros(self.flat.size, dtype=torch.float64, device=adjusted.device)
        for some, rows in zip(torch.split(factors, _ADDED), torch.split(adjusted, _ADDED), strict=True):
            total += some @ rows
        return total

    def _weights(self, side: SideInformation) -> list[dict[str, Tensor]]:
        """Parameters to differentiate at: the weights, or the weights plus each perturbation."""
        weights = self.flat.get()
        if side.perturbations is None:
            return [self.flat.unflatten(weights)]
        return [self.flat.unflatten(weights + one) for one in side.perturbations]


def in_rows(part: Tensor) -> Tensor:
    """Return the same numbers in row-major memory: libraries choose kernels by strides, too."""
    fresh = part.new_empty(part.shape)
    return part if part.stride() == fresh.stride() else fresh.copy_(part)


def shares(views: int, perturbations: int) -> Iterator[slice]:
    """Yield views of each perturbation, as even as can be; raise for more perturbations than views."""
    if perturbations > views:
        raise InvalidInput("perturbations", perturbations, f"at most {views}, the views of a record")
    size, more = divmod(views, perturbations)
    start = 0
    for index in range(perturbations):
        stop = start + size + (index < more)
        yield slice(start, stop)
        start = stop


STRATEGIES: Final[Registry[type[GradientStrategy]]] = Registry(
    "strategy", "privmix.training.gradients", "privmix.strategies"
)
"""Strategies by name. Each class declares its needs and abilities; no other code refers to a name."""


@STRATEGIES.register
class LoopGradients(GradientStrategy):
    """One backward pass a record, over the record's views as its batch."""

    name: ClassVar[str] = "loop"
    definition: ClassVar[bool] = True
    trial: ClassVar[int] = 2
    together: ClassVar[bool] = False

    def clipped_sum(self, views: Tensor, targets: Tensor, side: SideInformation, count: int | None = None) -> Tensor:
        total = torch.zeros(self.flat.size, dtype=torch.float64, device=self.flat.device)
        joined = total.device.type != "cpu" or side.scale is not None or side.centre is not None
        # TF32 would round by more than the clipping's margin.
        with full_precision(total.device):
            for pieces in self._gradients(views[:count], targets[:count], side):
                if joined:
                    total += self._clipped_and_summed(torch.cat(pieces)[None], side)
                else:
                    self._add_clipped(total, pieces)
        return total

    def _add_clipped(self, total: Tensor, pieces: list[Tensor]) -> None:
        """Add one record's gradient tensor by tensor: on a CPU, joining large ones costs more than adding them."""
        norm = torch.linalg.vector_norm(torch.cat([lengths(piece[None]) for piece in pieces]))
        factor = float(self.clipping.factors(norm))
        # Zero times infinity is no number.
        if factor > 0:
            sizes = [len(piece) for piece in pieces]
            for part, piece in zip(torch.split(total, sizes), pieces, strict=True):
                part.add_(piece, alpha=factor)

    def _gradients(self, views: Tensor, targets: Tensor, side: SideInformation) -> Iterator[list[Tensor]]:
        """Each record's gradient, in flat pieces that follow one another."""
        if side.perturbations is None:
            parameters = [tensor for tensor in self.model.parameters() if tensor.requires_grad]
            for x, t in zip(views, targets, strict=True):
                with self._precision():
                    loss = cross_entropy(self.model(x), t)
                yield [part.reshape(-1) for part in torch.autograd.grad(loss, parameters)]
            return
        leaves = [
            {name: tensor.clone().requires_grad_() for name, tensor in weights.items()}
            for weights in self._weights(side)
        ]
        parts = list(shares(views.shape[1], len(leaves)))
        for x, t in zip(views, targets, strict=True):
            gradient = torch.zeros(self.flat.size, device=self.flat.device)
            for weights, part in zip(leaves, parts, strict=True):
                with self._precision():
                    loss = cross_entropy(functional_call(self.model, weights, (x[part],)), t[part], reduction="sum")
                found = torch.autograd.grad(loss / views.shape[1], list(weights.values()))
                gradient += torch.cat([piece.reshape(-1) for piece in found])
            yield [gradient]


@STRATEGIES.register
class VmapGradients(GradientStrategy):
    """All records' gradients at once, by ``torch.func``: b x P numbers are held."""

    name: ClassVar[str] = "vmap"
    held: ClassVar[int] = 3

    def clipped_sum(self, views: Tensor, targets: Tensor, side: SideInformation, count: int | None = None) -> Tensor:
        if len(views) == 0:
            return torch.zeros(self.flat.size, device=self.flat.device)
        views, targets = in_rows(views), in_rows(targets)
        gradient: Tensor | None = None
        weights = self._weights(side)
        # As above; and with TF32 the rounding of a record's gradient could hang on how many others there are.
        with full_precision(self.flat.device):
            for at, part in zip(weights, shares(views.shape[1], len(weights)), strict=True):
                found = vmap(grad(self._loss), in_dims=(None, 0, 0))(at, views[:, part], targets[:, part])
                share = self.flat.flatten(found, batch_axes=1) / views.shape[1]
                gradient = share if gradient is None else gradient + share
            assert gradient is not None
            return self._clipped_and_summed(gradient[:count], side)

    def _loss(self, weights: dict[str, Tensor], x: Tensor, targets: Tensor) -> Tensor:
        with self._precision():
            return cross_entropy(functional_call(self.model, weights, (x,)), targets, reduction="sum")
