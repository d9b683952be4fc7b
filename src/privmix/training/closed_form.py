"""Clipped gradients of a linear head on fixed features, without forming one.

With logits z_k = (W + V_k) f_k + b_k and errors e_k = (softmax(z_k) - t_k) / K, a record's gradient is sum_k e_k f_k^T
for the weight and sum_k e_k for the bias. Hence

    |g|^2 = sum over pairs of views (e_k . e_l) (f_k . f_l + 1),

and the clipped sum over records is one matrix product. Where a public scale or centre is asked for, or many
views make pairs dearer than gradients, a record's classes x d gradient is formed instead, some records at a time.
"""

from __future__ import annotations

from typing import ClassVar, Final

import torch
from torch import Tensor, nn

from privmix.errors import InvalidInput
from privmix.training.clipping import Clipping
from privmix.training.gradients import GradientStrategy, shares
from privmix.training.parameters import FlatParameters
from privmix.training.side_information import SideInformation

# Numbers that the gradients of one slice of records may take where they are formed.
_SLICE: Final = 2**24


class ClosedFormGradients(GradientStrategy):
    """For models whose trainable part is one ``nn.Linear`` (attribute ``head``) behind a fixed ``scaled``.

    Args:
        model: has ``head`` and ``scaled(x)``, the parameter-free map from views (..., d) to what ``head`` takes.
        flat: the parameters of ``model.head``, weight and bias.
        clipping: the bound.
    """

    name: ClassVar[str] = "closed-form"

    def __init__(self, model: nn.Module, flat: FlatParameters, clipping: Clipping, *, amp: bool = False) -> None:
        super().__init__(model, flat, clipping, amp=amp)
        if not fits_closed_form(model):
            raise InvalidInput("strategy", self.name, "loop, vmap or ghost for a model that is no linear head")

    def clipped_sum(self, views: Tensor, targets: Tensor, side: SideInformation) -> Tensor:
        if len(views) == 0:
            return torch.zeros(self.flat.size, device=self.flat.device)
        features: Tensor = self.model.scaled(views)  # type: ignore[operator]
        errors = self._errors(features, targets, side)
        # The bias is the weight of a feature that is always 1, except that it is kept apart to spare a copy.
        norms = self._norms(features, errors, side)
        factors = self.clipping.factors(norms)
        weighted = torch.where(torch.isfinite(norms)[:, None, None], errors, 0.0) * factors[:, None, None]
        matrix = weighted.flatten(0, 1).T @ torch.nan_to_num(features.flatten(0, 1), 0.0, 0.0, 0.0)
        total = torch.cat([matrix.reshape(-1), weighted.sum(dim=(0, 1))])
        if side.scale is not None:
            total = total * side.scale
        return total if side.centre is None else total - factors.sum() * side.centre

    def _errors(self, features: Tensor, targets: Tensor, side: SideInformation) -> Tensor:
        """(b, K, d), (b, K, c) -> (b, K, c): softmax minus target, over K."""
        views = features.shape[1]
        heads = self._weights(side)
        logits = torch.empty(*features.shape[:2], targets.shape[-1], device=features.device)
        for head, part in zip(heads, shares(views, len(heads)), strict=True):
            weight, bias = head[self.flat.names[0]], head[self.flat.names[1]]
            logits[:, part] = features[:, part] @ weight.T + bias
        # The soft targets may not sum to one: the gradient of cross entropy then carries their sum.
        return (logits.softmax(dim=-1) * targets.sum(dim=-1, keepdim=True) - targets) / views

    def _norms(self, features: Tensor, errors: Tensor, side: SideInformation) -> Tensor:
        views = features.shape[1]
        if side.scale is not None or side.centre is not None or 1 < errors.shape[-1] < views:
            return self._norms_by_forming(features, errors, side)
        if views == 1:
            return (errors.square().sum(dim=(1, 2)) * (features.square().sum(dim=(1, 2)) + 1)).sqrt()
        # Terms of opposite signs may cancel; in float32, what rounding leaves could pass for a short gradient.
        f, e = features.double(), errors.double()
        squares = (torch.bmm(e, e.mT) * (torch.bmm(f, f.mT) + 1)).sum(dim=(1, 2))
        return squares.clamp(min=0).sqrt().float()

    def _norms_by_forming(self, features: Tensor, errors: Tensor, side: SideInformation) -> Tensor:
        step = max(1, _SLICE // self.flat.size)
        norms = []
        for start in range(0, len(features), step):
            part, wrong = features[start : start + step], errors[start : start + step]
            formed = torch.cat([torch.bmm(wrong.mT, part).flatten(1), wrong.sum(dim=1)], dim=1)
            norms.append(torch.linalg.vector_norm(self._adjusted(formed, side), dim=1))
        return torch.cat(norms)


def fits_closed_form(model: nn.Module) -> bool:
    """Whether the model is a linear head with a bias whose two tensors are all that is trained."""
    head = getattr(model, "head", None)
    if not isinstance(head, nn.Linear) or head.bias is None or not hasattr(model, "scaled"):
        return False
    trained = [name for name, tensor in model.named_parameters() if tensor.requires_grad]
    return trained == ["head.weight", "head.bias"]
