"""Ghost clipping: the sum of clipped gradients without any record's own gradient being held.

A record's gradient for a layer that is linear in its weights is a sum over positions t (views, pixels, tokens) of
outer products of the layer's input A_t and the gradient G_t of its output. Its squared norm is

    sum over s, t of (A_s . A_t) (G_s . G_t),

which needs no array of the weights' size (Goodfellow 2015; Li et al. 2021). Where there are many positions, as in the
first convolutions, forming the layer's gradient for a few records at a time is cheaper; each layer takes the cheaper
way ("mixed" ghost clipping, Bu et al. 2022). A second backward pass, with each record's loss weighted by its factor,
then gives the sum.
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional

from privmix.errors import InvalidInput, check_integer
from privmix.training.layers_check import check_model
from privmix.training.models.wide_resnet import StandardisedConv2d
from privmix.training.parameters import FlatParameters

# Numbers that the gradients and unfolded inputs of one chunk of records may take: 64 MiB of float32.
_CHUNK: Final = 2**24
_TRIAL_RECORDS, _TRIAL_VIEWS, _TRIAL_TOLERANCE = 3, 2, 1e-3

# (layer, inputs (b, K, ...), output gradients (b, K, ...), parameters wanted) -> squared norms (b,) float64.
_Rule = Callable[[Any, Tensor, Tensor, frozenset[str]], Tensor]


def ghost_clipped_sum(
    model: nn.Module,
    flat: FlatParameters,
    x: Tensor,
    targets: Tensor,
    factors: Callable[[Tensor], Tensor],
) -> Tensor:
    """Return the sum over records of factors(norm of g_i) g_i, g_i the gradient of the mean loss of record i's views.

    Formal guarantees:
        * Equal to the definition: the result is what a loop over records gives, up to rounding in float32. That
          rounding is relative to the gradients of single views: a record whose views' gradients are long and cancel
          leaves more of it than a loop would, which clips after the cancellation.
        * Complete norms: every trainable parameter is counted. A parameter that is used other than once, in the
          forward call of its own supported layer, is refused before anything is returned.
        * Factors see norms only, and each record is weighted by its own.

    Args:
        model: of supported layers, see :func:`supports_ghost`.
        flat: its trainable parameters.
        x: (b, K, ...) K views of b records.
        targets: (b, K, classes) soft targets.
        factors: from the gradients' norms (b,), float64, to factors (b,), such as min(1, C / norm).

    Returns:
        (P,) float32.

    Raises:
        InvalidInput: shapes do not fit, or the model is not supported; the error names the parameter or layer.

    Example:
        >>> model = nn.Linear(4, 3)
        >>> x, targets = torch.rand(5, 2, 4), torch.softmax(torch.rand(5, 2, 3), -1)
        >>> bound = 0.1
        >>> total = ghost_clipped_sum(model, FlatParameters(model), x, targets, lambda norms: bound / norms)
        >>> total.shape, bool(total.norm() <= 5 * bound)
        (torch.Size([15]), True)
    """
    _check_shapes(x, targets)
    if len(x) == 0:
        return torch.zeros(flat.size, device=flat.device)
    reason = _known_reason(model, tuple(x.shape[2:]))
    if reason is not None:
        raise InvalidInput("model", type(model).__name__, f"one that ghost clipping supports: {reason}")
    losses, norms, parameters = _losses_and_norms(model, x, targets)
    weights = factors(norms).detach()
    assert weights.shape == norms.shape
    gradients = torch.autograd.grad((weights.to(losses.dtype) * losses).sum(), parameters.values(), allow_unused=True)
    found = {
        name: torch.zeros_like(parameters[name]) if gradient is None else gradient
        for name, gradient in zip(parameters, gradients, strict=True)
    }
    return flat.flatten(found).float()


def supports_ghost(model: nn.Module, example_shape: tuple[int, ...] | None = None) -> str | None:
    """Why ghost clipping cannot train this model, or None if it can.

    Supported are nn.Linear, nn.Conv2d, StandardisedConv2d, nn.GroupNorm and nn.LayerNorm (not their subclasses), for
    parameters that belong to one layer. With ``example_shape``, norms are also compared with those of single
    gradients, for random public inputs to a jittered copy of the model: this finds layers whose first axis is not the
    batch, hooks that change gradients, and whatever else the structure does not show. ``ghost_clipped_sum`` makes both
    checks once for each model and shape.

    Args:
        model: a model.
        example_shape: of one view.

    Example:
        >>> supports_ghost(nn.Sequential(nn.Linear(2, 2), nn.GroupNorm(1, 2)), (2,)) is None
        True
        >>> supports_ghost(nn.Sequential(nn.PReLU()))
        'parameter 0.weight is of a PReLU, not of a Linear, Conv2d, StandardisedConv2d, GroupNorm or LayerNorm'
    """
    try:
        check_model(model)
    except InvalidInput as error:
        return str(error)
    reason = _structure_reason(model)
    if reason is None and example_shape is not None:
        reason = _trial_reason(model, tuple(check_integer("example shape", side, low=1) for side in example_shape))
    return reason


# Models found supported, with shapes of views and the parameters that were then trainable.
_SUPPORTED: WeakKeyDictionary[nn.Module, set[tuple[tuple[int, ...], tuple[str, ...]]]] = WeakKeyDictionary()


def _known_reason(model: nn.Module, shape: tuple[int, ...]) -> str | None:
    key = (shape, tuple(name for name, parameter in model.named_parameters() if parameter.requires_grad))
    known = _SUPPORTED.setdefault(model, set())
    reason = supports_ghost(model, None if key in known else shape)
    if reason is None:
        known.add(key)
    return reason


def _structure_reason(model: nn.Module) -> str | None:
    owners: dict[nn.Parameter, str] = {}
    names = ", ".join(kind.__name__ for kind in list(_RULES)[:-1]) + f" or {list(_RULES)[-1].__name__}"
    for prefix, module in model.named_modules():
        for name, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
            full = f"{prefix}.{name}" if prefix else name
            if not parameter.requires_grad:
                continue
            if type(module) not in _RULES:
                return f"parameter {full} is of a {type(module).__name__}, not of a {names}"
            if name not in ("weight", "bias"):
                return f"parameter {full} is not the weight or bias of its {type(module).__name__}"
            if parameter in owners:
                return f"parameters {owners[parameter]} and {full} are tied"
            owners[parameter] = full
    return None


def _trial_reason(model: nn.Module, shape: tuple[int, ...]) -> str | None:
    """Whether norms are right for random inputs, a jittered copy (zero weights hide layers) and every record."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        trial = copy.deepcopy(model)
        device = next(trial.parameters()).device
        with torch.no_grad():
            for parameter in trial.parameters():
                parameter.add_(0.05 * torch.randn(parameter.shape).to(parameter))
        x = torch.rand(_TRIAL_RECORDS, _TRIAL_VIEWS, *shape).to(device)
        with torch.no_grad():
            classes = trial(x[0]).shape[-1]
        targets = torch.softmax(4 * torch.randn(_TRIAL_RECORDS, _TRIAL_VIEWS, classes), -1).to(device)
    try:
        losses, norms, parameters = _losses_and_norms(trial, x, targets)
    except InvalidInput as error:
        return str(error)
    for i in range(len(x)):
        gradients = torch.autograd.grad(losses[i], parameters.values(), retain_graph=True, allow_unused=True)
        squares = [gradient.double().square().sum() for gradient in gradients if gradient is not None]
        exact = torch.stack(squares).sum().sqrt() if squares else torch.zeros(())
        if not torch.isclose(norms[i].cpu(), exact.cpu().double(), rtol=_TRIAL_TOLERANCE, atol=1e-12):
            return "the norms it finds on random inputs are wrong: a layer's first axis must be the batch"
    return None


def _check_shapes(x: Tensor, targets: Tensor) -> None:
    if x.dim() < 3 or targets.dim() != 3 or x.shape[:2] != targets.shape[:2] or x.shape[1] == 0:
        shapes = (tuple(x.shape), tuple(targets.shape))
        raise InvalidInput("views and targets", shapes, "shapes (b, K, ...) and (b, K, classes) with K >= 1")


@dataclass(eq=False)
class _Visit:
    """A supported layer in one forward pass, and what its record norms turned out to be."""

    name: str
    layer: nn.Module
    wanted: frozenset[str]
    calls: int = 0
    anchor: Tensor | None = None
    squares: Tensor | None = None


@dataclass(eq=False)
class _Pass:
    """The first backward pass: hooks take the norms while ``active``."""

    records: int
    views: int
    visits: list[_Visit] = field(default_factory=list)
    active: bool = False


def _losses_and_norms(model: nn.Module, x: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Record losses (b,) with their graph, gradient norms (b,) float64, and the trainable parameters by name."""
    parameters = {name: tensor for name, tensor in model.named_parameters() if tensor.requires_grad}
    run = _Pass(*x.shape[:2])
    with torch.enable_grad(), _layer_hooks(model, run):
        logits = model(x.flatten(0, 1))
        if logits.shape != (run.records * run.views, targets.shape[-1]):
            expected = f"one row a view and {targets.shape[-1]} columns"
            raise InvalidInput("the model's output", tuple(logits.shape), expected)
        losses = functional.cross_entropy(logits, targets.flatten(0, 1), reduction="none")
        losses = losses.view(run.records, run.views).mean(1)
    _check_uses(losses, run.visits, parameters)
    anchors = [visit.anchor for visit in run.visits if visit.anchor is not None]
    run.active = True
    if anchors and losses.requires_grad:
        # Gradients of the anchors, which are nobody's weights: this reaches every layer and forms no weight's gradient.
        torch.autograd.grad(losses.sum(), anchors, retain_graph=True, allow_unused=True)
    run.active = False
    _check_reached(losses, run.visits)
    total = torch.zeros(run.records, dtype=torch.float64, device=x.device)
    for visit in run.visits:
        if visit.squares is not None:
            total += visit.squares
    return losses, total.clamp(min=0).sqrt(), parameters


@contextmanager
def _layer_hooks(model: nn.Module, run: _Pass) -> Iterator[None]:
    handles = []
    for name, layer in model.named_modules():
        owned = layer.named_parameters(recurse=False)
        wanted = frozenset(key for key, parameter in owned if parameter.requires_grad)
        if wanted:
            visit = _Visit(name, layer, wanted)
            run.visits.append(visit)
            # First of all hooks: others may change the output, and it is the layer's own that counts.
            hook = _forward_hook(visit, run)
            handles.append(layer.register_forward_hook(hook, with_kwargs=True, prepend=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _forward_hook(visit: _Visit, run: _Pass) -> Callable[[nn.Module, Any, dict[str, Any], Tensor], Tensor]:
    def forward(layer: nn.Module, args: Any, kwargs: dict[str, Any], output: Tensor) -> Tensor:
        visit.calls += 1
        if visit.calls > 1:
            raise _unsupported(f"layer {visit.name} is used more than once")
        given = (args[0] if args else kwargs["input"]).detach()
        rows = run.records * run.views
        if given.shape[0] != rows or output.shape[0] != rows:
            raise _unsupported(f"the first axis of layer {visit.name} is not the batch")
        visit.anchor = torch.zeros((), dtype=output.dtype, device=output.device, requires_grad=True)
        anchored = output + visit.anchor

        def backward(gradient: Tensor) -> None:
            if run.active:
                lead = (run.records, run.views)
                inputs, outputs = given.unflatten(0, lead), gradient.detach().unflatten(0, lead)
                with torch.no_grad():
                    visit.squares = _RULES[type(layer)](layer, inputs, outputs, visit.wanted)

        anchored.register_hook(backward)
        return anchored

    return forward


def _check_uses(losses: Tensor, visits: list[_Visit], parameters: dict[str, Tensor]) -> None:
    """Every parameter in the graph must be there once, and its layer must have been called."""
    uses = _uses(losses)
    called = {id(getattr(visit.layer, key)) for visit in visits if visit.calls for key in visit.wanted}
    for name, parameter in parameters.items():
        count = uses[id(parameter)]
        if count > 1:
            raise _unsupported(f"parameter {name} is used {count} times")
        if count == 1 and id(parameter) not in called:
            raise _unsupported(f"parameter {name} is used outside its layer's forward call")


def _check_reached(losses: Tensor, visits: list[_Visit]) -> None:
    # A layer whose output is dropped while its weights are used elsewhere would have no norm.
    uses = _uses(losses)
    for visit in visits:
        if visit.squares is None and any(uses[id(getattr(visit.layer, key))] for key in visit.wanted):
            raise _unsupported(f"the weights of layer {visit.name} are used outside its forward call")


def _uses(losses: Tensor) -> Counter[int]:
    """How many operations of the graph take each leaf, by the leaf's identity."""
    counts: Counter[int] = Counter()
    pending = [losses.grad_fn] if losses.grad_fn is not None else []
    seen = set(pending)
    while pending:
        node: Any = pending.pop()
        for following, _ in node.next_functions:
            if following is None:
                continue
            if hasattr(following, "variable"):
                counts[id(following.variable)] += 1
            elif following not in seen:
                seen.add(following)
                pending.append(following)
    return counts


def _unsupported(reason: str) -> InvalidInput:
    return InvalidInput("model", reason, "a model that ghost clipping supports: each parameter used once, by its layer")


def _linear(layer: nn.Linear, inputs: Tensor, outputs: Tensor, wanted: frozenset[str]) -> Tensor:
    a = inputs.reshape(len(inputs), 1, -1, inputs.shape[-1])
    g = outputs.reshape(len(outputs), 1, -1, outputs.shape[-1])
    total = _squares(g.sum(2)) if "bias" in wanted else _nothing(g)
    return total + _outer_product_squares(a, g) if "weight" in wanted else total


def _convolution(layer: nn.Conv2d, inputs: Tensor, outputs: Tensor, wanted: frozenset[str]) -> Tensor:
    total = _squares(outputs.sum((1, 3, 4))) if "bias" in wanted else _nothing(outputs)
    if "weight" not in wanted:
        return total
    positions = outputs.shape[1] * outputs.shape[3] * outputs.shape[4]
    fan_in = layer.weight[0].numel()
    size = max(1, _CHUNK // (layer.groups * fan_in * positions + layer.weight.numel()))
    parts = []
    for a, g in zip(inputs.split(size), outputs.split(size), strict=True):
        patches = _patches(layer, a)
        # (c, K, O, H, W) -> (c, groups, positions, O / groups)
        rows = g.movedim(2, -1).reshape(len(g), positions, layer.groups, -1).transpose(1, 2)
        if isinstance(layer, StandardisedConv2d):
            parts.append(_standardised_squares(layer, rows.mT @ patches))
        else:
            parts.append(_outer_product_squares(patches, rows))
    return total + torch.cat(parts)


def _patches(layer: nn.Conv2d, inputs: Tensor) -> Tensor:
    """(c, K, C, H, W) -> (c, groups, positions, fan-in): what each output position sees."""
    kernel = (layer.kernel_size[0], layer.kernel_size[1])
    dilation = (layer.dilation[0], layer.dilation[1])
    stride = (layer.stride[0], layer.stride[1])
    flat = inputs.flatten(0, 1)
    padding = _padding(layer)
    if any(padding):
        mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
        flat = functional.pad(flat, padding, mode=mode)
    unfolded = functional.unfold(flat, kernel, dilation=dilation, stride=stride)
    places = unfolded.shape[-1]
    split = unfolded.view(*inputs.shape[:2], layer.groups, -1, places)
    return split.permute(0, 2, 1, 4, 3).reshape(len(inputs), layer.groups, inputs.shape[1] * places, -1)


def _padding(layer: nn.Conv2d) -> list[int]:
    """Left, right, top, bottom."""
    if layer.padding == "valid":
        return [0, 0, 0, 0]
    if layer.padding == "same":
        totals = [layer.dilation[axis] * (layer.kernel_size[axis] - 1) for axis in (1, 0)]
        return [part for total in totals for part in (total // 2, total - total // 2)]
    return [int(layer.padding[axis]) for axis in (1, 1, 0, 0)]


def _standardised_squares(layer: StandardisedConv2d, gradients: Tensor) -> Tensor:
    """Squared norms by the raw weight, from gradients (c, groups, O / groups, fan-in) by the standardised one."""
    _, pull = torch.func.vjp(layer.standardise, layer.weight.detach())
    (raw,) = torch.func.vmap(pull)(gradients.reshape(len(gradients), *layer.weight.shape))
    return _squares(raw)


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


def _outer_product_squares(a: Tensor, g: Tensor) -> Tensor:
    """Squared norms (b,) of sum over t of g_t (outer) a_t, for a (b, groups, T, in) and g (b, groups, T, out)."""
    positions, fan_in, fan_out = a.shape[2], a.shape[3], g.shape[3]
    if 2 * positions**2 <= fan_in * fan_out:
        # In float64: terms of both signs cancel here, and a norm found too small would let a record through unclipped.
        a, g = a.double(), g.double()
        return ((a @ a.mT) * (g @ g.mT)).sum((1, 2, 3))
    size = max(1, _CHUNK // (a.shape[1] * fan_in * fan_out))
    parts = [_squares(part_g.mT @ part_a) for part_a, part_g in zip(a.split(size), g.split(size), strict=True)]
    return torch.cat(parts)


def _squares(x: Tensor) -> Tensor:
    """(b, ...) -> (b,) float64 sums of squares."""
    return torch.linalg.vector_norm(x.flatten(1), dim=1, dtype=torch.float64).square()


def _nothing(x: Tensor) -> Tensor:
    return torch.zeros(len(x), dtype=torch.float64, device=x.device)


_RULES: Final[dict[type[nn.Module], _Rule]] = {
    nn.Linear: _linear,
    nn.Conv2d: _convolution,
    StandardisedConv2d: _convolution,
    nn.GroupNorm: _group_norm,
    nn.LayerNorm: _layer_norm,
}
