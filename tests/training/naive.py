"""The definition of a step, written as slowly and plainly as can be: the reference of the fast paths."""

import copy
import math

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from privmix.training.gradients.config import AUTOMATIC
from privmix.training.gradients.parameters import Clipping, FlatParameters, SideInformation


def naive_gradient(model: nn.Module, views: Tensor, targets: Tensor, side: SideInformation) -> Tensor:
    """(P,) float64: one record's scaled and centred mean of its views' gradients, one backward pass a view."""
    count = len(views)
    perturbations = [None] if side.perturbations is None else list(side.perturbations)
    # As even as can be, the first ones having one more.
    owners = sorted(index % len(perturbations) for index in range(count))
    mean = torch.zeros(FlatParameters(model).size, dtype=torch.float64)
    for owner, view, target in zip(owners, views, targets, strict=True):
        at = copy.deepcopy(model)
        flat, perturbation = FlatParameters(at), perturbations[owner]
        if perturbation is not None:
            flat.set(flat.get() + perturbation)
        named = dict(at.named_parameters())
        gradients = torch.autograd.grad(cross_entropy(at(view[None]), target[None]), [named[n] for n in flat.names])
        mean += flat.flatten(dict(zip(flat.names, gradients, strict=True))).double() / count
    if side.scale is not None:
        mean = mean * side.scale
    return mean if side.centre is None else mean - side.centre


def naive_clipped(gradient: Tensor, clipping: Clipping) -> Tensor:
    """(P,) float64: the gradient at most ``clip_norm`` long; zero if it is not finite."""
    norm = math.sqrt(float(gradient.square().sum()))
    if not math.isfinite(norm):
        return torch.zeros_like(gradient)
    if clipping.kind == AUTOMATIC:
        return gradient * (clipping.clip_norm / (norm + clipping.gamma))
    return gradient * min(1.0, clipping.clip_norm / norm) if norm > 0 else gradient


def naive_sum(
    model: nn.Module, views: Tensor, targets: Tensor, clipping: Clipping, side: SideInformation | None = None
) -> Tensor:
    """(P,) float64: the sum of clipped gradients."""
    total = torch.zeros(FlatParameters(model).size, dtype=torch.float64)
    for own, wanted in zip(views, targets, strict=True):
        total += naive_clipped(naive_gradient(model, own, wanted, side or SideInformation()), clipping)
    return total
