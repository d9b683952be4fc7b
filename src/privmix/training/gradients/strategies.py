"""Sums of clipped per-record gradients, by several strategies that compute the same thing.

For record i with views (x_k, t_k), k = 1..K, its gradient is that of the mean loss over its views, optionally at
perturbed weights (Park et al. 2024, equation 5), scaled and shifted by public vectors:

    g_i = scale * (1/K) sum_k grad loss(w + v_k; x_k, t_k) - centre,        result = sum_i factor(|g_i|) g_i

(Bao et al. 2023, equation 4). ``loop`` differentiates record by record, with the K views as the batch and the memory of
one gradient. ``vmap`` differentiates many records at once, which is faster where one record cannot fill the machine.
"""

from __future__ import annotations

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
from privmix.training.gradients.clipping import Clipping, lengths
from privmix.training.gradients.ghost import ghost_clipped_sum, supports_ghost
from privmix.training.gradients.parameters import FlatParameters, SideInformation

# Sums of views' clipped shares, in clipping bounds, up to which rounding is below the clipping's margin.
CANCELLING: Final = 16.0
# Records whose clipped gradients are added in float32. In long sums, one more record moves the rounding of the others.
_ADDED: Final = 64


class GradientStrategy(ABC):
    """A way to compute the sum of clipped gradients.

    Formal guarantees (of every strategy):
        * Clipped once: a record adds one vector of norm at most ``clipping.clip_norm``, for any number of views.
        * Chunks change nothing: the sum does not depend on how records are cut into calls, up to float32 rounding.
        * Added in float64, but for up to 64 gradients at once, and for ``ghost``, whose sum is one backward pass.
        * No record, no gradient: an empty call adds exactly zero.
        * Total: a record whose gradient is not finite adds zero; it raises nothing and changes no other record's share.
        * Own share: what a record adds depends on no other in ``loop``, and in ``closed-form`` not by more than float64
          rounds. ``vmap`` and ``ghost`` multiply many records together in float32, and libraries choose how by their
          number and by how they lie in memory. Another choice may turn a ReLU over, and move that record's gradient by
          a hundredth. Calls of one size use ``count`` for how many of them count. No choice then depends on how many
          records there are, which of them have no finite gradient, or what made the views. This rests on kernels that
          treat the rows of a call alike, which libraries do but don't promise; ``loop`` does without.

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
    def obstacle(
        cls, model: nn.Module, input_shape: tuple[int, ...], *, with_side_information: bool, compiled: bool
    ) -> str | None:
        """Why it can't train such a model, in words; None where nothing is in its way."""
        return None

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


@STRATEGIES.register
class GhostGradients(GradientStrategy):
    """Norms layer by layer without gradients, then one weighted backward pass: see :mod:`.ghost`."""

    name: ClassVar[str] = "ghost"

    @classmethod
    def obstacle(
        cls, model: nn.Module, input_shape: tuple[int, ...], *, with_side_information: bool, compiled: bool
    ) -> str | None:
        if with_side_information:
            return "public data change gradients or weights"
        if compiled:
            return "ghost clipping watches layers, which a compiled model no longer has"
        return supports_ghost(model, input_shape)

    def clipped_sum(self, views: Tensor, targets: Tensor, side: SideInformation, count: int | None = None) -> Tensor:
        if any(value is not None for value in vars(side).values()):
            raise InvalidInput("strategy", self.name, "loop or vmap with methods that change gradients or weights")
        views, targets = in_rows(views), in_rows(targets)
        counts = torch.arange(len(views), device=views.device) < (len(views) if count is None else count)
        total, finite, cancels = self._weighted(views, targets, counts)
        copied = False
        # Zero times infinity is no number: records whose gradient is not finite, or nearly so, are left out. The others
        # stay where they are, in a call of the same size.
        while not bool(finite.all()):
            left = counts & finite
            if copied and torch.equal(left, counts):
                # A copy may be rounded otherwise than what it is of, which is then left out as well.
                left = counts.clone()
                left[int(counts.to(torch.uint8).argmax())] = False
            if not bool(left.any()):
                return torch.zeros(self.flat.size, device=self.flat.device)
            del total
            copied = True
            counts, first = left, int(left.to(torch.uint8).argmax())
            views, targets = (
                torch.where(counts.view(-1, *(1,) * (part.dim() - 1)), part, part[first : first + 1])
                for part in (views, targets)
            )
            total, finite, cancels = self._weighted(views, targets, counts)
        if not bool(cancels.any()):
            return total
        # If long gradients of views cancel, the rounding left of them could be longer than the bound: such records are
        # clipped after the cancellation.
        loop = LoopGradients(self.model, self.flat, self.clipping)
        return total + loop.clipped_sum(views[cancels], targets[cancels], side)

    def _weighted(self, views: Tensor, targets: Tensor, counts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the sum of those that count and do not cancel; whose gradients are finite (b,), and which cancel."""
        finite = cancels = torch.zeros_like(counts)

        def factors(norms: Tensor, reach: Tensor) -> Tensor:
            nonlocal finite, cancels
            found = self.clipping.factors(norms)
            finite = (found > 0) & torch.isfinite(norms)
            cancels = finite & (found * reach > CANCELLING * self.clipping.clip_norm) & counts
            return torch.where(cancels | ~counts, 0.0, found)

        total = ghost_clipped_sum(self.model, self.flat, views, targets, factors)
        return total, finite, cancels
