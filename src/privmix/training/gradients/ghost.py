"""Ghost clipping: the sum of clipped gradients without holding any record's own gradient.

A layer that is linear in its weights has, for one record, a gradient that is a sum over positions t (views, pixels,
tokens). Its terms are outer products of the layer's input A_t and the gradient G_t of its output. Its squared norm is

    sum over s, t of (A_s . A_t) (G_s . G_t),

which needs no array of the weights' size (Goodfellow 2015; Li et al. 2021). With many positions, as in the first
convolutions, forming the layer's gradient for a few records at a time is cheaper. Each layer takes the cheaper way
("mixed" ghost clipping, Bu et al. 2022). A second backward pass, with each record's loss weighted by its factor, then
gives the sum.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional

from privmix.devices import full_precision
from privmix.errors import WITHHELD, InvalidInput, check_integer
from privmix.training.gradients.ghost_norms import EXPANSIONS, RULES, rule_of, shares_of_copies, terms_bound
from privmix.training.gradients.parameters import FlatParameters, title_of
from privmix.training.models.layers_check import check_model
from privmix.training.models.own import OwnNetwork

_TRIAL_RECORDS, _TRIAL_VIEWS = 3, 2
# Share of the bound on what positions add that counts as reach: that bound is loose, and in no usual network is it a
# thousand times a record's norm.
_TERMS: Final = 2.0**-10
_TRIAL_TOLERANCES: Final = {torch.float64: 1e-6, torch.float32: 1e-3}


def ghost_clipped_sum(
    model: nn.Module, flat: FlatParameters, x: Tensor, targets: Tensor, factors: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    """Return the (P,) sum of factors(norm, reach) g_i, with g_i the gradient of the mean loss of record i's views.

    Formal guarantees:
        * Equal to the definition: the result is what a loop over records gives, up to rounding in float32. This
          rounding is relative to what single views and positions add. A record of which these are long and cancel
          leaves more of it than a loop would, which clips after the cancellation. The reach finds these.
        * Complete norms: every trainable parameter is counted. A parameter that is used other than once, in the
          forward call of its own supported layer, is refused before anything is returned.
        * Own factors: factors see norms and reach only, and each record is weighted by its own.
        * Silent: errors reveal nothing of the records, not even how many there are.
    """
    # x (b, K, ...); targets (b, K, classes), soft; factors: from norms and reach (b,) to factors (b,), such as min(1, C
    # / norm). A record's reach is the sum of the norms of its views' shares, or 2^-10 of a bound on that of its
    # positions' shares if this is more. It is at least the record's norm, and far more where views or positions cancel.
    if x.dim() < 3 or targets.dim() != 3 or x.shape[:2] != targets.shape[:2] or x.shape[1] == 0:
        # How many records a batch drew is private: shapes are not shown.
        raise InvalidInput("views and targets", WITHHELD, "shapes (b, K, ...) and (b, K, classes) with K >= 1")
    if len(x) == 0:
        return torch.zeros(flat.size, device=flat.device)
    reason = _known_reason(model, tuple(x.shape[2:]))
    if reason is not None:
        raise InvalidInput("model", title_of(model), f"one that ghost clipping supports: {reason}")
    with full_precision(x.device):
        losses, norms, reach, parameters = _losses_and_norms(model, x, targets)
        weights = factors(norms, reach).detach()
        assert weights.shape == norms.shape
        total = (weights.to(losses.dtype) * losses).sum()
        gradients = torch.autograd.grad(total, list(parameters.values()), allow_unused=True)
    found = {
        name: torch.zeros_like(parameters[name]) if gradient is None else gradient
        for name, gradient in zip(parameters, gradients, strict=True)
    }
    return flat.flatten(found).float()


def supports_ghost(model: nn.Module, example_shape: tuple[int, ...] | None = None) -> str | None:
    """Return why ghost clipping cannot train this model, or None if it can."""
    # Supported are nn.Linear, nn.Conv2d, StandardisedConv2d, nn.GroupNorm and nn.LayerNorm (exact types, and
    # ConvNeXt's), and class tokens, tables of positions and scales by their names in transformers. With
    # ``example_shape`` of one view, norms are also compared with those of single gradients, on random public inputs.
    # This finds layers whose first axis is not the batch, hooks that change gradients, and other faults that the
    # structure does not show.
    # Between its layers, records of one call could meet: what the others have would move a record's gradient.
    if isinstance(model, OwnNetwork):
        return "a network of the user's own, whose operations between layers are not known"
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
    names = ", ".join(kind.__name__ for kind in list(RULES)[:-1]) + f" or {list(RULES)[-1].__name__}"
    for prefix, module in model.named_modules():
        for name, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
            full = f"{prefix}.{name}" if prefix else name
            if not parameter.requires_grad:
                continue
            ruled = rule_of(module) is not None
            if not ruled and name not in EXPANSIONS:
                return f"parameter {full} is of a {type(module).__name__}, not of a {names}"
            if ruled and name not in ("weight", "bias"):
                return f"parameter {full} is not the weight or bias of its {type(module).__name__}"
            if parameter in owners:
                return f"parameters {owners[parameter]} and {full} are tied"
            owners[parameter] = full
    return None


def _trial_reason(model: nn.Module, shape: tuple[int, ...]) -> str | None:
    """Whether norms are right for random inputs, a jittered copy (zero weights hide layers) and every record."""
    with torch.random.fork_rng(devices=[]), full_precision(next(model.parameters()).device):
        torch.default_generator.manual_seed(0)
        trial, x, targets = _trial(model, shape)
        try:
            losses, norms, _, parameters = _losses_and_norms(trial, x, targets)
        except InvalidInput as error:
            return str(error)
        except RuntimeError:
            # Tables that a model scales to its images, for one, are not used row by row.
            return "its forward pass does not take a copy of a parameter for every row"
        for i in range(len(x)):
            tensors = list(parameters.values())
            gradients = torch.autograd.grad(losses[i], tensors, retain_graph=True, allow_unused=True)
            squares = [gradient.double().square().sum() for gradient in gradients if gradient is not None]
            exact = torch.stack(squares).sum().sqrt() if squares else torch.zeros_like(norms[i])
            if not torch.isclose(norms[i], exact, rtol=_TRIAL_TOLERANCES[x.dtype], atol=1e-12):
                return "the norms it finds on random inputs are wrong: the first axis of every layer must be the batch"
    return None


def _trial(model: nn.Module, shape: tuple[int, ...]) -> tuple[nn.Module, Tensor, Tensor]:
    """Return a jittered copy, in float64 where it can be, with views and targets."""
    trial = copy.deepcopy(model)
    device = next(trial.parameters()).device
    with torch.no_grad():
        for parameter in trial.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape).to(parameter))
        x = torch.rand(_TRIAL_RECORDS, _TRIAL_VIEWS, *shape, dtype=torch.float64).to(device)
        try:
            logits = trial.double()(x[0])
        except (RuntimeError, TypeError):
            # Some models create float32 tensors of their own.
            x = x.float()
            logits = trial.float()(x[0])
        targets = torch.softmax(4 * torch.randn(*x.shape[:2], logits.shape[-1], dtype=x.dtype), -1).to(device)
    return trial, x, targets


@dataclass(eq=False)
class _Visit:
    """A supported layer in one forward pass, and what its record norms turned out to be."""

    name: str
    layer: nn.Module
    wanted: frozenset[str]
    calls: int = 0
    # Parameters whose share of the norm is known.
    reached: set[str] = field(default_factory=set)
    anchor: Tensor | None = None
    # (b,), or (b K,) for views; zero before the backward pass, and where it does not come.
    squares: Tensor | float = 0.0
    view_squares: Tensor | float = 0.0
    terms: Tensor | float = 0.0

    def called(self, rows: int, *tensors: Tensor | None) -> None:
        """Count a call; raise for a second one, and for tensors without one of ``rows`` on their first axis."""
        self.calls += 1
        if self.calls > 1:
            raise _unsupported(f"layer {self.name} is used more than once")
        if any(tensor is None or len(tensor) != rows for tensor in tensors):
            raise _unsupported(f"the first axis of layer {self.name} is not the batch")


@dataclass(eq=False)
class _Pass:
    """The first backward pass: hooks take the norms while ``active``."""

    records: int
    views: int
    visits: list[_Visit] = field(default_factory=list)
    active: bool = False


def _losses_and_norms(
    model: nn.Module, x: Tensor, targets: Tensor
) -> tuple[Tensor, Tensor, Tensor, Mapping[str, Tensor]]:
    """Record losses (b,) with their graph, norms and reach (b,) float64, and the trainable parameters by name."""
    parameters = {name: tensor for name, tensor in model.named_parameters() if tensor.requires_grad}
    run = _Pass(x.shape[0], x.shape[1])
    with torch.enable_grad(), _layer_hooks(model, run):
        logits = model(x.flatten(0, 1))
        if logits.shape != (run.records * run.views, targets.shape[-1]):
            expected = f"one row a view and {targets.shape[-1]} columns"
            raise InvalidInput("the model's output", tuple(logits.shape[1:]), expected)
        losses = functional.cross_entropy(logits, targets.flatten(0, 1), reduction="none")
        losses = losses.view(run.records, run.views).mean(1)
    uses = _uses(losses)
    _check_uses(uses, run.visits, parameters)
    anchors = [visit.anchor for visit in run.visits if visit.anchor is not None]
    run.active = True
    if anchors and losses.requires_grad:
        # Gradients of the anchors, which are no weights: this reaches every layer and forms no weight's gradient.
        torch.autograd.grad(losses.sum(), anchors, retain_graph=True, allow_unused=True)
    run.active = False
    _check_reached(uses, run.visits)
    norms = _root_of_sum([visit.squares for visit in run.visits], losses)
    terms = [visit.terms * visit.terms for visit in run.visits]
    reach = torch.maximum(norms, _TERMS * _root_of_sum(terms, losses))
    if run.views > 1:
        by_view = _root_of_sum([visit.view_squares for visit in run.visits], logits[:, 0])
        reach = torch.maximum(reach, by_view.view(run.records, run.views).sum(1))
    return losses, norms, reach, parameters


def _root_of_sum(squares: list[Any], like: Tensor) -> Tensor:
    total = torch.zeros(len(like), dtype=torch.float64, device=like.device)
    for one in squares:
        total += one
    return total.clamp(min=0).sqrt()


@contextmanager
def _layer_hooks(model: nn.Module, run: _Pass) -> Iterator[None]:
    handles = []
    for name, layer in model.named_modules():
        owned = layer.named_parameters(recurse=False)
        wanted = frozenset(key for key, parameter in owned if parameter.requires_grad)
        if wanted:
            visit = _Visit(name, layer, wanted)
            run.visits.append(visit)
            if rule_of(layer) is None:
                handles += _expanding_hooks(visit, run)
                continue
            # First of all hooks: others may change the output, and it is the layer's own that counts.
            hook = _forward_hook(visit, run)
            handles.append(layer.register_forward_hook(hook, with_kwargs=True, prepend=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        for visit in run.visits:
            _take_back(visit)


def _expanding_hooks(visit: _Visit, run: _Pass) -> list[Any]:
    """Hooks that put copies of a module's own parameters in their place for its forward pass."""

    def before(layer: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        given = next((one for one in (*args, *kwargs.values()) if isinstance(one, Tensor)), None)
        visit.called(run.records * run.views, None if given is None or given.dim() < 3 else given)
        assert given is not None
        visit.anchor = torch.zeros((), dtype=given.dtype, device=given.device, requires_grad=True)
        for name in sorted(visit.wanted):
            parameter = getattr(layer, name)
            try:
                copies: Any = parameter.expand(EXPANSIONS[name](parameter, given)) + visit.anchor
            except RuntimeError:
                raise _unsupported(f"the parameters of layer {visit.name} are not used under their own names") from None
            copies.register_hook(partial(backward, name, parameter))
            # An object's own attributes come before its parameters.
            vars(layer)[name] = copies

    def backward(name: str, parameter: Tensor, gradient: Tensor) -> None:
        if run.active:
            visit.reached.add(name)
            squares, view_squares, terms = shares_of_copies(gradient.detach(), parameter, run.records)
            visit.squares, visit.view_squares = visit.squares + squares, visit.view_squares + view_squares
            # Squares of several parameters' terms are added elsewhere; sums bound them.
            visit.terms = visit.terms + terms

    return [
        visit.layer.register_forward_pre_hook(before, with_kwargs=True),
        visit.layer.register_forward_hook(lambda *_: _take_back(visit), always_call=True),
    ]


def _take_back(visit: _Visit) -> None:
    for name in visit.wanted & EXPANSIONS.keys():
        vars(visit.layer).pop(name, None)


def _forward_hook(visit: _Visit, run: _Pass) -> Callable[[nn.Module, Any, dict[str, Any], Tensor], Tensor]:
    def forward(layer: nn.Module, args: Any, kwargs: dict[str, Any], output: Tensor) -> Tensor:
        given = (args[0] if args else kwargs["input"]).detach()
        visit.called(run.records * run.views, given, output)
        visit.anchor = torch.zeros((), dtype=output.dtype, device=output.device, requires_grad=True)
        anchored = output + visit.anchor

        def backward(gradient: Tensor) -> None:
            if run.active:
                inputs, outputs = (x.reshape(run.records, run.views, *x.shape[1:]) for x in (given, gradient.detach()))
                rule = cast(Any, rule_of(layer))
                visit.reached |= visit.wanted
                with torch.no_grad():
                    visit.squares = rule(layer, inputs, outputs, visit.wanted)
                    visit.terms = terms_bound(layer, inputs, outputs, visit.wanted)
                    if run.views > 1:
                        # Each view as a record of its own.
                        given_alone, alone = (x.flatten(0, 1).unsqueeze(1) for x in (inputs, outputs))
                        visit.view_squares = rule(layer, given_alone, alone, visit.wanted)

        cast(Any, anchored).register_hook(backward)
        return anchored

    return forward


def _check_uses(uses: Counter[int], visits: list[_Visit], parameters: Mapping[str, Tensor]) -> None:
    """Every parameter in the graph must be there once, and its layer must have been called."""
    called = {id(getattr(visit.layer, key)) for visit in visits if visit.calls for key in visit.wanted}
    for name, parameter in parameters.items():
        count = uses[id(parameter)]
        if count > 1:
            raise _unsupported(f"parameter {name} is used {count} times")
        if count == 1 and id(parameter) not in called:
            raise _unsupported(f"parameter {name} is used outside its layer's forward call")


def _check_reached(uses: Counter[int], visits: list[_Visit]) -> None:
    """Raise for a layer whose output is dropped while its weights are used elsewhere: its norm would lack a part."""
    for visit in visits:
        if any(uses[id(getattr(visit.layer, key))] for key in visit.wanted - visit.reached):
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
