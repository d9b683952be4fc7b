"""Clipped gradients of a linear head on fixed features, without forming one.

With logits z_k = (W + V_k) f_k + b_k, errors are e_k = (softmax(z_k) - t_k) / K. A record's gradient is sum_k e_k f_k^T
for the weight and sum_k e_k for the bias. Hence

    |g|^2 = sum over pairs of views (e_k . e_l) (f_k . f_l + 1)   (Goodfellow 2015),

and the clipped sum over records is one matrix product. All is float64. In float32, rounding of long sums would exceed
what the noise covers, and that of logits of long features would depend on the number of records multiplied at once.
With a public scale or centre, or if views make pairs slower, a record's classes x d gradient is formed instead.
"""

from typing import ClassVar, Final

import torch
from torch import Tensor, nn

from privmix.devices import full_precision
from privmix.errors import InvalidInput
from privmix.training.gradients.parameters import Clipping, FlatParameters, SideInformation
from privmix.training.gradients.strategies import STRATEGIES, GradientStrategy, shares
from privmix.training.models.networks import LinearHead

# Sums of views' clipped shares, in clipping bounds, up to which rounding is below the clipping's margin.
CANCELLING: Final = 16.0
# Numbers that the gradients of one slice of records may take where they are formed.
_SLICE: Final = 2**24
# Numbers of the features of one slice on a CPU: 4 MiB of float64.
_CACHED: Final = 2**19


@STRATEGIES.register
class ClosedFormGradients(GradientStrategy):
    """For a :class:`LinearHead` of which all is trained, and nothing else."""

    name: ClassVar[str] = "closed-form"
    preferred: ClassVar[bool] = True
    # Blocks of a few MiB are used again by the allocator, while larger ones come fresh from the system each time, which
    # may cost more than all arithmetic on them.
    reused: ClassVar[int | None] = 2**25
    together: ClassVar[bool] = False

    @classmethod
    def fits(cls, model: nn.Module) -> bool:
        return isinstance(model, LinearHead) and all(tensor.requires_grad for tensor in model.parameters())

    def __init__(self, model: nn.Module, flat: FlatParameters, clipping: Clipping, *, amp: bool = False) -> None:
        super().__init__(model, flat, clipping, amp=amp)
        if not isinstance(model, LinearHead) or not self.fits(model):
            raise InvalidInput("strategy", self.name, "loop or vmap for a model that is no linear head")
        self._head = model

    def clipped_sum(self, views: Tensor, targets: Tensor, side: SideInformation, count: int | None = None) -> Tensor:
        total = torch.zeros(self.flat.size, dtype=torch.float64, device=self.flat.device)
        heads = self._weights(side)
        # Features are read for logits, for norms and for the sum. In slices that a CPU's cache holds, memory sends them
        # once; a GPU is fastest with few and large calls.
        numbers = _CACHED if views.device.type == "cpu" else _SLICE
        size = max(1, numbers // max(1, views[:1].numel()))
        # TF32 would round by more than the clipping's margin.
        with full_precision(views.device):
            for some, wanted in zip(torch.split(views[:count], size), torch.split(targets[:count], size), strict=True):
                if len(some):
                    total += self._sum_of_slice(some, wanted, heads, side)
        return total

    def _sum_of_slice(
        self, views: Tensor, targets: Tensor, heads: list[dict[str, Tensor]], side: SideInformation
    ) -> Tensor:
        features = self._head.scaled(views).double()
        errors = self._errors(features, targets, heads)
        if not (side.scale is None and side.centre is None) or 1 < errors.shape[-1] < views.shape[1]:
            return self._sum_by_forming(features, errors, side)
        return self.sum_by_pairs(features, errors)

    def sum_by_pairs(self, features: Tensor, errors: Tensor) -> Tensor:
        norms, reach = _norms(features, errors)
        factors = self.clipping.factors(norms)
        # Views' shares hold the rounding of their logits. If long shares cancel, the remainder of that could be longer
        # than the bound: such records are clipped after the cancellation.
        cancels = factors * reach > CANCELLING * self.clipping.clip_norm
        factors = torch.where(cancels, 0.0, factors)
        weighted, own = errors * factors[:, None, None], features
        if not bool(torch.isfinite(norms).all()):
            # Zero times infinity is no number: what has no share is taken out before it is multiplied.
            kept = (factors > 0)[:, None, None]
            weighted, own = torch.where(kept, weighted, 0.0), torch.where(kept, own, 0.0)
        matrix = weighted.flatten(0, 1).T @ own.flatten(0, 1)
        total = torch.cat([matrix.reshape(-1), weighted.sum(dim=(0, 1))])
        if not bool(cancels.any()):
            return total
        return total + self._sum_by_forming(features[cancels], errors[cancels], SideInformation())

    def _sum_by_forming(self, features: Tensor, errors: Tensor, side: SideInformation) -> Tensor:
        size = max(1, _SLICE // (2 * self.flat.size))
        total = torch.zeros(self.flat.size, dtype=torch.float64, device=features.device)
        for part, wrong in zip(torch.split(features, size), torch.split(errors, size), strict=True):
            formed = torch.cat([torch.bmm(wrong.mT, part).flatten(1), wrong.sum(dim=1)], dim=1)
            total += self._clipped_and_summed(formed, side)
        return total

    def _errors(self, features: Tensor, targets: Tensor, heads: list[dict[str, Tensor]]) -> Tensor:
        """(b, K, d), (b, K, c) -> (b, K, c): softmax minus target, over K."""
        views = features.shape[1]
        # In float64: what float32 rounds of a logit depends on how many records are multiplied at once, and a softmax
        # of long features makes much of it.
        logits = torch.empty(*features.shape[:2], targets.shape[-1], dtype=torch.float64, device=features.device)
        for head, part in zip(heads, shares(views, len(heads)), strict=True):
            weight, bias = head[self.flat.names[0]].double(), head[self.flat.names[1]].double()
            rows = features[:, part].flatten(0, 1)
            # The short matrix first: that is up to twice as fast on a CPU.
            logits[:, part] = (weight @ rows.T).T.reshape(len(features), -1, len(weight)) + bias
        # The soft targets may not sum to one: the gradient of cross entropy then carries their sum.
        return (logits.softmax(dim=-1) * targets.sum(dim=-1, keepdim=True) - targets) / views


def _norms(features: Tensor, errors: Tensor) -> tuple[Tensor, Tensor]:
    """(b, K, d), (b, K, c) float64 -> norms of records' gradients and sums of their views' norms, (b,)."""
    # In float32, where terms of opposite signs cancel, what rounding leaves could pass for a short gradient.
    lengths = torch.linalg.vector_norm(features, dim=2).square() + 1
    reach = (torch.linalg.vector_norm(errors, dim=2) * lengths.sqrt()).sum(dim=1)
    if features.shape[1] == 1:
        return reach, reach
    squares = (torch.bmm(errors, errors.mT) * (torch.bmm(features, features.mT) + 1)).sum(dim=(1, 2))
    return squares.clamp(min=0).sqrt(), reach
