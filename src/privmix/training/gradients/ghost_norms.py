"""Squared norms of per-record gradients: of layers, and of parameters that no layer applies."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from privmix.training.models.networks import StandardisedConv2d

# Shapes: b records (c in a chunk), K views each. A *position* is one place of one view where the layer's weights are
# used: a pixel of a convolution's output, a token, or the view itself.


# Numbers that the gradients and unfolded inputs of one chunk of records may take: 64 MiB of float32.
CHUNK: Final = 2**24

# (layer, inputs (b, K, ...), output gradients (b, K, ...), parameters wanted) -> squared norms (b,) float64.
Rule = Callable[[Any, Tensor, Tensor, frozenset[str]], Tensor]


def _linear(layer: nn.Linear, inputs: Tensor, outputs: Tensor, wanted: frozenset[str]) -> Tensor:
    a = inputs.reshape(len(inputs), 1, -1, inputs.shape[-1])
    g = outputs.reshape(len(outputs), 1, -1, outputs.shape[-1])
    total = _squares(g.sum(2)) if "bias" in wanted else _nothing(g)
    return total + _outer_product_squares(a, g) if "weight" in wanted else total


def _convolution(layer: nn.Conv2d, inputs: Tensor, outputs: Tensor, wanted: frozenset[str]) -> Tensor:
    total = _squares(outputs.sum((1, 3, 4))) if "bias" in wanted else _nothing(outputs)
    if "weight" not in wanted:
        return total
    views, channels = outputs.shape[1:3]
    positions = views * outputs.shape[3] * outputs.shape[4]
    fan_in = layer.weight[0].numel()
    # Pairs of positions know nothing of how a standardised filter depends on its weight.
    by_pairs = not isinstance(layer, StandardisedConv2d) and pairs_are_cheaper(
        positions, fan_in, channels // layer.groups
    )
    rule = _convolution_by_pairs if by_pairs else _convolution_by_gradients
    largest = layer.groups * positions * max(fan_in, positions) if by_pairs else layer.weight.numel()
    size = max(1, CHUNK // largest)
    parts = zip(torch.split(inputs, size), torch.split(outputs, size), strict=True)
    return total + torch.cat([rule(layer, a, g) for a, g in parts])


def _convolution_by_pairs(layer: nn.Conv2d, inputs: Tensor, outputs: Tensor) -> Tensor:
    patches = _patches(layer, inputs)
    # (c, K, O, H, W) -> (c, groups, positions, O / groups)
    rows = outputs.movedim(2, -1).reshape(len(outputs), patches.shape[2], layer.groups, -1).transpose(1, 2)
    return _by_pairs(patches, rows)


def _convolution_by_gradients(layer: nn.Conv2d, inputs: Tensor, outputs: Tensor) -> Tensor:
    padded = _padded(layer, inputs)

    def of_record(a: Tensor, g: Tensor) -> Tensor:
        """(K, C, H, W) and (K, O, H', W') -> the gradient by the filters that are used."""
        arguments = (list(layer.stride), [0, 0], list(layer.dilation), False, [0, 0], layer.groups)
        mask = [False, True, False]
        gradient: Tensor = torch.ops.aten.convolution_backward(g, a, layer.weight.detach(), None, *arguments, mask)[1]
        return gradient

    gradients = torch.func.vmap(of_record)(padded, outputs)
    if isinstance(layer, StandardisedConv2d):
        pull = torch.func.vjp(layer.standardise, layer.weight.detach())[1]
        (gradients,) = torch.func.vmap(pull)(gradients)
    return _squares(gradients)


def _patches(layer: nn.Conv2d, inputs: Tensor) -> Tensor:
    """(c, K, C, H, W) -> (c, groups, positions, fan-in): what each output position sees."""
    kernel = (layer.kernel_size[0], layer.kernel_size[1])
    dilation = (layer.dilation[0], layer.dilation[1])
    stride = (layer.stride[0], layer.stride[1])
    unfolded = functional.unfold(_padded(layer, inputs).flatten(0, 1), kernel, dilation=dilation, stride=stride)
    places = unfolded.shape[-1]
    split = unfolded.view(*inputs.shape[:2], layer.groups, -1, places)
    return split.permute(0, 2, 1, 4, 3).reshape(len(inputs), layer.groups, inputs.shape[1] * places, -1)


def _padded(layer: nn.Conv2d, inputs: Tensor) -> Tensor:
    padding = _padding(layer)
    if not any(padding):
        return inputs
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    padded = functional.pad(inputs.flatten(0, 1), padding, mode=mode)
    return padded.view(*inputs.shape[:2], *padded.shape[1:])


def _padding(layer: nn.Conv2d) -> list[int]:
    """Left, right, top, bottom."""
    if layer.padding == "valid":
        return [0, 0, 0, 0]
    if layer.padding == "same":
        totals = [layer.dilation[axis] * (layer.kernel_size[axis] - 1) for axis in (1, 0)]
        return [part for total in totals for part in (total // 2, total - total // 2)]
    return [int(layer.padding[axis]) for axis in (1, 1, 0, 0)]


def _group_norm(layer: nn.GroupNorm, inputs: Tensor, outputs: Tensor, wanted: frozenset[str]) -> Tensor:
    total = _squares(_per_channel(outputs)) if "bias" in wanted else _nothing(outputs)
    if "weight" not in wanted:
        return total
    normalised = functional.group_norm(inputs.flatten(0, 1), layer.num_groups, eps=layer.eps).view_as(inputs)
    return total + _squares(_per_channel(normalised * outputs))


def _per_channel(x: Tensor) -> Tensor:
    """(b, K, C, ...) -> (b, C)."""
    return x.flatten(3).sum((1, 3)) if x.dim() > 3 else x.sum(1)


def _layer_norm(layer: nn.LayerNorm, inputs: Tensor, outputs: Tensor, wanted: frozenset[str]) -> Tensor:
    axes = len(layer.normalized_shape)

    def summed(x: Tensor) -> Tensor:
        """(b, K, ..., *normalised) -> (b, normalised)."""
        return x.reshape(len(x), -1, math.prod(layer.normalized_shape)).sum(1)

    assert tuple(inputs.shape[-axes:]) == tuple(layer.normalized_shape)
    total = _squares(summed(outputs)) if "bias" in wanted else _nothing(outputs)
    if "weight" not in wanted:
        return total
    normalised = functional.layer_norm(inputs, layer.normalized_shape, eps=layer.eps)
    return total + _squares(summed(normalised * outputs))


def _channel_norm(layer: Any, inputs: Tensor, outputs: Tensor, wanted: frozenset[str]) -> Tensor:
    """LayerNorm as ConvNeXt has it, whose channels may stand first."""
    if layer.data_format == "channels_first":
        inputs, outputs = inputs.movedim(2, -1), outputs.movedim(2, -1)
    return _layer_norm(layer, inputs, outputs, wanted)


def _outer_product_squares(a: Tensor, g: Tensor) -> Tensor:
    """Squared norms (b,) of sum over t of g_t (outer) a_t, for a (b, groups, T, in) and g (b, groups, T, out)."""
    positions, fan_in, fan_out = a.shape[2], a.shape[3], g.shape[3]
    by_pairs = pairs_are_cheaper(positions, fan_in, fan_out)
    size = max(1, CHUNK // (a.shape[1] * (positions**2 if by_pairs else fan_in * fan_out)))
    rule = _by_pairs if by_pairs else lambda a, g: _squares(g.mT @ a)
    return torch.cat([rule(x, y) for x, y in zip(torch.split(a, size), torch.split(g, size), strict=True)])


def pairs_are_cheaper(positions: int, fan_in: int, fan_out: int) -> bool:
    """Apply the mixed rule of Bu et al. (2022)."""
    return 2 * positions**2 <= fan_in * fan_out


def _by_pairs(a: Tensor, g: Tensor) -> Tensor:
    # In float64: terms of both signs cancel here, and a norm found too small would let a record through unclipped.
    a, g = a.double(), g.double()
    return ((a @ a.mT) * (g @ g.mT)).sum((1, 2, 3))


def terms_bound(layer: nn.Module, inputs: Tensor, outputs: Tensor, wanted: frozenset[str]) -> Tensor:
    """Bound (b,) float64 on the sum over positions of the norms of their shares of the layer's gradient."""
    # Far above the gradient's own norm, positions cancel, and no norm shows the rounding that remains. By Cauchy and
    # Schwarz, from the lengths of all inputs and of all gradients: loose, but cheap.
    lengths = _squares(outputs).sqrt()
    channels = outputs.shape[2] if isinstance(layer, nn.Conv2d | nn.GroupNorm) else outputs.shape[-1]
    total = _nothing(outputs)
    if "bias" in wanted:
        total = total + lengths * math.sqrt(outputs[0].numel() / channels)
    if "weight" not in wanted:
        return total
    if isinstance(layer, nn.GroupNorm | nn.LayerNorm):
        return total + lengths * math.sqrt(inputs[0].numel())
    seen = inputs
    factor = 1.0
    if isinstance(layer, nn.Conv2d):
        seen = inputs if layer.padding_mode == "zeros" else _padded(layer, inputs)
        # No value is seen more often than there are places in a filter.
        factor = math.sqrt(layer.kernel_size[0] * layer.kernel_size[1])
    if isinstance(layer, StandardisedConv2d):
        rows = layer.weight.detach().flatten(1)
        factor /= math.sqrt(float(rows.var(dim=1, correction=0).min()) * rows.shape[1] + 1e-12)
    return total + factor * lengths * _squares(seen).sqrt()


def _squares(x: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(x.flatten(1), dim=1, dtype=torch.float64)
    return norms.square()


def _nothing(x: Tensor) -> Tensor:
    return torch.zeros(len(x), dtype=torch.float64, device=x.device)


RULES: Final[dict[type[nn.Module], Rule]] = {
    nn.Linear: _linear,
    nn.Conv2d: _convolution,
    StandardisedConv2d: _convolution,
    nn.GroupNorm: _group_norm,
    nn.LayerNorm: _layer_norm,
}

# Subclasses of other libraries by name: no user waits for their import.
_ELSEWHERE: Final[dict[str, Rule]] = {"ConvNextLayerNorm": _channel_norm}


def rule_of(layer: nn.Module) -> Rule | None:
    """Return the rule of a layer, or None; by exact type, since a subclass may compute something else."""
    found = RULES.get(type(layer))
    if found is None and isinstance(layer, nn.LayerNorm):
        found = _ELSEWHERE.get(type(layer).__name__)
    return found


# For one pass such a parameter is replaced by equal copies, one for each use. Tokens and tables have one a row (a
# record's view), scales one a row and position. Gradients by copies sum to the records' gradients.


# (parameter, the module's first input) -> shape of the copies: rows, positions, then the parameter's own.
Expansion = Callable[[Tensor, Tensor], tuple[int, ...]]


def _by_row(parameter: Tensor, given: Tensor) -> tuple[int, ...]:
    """(1, ...) -> (rows, ...)."""
    return (len(given), *parameter.shape[1:])


def _by_position(parameter: Tensor, given: Tensor) -> tuple[int, ...]:
    """(D,) for (rows, T, D) tokens, or for (rows, D, H, W) images whose channels are put last."""
    return tuple(given.shape) if given.dim() == 3 else (len(given), *given.shape[2:], given.shape[1])


# Names as models of the transformers library have them. Errors for another model of the same names are found by the
# comparison with single gradients that every model goes through.
EXPANSIONS: Final[dict[str, Expansion]] = {
    "cls_token": _by_row,
    "distillation_token": _by_row,
    "position_embeddings": _by_row,
    "layer_scale_parameter": _by_position,
    "lambda1": _by_position,
}


def shares_of_copies(gradient: Tensor, parameter: Tensor, records: int) -> tuple[Tensor, Tensor, Tensor]:
    """Squared norms (b,) of records' gradients by one parameter, (b K,) of views' shares; sums (b,) of term norms."""
    # gradient: by all copies: rows, positions (none for tokens), then the parameter's own axes.
    rows = len(gradient)
    # (rows, positions, numbers of the parameter)
    uses = gradient.reshape(rows, -1, parameter.numel())
    by_view = uses.sum(1)
    by_record = by_view.view(records, -1, parameter.numel()).sum(1)
    return _norms(by_record).square(), _norms(by_view).square(), _norms(uses).reshape(records, -1).sum(1)


def _norms(x: Tensor) -> Tensor:
    found: Tensor = torch.linalg.vector_norm(x, dim=-1, dtype=torch.float64)
    return found
